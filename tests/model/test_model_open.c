/* SPDX-License-Identifier: Apache-2.0 */
/* test_model_open.c: the errors of models that cannot be opened, and the properties taken from files that can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/file.h"
#include "model/model.h"
#include "support/gguf_variant.h"
#include "support/golden.h"
#include "reprise_test.h"

#define MAX_FILE_BYTES ((size_t)16 << 20)

static golden *models;

static void read_model(const char *name, base_buffer *bytes) {
    rp_error err = {0};
    *bytes = (base_buffer){0};
    if (base_file_read(golden_find(models, name)->path, MAX_FILE_BYTES, bytes, &err)) fail_msg("%s", err.message);
}

/* Replaces the first occurrence of `from` by `to`, which has the same length. */
static void patch(base_buffer *bytes, const char *from, const char *to) {
    size_t n = strlen(from);
    assert_int_equal(n, strlen(to));
    for (size_t i = 0; i + n <= bytes->len; i++) {
        if (memcmp(bytes->data + i, from, n) != 0) continue;
        memcpy(bytes->data + i, to, n);
        return;
    }
    fail_msg("no '%s' in the file", from);
}

static int open_bytes(const base_buffer *bytes, rp_model **m, rp_error *err) {
    gguf_file *f;
    int rc = gguf_open_memory(&f, bytes->data, bytes->len, "m.gguf", err);
    return rc ? rc : model_open_gguf(m, f, NULL, err);
}

static void expect_refused(const char *name, const char *from, const char *to, int code, const char *const *parts) {
    base_buffer bytes;
    rp_error err = {0};
    rp_model *m = NULL;
    read_model(name, &bytes);
    patch(&bytes, from, to);
    assert_int_equal(open_bytes(&bytes, &m, &err), code);
    for (; *parts; parts++)
        if (!strstr(err.message, *parts) && !strstr(err.where, *parts))
            fail_msg("'%s: %s' does not say '%s'", err.where, err.message, *parts);
    base_buffer_free(&bytes);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void an_unknown_architecture_is_named_with_similar_ones(void **state) {
    (void)state;
    const char *parts[] = {"m.gguf", "architecture 'qwena' is not supported; similar: ", "qwen2, ", "qwen3moe",
                           "(docs/models.md has all ", NULL};
    expect_refused("qwen2", "qwen2", "qwena", RP_ERR_UNSUPPORTED, parts);
    expect_refused("llama", "llama", "lyama", RP_ERR_UNSUPPORTED,
                   PARTS("architecture 'lyama' is not supported (docs/models.md has all "));
}

static void what_a_file_lacks_or_has_too_much_is_named(void **state) {
    (void)state;
    expect_refused("llama", "blk.1.attn_norm.weight", "blk.9.attn_norm.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.1.attn_norm.weight' is missing"));
    expect_refused("llama", "blk.0.attn_k.weight", "blk.0.attn_j.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.0.attn_k.weight' is missing"));
    expect_refused("qwen2", "blk.1.attn_k.bias", "blk.1.attn_j.bias", RP_ERR_UNSUPPORTED,
                   PARTS("tensor 'blk.1.attn_j.bias' is unknown in architecture 'qwen2'"));
    expect_refused("qwen3", "blk.1.attn_k_norm.weight", "blk.9.attn_k_norm.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.attn_k_norm.weight' is missing"));
    expect_refused("gemma3", "blk.2.post_ffw_norm.weight", "blk.9.post_ffw_norm.weight", RP_ERR_FORMAT,
                   PARTS("'blk.2.post_ffw_norm.weight' is missing"));
    expect_refused("gptneox-sequential", "blk.1.ffn_norm.weight", "blk.9.ffn_norm.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.ffn_norm.weight' is missing"));
    expect_refused("mixtral", "blk.0.ffn_up_exps.weight", "blk.0.ffn_up_expz.weight", RP_ERR_FORMAT,
                   PARTS("'blk.0.ffn_up_exps.weight' is missing"));
    expect_refused("mistral4", "blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_gate_up_expz.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.ffn_gate_exps.weight' is missing"));
    expect_refused("afmoe", "blk.1.attn_gate.weight", "blk.1.attn_gaze.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.attn_gate.weight' is missing"));
    expect_refused("hunyuan-dense", "blk.1.attn_k_norm.weight", "blk.1.attn_j_norm.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.attn_k_norm.weight' is missing"));
    expect_refused("minicpm3", "blk.0.attn_kv_b.weight", "blk.0.attn_kv_j.weight", RP_ERR_FORMAT,
                   PARTS("'blk.0.attn_k_b.weight' is missing"));
    expect_refused("bloom", "token_embd_norm.weight", "token_embd_narm.weight", RP_ERR_FORMAT,
                   PARTS("'token_embd_norm.weight' is missing"));
    expect_refused("gpt2", "position_embd.weight", "position_emba.weight", RP_ERR_FORMAT,
                   PARTS("'position_embd.weight' is missing"));
    expect_refused("llama", "llama.block_count", "llama.blonk_count", RP_ERR_FORMAT,
                   PARTS("metadata 'llama.block_count' is missing"));
    expect_refused("llama-linear", "linear", "spiral", RP_ERR_UNSUPPORTED,
                   PARTS("rope scaling 'spiral'", "supported: none, linear, yarn"));
}

