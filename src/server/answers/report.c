/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: see report.h. */
#include "server/answers/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/answers/hints.h"
#include "server/answers/report_prompt.h"
#include "server/answers/report_ring.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/agent_noise.h"
#include "server/prompt/chat_rendering.h"

/* Tokens of an answer that are reasoning: a token counts where its text begins. Tokens without text count with the text
   after them. */
static int32_t count_reasoning(const server_choice *c) {
    const tool_finder *f = &c->finder;
    int32_t n = 0;
    size_t at = 0, range = 0;
    for (int32_t i = 0; c->result && i < c->result->n_tokens && range < f->n_reasoned; i++) {
        size_t bytes = 0, name = 0;
        rp_token_bytes(c->x->model->model, c->result->tokens[i], false, &bytes);
        rp_token_bytes(c->x->model->model, c->result->tokens[i], true, &name);
        while (range < f->n_reasoned && at >= f->reasoned[range].end) range++;
        n += range < f->n_reasoned && at >= f->reasoned[range].begin;
        at += c->x->gen->special_text ? name : bytes;
    }
    return n;
}

/* Does a computed token with this reason add KV to the cache? Others are computed again for the request alone, or may
   not be cached. */
static bool is_written(const char *reason) {
    static const char *const misses[] = {"new", "evicted", "scope", "adapter",
                                         "memory", "window", "checkpoint", "logprobs"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(misses); i++)
        if (strcmp(reason, misses[i]) == 0) return true;
    return false;
}

/* Modules that missed, and text, unless it attends to KV that was moved, or blended, or the request adds none. */
static int64_t count_written(const rp_result *r, bool adds_text) {
    bool writes_text = adds_text && r->quality.used.mode != RP_QUALITY_BLEND;
    int64_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++) {
        const rp_plan_item *item = &r->plan[i];
        if (strcmp(item->reason, "shifted") == 0) writes_text = false;
        if (is_written(item->reason) && (item->is_view || writes_text)) n += item->n_tokens;
    }
    return n;
}

server_usage report_usage(const server_request *x) {
    server_usage u = {0};
    BASE_ASSERT(x->gen->n > 0 && x->answers->n_choices % x->gen->n == 0); /* so many answers to each prompt */
    for (int32_t i = 0; i < x->answers->n_choices; i++) {
        const rp_result *r = x->answers->choices[i].result;
        if (!r) continue;
        u.answer += r->n_tokens;
        u.reasoning += count_reasoning(&x->answers->choices[i]);
        if (i % x->gen->n != 0) continue; /* the same prompt again */
        u.prompt += r->prompt_tokens;
        u.cached += r->cached_tokens;
        u.written += count_written(r, !x->gen->adds_nothing);
    }
    BASE_ASSERT(u.cached <= u.prompt && u.reasoning <= u.answer); /* parts of them */
    return u;
}

server_finish report_finish(const rp_result *r) {
    return strcmp(r->finish_reason, "stop") == 0 ? SERVER_FINISH_STOP : SERVER_FINISH_LENGTH;
}

void report_count(server_request *x, const server_choice *c) {
    BASE_ASSERT(c->result && c->index >= 0 && c->index < x->answers->n_choices);
    server_counts *n = &x->server->counts;
    const rp_result *r = c->result;
    atomic_fetch_add(&n->answers, 1);
    atomic_fetch_add(&n->answer_tokens, (uint64_t)r->n_tokens);
    atomic_fetch_add(&n->lookup_drafted, (uint64_t)(r->drafted_tokens - r->model_drafted_tokens));
    atomic_fetch_add(&n->lookup_accepted, (uint64_t)(r->accepted_tokens - r->model_accepted_tokens));
    atomic_fetch_add(&n->model_drafted, (uint64_t)r->model_drafted_tokens);
    atomic_fetch_add(&n->model_accepted, (uint64_t)r->model_accepted_tokens);
    histogram_add_ms(&n->queue, r->timings.queue_ms);
    histogram_add_ms(&n->module_prefill, r->timings.module_prefill_ms);
    histogram_add_ms(&n->plan, r->timings.plan_ms);
    histogram_add_ms(&n->prompt_prefill, r->timings.prompt_prefill_ms);
    if (r->n_tokens > 0) histogram_add_ms(&n->first_token, r->timings.ttft_ms);
    if (c->index % x->gen->n != 0) return;
    atomic_fetch_add(&n->prompt_tokens, (uint64_t)r->prompt_tokens);
    atomic_fetch_add(&n->cached_tokens, (uint64_t)r->cached_tokens);
    atomic_fetch_add(&n->inexact_tokens, (uint64_t)r->inexact_tokens);
    for (int32_t i = 0; i < r->n_plan; i++) { /* what of a prompt came from where; all else of it was computed */
        const rp_plan_item *item = &r->plan[i];
        const bool is_in_memory = strcmp(item->tier, "ram") == 0 || strcmp(item->tier, "device") == 0;
        if (is_in_memory) atomic_fetch_add(&n->ram_tokens, (uint64_t)item->n_tokens);
        else if (strcmp(item->tier, "disk") == 0) atomic_fetch_add(&n->disk_tokens, (uint64_t)item->n_tokens);
    }
}

