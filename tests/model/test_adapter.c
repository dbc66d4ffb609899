/* SPDX-License-Identifier: Apache-2.0 */
/* test_adapter.c: LoRA adapters: every family with an adapter computes what the model with the merged weights W + alpha
 * / rank * B A does; rows of several adapters in one step, and any chunks and threads, change no bit; damaged files are
 * refused with one line. REPRISE_TEST_SEED, REPRISE_TEST_ROUNDS (changes of a file's bytes).
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "model/adapter.h"
#include "support/forward_run.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "support/lora_file.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define N_TOKENS 24
#define N_LOGITS 8

static base_cpu_level level;
static golden *all;

static int setup(void **state) {
    rp_error err = {0};
    (void)state;
    must(base_cpu_detect(&level, &err), &err);
    all = golden_open();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    golden_close(all);
    return 0;
}

/* ---- merged weights ---- */

static const lora_shape *merged;

static void merge(const char *name, float *x, int64_t n_rows, int64_t width) {
    if (lora_file_changes(name, n_rows)) lora_file_add(merged, name, x, n_rows, width);
}

static rp_model *open_variant(const char *path, const lora_shape *s) {
    rp_error err = {0};
    rp_model *m = NULL;
    char copy[64];
    merged = s;
    gguf_variant_write(path, &(gguf_variant){.change = s ? merge : NULL}, copy);
    must(rp_model_open(&m, copy, NULL, &err), &err);
    unlink(copy);
    return m;
}

static rp_adapter *open_adapter(const rp_model *m, const char *model, const lora_shape *s, base_cpu_level at) {
    rp_error err = {0};
    rp_adapter *a = NULL;
    char path[64];
    lora_file_write(model, s, path);
    must(adapter_open(&a, m, path, at, &err), &err);
    unlink(path);
    return a;
}

static int32_t n_tokens_of(const rp_model *m) {
    return m->net.hp.n_ctx_train < N_TOKENS ? m->net.hp.n_ctx_train : N_TOKENS;
}

static float *logits_of(const rp_model *m, const rp_adapter *a, base_cpu_level at, int32_t chunk, int32_t threads) {
    int32_t tokens[N_TOKENS], n = n_tokens_of(m);
    float *logits = calloc((size_t)N_LOGITS * (size_t)m->net.hp.n_vocab, sizeof(float));
    forward_run r;
    assert_non_null(logits);
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)((uint32_t)i * 7919 % (uint32_t)m->net.hp.n_vocab);
    forward_run_open(&r, m, at, m->net.hp.n_ctx_train, chunk, threads);
    r.adapter = a ? &a->weights : NULL;
    forward_run_feed(&r, tokens, 0, n, N_LOGITS, logits);
    forward_run_close(&r);
    return logits;
}

static void check_model(const golden_model *g, const lora_shape *s, base_cpu_level at) {
    rp_model *base = open_variant(g->path, NULL), *whole = open_variant(g->path, s);
    rp_adapter *a = open_adapter(base, g->path, s, at);
    const int32_t n = N_LOGITS * base->net.hp.n_vocab;
    float *plain = logits_of(base, NULL, at, 8, 1), *got = logits_of(base, a, at, 8, 1),
          *wanted = logits_of(whole, NULL, at, 8, 1);
    const double error = oracle_deviation(got, wanted, n), effect = oracle_deviation(plain, wanted, n);
    if (error > 2e-5 || effect < 100 * error || effect < 1e-3)
        fail_msg("%s, rank %d, %s: off by %g of the merged weights' logits; without the adapter by %g", g->name,
                 (int)s->rank, kernel_type_name(s->type), error, effect);
    float *again = logits_of(base, a, at, 3, 2);
    if (memcmp(got, again, (size_t)n * sizeof *got)) fail_msg("%s: other chunks and threads give other bits", g->name);
    free(plain);
    free(got);
    free(wanted);
    free(again);
    adapter_unref(a);
    rp_model_close(base);
    rp_model_close(whole);
}

static void test_merged(void **state) {
    (void)state;
    for (int32_t i = 0; i < all->n_models; i++) {
        const lora_shape s = lora_defaults((uint64_t)i + 1);
        check_model(&all->models[i], &s, level);
    }
}

static void test_types(void **state) {
    static const struct {
        kernel_type type;
        int32_t rank;
    } cases[] = {
        {KERNEL_F32, 1}, {KERNEL_F32, 5}, {KERNEL_F16, 3}, {KERNEL_F16, 16}, {KERNEL_BF16, 7}, {KERNEL_Q8_0, 32}};
    const golden_model *g = golden_find(all, "llama");
    (void)state;
    assert_non_null(g);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lora_shape s = lora_defaults(i + 50);
        s.type = cases[i].type;
        s.rank = cases[i].rank;
        if (i == 1) s.alpha = 0;
        check_model(g, &s, level);
        check_model(g, &s, BASE_CPU_GENERIC);
    }
}

