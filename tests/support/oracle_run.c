/* SPDX-License-Identifier: Apache-2.0 */
/* oracle_run.c: made-up models, captured runs, deviations and seeds for tests/oracle. Threads: none of its own. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, getpid */

#include "oracle_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "must.h"
#include "reference_model.h"

/* ---- models ---------------------------------------------------------------------------------------------------- */

static void set_heads(tiny_model_shape *s, int32_t embd, int32_t heads, int32_t kv_heads, int32_t dim) {
    s->n_embd = embd;
    s->n_heads = heads;
    s->n_kv_heads = kv_heads;
    s->head_dim = dim;
}

tiny_model_shape oracle_shape(int i, const char **chat) {
    static const char *const chats[ORACLE_SHAPES] = {"chatml", "llama-2", "plain", "gemma", "llama-3",
                                                     "mistral", "phi-3", "zephyr", "chatml"};
    static const int32_t heads[ORACLE_SHAPES][4] = {
        {32, 4, 4, 8},
        {64, 4, 2, 16},
        {64, 4, 1, 16},
        {64, 2, 2, 32},
        {96, 3, 1, 32},
        {64, 4, 2, 64},
        {128, 1, 1, 128},
        {40, 5, 5, 8},
        {48, 2, 1, 80},
    };
    tiny_model_shape s = tiny_model_defaults();
    set_heads(&s, heads[i][0], heads[i][1], heads[i][2], heads[i][3]);
    s.n_ff = 96;
    s.n_ctx = 8192;
    s.seed = (uint64_t)i + 1;
    s.tied_output = i % 2 == 1;
    s.attention_bias = i == 1 || i == 4;
    s.ffn_bias = i == 4;
    s.no_bos = i == 2 || i == 7;
    if (i == 3) s.rope_scale_factor = 4;
    if (i == 5) s.rope_freqs = true;
    if (i == 6) s.rope_dim = 64;
    if (i == 8) s.n_layers = 3;
    if (i == 4 || i == 7) s.vocab = TINY_VOCAB_BPE;
    *chat = chats[i];
    return s;
}

void oracle_model_open(oracle_model *m, const tiny_model_shape *shape, const char *chat) {
    rp_error err = {0};
    rp_model_options options = rp_model_options_defaults();
    *m = (oracle_model){.shape = *shape, .chat = chat, .path = "/tmp/reprise-oracle-XXXXXX"};
    int fd = mkstemp(m->path);
    if (fd < 0) abort();
    close(fd);
    options.chat_format = chat;
    must(tiny_model_write(m->path, shape, &err), &err);
    must(rp_model_open(&m->model, m->path, &options, &err), &err);
    must(gguf_open(&m->file, m->path, &err), &err);
    must(tokenizer_new(&m->tokenizer, m->file, &err), &err);
    if (shape->weight_type == KERNEL_F32 && shape->embd_type == KERNEL_F32)
        must(reference_open(&m->ref, m->path, chat, 0, &err), &err);
    unlink(m->path); /* it stays mapped */
}

