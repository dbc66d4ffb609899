/* SPDX-License-Identifier: Apache-2.0 */
/* route_report.c: why a request went where it went: the router's report, for explain (route_internal.h). Owns nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "server/admin/report.h"
#include "server/route/route_internal.h"

#define MAX_CANDIDATES 64 /* that a report lists */

static double rounded(double ms) { return isfinite(ms) ? round(ms * 1e3) / 1e3 : 0; }

static double since_arrival_ms(const route_request *rr, uint64_t us) {
    return us > rr->x->arrived_us ? rounded((double)(us - rr->x->arrived_us) / 1e3) : 0;
}

/* When the client got the first byte: a whole reply comes at its end, which is now. */
static double first_byte_ms(const route_request *rr) { return since_arrival_ms(rr, rr->first_us ? rr->first_us : base_clock_us()); }

static json_t *candidate_of(const route_request *rr, const cluster_candidate *c) {
    return json_pack("{s:s, s:s?, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "node", route_node_name(rr->t, c->node), "excluded", c->excluded,
                     "held_tokens",
                     (int)c->held_tokens, "disk_tokens", (int)c->disk_tokens, "drain_ms", rounded(c->drain_ms), "compute_ms", rounded(c->compute_ms),
                     "read_ms", rounded(c->read_ms), "ttft_ms", rounded(c->ttft_ms), "step_ms", rounded(c->step_ms));
}

static json_t *candidates_of(const route_request *rr) {
    json_t *list = json_array();
    for (int32_t i = 0; i < BASE_MIN(rr->r.n_candidates, MAX_CANDIDATES) && list; i++)
        if (json_array_append_new(list, candidate_of(rr, &rr->r.candidates[i]))) return json_decref(list), NULL;
    return list;
}

static json_t *attempts_of(const route_request *rr) {
    json_t *list = json_array();
    for (int i = 0; i < BASE_MIN(rr->n_attempts, ROUTE_ATTEMPTS) && list; i++) {
        const route_attempt *a = &rr->attempts[i];
        if (json_array_append_new(list, json_pack("{s:s, s:b, s:s?}", "node", a->node, "continues", a->continues, "failure", a->failure)))
            return json_decref(list), NULL;
    }
    return list;
}

static json_t *report_of(const route_request *rr, cluster_outcome outcome, int64_t now) {
    const server_request *x = rr->x;
    const cluster_request *r = &rr->r;
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:f, s:{s:f, s:f, s:f}, s:o}", "request", x->id, "time",
                     (json_int_t)now, "dialect", report_dialect(x), "route", x->route->path, "outcome", cluster_outcome_name(outcome), "node",
                     rr->node_name, "attempts", attempts_of(rr), "continuations", rr->n_continuations, "names", (int)r->n_items, "prompt_tokens",
                     (int)r->prompt_tokens, "held_tokens", (int)r->held_tokens, "answer_tokens", (int)r->answer_tokens, "predicted_ttft_ms",
                     rounded(r->predicted_ttft_ms), "ms", "sent", since_arrival_ms(rr, r->sent_us), "first_byte", first_byte_ms(rr),
                     "total", since_arrival_ms(rr, base_clock_us()), "candidates", candidates_of(rr));
}

static json_t *line_of(const route_request *rr, int64_t now) {
    const server_request *x = rr->x;
    return json_pack("{s:s, s:I, s:s, s:s, s:i, s:i, s:i, s:f, s:s}", "id", x->id, "time", (json_int_t)now, "dialect", report_dialect(x), "route",
                     x->route->path, "prompt_tokens", (int)rr->r.prompt_tokens, "cached_tokens", (int)rr->r.held_tokens, "answer_tokens",
                     (int)rr->r.answer_tokens, "first_token_ms", first_byte_ms(rr), "node", rr->node_name);
}

static char *text_of(json_t *object) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    return text;
}

void route_report_keep(route_request *rr, cluster_outcome outcome) {
    const server_request *x = rr->x;
    const int64_t now = (int64_t)time(NULL);
    char *text = text_of(report_of(rr, outcome, now)), *line = text_of(line_of(rr, now));
    if (text && line) report_ring_put(x->server->reports, x->id, x->key->tenant, text, line);
    free(text); /* jansson's */
    free(line);
}