/* ---- properties ---- */

static rp_model *open_golden(const char *name) {
    rp_error err = {0};
    rp_model *m;
    if (model_open(&m, golden_find(models, name)->path, NULL, &err)) fail_msg("%s", err.message);
    return m;
}

static void windows_follow_the_architecture(void **state) {
    (void)state;
    static const struct {
        const char *name, *windows; /* by layer: w or . */
    } rows[] = {
        {"llama", "..."},
        {"mistral", "ww"},
        {"phi3", "ww"},
        {"gemma2", "w.w."},
        {"gemma3", "wwwww.w"},
        {"gemma4", "ww.ww."},
        {"gemma3n", "ww.w."},
        {"olmo3", "www.w"},
        {"gpt-oss", "w."},
        {"afmoe", "www.w"},
        {"exaone-moe", "www.w"},
        {"llama4-chunks", "www.w"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++) {
        rp_model *m = open_golden(rows[i].name);
        kv_shape shape = model_kv_shape(m, RP_KV_F16);
        assert_int_equal(m->net.hp.n_layers, strlen(rows[i].windows));
        assert_int_equal(kv_shape_has_windows(&shape), strchr(rows[i].windows, 'w') != NULL);
        for (int32_t l = 0; l < m->net.hp.n_layers; l++) {
            assert_int_equal(m->net.layers[l].window, rows[i].windows[l] == 'w' ? 24 : 0);
            assert_int_equal(shape.layers[m->net.layers[l].states].window, m->net.layers[l].window);
        }
        model_close(m);
    }
}

/* kv_layers as a text: x or . */
static void check_layers(const rp_model *m, const char *list, const char *expected) {
    kv_layer_shape layers[64];
    rp_error err = {0};
    if (model_read_f16_layers(m, "list", list, layers, &err)) fail_msg("%s", err.message);
    assert_int_equal(m->n_kv_layers, strlen(expected));
    for (int32_t l = 0; l < m->n_kv_layers; l++)
        if (layers[l].in_f16 != (expected[l] == 'x')) fail_msg("'%s': layer %d", list, (int)l);
}

static void check_no_layers(const rp_model *m, const char *list, const char *words) {
    kv_layer_shape layers[64];
    rp_error err = {0};
    assert_int_equal(model_read_f16_layers(m, "list", list, layers, &err), RP_ERR_INVALID);
    if (!strstr(err.message, words)) fail_msg("'%s': %s", list, err.message);
}

static void lists_name_layers(void **state) {
    (void)state;
    static const char *const malformed[] = {"",
                                            ",",
                                            "0,",
                                            ",0",
                                            "0,,1",
                                            "1-0",
                                            "0-",
                                            "-1",
                                            "-",
                                            " 0",
                                            "0 ",
                                            "0;1",
                                            "0x1",
                                            "a",
                                            "window",
                                            "windowss",
                                            "windows-1",
                                            "windows,",
                                            "99999999999999999999",
                                            "0-99999999999999999999",
                                            "0-1-2"};
    rp_model *m = open_golden("gemma3");
    check_layers(m, "0", "x......");
    check_layers(m, "6,0-2,1", "xxx...x");
    check_layers(m, "3-3", "...x...");
    check_layers(m, "00-06", "xxxxxxx");
    check_layers(m, "windows", "xxxxx.x");
    check_layers(m, "5,windows", "xxxxxxx");
    for (size_t i = 0; i < BASE_ARRAY_LEN(malformed); i++)
        check_no_layers(m, malformed[i], "give layers and ranges, as in 0,1,27 or 0-2, or windows");
    check_no_layers(m, "7", "list '7': there is no layer 7: this model has layers 0 to 6");
    check_no_layers(m, "0,3-12", "there is no layer 12");
    model_close(m);
    m = open_golden("llama");
    check_layers(m, "2", "..x");
    check_no_layers(m, "0,windows", "list '0,windows': no layer of this model has a sliding window");
    model_close(m);
}

static void layers_rotate_as_their_architecture_says(void **state) {
    (void)state;
    rp_model *m = open_golden("smollm3");
    for (int32_t l = 0; l < m->net.hp.n_layers; l++)
        assert_int_equal(m->net.layers[l].rope, l == 3 ? MODEL_NO_ROPE : MODEL_ROPE_GLOBAL);
    model_close(m);
    m = open_golden("gemma3");
    for (int32_t l = 0; l < m->net.hp.n_layers; l++)
        assert_int_equal(m->net.layers[l].rope, l == 5 ? MODEL_ROPE_GLOBAL : MODEL_ROPE_LOCAL_BASE);
    assert_true(m->net.ropes[MODEL_ROPE_GLOBAL].frequencies[0] == 1.0 / 8 &&
                m->net.ropes[MODEL_ROPE_LOCAL_BASE].frequencies[0] == 1.0);
    model_close(m);
    m = open_golden("cohere2");
    for (int32_t l = 0; l < m->net.hp.n_layers; l++)
        assert_true((m->net.layers[l].window > 0) == (l != 3) &&
                    m->net.layers[l].rope == (l == 3 ? MODEL_NO_ROPE : MODEL_ROPE_GLOBAL));
    model_close(m);
    m = open_golden("exaone4"); /* without windows each layer has positions */
    assert_true(m->net.hp.window == 0 && m->net.layers[1].rope == MODEL_ROPE_GLOBAL);
    model_close(m);
    m = open_golden("mpt");
    assert_true(m->net.hp.rot_dim == 0 && m->net.alibi_slopes && m->net.layers[0].rope == MODEL_NO_ROPE &&
                model_is_movable(m));
    model_close(m);
    m = open_golden("gpt2");
    assert_false(model_is_movable(m));
    model_close(m);
}

/* The context chooses the factors (docs/decisions/0006), and KV of the two has different keys: engine.c adds it to the
 * salt. */
static void the_context_chooses_the_factors_of_long_rope(void **state) {
    (void)state;
    rp_model *m = open_golden("phi3-longrope");
    assert_int_equal(m->net.hp.rope.n_ctx_original, 256);
    assert_false(model_rope_is_long(&m->net, 256));
    assert_true(model_rope_is_long(&m->net, 257));
    assert_ptr_equal(model_layer_rope(&m->net, MODEL_ROPE_GLOBAL, 256), &m->net.ropes[MODEL_ROPE_GLOBAL]);
    assert_ptr_equal(model_layer_rope(&m->net, MODEL_ROPE_GLOBAL, 257), &m->net.ropes[MODEL_ROPE_LONG]);
    assert_true(model_is_movable(m));
    model_close(m);
    m = open_golden("llama");
    assert_false(model_rope_is_long(&m->net, 1 << 20));
    model_close(m);
}

static void learned_positions_bound_the_context(void **state) {
    (void)state;
    rp_model *m = open_golden("gpt2");
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.n_ctx = m->net.hp.n_ctx_train + 1;
    assert_int_equal(rp_engine_new(&e, m, &o, &err), RP_ERR_CONTEXT);
    assert_non_null(strstr(err.message, "position embeddings for 256 positions only"));
    o.n_ctx = m->net.hp.n_ctx_train;
    assert_int_equal(rp_engine_new(&e, m, &o, &err), RP_OK);
    rp_engine_free(e);
    model_close(m);
}

/* ---- properties of published files that the golden ones lack ---- */

static int open_variant(const char *name, const char *without, void (*add)(gguf_writer *), rp_model **m,
                        rp_error *err) {
    char path[64];
    gguf_variant v = {.without_key = without, .add = add};
    gguf_variant_write(golden_find(models, name)->path, &v, path);
    int rc = model_open(m, path, NULL, err);
    unlink(path);
    return rc;
}

static rp_model *variant(const char *name, const char *without, void (*add)(gguf_writer *)) {
    rp_error err = {0};
    rp_model *m = NULL;
    if (open_variant(name, without, add, &m, &err)) fail_msg("%s: %s", name, err.message);
    return m;
}

static void expect_variant_refused(const char *name, void (*add)(gguf_writer *), int code, const char *part) {
    rp_error err = {0};
    rp_model *m = NULL;
    assert_int_equal(open_variant(name, NULL, add, &m, &err), code);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

/* OLMo 3 uses the architecture name of OLMo 2: three layers with a window and without YaRN, then one without a window.
 * */
static void add_olmo3(gguf_writer *w) {
    static const uint8_t pattern[] = {0, 1, 1, 0};
    gguf_writer_u32(w, "olmo2.attention.sliding_window", 24);
    gguf_writer_array(w, "olmo2.attention.sliding_window_pattern", GGUF_BOOL, pattern, sizeof(pattern));
    gguf_writer_string(w, "olmo2.rope.scaling.type", "yarn");
    gguf_writer_f32(w, "olmo2.rope.scaling.factor", 8);
}

static void add_period(gguf_writer *w) {
    gguf_writer_u32(w, "llama.attention.sliding_window", 24);
    gguf_writer_u32(w, "llama.attention.sliding_window_pattern", 2);
}

static void add_short_pattern(gguf_writer *w) {
    gguf_writer_u32(w, "olmo2.attention.sliding_window", 24);
    gguf_writer_array(w, "olmo2.attention.sliding_window_pattern", GGUF_BOOL, "\1", 1);
}

static void a_file_may_say_which_layers_have_the_window(void **state) {
    (void)state;
    rp_model *m = variant("olmo2", NULL, add_olmo3);
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) {
        bool local = l == 1 || l == 2;
        assert_int_equal(m->net.layers[l].window, local ? 24 : 0);
        assert_int_equal(m->net.layers[l].rope, local ? MODEL_ROPE_LOCAL_BASE : MODEL_ROPE_GLOBAL);
    }
    const model_rope *global = &m->net.ropes[MODEL_ROPE_GLOBAL], *local = &m->net.ropes[MODEL_ROPE_LOCAL_BASE];
    int32_t slowest = m->net.hp.rot_dim / 2 - 1;
    assert_true(local->magnitude == 1.0f && global->magnitude > 1.0f);
    assert_true(fabs(local->frequencies[slowest] - pow(m->net.hp.rope.base, -2.0 * slowest / m->net.hp.rot_dim)) <
                1e-12);
    assert_true(global->frequencies[slowest] < local->frequencies[slowest]);
    model_close(m);
    m = variant("llama", NULL, add_period);
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) assert_int_equal(m->net.layers[l].window, l % 2 ? 0 : 24);
    model_close(m);
    expect_variant_refused("olmo2", add_short_pattern, RP_ERR_UNSUPPORTED, "is not a list of booleans for");
}

