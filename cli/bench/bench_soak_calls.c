/* SPDX-License-Identifier: Apache-2.0 */
/* bench_soak_calls.c: requests and schemas of `soak`. Owns nothing. One thread. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_soak.h"
#include "reprise_test.h"

#define PARAMETER_TOKENS 4

static bool soak_source_once_in(soak_source *s, uint32_t n) { return bench_random_below(&s->state, n) == 0; }

static int32_t bench_soak_calls_between(uint64_t *state, int32_t low, int32_t high) {
    return low + (int32_t)bench_random_below(state, (uint32_t)(high - low + 1));
}

/* ---- documents ---- */

typedef struct document {
    char *bytes;
    size_t n, cap;
} document;

static void document_put(document *d, const char *fmt, ...) CLI_PRINTF(2, 3);
static void document_put(document *d, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    size_t more = (size_t)vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (d->n + more + 1 > d->cap) {
        d->cap = 2 * (d->n + more + 1);
        d->bytes = cli_realloc(d->bytes, d->cap);
    }
    va_start(args, fmt);
    vsnprintf(d->bytes + d->n, d->cap - d->n, fmt, args);
    va_end(args);
    d->n += more;
}

static void put_words(document *d, const bench_words *w, int32_t n, uint64_t *state) {
    bench_text t = {0};
    bench_text_add_random(&t, w, n, state);
    document_put(d, "%s", t.n_tokens > 0 ? t.bytes : "");
    free(t.bytes);
}

char *soak_schema(const soak_source *s, int schema) {
    document d = {0};
    uint64_t state = bench_random_stream(s->seed + (uint64_t)schema, s->versions[schema]);
    document_put(&d, "<schema name=\"s%d\">", schema);
    for (int m = 0; m < SOAK_MODULES; m++) {
        if (m == SOAK_MODULES - 2) document_put(&d, "<union>");
        document_put(&d, "<module name=\"m%d\">", m);
        put_words(&d, s->words, bench_soak_calls_between(&state, s->unit / 2, s->unit), &state);
        if (m == 0) document_put(&d, " <param name=\"p\" length=\"%d\"/> ", PARAMETER_TOKENS);
        document_put(&d, "</module>");
    }
    document_put(&d, "</union></schema>");
    return d.bytes;
}

/* Some modules, in any order, at most one of the union, followed by text. */
static char *modular_prompt(const soak_source *s, int schema, uint64_t *state) {
    document d = {0};
    bool united = false;
    int first = (int)bench_random_below(state, SOAK_MODULES);
    document_put(&d, "<prompt schema=\"s%d\">", schema);
    for (int i = 0; i < SOAK_MODULES; i++) {
        int m = (first + i) % SOAK_MODULES;
        bool in_union = m >= SOAK_MODULES - 2;
        if (bench_random_below(state, 2) == 0 || (in_union && united)) continue;
        united |= in_union;
        if (m > 0) document_put(&d, "<m%d/>", m);
        else {
            document_put(&d, "<m0 p=\"");
            put_words(&d, s->words, 1 + (int32_t)bench_random_below(state, PARAMETER_TOKENS - 1), state);
            document_put(&d, "\"/>");
        }
    }
    put_words(&d, s->words, bench_soak_calls_between(state, 1, 2 * s->unit), state);
    document_put(&d, "</prompt>");
    return d.bytes;
}

/* ---- requests ---- */

/* A shared prefix of random length, then words of its own. */
static void soak_source_add_text(const soak_source *s, bench_text *t, uint64_t *state) {
    uint64_t beginning = bench_random_stream(s->seed, 100 + bench_random_below(state, SOAK_BEGINNINGS));
    bench_text_add_random(t, s->words, bench_soak_calls_between(state, 0, 4 * s->unit), &beginning);
    bench_text_add_random(t, s->words, bench_soak_calls_between(state, 1, 4 * s->unit), state);
}

static void draw_prompt(soak_source *s, soak_draft *out) {
    uint64_t own = bench_random(&s->state);
    int schema = (int)bench_random_below(&s->state, SOAK_SCHEMAS);
    if (soak_source_once_in(s, 8)) { /* a recurring prompt */
        out->known = 1 + (int)bench_random_below(&s->state, SOAK_KNOWN);
        own = bench_random_stream(s->seed, 1000 + (uint64_t)out->known);
        out->kind = out->known % 2 ? SOAK_TEXT : SOAK_MODULAR;
        schema = 0;
    } else out->kind = soak_source_once_in(s, 3) ? SOAK_MODULAR : SOAK_TEXT;
    if (out->kind == SOAK_MODULAR) {
        out->document = modular_prompt(s, schema, &own);
        out->request.prompt = rp_prompt_pml(out->document);
    } else {
        soak_source_add_text(s, &out->text, &own);
        out->request.prompt = rp_prompt_text(bench_text_bytes(s->words, &out->text));
    }
}

/* Sampling options and end conditions. Not for recurring prompts: their answers must not change. */
static const rp_request_experiment soak_no_prefix = {.struct_size = sizeof(soak_no_prefix), .no_prefix = true};

static void draw_ends(soak_source *s, soak_draft *out) {
    static const char *const stops[] = {" the", ".", "\n"};
    rp_request *r = &out->request;
    r->max_tokens = bench_soak_calls_between(&s->state, 1, 2 * s->unit);
    r->ignore_eos = soak_source_once_in(s, 2);
    if (soak_source_once_in(s, 2)) r->sampling.temperature = 1;
    if (soak_source_once_in(s, 4)) r->sampling.repeat_penalty = 1.1f;
    if (soak_source_once_in(s, 4)) r->sampling.top_k = 20;
    r->sampling.seed = bench_random(&s->state);
    if (soak_source_once_in(s, 10)) r->stops = stops, r->n_stops = 3;
    if (soak_source_once_in(s, 10)) r->deadline_ms = bench_soak_calls_between(&s->state, 1, 300);
    if (soak_source_once_in(s, 20)) r->n_logprobs = 5;
    if (soak_source_once_in(s, 20)) r->experiment = &soak_no_prefix;
    if (soak_source_once_in(s, 20)) r->reuse = soak_source_once_in(s, 2) ? RP_REUSE_OFF : RP_REUSE_EXACT;
    if (soak_source_once_in(s, 20)) out->stop_after = bench_soak_calls_between(&s->state, 1, s->unit);
}

void soak_draw(soak_source *s, soak_draft *out) {
    static const char *const tenants[] = {"a", "b", "c"};
    *out = (soak_draft){.request = rp_request_defaults()};
    if (soak_source_once_in(s, 2))
        out->request.tenant = tenants[bench_random_below(&s->state, sizeof tenants / sizeof tenants[0])];
    draw_prompt(s, out);
    if (out->known == 0) draw_ends(s, out);
    else {
        out->request.max_tokens = s->unit;
        out->request.ignore_eos = true;
    }
    out->request.priority = bench_soak_calls_between(&s->state, -1, 1);
    if (soak_source_once_in(s, 4)) out->request.n_draft = bench_soak_calls_between(&s->state, 1, RP_MAX_DRAFT);
}

void soak_draft_free(soak_draft *d) {
    free(d->text.bytes);
    free(d->document);
    *d = (soak_draft){0};
}