/* ---- rows of several adapters ---- */

/* One step: row r of three contexts' prompts, base, a and b by turns. */
static void feed_mixed(const rp_model *m, rp_adapter *const *adapters, int32_t n, const int32_t *tokens,
                       float *logits) {
    rp_error err = {0};
    forward_run r[3];
    const kv_context *contexts[3];
    model_row rows[3 * N_TOKENS];
    for (int i = 0; i < 3; i++)
        forward_run_open(&r[i], m, level, m->net.hp.n_ctx_train, 8, 2), contexts[i] = &r[i].context;
    for (int i = 0; i < 3; i++)
        for (int32_t k = 0; k < n; k++) {
            model_row *row = &rows[i * n + k];
            *row = (model_row){.token = tokens[k], .pos = k, .context = i, .wants_logits = k == n - 1};
            row->adapter = adapters[i] ? &adapters[i]->weights : NULL;
            row->adapter_scale = 1;
            must(kv_context_append(&r[i].context, k, &row->span, &row->slot, &err), &err);
        }
    const model_step step = {.rows = rows, .n_rows = 3 * n, .contexts = contexts, .n_contexts = 3};
    must(model_forward_step(r[0].forward, &step, logits, &err), &err);
    for (int i = 0; i < 3; i++) forward_run_close(&r[i]);
}

static void test_mixed_rows(void **state) {
    static const char *const names[] = {"llama", "phi3", "gptneox", "qwen2moe", "gemma2"};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const golden_model *g = golden_find(all, names[k]);
        const lora_shape one = lora_defaults(7), two = {.rank = 9, .alpha = 5, .type = KERNEL_F16, .seed = 8};
        rp_error err = {0};
        rp_model *m = NULL;
        int32_t tokens[N_TOKENS];
        must(rp_model_open(&m, g->path, NULL, &err), &err);
        rp_adapter *adapters[] = {NULL, open_adapter(m, g->path, &one, level), open_adapter(m, g->path, &two, level)};
        const int32_t n = n_tokens_of(m) < 20 ? n_tokens_of(m) : 20; /* three of them fit in a step */
        const size_t width = (size_t)m->net.hp.n_vocab;
        float *together = calloc(3 * width, sizeof(float)), *alone = calloc(width, sizeof(float));
        for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)((uint32_t)i * 104729 % (uint32_t)m->net.hp.n_vocab);
        feed_mixed(m, adapters, n, tokens, together);
        for (int i = 0; i < 3; i++) {
            forward_run r;
            forward_run_open(&r, m, level, m->net.hp.n_ctx_train, 7, 1);
            r.adapter = adapters[i] ? &adapters[i]->weights : NULL;
            forward_run_feed(&r, tokens, 0, n, 1, alone);
            forward_run_close(&r);
            if (memcmp(alone, together + (size_t)i * width, width * sizeof(float)))
                fail_msg("%s: row %d differs from the row alone", names[k], i);
        }
        assert_memory_not_equal(together, together + width, width * sizeof(float));
        assert_memory_not_equal(together + width, together + 2 * width, width * sizeof(float));
        for (int i = 1; i < 3; i++) adapter_unref(adapters[i]);
        free(together);
        free(alone);
        rp_model_close(m);
    }
}

/* ---- damaged files ---- */

static int try_writer(const rp_model *m, gguf_writer *w, rp_error *err) {
    uint8_t *data = NULL;
    size_t n = 0;
    gguf_file *f = NULL;
    rp_adapter *a = NULL;
    must(gguf_writer_save_memory(w, &data, &n, err), err);
    gguf_writer_free(w);
    int rc = gguf_open_memory(&f, data, n, "bad.gguf", err);
    if (!rc) rc = adapter_open_gguf(&a, m, f, level, err);
    adapter_unref(a);
    base_free(data);
    return rc;
}

enum { NO_TYPE,
       MODEL_TYPE,
       NO_KIND,
       OTHER_KIND,
       NO_ARCH,
       OTHER_ARCH,
       BAD_ALPHA,
       TEXT_ALPHA,
       HUGE_ALPHA,
       BAD_TOKENS,
       NO_TOKENS,
       BIG_TOKEN,
       NO_PAIRS,
       UNKNOWN_TENSOR,
       NO_B,
       NO_A,
       OTHER_RANK,
       OTHER_WIDTH,
       OTHER_HEIGHT,
       OTHER_TYPE,
       NORM,
       EMBEDDING,
       SUFFIX,
       VECTOR,
       N_DAMAGES };