/* Files older than the keys: the same defaults as llama.cpp. */
static void old_files_mean_what_they_do_not_say(void **state) {
    (void)state;
    rp_model *m = variant("gemma2", "gemma2.attn_logit_softcapping", NULL);
    assert_true(m->net.hp.score_cap == 50.0f);
    model_close(m);
    m = variant("gemma2", "gemma2.final_logit_softcapping", NULL);
    assert_true(m->net.hp.logit_cap == 30.0f);
    model_close(m);
    m = variant("gemma2", "gemma2.attention.sliding_window", NULL);
    assert_int_equal(m->net.layers[0].window, 4096);
    model_close(m);
    m = variant("llama-linear", "llama.rope.scaling.type", NULL);
    rp_model *said = open_golden("llama-linear");
    assert_true(m->net.hp.rope.factor > 1.0 && m->net.hp.rope.factor == said->net.hp.rope.factor);
    model_close(said);
    model_close(m);
}

static void add_log_multiplier(gguf_writer *w) { gguf_writer_f32(w, "llama.rope.scaling.yarn_log_multiplier", 1.0f); }
static void add_sigmoid(gguf_writer *w) { gguf_writer_u32(w, "qwen3moe.expert_gating_func", 2); }
static void add_unknown_gating(gguf_writer *w) { gguf_writer_u32(w, "qwen3moe.expert_gating_func", 4); }
static void add_uneven_groups(gguf_writer *w) {
    gguf_writer_u32(w, "qwen3moe.expert_group_count", 4);
    gguf_writer_u32(w, "qwen3moe.expert_group_used_count", 3);
}
static void add_few_groups(gguf_writer *w) {
    gguf_writer_u32(w, "qwen3moe.expert_group_count", 6);
    gguf_writer_u32(w, "qwen3moe.expert_group_used_count", 1);
}
static void add_dense_layers(gguf_writer *w) { gguf_writer_u32(w, "qwen3moe.leading_dense_block_count", 1); }
static void add_draft_layer(gguf_writer *w) { gguf_writer_u32(w, "glm4.nextn_predict_layers", 1); }
static void add_only_draft_layers(gguf_writer *w) { gguf_writer_u32(w, "glm4.nextn_predict_layers", 2); }
static void add_short_xielu(gguf_writer *w) {
    const float one = 0.5f;
    gguf_writer_array(w, "xielu.alpha_p", GGUF_F32, &one, 1);
}
static void add_no_norm(gguf_writer *w) { gguf_writer_bool(w, "qwen3moe.expert_weights_norm", false); }
static void add_not_causal(gguf_writer *w) { gguf_writer_bool(w, "qwen2.attention.causal", false); }