/* ---- what was reused ---- */

static double report_rounded(double ms) { return isfinite(ms) ? round(ms * 1e3) / 1e3 : 0; }

/* NULL: out of memory. */
static json_t *plan_item_kept_shares(const rp_result *r, const rp_plan_item *item) {
    BASE_ASSERT(item->first_kept_share + item->n_kept_shares <= r->n_kept_shares);
    json_t *list = json_array();
    for (int32_t i = 0; i < item->n_kept_shares && list; i++)
        if (json_array_append_new(list,
                                  json_real(report_rounded((double)r->kept_shares[item->first_kept_share + i])))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *plan_item_part(const rp_result *r, const rp_plan_item *item) {
    json_t *module = base_json_string(item->module, strlen(item->module));
    const bool reused = item->is_view && strcmp(item->tier, "computed") != 0;
    json_t *part = json_pack("{s:o, s:b, s:s, s:s, s:b, s:i, s:i, s:i, s:s, s:f, s:s, s:s}", "module", module, "reused",
                             reused, "tier", item->tier, "reason", item->reason, "exact", item->exact, "tokens",
                             (int)item->n_tokens, "position", (int)item->position, "shift", (int)item->shift, "key",
                             item->key, "kept", report_rounded((double)item->kept), "kept_by", item->kept_by,
                             "full_reason", item->full_reason);
    if (part && item->n_kept_shares > 0 && json_object_set_new(part, "kept_shares", plan_item_kept_shares(r, item))) {
        json_decref(part);
        return NULL;
    }
    return part;
}

static json_t *result_parts(const rp_result *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < BASE_MIN(r->n_plan, SERVER_MAX_REPORT_PARTS) && list; i++)
        if (json_array_append_new(list, plan_item_part(r, &r->plan[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *report_mismatch(const rp_mismatch *d) {
    if (d->token < 0) return json_null();
    return json_pack("{s:i, s:o, s:s, s:o, s:o, s:o}", "token", (int)d->token, "module",
                     base_json_string(d->module, strlen(d->module)), "message", d->message, "before",
                     base_json_string(d->before, strlen(d->before)), "prompt",
                     base_json_string(d->prompt, strlen(d->prompt)), "cached",
                     base_json_string(d->cached, strlen(d->cached)));
}

static int add_warning(json_t *list, const char *format, const char *what) {
    json_t *line = json_sprintf(format, what);
    return line ? json_array_append_new(list, line) : -1;
}

static int report_add_unknown(const server_request *x, json_t *list) {
    int rc = list ? 0 : -1;
    for (size_t i = 0; i < BASE_MIN(x->gen->n_unknown, (size_t)SERVER_MAX_UNKNOWN) && !rc; i++)
        rc = add_warning(list, "unknown field '%s': ignored", x->gen->unknown[i]);
    if (x->gen->n_unknown > SERVER_MAX_UNKNOWN && !rc) rc = add_warning(list, "%s", "more unknown fields: ignored");
    for (size_t i = 0; i < BASE_MIN(x->gen->n_ignored, (size_t)SERVER_MAX_UNKNOWN) && !rc; i++)
        rc = add_warning(list, "%s: ignored", x->gen->ignored[i]);
    if (x->gen->n_ignored > SERVER_MAX_UNKNOWN && !rc)
        rc = add_warning(list, "%s", "more things that are not supported: ignored");
    return rc;
}

json_t *report_unknown(const server_request *x, json_t *reply) {
    if (!reply || x->gen->n_unknown + x->gen->n_ignored == 0) return reply;
    json_t *list = json_array();
    if (!report_add_unknown(x, list) && !json_object_set_new(reply, "reprise", json_pack("{s:O}", "warnings", list))) {
        json_decref(list);
        return reply;
    }
    json_decref(list);
    json_decref(reply);
    return NULL;
}

static json_t *report_warnings(const server_request *x, const rp_result *r) {
    json_t *list = json_array();
    int rc = report_add_unknown(x, list);
    for (int32_t i = 0; i < r->n_warnings && list && !rc; i++) rc = add_warning(list, "%s", r->warnings[i]);
    if (!rc) return list;
    json_decref(list);
    return NULL;
}

json_t *report_reprise(const server_request *x) {
    const rp_result *r = x->answers->n_choices > 0 ? x->answers->choices[0].result : NULL;
    if (!r) return json_null();
    const rp_quality_report *q = &r->quality;
    const rp_kv_reduction *k = &r->kv_reduction;
    const rp_timings *t = &r->timings;
    char asked[RP_QUALITY_BYTES], used[RP_QUALITY_BYTES];
    json_t *quality = json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:f}", "asked", rp_quality_text(q->asked, asked),
                                "used", rp_quality_text(q->used, used), "reason", q->reason, "recomputed_tokens",
                                (int)q->recomputed_tokens, "probed_tokens", (int)q->probed_tokens, "focus_token",
                                (json_int_t)q->focus_token, "ms", report_rounded(q->ms));
    json_t *reduction = json_pack("{s:s, s:f, s:I, s:I, s:f, s:s}", "method", k->method, "share", k->share,
                                  "bytes_before", (json_int_t)k->bytes_before, "bytes", (json_int_t)k->bytes, "ms",
                                  report_rounded(k->ms), "reason", k->reason);
    json_t *timings = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "queue", report_rounded(t->queue_ms),
                                "module_prefill", report_rounded(t->module_prefill_ms), "plan",
                                report_rounded(t->plan_ms), "prompt_prefill", report_rounded(t->prompt_prefill_ms),
                                "first_token", report_rounded(t->ttft_ms), "decode", report_rounded(t->decode_ms),
                                "saved", report_rounded(t->saved_ms));
    const int dropped = (int)r->dropped_messages + (int)chat_rendering_dropped(x->gen);
    return json_pack("{s:s, s:s?, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
                     "s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:I, s:o}",
                     "request", x->id, "adapter", x->adapter ? x->adapter->name : NULL, "adapter_from",
                     (int)r->adapter_from, "prompt_tokens", (int)r->prompt_tokens, "cached_tokens",
                     (int)r->cached_tokens, "fresh_tokens", (int)r->fresh_tokens, "inexact_tokens",
                     (int)r->inexact_tokens, "dropped_messages", dropped, "context_shifts", (int)r->context_shifts,
                     "split_parts", (int)x->gen->n_split, "quality", quality, "kv_reduction", reduction, "kept_step",
                     (int)r->kept_step, "parts", result_parts(r), "mismatch", report_mismatch(&r->mismatch), "hints",
                     hints_of(x), "agent_noise", agent_noise_report(x->gen), "ms", timings, "seed",
                     (json_int_t)x->answers->seed, "warnings", report_warnings(x, r));
}

/* ---- the reports of the last answers ---- */

const char *report_dialect(const server_request *x) {
    if (strcmp(x->route->path, "/v1/prompts") == 0) return "pml";
    if (x->say == server_problem_anthropic) return "anthropic";
    if (x->say == server_problem_gemini) return "gemini";
    if (x->say == server_problem_ollama) return "ollama";
    return x->say == server_problem_llamacpp ? "llama.cpp" : "openai";
}

static char *report_text_of(json_t *object) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    return text;
}

static void report_note_answer(server_request *x) {
    const rp_result *r = x->answers->n_choices > 0 ? x->answers->choices[0].result : NULL;
    if (!r) return;
    server_usage u = report_usage(x);
    x->answer.is_set = true;
    x->answer.timings = r->timings;
    x->answer.prompt_tokens = u.prompt;
    x->answer.cached_tokens = u.cached;
    x->answer.answer_tokens = u.answer;
}

void report_keep(server_request *x) {
    report_note_answer(x);
    int64_t now = (int64_t)time(NULL);
    json_t *report = report_reprise(x);
    if (!json_is_object(report)) {
        json_decref(report);
        return;
    }
    json_object_set_new(report, "time", json_integer(now));
    json_object_set_new(report, "dialect", json_string(report_dialect(x)));
    json_object_set_new(report, "route", json_string(x->route->path));
    json_object_set_new(report, "prompt", report_prompt(x));
    char *text = report_text_of(report);
    const server_usage u = report_usage(x);
    const double first_ms = x->answers->choices[0].result->timings.ttft_ms; /* there is one: it has a report */
    json_t *summary = json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:f}", "id", x->id, "time", (json_int_t)now,
                                "dialect", report_dialect(x), "route", x->route->path, "prompt_tokens",
                                (json_int_t)u.prompt, "cached_tokens", (json_int_t)u.cached, "answer_tokens",
                                (json_int_t)u.answer, "first_token_ms", report_rounded(first_ms));
    char *line = report_text_of(summary); /* the entry of the request in GET /v1/requests */
    if (text && line) report_ring_put(x->server->reports, x->id, x->key->tenant, text, line);
    base_free(text);
    base_free(line);
}
