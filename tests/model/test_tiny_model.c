/* SPDX-License-Identifier: Apache-2.0 */
/* test_tiny_model.c: properties of the made-up models of other tests: the same on every run, with the tensors of their
 * shape, and with vocabularies that split English into words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "support/tiny_model.h"

typedef struct built {
    gguf_file *f;
    uint8_t *data;
    size_t bytes;
} built;

static built build(const tiny_model_shape *shape) {
    built b = {0};
    rp_error err = {0};
    if (tiny_model_write_memory(&b.data, &b.bytes, shape, &err)) fail_msg("%s", err.message);
    if (gguf_open_memory(&b.f, b.data, b.bytes, "tiny", &err)) fail_msg("%s", err.message);
    return b;
}

static void discard(built *b) {
    gguf_close(b->f);
    base_free(b->data);
}

static void expect_tensor(const built *b, const char *name, kernel_type type, int64_t n_in, int64_t n_out) {
    const gguf_tensor *t = gguf_find_tensor(b->f, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->dims[0], n_in);
    assert_int_equal(t->dims[1], n_out);
}

static void a_seed_gives_the_same_file(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    built a = build(&shape), same = build(&shape);
    shape.seed++;
    built other = build(&shape);
    assert_true(a.bytes == same.bytes && a.bytes == other.bytes);
    assert_memory_equal(a.data, same.data, a.bytes);
    assert_true(memcmp(a.data, other.data, a.bytes) != 0);
    discard(&a);
    discard(&same);
    discard(&other);
}

/* Changing one feature does not change the other tensors. */
static void tensors_do_not_depend_on_each_other(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    built plain = build(&shape);
    shape.attention_bias = shape.ffn_bias = shape.rope_freqs = true;
    shape.n_layers = 3;
    built more = build(&shape);
    for (size_t i = 0; i < gguf_n_tensors(plain.f); i++) {
        const gguf_tensor *t = gguf_tensor_at(plain.f, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
        const gguf_tensor *u = gguf_find_tensor(more.f, name);
        assert_non_null(u);
        assert_int_equal(t->bytes, u->bytes);
        assert_memory_equal(t->data, u->data, (size_t)t->bytes);
    }
    discard(&plain);
    discard(&more);
}

static void a_shape_has_its_tensors(void **state) {
    (void)state;
    tiny_model_shape s = tiny_model_defaults();
    s.n_heads = 6, s.n_kv_heads = 2, s.head_dim = 8, s.n_embd = 96, s.n_ff = 256;
    s.weight_type = KERNEL_Q4_K, s.embd_type = KERNEL_F16;
    s.attention_bias = s.ffn_bias = s.rope_freqs = true;
    s.rope_scale_factor = 4.0f;
    built b = build(&s);
    uint64_t v = 0;
    double factor = 0;
    assert_int_equal(gguf_n_tensors(b.f), 4 + 2 * (9 + 7));
    expect_tensor(&b, "token_embd.weight", KERNEL_F16, 96, 512);
    expect_tensor(&b, "output.weight", KERNEL_F16, 96, 512);
    expect_tensor(&b, "rope_freqs.weight", KERNEL_F32, 4, 1);
    expect_tensor(&b, "blk.1.attn_q.weight", KERNEL_Q8_0, 96, 48); /* 96 is no multiple of 256, but of 32 */
    expect_tensor(&b, "blk.1.attn_k.bias", KERNEL_F32, 16, 1);
    expect_tensor(&b, "blk.1.attn_output.weight", KERNEL_F32, 48, 96); /* 48 is a multiple of neither */
    expect_tensor(&b, "blk.1.ffn_down.weight", KERNEL_Q4_K, 256, 96);
    assert_true(gguf_get_u64(b.f, "llama.attention.key_length", &v) && v == 8);
    assert_true(gguf_get_f64(b.f, "llama.rope.scaling.factor", &factor) && factor == 4.0);
    discard(&b);
    s.tied_output = true;
    b = build(&s);
    assert_null(gguf_find_tensor(b.f, "output.weight"));
    discard(&b);
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    tiny_model_shape shapes[5];
    for (size_t i = 0; i < 5; i++) shapes[i] = tiny_model_defaults();
    shapes[0].n_kv_heads = 3;
    shapes[1].n_layers = 0;
    shapes[2].head_dim = 15;
    shapes[3].rope_dim = 18;
    shapes[4].n_vocab = 200;
    for (size_t i = 0; i < 5; i++) {
        rp_error err = {0};
        uint8_t *data;
        size_t bytes;
        assert_int_equal(tiny_model_write_memory(&data, &bytes, &shapes[i], &err), RP_ERR_INVALID);
        assert_true(!data && err.message[0]);
    }
}

/* English takes at most two tokens a word, and survives a round trip. */
static void expect_words(tiny_vocab_kind kind, int32_t n_vocab) {
    static const char text[] = "You are a travel guide. Plan a trip to the city for 3 days: caf\xc3\xa9!";
    static const char *const control[] = {"<|im_start|>", "<|im_end|>", NULL};
    tiny_model_shape shape = tiny_model_defaults();
    shape.vocab = kind;
    shape.n_vocab = n_vocab;
    shape.control = control;
    built b = build(&shape);
    tokenizer *t;
    token_list list = {0};
    rp_error err = {0};
    char back[256] = "";
    size_t len = 0;
    if (tokenizer_new(&t, b.f, &err)) fail_msg("%s", err.message);
    assert_int_equal(tokenizer_n_vocab(t),
                     n_vocab ? n_vocab : (int32_t)gguf_find_tensor(b.f, "token_embd.weight")->dims[1]);
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, (tokenizer_options){0}, &list, &err), 0);
    for (size_t i = 0; i < list.n; i++) {
        size_t n;
        const char *piece = tokenizer_bytes(t, list.ids[i], true, &n);
        assert_true(len + n < sizeof back);
        memcpy(back + len, piece, n);
        len += n;
    }
    assert_string_equal(back, text);
    if (list.n > 34) fail_msg("%zu tokens", list.n);
    assert_true(tokenizer_find(t, "<|im_end|>", 10) == tokenizer_n_vocab(t) - 1);
    token_list_free(&list);
    tokenizer_free(t);
    discard(&b);
}

static void text_becomes_words(void **state) {
    (void)state;
    expect_words(TINY_VOCAB_SPM, 0);
    expect_words(TINY_VOCAB_SPM, 4096);
    expect_words(TINY_VOCAB_BPE, 0);
    expect_words(TINY_VOCAB_BPE, 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_gives_the_same_file),
        cmocka_unit_test(tensors_do_not_depend_on_each_other),
        cmocka_unit_test(a_shape_has_its_tensors),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(text_becomes_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