static void numbers_beside_the_shape_are_honoured_or_refused(void **state) {
    (void)state;
    rp_model *m = variant("llama-yarn", "llama.rope.scaling.yarn_attn_factor",
                          add_log_multiplier); /* as Mistral's own format has it */
    assert_true(m->net.ropes[MODEL_ROPE_GLOBAL].magnitude == 1.0f);
    model_close(m);
    m = variant("qwen3moe", NULL, add_no_norm);
    assert_false(m->net.hp.experts_sum_1);
    model_close(m);
    m = variant("qwen3moe", NULL, add_sigmoid);
    assert_true(m->net.hp.experts_sigmoid);
    model_close(m);
    expect_variant_refused("qwen3moe", add_unknown_gating, RP_ERR_UNSUPPORTED, "expert gating function 4");
    expect_variant_refused("qwen2", add_not_causal, RP_ERR_UNSUPPORTED, "it is an embedding model");
}

/* Routing, and layers without experts or beyond those that are computed. */
static void layers_of_experts_are_those_of_the_metadata(void **state) {
    (void)state;
    rp_model *m = open_golden("glm4moe");
    const model_hparams *hp = &m->net.hp;
    assert_true(hp->experts_sigmoid && hp->experts_sum_1 && hp->experts_scale == 1.5f);
    assert_true(hp->n_expert_groups == 4 && hp->n_expert_groups_used == 2 && hp->n_dense == 1);
    assert_true(!m->net.layers[0].router.data && m->net.layers[0].ffn.up.data);
    assert_true(m->net.layers[1].router.data && m->net.layers[1].router_correction.data);
    assert_true(m->net.layers[1].shared.up.data && !m->net.layers[1].shared_gate.data);
    model_close(m);
    expect_variant_refused("qwen3moe", add_uneven_groups, RP_ERR_FORMAT, "cannot be selected from 3 of 4 groups");
    expect_variant_refused("qwen3moe", add_few_groups, RP_ERR_FORMAT, "cannot be selected from 1 of 6 groups");
    expect_variant_refused("qwen3moe", add_dense_layers, RP_ERR_FORMAT, "'blk.0.ffn_up.weight' is missing");
    m = variant("glm4", NULL, add_draft_layer);
    assert_true(m->net.hp.n_layers == 1 && m->net.hp.n_draft_layers == 1 && m->n_kv_layers == 1);
    model_close(m);
    expect_variant_refused("glm4", add_only_draft_layers, RP_ERR_FORMAT, "'glm4.nextn_predict_layers' is 2");
}