void oracle_model_close(oracle_model *m) {
    reference_close(m->ref);
    tokenizer_free(m->tokenizer);
    gguf_close(m->file);
    rp_model_close(m->model);
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static void keep_logits(void *user, const float *logits, int32_t n_vocab) {
    oracle_run *run = user;
    size_t n = (size_t)n_vocab, old = (size_t)run->n_steps * n;
    float *all = reference_alloc(old + n, sizeof *all);
    if (old) memcpy(all, run->logits, old * sizeof *all);
    memcpy(all + old, logits, n * sizeof *all);
    free(run->logits);
    run->logits = all;
    run->n_vocab = n_vocab;
    run->n_steps++;
}

void oracle_run_make(oracle_run *run, rp_engine *engine, const rp_request *req) {
    rp_request r = *req;
    *run = (oracle_run){0};
    r.on_logits = keep_logits;
    r.user = run;
    run->rc = rp_engine_run(engine, &r, &run->result, &run->err);
}

int oracle_run_submit(oracle_run *run, rp_engine *engine, const rp_request *req, rp_job **job) {
    rp_request r = *req;
    *run = (oracle_run){0};
    r.on_logits = keep_logits;
    r.user = run;
    return run->rc = rp_engine_submit(engine, &r, job, &run->err);
}

void oracle_run_finish(oracle_run *run, rp_job *job) {
    if (run->rc) return;
    rp_job_wait(job, -1);
    run->rc = rp_job_result(job, &run->result, &run->err);
    rp_job_free(job);
}

void oracle_run_free(oracle_run *run) {
    rp_result_free(run->result);
    free(run->logits);
    *run = (oracle_run){0};
}

const float *oracle_run_logits(const oracle_run *run, int32_t step) {
    return run->logits + (size_t)step * (size_t)run->n_vocab;
}

bool oracle_run_same(const oracle_run *a, const oracle_run *b) {
    if (a->rc || b->rc) return a->rc == b->rc;
    if (a->n_steps != b->n_steps || a->n_vocab != b->n_vocab) return false;
    if (a->result->n_tokens != b->result->n_tokens) return false;
    size_t tokens = (size_t)a->result->n_tokens * sizeof *a->result->tokens;
    size_t logits = (size_t)a->n_steps * (size_t)a->n_vocab * sizeof *a->logits;
    return (tokens == 0 || memcmp(a->result->tokens, b->result->tokens, tokens) == 0) &&
           (logits == 0 || memcmp(a->logits, b->logits, logits) == 0);
}

/* The next plan line chosen by blend or focus, from i on; n_plan: none. */
static int32_t next_choice(const rp_result *r, int32_t i) {
    while (i < r->n_plan && strcmp(r->plan[i].reason, "blend") != 0 && strcmp(r->plan[i].reason, "focus") != 0) i++;
    return i;
}

bool oracle_run_same_choice(const oracle_run *a, const oracle_run *b) {
    const rp_result *x = a->result, *y = b->result;
    if (x->quality.focus_token != y->quality.focus_token) return false;
    for (int32_t i = -1, k = -1;;) {
        i = next_choice(x, i + 1);
        k = next_choice(y, k + 1);
        if (i == x->n_plan || k == y->n_plan) return i == x->n_plan && k == y->n_plan;
        if (x->plan[i].position != y->plan[k].position || x->plan[i].n_tokens != y->plan[k].n_tokens) return false;
    }
}

bool oracle_run_is_greedy(const oracle_run *run, int32_t step) {
    const float *logits = oracle_run_logits(run, step);
    for (int32_t i = 0; i < run->n_vocab; i++)
        if (logits[i] > logits[run->result->tokens[step]]) return false;
    return true;
}

/* Tokens in the plan's views; some of them may be newly prefilled. */
static int32_t tokens_in_views(const rp_result *result) {
    int32_t n = 0;
    for (int32_t i = 0; i < result->n_plan; i++) n += result->plan[i].is_view ? result->plan[i].n_tokens : 0;
    return n;
}

bool oracle_run_counts_agree(const oracle_run *run, const reference_prompt *ref) {
    const rp_result *r = run->result;
    return r->prompt_tokens == reference_prompt_tokens(ref) && tokens_in_views(r) == reference_prompt_reused(ref) &&
           r->cached_tokens <= reference_prompt_reused(ref) && r->bytes_copied == 0;
}

void oracle_run_print(const oracle_run *run, const reference_prompt *ref) {
    if (ref) {
        printf("reference: %d tokens, %d reused, end %d\n", reference_prompt_tokens(ref), reference_prompt_reused(ref),
               reference_prompt_end(ref));
        reference_prompt_print(ref, stdout);
    }
    if (run->rc) {
        printf("engine: %s\n", run->err.message);
        return;
    }
    printf("engine: %d tokens, %d in views\n", run->result->prompt_tokens, tokens_in_views(run->result));
    for (int32_t i = 0; i < run->result->n_plan; i++) {
        const rp_plan_item *t = &run->result->plan[i];
        printf("  %5d +%-4d %s '%s' shift %d\n", t->position, t->n_tokens, t->is_view ? "view" : "run", t->module,
               t->shift);
    }
}

double oracle_deviation(const float *a, const float *b, int32_t n) {
    double difference = 0, largest = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return INFINITY;
        difference = fmax(difference, fabs((double)a[i] - b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return largest > 0 ? difference / largest : difference > 0 ? INFINITY
                                                               : 0;
}
