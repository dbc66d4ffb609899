/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.c: results as JSON (docs/man/reprise-run.1, JSON) and as one line. Owns nothing. One thread. */
#include "run_report.h"

#include <sys/resource.h>

#include <math.h>
#include <string.h>

#include "common/json_out.h"
#include "run_form.h"
#include "common/text.h"

#define RUN_REPORT_CELLS 72 /* of a line of bars */

static json_t *result_token_list(const rp_result *r) {
    json_t *tokens = json_array();
    for (int32_t i = 0; i < r->n_tokens; i++) cli_json_append(tokens, json_integer(r->tokens[i]));
    return tokens;
}

/* null for a token with probability 0: JSON has no infinity. */
static json_t *logprob_object(const rp_model *model, int32_t token, float logprob) {
    json_t *object = json_object();
    size_t n = 0;
    cli_json_set(object, "token", json_integer(token));
    cli_json_set(object, "text", cli_json_text(rp_token_bytes(model, token, true, &n)));
    cli_json_set(object, "logprob", isfinite(logprob) ? json_real(round(logprob * 1e6) / 1e6) : json_null());
    return object;
}

static json_t *logprob_list(const rp_model *model, const rp_result *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_tokens; i++) {
        json_t *object = logprob_object(model, r->tokens[i], r->logprobs[i]), *top = json_array();
        const rp_token_logprob *row = r->top_logprobs + (size_t)i * (size_t)r->n_top;
        for (int32_t k = 0; k < r->n_top; k++)
            cli_json_append(top, logprob_object(model, row[k].token, row[k].logprob));
        cli_json_set(object, "top", top);
        cli_json_append(list, object);
    }
    return list;
}

static json_t *usage_object(const rp_result *r) {
    json_t *usage = json_object();
    cli_json_set(usage, "prompt_tokens", json_integer(r->prompt_tokens));
    cli_json_set(usage, "cached_tokens", json_integer(r->cached_tokens));
    cli_json_set(usage, "fresh_tokens", json_integer(r->fresh_tokens));
    cli_json_set(usage, "completion_tokens", json_integer(r->n_tokens));
    cli_json_set(usage, "drafted_tokens", json_integer(r->drafted_tokens));
    cli_json_set(usage, "accepted_tokens", json_integer(r->accepted_tokens));
    cli_json_set(usage, "model_drafted_tokens", json_integer(r->model_drafted_tokens));
    cli_json_set(usage, "model_accepted_tokens", json_integer(r->model_accepted_tokens));
    if (r->draft_reason[0]) cli_json_set(usage, "draft_reason", json_string(r->draft_reason));
    return usage;
}

static json_t *timings_object(const rp_timings *t, double load_ms) {
    json_t *timings = json_object();
    cli_json_set(timings, "load_ms", cli_json_real(load_ms));
    cli_json_set(timings, "queue_ms", cli_json_real(t->queue_ms));
    cli_json_set(timings, "module_prefill_ms", cli_json_real(t->module_prefill_ms));
    cli_json_set(timings, "plan_ms", cli_json_real(t->plan_ms));
    cli_json_set(timings, "prompt_prefill_ms", cli_json_real(t->prompt_prefill_ms));
    cli_json_set(timings, "ttft_ms", cli_json_real(t->ttft_ms));
    cli_json_set(timings, "decode_ms", cli_json_real(t->decode_ms));
    cli_json_set(timings, "saved_ms", cli_json_real(t->saved_ms));
    cli_json_set(timings, "decode_tokens_per_second", cli_json_real(t->decode_tokens_per_second));
    return timings;
}

/* peak: resident memory of the whole process, from the system. */
static json_t *run_report_memory_object(rp_engine *engine) {
    rp_memory m = {.struct_size = sizeof(m)};
    struct rusage usage = {0};
    rp_engine_memory(engine, &m);
    getrusage(RUSAGE_SELF, &usage);
    json_t *memory = json_object();
    cli_json_set(memory, "weights", json_integer((json_int_t)m.weights));
    cli_json_set(memory, "file", json_integer((json_int_t)m.file));
    cli_json_set(memory, "activations", json_integer((json_int_t)m.activations));
    cli_json_set(memory, "kv", json_integer((json_int_t)m.kv));
    cli_json_set(memory, "peak", json_integer((json_int_t)usage.ru_maxrss * 1024));
    return memory;
}

static json_t *kept_share_list(const rp_result *r, const rp_plan_item *p) {
    json_t *list = json_array();
    for (int32_t i = 0; i < p->n_kept_shares; i++)
        cli_json_append(list, json_real(round((double)r->kept_shares[p->first_kept_share + i] * 1e3) / 1e3));
    return list;
}