#define DELTA_LAYERS "qwen35.attention.recurrent_layers"
static void add_short_delta_layers(gguf_writer *w) { gguf_writer_array(w, DELTA_LAYERS, GGUF_BOOL, "\1", 1); }
static void add_other_delta_layers(gguf_writer *w) { gguf_writer_array(w, DELTA_LAYERS, GGUF_BOOL, "\1\1\0\1", 4); }
static void add_short_values(gguf_writer *w) { gguf_writer_u32(w, "qwen35.attention.value_length", 16); }

static void add_joint_delta_net(gguf_writer *w) {
    static const float rows[48 * 192];
    gguf_writer_tensor(w, "blk.0.ssm_in.weight", KERNEL_F32, 2, (int64_t[]){48, 192}, rows);
}
static void add_joint_neighbours(gguf_writer *w) {
    static const float rows[48 * 256];
    gguf_writer_tensor(w, "blk.0.ssm_in.weight", KERNEL_F32, 2, (int64_t[]){48, 256}, rows);
}

static void layers_of_delta_nets_are_those_of_the_metadata(void **state) {
    static const struct {
        const char *without;
        void (*add)(gguf_writer *);
        int code;
        const char *part;
    } refused[] = {
        {DELTA_LAYERS, add_short_delta_layers, RP_ERR_UNSUPPORTED, "is not a list of booleans for 4 layers"},
        {DELTA_LAYERS, add_other_delta_layers, RP_ERR_FORMAT, "tensor 'blk.2.attn_qkv.weight': has shape"},
        {"qwen35.attention.value_length", add_short_values, RP_ERR_FORMAT, "keys of 32 and values of 16 dimensions"},
        {NULL, add_joint_delta_net, RP_ERR_UNSUPPORTED, "'blk.0.ssm_in.weight' is unknown"},
        {"qwen35.ssm.group_count", NULL, RP_ERR_FORMAT, "'qwen35.ssm.group_count' is missing"},
    };
    (void)state;
    rp_model *listed = open_golden("qwen35"), *by_interval = variant("qwen35", DELTA_LAYERS, NULL);
    for (int32_t l = 0; l < 4; l++) {
        assert_int_equal(listed->net.layers[l].mixer, l == 3 ? MODEL_ATTENTION : MODEL_DELTA_NET);
        assert_int_equal(by_interval->net.layers[l].mixer, listed->net.layers[l].mixer);
    }
    assert_int_equal(listed->net.layers[3].q.n_out, 2 * listed->net.hp.n_heads * listed->net.hp.key_dim);
    model_close(listed);
    model_close(by_interval);
    expect_variant_refused("qwen3next", add_joint_neighbours, RP_ERR_FORMAT, "'blk.0.ssm_in.weight' is missing");
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++) {
        rp_error err = {0};
        rp_model *m = NULL;
        assert_int_equal(open_variant("qwen35", refused[i].without, refused[i].add, &m, &err), refused[i].code);
        if (!strstr(err.message, refused[i].part)) fail_msg("'%s' does not say '%s'", err.message, refused[i].part);
    }
}

static void add_wide_kimi_heads(gguf_writer *w) { gguf_writer_u32(w, "kimi-linear.kda.head_dim", 32); }
static void add_short_kimi_convolution(gguf_writer *w) { gguf_writer_u32(w, "kimi-linear.ssm.conv_kernel", 3); }

static void kimi_linear_has_latent_layers_without_positions(void **state) {
    (void)state;
    rp_error err = {0};
    rp_model *m = open_golden("kimi-linear");
    for (int32_t l = 0; l < 4; l++) {
        assert_int_equal(m->net.layers[l].mixer, l == 2 ? MODEL_ATTENTION : MODEL_KIMI_DELTA);
        assert_int_equal(m->net.layers[l].rope, MODEL_NO_ROPE);
        assert_true((m->net.layers[l].recurrent.convs[2].data != NULL) == (l != 2));
        assert_true((m->net.layers[l].head_keys.data != NULL) == (l == 2));
        assert_true((m->net.layers[l].router.data != NULL) == (l > 0));
        assert_int_equal(m->kv_layers[l].kind, l == 2 ? KV_LATENT : KV_STATE);
    }
    assert_true(m->net.hp.experts_sigmoid && m->net.hp.experts_sum_1 && !m->net.ropes[MODEL_ROPE_GLOBAL].frequencies);
    assert_int_equal(m->kv_layers[0].state_bytes, sizeof(float) * (3 * 3 * 4 * 16 + 4 * 16 * 16));
    model_close(m);
    assert_int_equal(open_variant("kimi-linear", "kimi-linear.kda.head_dim", add_wide_kimi_heads, &m, &err),
                     RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "tensor 'blk.0.attn_q.weight': has shape 48 x 64, but the metadata requires"));
    assert_int_equal(open_variant("kimi-linear", "kimi-linear.kda.head_dim", NULL, &m, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "metadata 'kimi-linear.kda.head_dim' is missing"));
    assert_int_equal(open_variant("kimi-linear", "kimi-linear.ssm.conv_kernel", add_short_kimi_convolution, &m, &err),
                     RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "ssm_conv1d_q.weight': has shape 4 x 1 x 64, but the metadata requires"));
    expect_refused("kimi-linear", "blk.1.ssm_g_b.weight", "blk.1.ssm_g_x.weight", RP_ERR_FORMAT,
                   PARTS("'blk.1.ssm_g_b.weight' is missing"));
    expect_refused("kimi-linear", "blk.2.attn_kv_a_norm.weight", "blk.2.attn_kv_x_norm.weight", RP_ERR_FORMAT,
                   PARTS("'blk.2.attn_kv_a_norm.weight' is missing"));
}