static void begin_damaged(gguf_writer *w, int damage) {
    if (damage != NO_TYPE) gguf_writer_string(w, "general.type", damage == MODEL_TYPE ? "model" : "adapter");
    if (damage != NO_ARCH) gguf_writer_string(w, "general.architecture", damage == OTHER_ARCH ? "qwen2" : "llama");
    if (damage != NO_KIND) gguf_writer_string(w, "adapter.type", damage == OTHER_KIND ? "control_vector" : "lora");
    if (damage == TEXT_ALPHA) gguf_writer_string(w, "adapter.lora.alpha", "8");
    else gguf_writer_f32(w, "adapter.lora.alpha", damage == BAD_ALPHA ? NAN : damage == HUGE_ALPHA ? 1e30f
                                                                                                   : 8);
    const int32_t tokens[] = {1, damage == BIG_TOKEN ? 1 << 30 : 2};
    if (damage == BAD_TOKENS) gguf_writer_array(w, "adapter.alora.invocation_tokens", GGUF_U8, tokens, 2);
    else if (damage == NO_TOKENS || damage == BIG_TOKEN)
        gguf_writer_array(w, "adapter.alora.invocation_tokens", GGUF_U32, tokens, damage == NO_TOKENS ? 0 : 2);
}

static gguf_writer *damaged(int damage, int64_t n_embd, int64_t n_q) {
    static float x[1 << 16];
    gguf_writer *w = gguf_writer_new(3, 0);
    const char *name = damage == UNKNOWN_TENSOR ? "blk.99.attn_q.weight" : damage == NORM    ? "blk.0.attn_norm.weight"
                                                                       : damage == EMBEDDING ? "token_embd.weight"
                                                                                             : "blk.0.attn_q.weight";
    char a[64], b[64];
    begin_damaged(w, damage);
    snprintf(a, sizeof a, "%s.lora_a", name);
    snprintf(b, sizeof b, "%s.lora_b", name);
    const int64_t width = n_embd + (damage == OTHER_WIDTH) * 32,
                  height = damage == NORM ? 1 : n_q + (damage == OTHER_HEIGHT);
    if (damage == NO_PAIRS) return w;
    if (damage == SUFFIX) gguf_writer_tensor(w, "blk.0.attn_q.weight", KERNEL_F32, 2, (int64_t[]){n_embd, n_q}, x);
    if (damage != NO_A)
        gguf_writer_tensor(w, a, damage == OTHER_TYPE ? KERNEL_Q4_0 : KERNEL_F32, 2, (int64_t[]){width, 4}, x);
    if (damage != NO_B)
        gguf_writer_tensor(w, b, KERNEL_F32, damage == VECTOR ? 3 : 2,
                           (int64_t[]){damage == OTHER_RANK ? 5 : 4, height, 2}, x);
    return w;
}

static void test_damaged(void **state) {
    static const struct {
        int rc;
        const char *text;
    } wanted[N_DAMAGES] = {
        [NO_TYPE] = {RP_ERR_FORMAT, "'general.type' is missing"},
        [MODEL_TYPE] = {RP_ERR_UNSUPPORTED, "'general.type' is 'model', expected 'adapter'"},
        [NO_KIND] = {RP_ERR_FORMAT, "'adapter.type' is missing"},
        [OTHER_KIND] = {RP_ERR_UNSUPPORTED, "'adapter.type' is 'control_vector', expected 'lora'"},
        [NO_ARCH] = {RP_ERR_FORMAT, "'general.architecture' is missing"},
        [OTHER_ARCH] = {RP_ERR_CONFLICT, "for architecture 'qwen2', but the model is 'llama'"},
        [BAD_ALPHA] = {RP_ERR_FORMAT, "'adapter.lora.alpha' is nan"},
        [TEXT_ALPHA] = {RP_ERR_FORMAT, "'adapter.lora.alpha' is not a float"},
        [HUGE_ALPHA] = {RP_ERR_FORMAT, "'adapter.lora.alpha' is 1e+30"},
        [BAD_TOKENS] = {RP_ERR_FORMAT, "not an array of 32-bit integers"},
        [NO_TOKENS] = {RP_ERR_FORMAT, "has 0 tokens"},
        [BIG_TOKEN] = {RP_ERR_CONFLICT, "has token 1073741824"},
        [NO_PAIRS] = {RP_ERR_FORMAT, "has no tensors"},
        [UNKNOWN_TENSOR] = {RP_ERR_CONFLICT, "a tensor that the model does not have"},
        [NO_B] = {RP_ERR_FORMAT, "has no lora_b"},
        [NO_A] = {RP_ERR_FORMAT, "has no lora_a"},
        [OTHER_RANK] = {RP_ERR_FORMAT, "another rank than its lora_a"},
        [OTHER_WIDTH] = {RP_ERR_CONFLICT, "does not have the shape of the model's tensor"},
        [OTHER_HEIGHT] = {RP_ERR_CONFLICT, "does not have the shape of the model's tensor"},
        [OTHER_TYPE] = {RP_ERR_UNSUPPORTED, "is neither F32, F16, BF16 nor Q8_0"},
        [NORM] = {RP_ERR_UNSUPPORTED, "adapters of embeddings and norms are not supported"},
        [EMBEDDING] = {RP_ERR_UNSUPPORTED, "changes the embeddings"},
        [SUFFIX] = {RP_ERR_UNSUPPORTED, "neither a lora_a nor a lora_b"},
        [VECTOR] = {RP_ERR_UNSUPPORTED, "experts"},
    };
    const golden_model *g = golden_find(all, "llama");
    rp_error err = {0};
    rp_model *m = NULL;
    (void)state;
    must(rp_model_open(&m, g->path, NULL, &err), &err);
    for (int i = 0; i < N_DAMAGES; i++) {
        const int rc =
            try_writer(m, damaged(i, m->net.hp.n_embd, (int64_t)m->net.hp.n_heads * m->net.hp.key_dim), &err);
        const bool is_said =
            strstr(err.message, wanted[i].text) && strstr(err.message, "bad.gguf") && !strchr(err.message, '\n');
        if (rc != wanted[i].rc || err.code != rc || !is_said)
            fail_msg("damage %d: %d '%s', expected %d '%s'", i, rc, err.message, wanted[i].rc, wanted[i].text);
    }
    must(try_writer(m, damaged(N_DAMAGES, m->net.hp.n_embd, (int64_t)m->net.hp.n_heads * m->net.hp.key_dim), &err),
         &err);
    rp_model_close(m);
}

