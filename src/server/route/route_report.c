/* SPDX-License-Identifier: Apache-2.0 */
/* route_report.c: the router's report of a request for explain: candidates, attempts and times (route_internal.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "server/answers/report.h"
#include "server/answers/report_ring.h"
#include "server/route/route_internal.h"

#define MAX_CANDIDATES 64 /* in a report */

static double rounded(double ms) { return isfinite(ms) ? round(ms * 1e3) / 1e3 : 0; }

static double since_arrival_ms(const route_request *rr, uint64_t us) {
    return us > rr->x->arrived_us ? rounded((double)(us - rr->x->arrived_us) / 1e3) : 0;
}

/* When the client got the first byte; of a reply without a stream, now. */
static double first_byte_ms(const route_request *rr) {
    return since_arrival_ms(rr, rr->first_us ? rr->first_us : base_clock_us());
}

/* ---- candidates: as text, because a request has as many as there are nodes ---- */

/* Writes milliseconds with three decimals. */
static size_t write_ms(char *to, double ms) {
    char digits[24];
    size_t n = 0, used = 0;
    const double thousandths = isfinite(ms) ? fmin(fabs(ms) * 1e3, 1e15) : 0;
    uint64_t value = (uint64_t)(thousandths + 0.5);
    if (ms < 0 && value > 0) to[used++] = '-';
    for (; n < 4 || value > 0; value /= 10) {
        if (n == 3) digits[n++] = '.';
        digits[n++] = (char)('0' + value % 10);
    }
    while (n > 0) to[used++] = digits[--n];
    return used;
}

/* Writes the name of a node: characters that JSON would escape become '?'. */
static size_t write_name(char *to, const char *name) {
    size_t used = 0;
    for (size_t left = strlen(name), n; left > 0; name += n, left -= n) {
        const int length = base_utf8_length((const unsigned char *)name, left);
        n = length > 0 ? (size_t)length : 0;
        if (n == 0 || (unsigned char)*name < 0x20 || *name == '"' || *name == '\\') {
            n = 1;
            to[used++] = '?';
        } else
            for (size_t i = 0; i < n; i++) to[used++] = name[i];
    }
    return used;
}

#define CANDIDATE_BYTES (CLUSTER_NODE_NAME_BYTES + 400)

static int add_candidate(base_buffer *b, const route_request *rr, const cluster_candidate *c) {
    static const char *const names[] = {"drain_ms", "compute_ms", "read_ms", "ttft_ms", "step_ms"};
    const double values[] = {c->drain_ms, c->compute_ms, c->read_ms, c->ttft_ms, c->step_ms};
    char text[CANDIDATE_BYTES];
    size_t n = (size_t)snprintf(text, sizeof(text), "{\"node\":\"");
    n += write_name(text + n, route_node_name(rr->t, c->node));
    n += (size_t)snprintf(text + n, sizeof(text) - n, "\",\"excluded\":%s%s%s,\"held_tokens\":%d,\"disk_tokens\":%d",
                          c->excluded ? "\"" : "", c->excluded ? c->excluded : "null", c->excluded ? "\"" : "",
                          (int)c->held_tokens, (int)c->disk_tokens);
    for (size_t i = 0; i < BASE_ARRAY_LEN(values); i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"%s\":", names[i]);
        n += write_ms(text + n, values[i]);
    }
    BASE_ASSERT(n < sizeof(text)); /* CANDIDATE_BYTES is for the longest names and numbers */
    text[n++] = '}';
    return base_buffer_append(b, text, n);
}

/* Appends the candidates to the report, a complete object. */
static int add_candidates(base_buffer *b, const route_request *rr) {
    base_buffer_truncate(b, b->len - 1);
    int rc = base_buffer_append_str(b, ",\"candidates\":[");
    for (int32_t i = 0; i < BASE_MIN(rr->r.n_candidates, MAX_CANDIDATES) && !rc; i++) {
        if (i > 0) rc = base_buffer_append_str(b, ",");
        if (!rc) rc = add_candidate(b, rr, &rr->r.candidates[i]);
    }
    return rc ? rc : base_buffer_append_str(b, "]}");
}

/* ---- the rest ---- */

static json_t *attempts_of(const route_request *rr) {
    json_t *list = json_array();
    for (int i = 0; i < BASE_MIN(rr->n_attempts, ROUTE_ATTEMPTS) && list; i++) {
        const route_attempt *a = &rr->attempts[i];
        if (json_array_append_new(
                list, json_pack("{s:s, s:b, s:s?}", "node", a->node, "continues", a->continues, "failure", a->failure)))
            return json_decref(list), NULL;
    }
    return list;
}

static json_t *report_of(const route_request *rr, cluster_outcome outcome, int64_t now) {
    const server_request *x = rr->x;
    const cluster_request *r = &rr->r;
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:f, s:{s:f, s:f, s:f}}", "request",
                     x->id, "time", (json_int_t)now, "dialect", report_dialect(x), "route", x->route->path, "outcome",
                     cluster_outcome_name(outcome), "node", rr->node_name, "attempts", attempts_of(rr), "continuations",
                     rr->n_continuations, "names", (int)r->n_items, "prompt_tokens", (int)r->prompt_tokens,
                     "held_tokens", (int)r->held_tokens, "answer_tokens", (int)r->answer_tokens, "predicted_ttft_ms",
                     rounded(r->predicted_ttft_ms), "ms", "sent", since_arrival_ms(rr, r->sent_us), "first_byte",
                     first_byte_ms(rr), "total", since_arrival_ms(rr, base_clock_us()));
}

static json_t *line_of(const route_request *rr, int64_t now) {
    const server_request *x = rr->x;
    return json_pack("{s:s, s:I, s:s, s:s, s:i, s:i, s:i, s:f, s:s}", "id", x->id, "time", (json_int_t)now, "dialect",
                     report_dialect(x), "route", x->route->path, "prompt_tokens", (int)rr->r.prompt_tokens,
                     "cached_tokens", (int)rr->r.held_tokens, "answer_tokens", (int)rr->r.answer_tokens,
                     "first_token_ms", first_byte_ms(rr), "node", rr->node_name);
}

static int add_text(base_buffer *b, json_t *object) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    const int rc = text ? base_buffer_append_str(b, text) : RP_ERR_MEMORY;
    json_decref(object);
    base_free(text);
    return rc;
}

void route_report_keep(route_request *rr, cluster_outcome outcome) {
    const server_request *x = rr->x;
    const int64_t now = (int64_t)time(NULL);
    base_buffer text = BASE_BUFFER(SERVER_MAX_REPORT_BYTES), line = BASE_BUFFER(SERVER_MAX_REPORT_BYTES);
    int rc = add_text(&text, report_of(rr, outcome, now));
    if (!rc) rc = add_candidates(&text, rr);
    if (!rc) rc = add_text(&line, line_of(rr, now));
    if (!rc) report_ring_put(x->server->reports, x->id, x->key->tenant, text.data, line.data);
    base_buffer_free(&text);
    base_buffer_free(&line);
}