#define INDEXERS "glm-dsa.attention.indexer.types"
static void add_late_indexer(gguf_writer *w) { gguf_writer_array(w, INDEXERS, GGUF_BOOL, "\0\1\1\1", 4); }
/* As published: the last layer is for drafts, and not in the list. */
static void add_draft_indexer(gguf_writer *w) {
    gguf_writer_array(w, INDEXERS, GGUF_BOOL, "\1\0", 2);
    gguf_writer_u32(w, "glm-dsa.nextn_predict_layers", 1);
}
static void add_more_indexers(gguf_writer *w) { gguf_writer_array(w, INDEXERS, GGUF_BOOL, "\1\1\1\0", 4); }
static void add_narrow_indexer(gguf_writer *w) { gguf_writer_u32(w, "glm-dsa.attention.indexer.key_length", 8); }
static void add_other_indexer(gguf_writer *w) { gguf_writer_u32(w, "glm-dsa.attention.indexer.head_count", 3); }

/* The golden model's last layer is the only one with experts. */
static void check_draft_indexer(void) {
    char dense[64], path[64];
    rp_error err = {0};
    rp_model *m;
    gguf_variant_write(golden_find(models, "glm-dsa")->path, &(gguf_variant){.without_key = "glm-dsa.expert_count"},
                       dense);
    gguf_variant_write(dense, &(gguf_variant){.without_key = INDEXERS, .add = add_draft_indexer}, path);
    if (model_open(&m, path, NULL, &err)) fail_msg("%s", err.message);
    assert_true(m->net.hp.n_layers == 2 && m->net.hp.n_draft_layers == 1 && m->n_kv_layers == 3);
    model_close(m);
    unlink(dense);
    unlink(path);
}

static void layers_with_an_indexer_have_a_kv_layer_of_its_keys(void **state) {
    static const struct {
        const char *without;
        void (*add)(gguf_writer *);
        int code;
        const char *part;
    } refused[] = {
        {INDEXERS, add_late_indexer, RP_ERR_UNSUPPORTED, "the first of which has an indexer"},
        {INDEXERS, add_more_indexers, RP_ERR_FORMAT, "'blk.1.indexer.attn_q_b.weight' is missing"},
        {INDEXERS, NULL, RP_ERR_FORMAT, "'blk.1.indexer.attn_q_b.weight' is missing"},
        {"glm-dsa.attention.indexer.key_length", add_narrow_indexer, RP_ERR_UNSUPPORTED, "an indexer of 8 dimensions"},
        {"glm-dsa.attention.indexer.head_count", add_other_indexer, RP_ERR_FORMAT, "but the metadata requires"},
        {"glm-dsa.attention.indexer.top_k", NULL, RP_ERR_FORMAT, "'glm-dsa.attention.indexer.top_k' is missing"},
    };
    (void)state;
    rp_model *m = open_golden("glm-dsa");
    assert_int_equal(m->n_kv_layers, 5);
    for (int32_t l = 0; l < 3; l++) {
        const model_layer *layer = &m->net.layers[l];
        assert_true(layer->is_chosen && (layer->index_k.data != NULL) == (l % 2 == 0));
        assert_int_equal(layer->states, l / 2 * 3 + l % 2 * 2);
        assert_int_equal(layer->index, l % 2 ? -1 : layer->states + 1);
    }
    assert_true(m->kv_layers[1].kind == KV_LATENT && m->kv_layers[1].key_dim == m->net.hp.index_dim);
    model_close(m);
    check_draft_indexer();
    for (size_t i = 0; i < BASE_ARRAY_LEN(refused); i++) {
        rp_error err = {0};
        assert_int_equal(open_variant("glm-dsa", refused[i].without, refused[i].add, &m, &err), refused[i].code);
        if (!strstr(err.message, refused[i].part)) fail_msg("'%s' does not say '%s'", err.message, refused[i].part);
    }
}