static json_t *plan_item(const rp_result *r, const rp_plan_item *p) {
    json_t *item = json_object();
    cli_json_set(item, "kind", cli_json_text(p->is_view ? "view" : "run"));
    cli_json_set(item, "module", cli_json_text(p->module));
    cli_json_set(item, "tokens", json_integer(p->n_tokens));
    cli_json_set(item, "position", json_integer(p->position));
    cli_json_set(item, "shift", json_integer(p->shift));
    cli_json_set(item, "exact", json_boolean(p->exact));
    cli_json_set(item, "tier", cli_json_text(p->tier));
    cli_json_set(item, "reason", cli_json_text(p->reason));
    cli_json_set(item, "key", cli_json_text(p->key));
    cli_json_set(item, "kept", json_real(p->kept));
    cli_json_set(item, "kept_by", cli_json_text(p->kept_by));
    cli_json_set(item, "full_reason", cli_json_text(p->full_reason));
    if (p->n_kept_shares > 0) cli_json_set(item, "kept_shares", kept_share_list(r, p));
    return item;
}

/* null: no mismatch with a cached prefix. */
static json_t *mismatch_object(const rp_mismatch *d) {
    if (d->token < 0) return json_null();
    json_t *object = json_object();
    cli_json_set(object, "token", json_integer(d->token));
    cli_json_set(object, "position", json_integer(d->position));
    cli_json_set(object, "module", cli_json_text(d->module));
    cli_json_set(object, "message", cli_json_text(d->message));
    cli_json_set(object, "before", cli_json_text(d->before));
    cli_json_set(object, "prompt", cli_json_text(d->prompt));
    cli_json_set(object, "cached", cli_json_text(d->cached));
    return object;
}

static json_t *quality_object(const rp_quality_report *q) {
    char text[RP_QUALITY_BYTES];
    json_t *object = json_object();
    cli_json_set(object, "asked", cli_json_text(rp_quality_text(q->asked, text)));
    cli_json_set(object, "used", cli_json_text(rp_quality_text(q->used, text)));
    cli_json_set(object, "reason", cli_json_text(q->reason));
    cli_json_set(object, "recomputed_tokens", json_integer(q->recomputed_tokens));
    cli_json_set(object, "probed_tokens", json_integer(q->probed_tokens));
    cli_json_set(object, "focus_token", json_integer((json_int_t)q->focus_token));
    cli_json_set(object, "ms", cli_json_real(q->ms));
    return object;
}

static json_t *reduction_object(const rp_kv_reduction *k) {
    json_t *object = json_object();
    cli_json_set(object, "method", cli_json_text(k->method));
    cli_json_set(object, "share", cli_json_real(k->share));
    cli_json_set(object, "bytes_before", json_integer((json_int_t)k->bytes_before));
    cli_json_set(object, "bytes", json_integer((json_int_t)k->bytes));
    cli_json_set(object, "ms", cli_json_real(k->ms));
    cli_json_set(object, "reason", cli_json_text(k->reason));
    return object;
}

static json_t *call_list(const rp_chat_answer *answer) {
    json_t *list = json_array();
    for (size_t i = 0; i < answer->n_calls; i++) cli_json_append(list, run_call_json(&answer->calls[i]));
    return list;
}

int run_report_json(const char *prompt, const rp_model *model, rp_engine *engine, double load_ms, const rp_result *r,
                    const rp_chat_answer *answer) {
    json_t *object = json_object();
    cli_json_set(object, "prompt", cli_json_text(prompt));
    cli_json_set(object, "text", cli_json_text(answer != NULL ? answer->text : r->text));
    if (answer != NULL) {
        cli_json_set(object, "reasoning", cli_json_text(answer->reasoning));
        cli_json_set(object, "tool_calls", call_list(answer));
    }
    cli_json_set(object, "tokens", result_token_list(r));
    if (r->n_top > 0) cli_json_set(object, "logprobs", logprob_list(model, r));
    cli_json_set(object, "finish_reason", cli_json_text(r->finish_reason));
    cli_json_set(object, "usage", usage_object(r));
    cli_json_set(object, "bytes_copied", json_integer((json_int_t)r->bytes_copied));
    cli_json_set(object, "kv_bytes", json_integer((json_int_t)r->kv_bytes));
    cli_json_set(object, "kv_reduction", reduction_object(&r->kv_reduction));
    cli_json_set(object, "context_shifts", json_integer(r->context_shifts));
    cli_json_set(object, "adapter_from", json_integer(r->adapter_from));
    cli_json_set(object, "timings", timings_object(&r->timings, load_ms));
    cli_json_set(object, "memory", run_report_memory_object(engine));
    cli_json_set(object, "quality", quality_object(&r->quality));
    cli_json_set(object, "kept_step", json_integer(r->kept_step));
    json_t *plan = json_array();
    for (int32_t i = 0; i < r->n_plan; i++) cli_json_append(plan, plan_item(r, &r->plan[i]));
    cli_json_set(object, "plan", plan);
    cli_json_set(object, "mismatch", mismatch_object(&r->mismatch));
    json_t *warnings = json_array();
    for (int32_t i = 0; i < r->n_warnings; i++) cli_json_append(warnings, cli_json_text(r->warnings[i]));
    cli_json_set(object, "warnings", warnings);
    return cli_json_print(object);
}