static void test_experts(void **state) {
    const golden_model *g = golden_find(all, "mixtral");
    rp_error err = {0};
    rp_model *m = NULL;
    const float x[4096] = {0};
    (void)state;
    must(rp_model_open(&m, g->path, NULL, &err), &err);
    const lora_shape s = lora_defaults(1);
    gguf_writer *w = lora_file_begin(g->path, &s, 1);
    gguf_writer_tensor(w, "blk.0.ffn_up_exps.weight.lora_a", KERNEL_F32, 2, (int64_t[]){m->net.hp.n_embd, 1}, x);
    gguf_writer_tensor(w, "blk.0.ffn_up_exps.weight.lora_b", KERNEL_F32, 2, (int64_t[]){1, m->net.hp.n_ff_expert}, x);
    assert_int_equal(try_writer(m, w, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "adapters of experts, and of heads of latent attention, are not supported"));
    rp_model_close(m);
}

/* Changed bytes: each file is refused with one line, or opens and computes. */
static void test_random_damage(void **state) {
    const golden_model *g = golden_find(all, "phi3");
    rp_error err = {0};
    rp_model *m = NULL;
    uint8_t *data = NULL;
    size_t n = 0;
    const int32_t invocation[] = {3, 4};
    lora_shape s = lora_defaults(3);
    tiny_random r = {test_seed("test_adapter", 1)};
    int opened = 0, refused = 0;
    (void)state;
    s.invocation = invocation;
    s.n_invocation = 2;
    must(rp_model_open(&m, g->path, NULL, &err), &err);
    gguf_writer *w = lora_file_begin(g->path, &s, 4);
    must(gguf_writer_save_memory(w, &data, &n, &err), &err);
    gguf_writer_free(w);
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    for (int i = 0; i < 10 * test_rounds(60); i++) {
        gguf_file *f = NULL;
        rp_adapter *a = NULL;
        memcpy(copy, data, n);
        for (uint64_t k = 1 + tiny_random_below(&r, 3); k > 0; k--)
            copy[tiny_random_below(&r, n < 1024 ? n : 1024)] = (uint8_t)tiny_random_u64(&r);
        memset(&err, 0, sizeof err);
        int rc = gguf_open_memory(&f, copy, i % 10 ? n : n - (size_t)tiny_random_below(&r, n), "bad.gguf", &err);
        if (!rc) rc = adapter_open_gguf(&a, m, f, level, &err);
        if (rc && (err.code != rc || !err.message[0] || strchr(err.message, '\n')))
            fail_msg("round %d: refused without a line that says why", i);
        if (!rc && opened % 8 == 0) free(logits_of(m, a, level, 8, 1));
        opened += !rc;
        refused += rc != 0;
        adapter_unref(a);
    }
    assert_true(opened > 0 && refused > 0);
    free(copy);
    base_free(data);
    rp_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_mixed_rows),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