static void numbers_of_an_activation_are_those_of_each_layer(void **state) {
    (void)state;
    rp_error err = {0};
    rp_model *m = open_golden("apertus");
    const model_xielu *first = &m->net.layers[0].ffn.xielu, *second = &m->net.layers[1].ffn.xielu;
    assert_true(first->alpha_p > 0 && first->alpha_n > first->beta && first->alpha_p != second->alpha_p);
    model_close(m);
    m = open_golden("arcee");
    assert_true(m->net.layers[0].ffn.xielu.alpha_p == 0);
    model_close(m);
    assert_int_equal(open_variant("apertus", "xielu.alpha_p", add_short_xielu, &m, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'xielu.alpha_p' is not a list of numbers"));
}

static void add_equal_heads(gguf_writer *w) {
    rp_model *m = open_golden("llama");
    uint32_t all[8];
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) all[l] = (uint32_t)m->net.hp.n_heads;
    gguf_writer_array(w, "llama.attention.head_count", GGUF_U32, all, (size_t)m->net.hp.n_layers);
    model_close(m);
}

static void add_other_widths(gguf_writer *w) {
    static const uint32_t widths[] = {64, 128, 64};
    gguf_writer_array(w, "llama.feed_forward_length", GGUF_U32, widths, 3);
}

static void add_short_widths(gguf_writer *w) {
    static const uint32_t widths[] = {80};
    gguf_writer_array(w, "llama.feed_forward_length", GGUF_U32, widths, 1);
}

static void add_other_lengths(gguf_writer *w) {
    static const uint32_t lengths[] = {64, 128, 64};
    gguf_writer_array(w, "llama.context_length", GGUF_U32, lengths, 3);
}

/* Instead of a base of rotation. */
static void add_narrow_windows(gguf_writer *w) { gguf_writer_u32(w, "gemma3.attention.key_length_swa", 8); }

static void a_list_of_equal_numbers_is_a_number(void **state) {
    (void)state;
    rp_error err = {0};
    rp_model *m = variant("llama", "llama.attention.head_count", add_equal_heads);
    model_close(m);
    assert_int_equal(open_variant("llama", "llama.context_length", add_other_lengths, &m, &err), RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "models with different layers are not supported"));
}

/* Lists of heads and widths are those of the layers: each tensor has the shape that its own layer has. */
static void layers_have_shapes_of_their_own(void **state) {
    (void)state;
    rp_error err = {0};
    rp_model *m = open_golden("gemma4-moe");
    kv_shape shape = model_kv_shape(m, RP_KV_F16);
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) {
        const model_layer *layer = &m->net.layers[l];
        const bool is_global = layer->window == 0;
        assert_int_equal(layer->n_kv_heads, is_global ? 1 : 2);
        assert_int_equal(layer->key_dim, is_global ? 24 : 16);
        assert_int_equal(shape.layers[l].n_heads, layer->n_kv_heads);
        assert_int_equal(shape.layers[l].key_dim, layer->key_dim);
        assert_int_equal(layer->v.data == NULL, is_global); /* its keys, before their norm */
        assert_int_equal(m->net.ropes[layer->rope].rot_dim, layer->key_dim);
    }
    assert_false(model_capabilities(m).reduces);
    assert_int_equal(m->net.hp.n_kv_heads, 2);
    assert_int_equal(m->net.hp.key_dim, 24);
    assert_int_equal(kv_shape_token_bytes(&shape), 2 * 2 * (3 * 2 * 16 + 2 * 24));
    model_close(m);
    m = open_golden("gemma4");
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) {
        const model_layer *layer = &m->net.layers[l];
        assert_int_equal(layer->n_ff, layer->owns_kv ? 64 : 128);
        assert_int_equal(layer->ffn.up.n_out, layer->n_ff);
        assert_int_equal(m->kv_layers[layer->states].key_dim, layer->key_dim);
    }
    assert_int_equal(m->n_kv_layers, 3);
    model_close(m);
    assert_int_equal(open_variant("llama", "llama.feed_forward_length", add_other_widths, &m, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "but the metadata requires"));
    assert_int_equal(open_variant("llama", "llama.feed_forward_length", add_short_widths, &m, &err), RP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'llama.feed_forward_length' is not a list of numbers from 1 to 1048576 for"));
    assert_int_equal(open_variant("gemma3", "gemma3.rope.freq_base_swa", add_narrow_windows, &m, &err),
                     RP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "heads of 16 and 8 dimensions"));
}

static void parts_of_a_layer_with_embeddings_and_experts_are_named(void **state) {
    (void)state;
    expect_refused("gemma4", "blk.2.inp_gate.weight", "blk.2.inp_gote.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.2.inp_gate.weight' is missing"));
    expect_refused("gemma4", "per_layer_token_embd.weight", "per_layer_token_embt.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'per_layer_token_embd.weight' is missing"));
    expect_refused("gemma3n", "blk.2.laurel_r.weight", "blk.2.laurel_x.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.2.laurel_r.weight' is missing"));
    expect_refused("gemma3n", "altup_unembd_proj.weight", "altup_unembt_proj.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'altup_unembd_proj.weight' is missing"));
    expect_refused("gemma3n", "gemma3n.activation_sparsity_scale", "gemma3n.activation_sparsity_scole", RP_ERR_FORMAT,
                   PARTS("'gemma3n.activation_sparsity_scale' is not a list of numbers for 5 layers"));
    expect_refused("gemma4-moe", "blk.1.ffn_gate_inp.scale", "blk.1.ffn_gate_inp.scole", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.1.ffn_gate_inp.scale' is missing"));
    expect_refused("gemma4-moe", "blk.1.post_ffw_norm_2.weight", "blk.1.post_ffw_norm_3.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.1.post_ffw_norm_2.weight' is missing"));
    expect_refused("gemma4-moe", "blk.1.ffn_gate.weight", "blk.1.ffn_gote.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.1.ffn_gate.weight' is missing"));
    expect_refused("gemma4-moe", "blk.1.ffn_gate_up_exps.weight", "blk.1.ffn_gate_op_exps.weight", RP_ERR_FORMAT,
                   PARTS("tensor 'blk.1.ffn_gate_exps.weight' is missing"));
}