/* Printed for anything but plain reuse. */
static void print_quality(FILE *to, const rp_quality_report *q) {
    char asked[RP_QUALITY_BYTES], used[RP_QUALITY_BYTES];
    if (q->asked.mode == RP_QUALITY_REUSE && q->used.mode == RP_QUALITY_REUSE) return;
    fprintf(to, "quality %s", rp_quality_text(q->used, used));
    if (q->reason[0] != '\0') fprintf(to, " instead of %s (%s)", rp_quality_text(q->asked, asked), q->reason);
    fprintf(to, ": %d module tokens recomputed, %d compared, %.1f ms", (int)q->recomputed_tokens, (int)q->probed_tokens,
            q->ms);
    if (q->focus_token > 0) fprintf(to, ", for token %lld of the answer", (long long)q->focus_token);
    fputc('\n', to);
}

static void print_reduction(FILE *to, const rp_kv_reduction *k) {
    if (k->method[0] == '\0') return;
    fprintf(to, "kv-keep %s: %.1f%% of the slots, %.1f of %.1f KiB, %.1f ms\n", k->method, 100 * k->share,
            (double)k->bytes / 1024, (double)k->bytes_before / 1024, k->ms);
}

static void print_first_token(FILE *to, const rp_timings *t) {
    fprintf(to, "first token %.1f ms (queue %.1f, module prefill %.1f, plan %.1f, prompt prefill %.1f)", t->ttft_ms,
            t->queue_ms, t->module_prefill_ms, t->plan_ms, t->prompt_prefill_ms);
}

void run_report_summary(FILE *to, const rp_result *r) {
    const rp_timings *t = &r->timings;
    fprintf(to, "prompt %d tokens (%d cached, %d fresh); ", (int)r->prompt_tokens, (int)r->cached_tokens,
            (int)r->fresh_tokens);
    print_first_token(to, t);
    fprintf(to, "; answer %d tokens, %.1f tokens/s\n", (int)r->n_tokens, t->decode_tokens_per_second);
    print_quality(to, &r->quality);
    print_reduction(to, &r->kv_reduction);
    if (r->context_shifts > 0) fprintf(to, "context shifts: %d\n", (int)r->context_shifts);
    if (r->adapter_from >= 0) fprintf(to, "adapter: on from position %d\n", (int)r->adapter_from);
}

/* A short text of a document, on one line. */
static void print_text(FILE *to, const char *label, const char *text) {
    fprintf(to, "%s \"", label);
    for (; *text; text++) {
        if (*text == '\n') fputs("\\n", to);
        else fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
    }
    fputc('"', to);
}

static const char *plan_item_how(const rp_plan_item *p) {
    if (!p->is_view) return "computed";
    if (p->tier[0] == 'c') return "computed, stored";
    if (strcmp(p->tier, "disk") == 0) return p->shift != 0 ? "from disk, shifted" : "from disk";
    return p->shift != 0 ? "reused, shifted" : "reused";
}

/* A line below the item's: which slots its reduced KV has. */
static void print_kept_shares(FILE *to, const rp_result *r, const rp_plan_item *p) {
    if (p->n_kept_shares == 0) return;
    fprintf(to, "%18s  [", "heads that keep");
    cli_print_shares(to, r->kept_shares + p->first_kept_share, p->n_kept_shares, RUN_REPORT_CELLS);
    fputs("]\n", to);
}

void run_report_explain(FILE *to, const rp_result *r) {
    const rp_timings *t = &r->timings;
    fprintf(to, "%9s %7s  %-18s %-9s %-6s %s\n", "position", "tokens", "source", "reason", "exact", "module");
    for (int32_t i = 0; i < r->n_plan; i++) {
        const rp_plan_item *p = &r->plan[i];
        fprintf(to, "%9d %7d  %-18s %-9s %-6s %s", (int)p->position, (int)p->n_tokens, plan_item_how(p), p->reason,
                p->exact ? "yes" : "no", p->module[0] ? p->module : "(anonymous)");
        if (p->kept < 1) fprintf(to, " (%.3g%% of its KV, %s)", 100 * (double)p->kept, p->kept_by);
        if (p->full_reason[0]) fprintf(to, " (full KV: %s)", p->full_reason);
        fputc('\n', to);
        print_kept_shares(to, r, p);
    }
    if (r->mismatch.token >= 0) {
        fprintf(to, "prompt differs from the cached prefix at token %d", (int)r->mismatch.token);
        if (r->mismatch.message[0]) fprintf(to, " in %s", r->mismatch.message);
        print_text(to, ", after", r->mismatch.before);
        print_text(to, ": prompt", r->mismatch.prompt);
        print_text(to, ", cached", r->mismatch.cached);
        fputc('\n', to);
    }
    print_first_token(to, t);
    fprintf(to, "; decode %.1f ms; KV %.1f MiB\n", t->decode_ms, (double)r->kv_bytes / (1 << 20));
    if (r->drafted_tokens > 0)
        fprintf(to, "drafts: %d tokens proposed, %d accepted\n", (int)r->drafted_tokens, (int)r->accepted_tokens);
    if (r->model_drafted_tokens > 0)
        fprintf(to, "by the draft model: %d tokens proposed, %d accepted\n", (int)r->model_drafted_tokens,
                (int)r->model_accepted_tokens);
    else if (r->draft_reason[0]) fprintf(to, "draft model: no drafts (%s)\n", r->draft_reason);
}