/* MPT without ALiBi (SEA-LION): learned positions, norms of q and k with biases. */
static void add_positions(gguf_writer *w) {
    static float zeros[1 << 16];
    rp_model *m = open_golden("mpt");
    char name[64];
    gguf_writer_f32(w, "mpt.attention.max_alibi_bias", 0.0f);
    gguf_writer_tensor(w, "position_embd.weight", KERNEL_F32, 2, (int64_t[]){m->net.hp.n_embd, m->net.hp.n_ctx_train},
                       zeros);
    for (int32_t l = 0; l < m->net.hp.n_layers; l++) {
        const char *const kinds[] = {"q_norm.weight", "q_norm.bias", "k_norm.weight", "k_norm.bias"};
        for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
            int32_t heads = i < 2 ? m->net.hp.n_heads : m->net.hp.n_kv_heads;
            snprintf(name, sizeof(name), "blk.%d.attn_%s", (int)l, kinds[i]);
            gguf_writer_tensor(w, name, KERNEL_F32, 1, (int64_t[]){(int64_t)heads * m->net.hp.key_dim}, zeros);
        }
    }
    model_close(m);
}

static void mpt_may_have_learned_positions(void **state) {
    (void)state;
    rp_model *m = variant("mpt", "mpt.attention.max_alibi_bias", add_positions);
    assert_true(m->net.positions.data && !m->net.alibi_slopes && !model_is_movable(m) &&
                m->net.layers[0].q_norm.bias.data);
    model_close(m);
}

static void add_template(gguf_writer *w) { gguf_writer_string(w, "tokenizer.chat_template", "{{ messages }}"); }

static void a_chat_template_is_the_files_text(void **state) {
    (void)state;
    rp_model_info info = {.struct_size = sizeof(info), .chat_template = "?"};
    rp_model *m = variant("mpt", NULL, add_template);
    assert_int_equal(rp_model_describe(m, &info), RP_OK);
    assert_string_equal(info.chat_template, "{{ messages }}");
    model_close(m);
    m = variant("mpt", NULL, NULL);
    assert_int_equal(rp_model_describe(m, &info), RP_OK);
    assert_null(info.chat_template);
    model_close(m);
}

/* The mock's own architecture is no prefix of a file's keys: a list of windows with that prefix was read without a
   check of its type and length. */
static void add_list_of_the_mock(gguf_writer *w) {
    gguf_writer_strings(w, "mock.attention.sliding_window_pattern", NULL, 0);
}

static void a_mock_has_no_windows(void **state) {
    (void)state;
    const gguf_variant v = {.add = add_list_of_the_mock};
    const rp_mock_options options = {.struct_size = sizeof(options)};
    rp_error err = {0};
    rp_model *m = NULL;
    char path[64];
    gguf_variant_write(golden_find(models, "llama")->path, &v, path);
    if (model_open_mock(&m, path, &options, &err)) fail_msg("%s", err.message);
    unlink(path);
    assert_int_equal(m->net.layers[0].window, 0);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_template_is_the_files_text),
        cmocka_unit_test(a_mock_has_no_windows),
        cmocka_unit_test(a_file_may_say_which_layers_have_the_window),
        cmocka_unit_test(old_files_mean_what_they_do_not_say),
        cmocka_unit_test(numbers_beside_the_shape_are_honoured_or_refused),
        cmocka_unit_test(a_list_of_equal_numbers_is_a_number),
        cmocka_unit_test(layers_have_shapes_of_their_own),
        cmocka_unit_test(parts_of_a_layer_with_embeddings_and_experts_are_named),
        cmocka_unit_test(layers_of_experts_are_those_of_the_metadata),
        cmocka_unit_test(layers_of_delta_nets_are_those_of_the_metadata),
        cmocka_unit_test(kimi_linear_has_latent_layers_without_positions),
        cmocka_unit_test(layers_with_an_indexer_have_a_kv_layer_of_its_keys),
        cmocka_unit_test(numbers_of_an_activation_are_those_of_each_layer),
        cmocka_unit_test(mpt_may_have_learned_positions),
        cmocka_unit_test(an_unknown_architecture_is_named_with_similar_ones),
        cmocka_unit_test(what_a_file_lacks_or_has_too_much_is_named),
        cmocka_unit_test(windows_follow_the_architecture),
        cmocka_unit_test(lists_name_layers),
        cmocka_unit_test(layers_rotate_as_their_architecture_says),
        cmocka_unit_test(the_context_chooses_the_factors_of_long_rope),
        cmocka_unit_test(learned_positions_bound_the_context),
    };
    models = golden_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_close(models);
    return failed;
}
