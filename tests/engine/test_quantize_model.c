/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantize_model.c: rp_model_quantize: every tensor and key of the copy, fallbacks, errors, cancellation, failing
 * allocations. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "reprise_tools.h"
#include "support/golden.h"
#include "support/tiny_model.h"

static char folder[] = "/tmp/reprise-quantize-XXXXXX", in[64], out[64];

static int open_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(in, sizeof in, "%s/in.gguf", folder);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    return 0;
}

/* Fails if a test, or the library, has left a file. */
static int remove_folder(void **state) {
    (void)state;
    remove(in);
    remove(out);
    return rmdir(folder);
}

/* Rows of 256 and 512: whole blocks of every type. */
static tiny_model_shape wide_shape(kernel_type type) {
    tiny_model_shape s = tiny_model_defaults();
    s.n_embd = 256, s.n_ff = 512, s.head_dim = 64;
    s.weight_type = s.embd_type = type;
    s.attention_bias = true;
    s.chat_template = "a template";
    return s;
}

static void write_in(const tiny_model_shape *s) {
    rp_error err = {0};
    if (tiny_model_write(in, s, &err)) fail_msg("%s", err.message);
}

static void quantize(const char *type, int32_t threads) {
    rp_quantize_options o = rp_quantize_options_defaults();
    rp_error err = {0};
    o.n_threads = threads;
    if (rp_model_quantize(in, out, type, &o, &err)) fail_msg("%s", err.message);
}

static gguf_file *open_file(const char *path) {
    gguf_file *f;
    rp_error err = {0};
    if (gguf_open(&f, path, &err)) fail_msg("%s", err.message);
    return f;
}

static const char *c_string(gguf_string s, char text[GGUF_MAX_NAME + 1]) {
    memcpy(text, s.bytes, (size_t)s.n);
    text[s.n] = '\0';
    return text;
}

/* ---- the copy
   ------------------------------------------------------------------------------------------------------ */

/* `b` holds the blocks that kernel_quantize makes of a's values. */
static void check_tensor(const gguf_tensor *a, const gguf_tensor *b, kernel_type type) {
    char name[GGUF_MAX_NAME + 1];
    int64_t n = a->dims[0] * a->dims[1];
    float *values = malloc((size_t)n * sizeof *values);
    void *expected = malloc((size_t)kernel_row_bytes(type, n));
    if (!b || b->type != type) fail_msg("%s: %s", c_string(a->name, name), b ? kernel_type_name(b->type) : "not there");
    assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    kernel_dequantize(a->type, a->data, values, n);
    kernel_quantize(type, values, expected, n);
    assert_int_equal(b->bytes, kernel_row_bytes(type, n));
    assert_memory_equal(b->data, expected, (size_t)b->bytes);
    free(values);
    free(expected);
}

static bool is_vector(const gguf_tensor *t) { return t->dims[1] == 1; }

static void check_metadata(const gguf_file *a, const gguf_file *b, uint64_t file_type) {
    size_t found = 0;
    for (size_t i = 0; i < gguf_n_metadata(a); i++) {
        gguf_value_type type, other_type;
        gguf_string key = gguf_metadata_key(a, i);
        gguf_bytes raw = gguf_metadata_raw(a, i, &type);
        for (size_t k = 0; k < gguf_n_metadata(b); k++) {
            gguf_string other = gguf_metadata_key(b, k);
            if (other.n != key.n || memcmp(other.bytes, key.bytes, (size_t)key.n)) continue;
            gguf_bytes copy = gguf_metadata_raw(b, k, &other_type);
            assert_true(type == other_type && raw.n == copy.n);
            assert_memory_equal(raw.data, copy.data, raw.n);
            found++;
        }
    }
    uint64_t value = 0;
    assert_int_equal(found, gguf_n_metadata(a));
    assert_int_equal(gguf_n_metadata(b), found + 2);
    assert_true(gguf_get_u64(b, "general.file_type", &value) && value == file_type);
    assert_true(gguf_get_u64(b, "general.quantization_version", &value) && value == 2);
}

static void check_copy(const char *name, kernel_type type, uint64_t file_type) {
    gguf_file *a = open_file(in), *b = open_file(out);
    assert_int_equal(gguf_n_tensors(a), gguf_n_tensors(b));
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const gguf_tensor *t = gguf_tensor_at(a, i);
        check_tensor(t, gguf_tensor_at(b, i), is_vector(t) ? KERNEL_F32 : type);
    }
    check_metadata(a, b, file_type);
    gguf_close(a);
    gguf_close(b);
    rp_model *m;
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_error err = {0};
    if (rp_model_open(&m, out, NULL, &err)) fail_msg("%s", err.message);
    rp_model_describe(m, &info);
    assert_string_equal(info.weights, name);
    rp_model_close(m);
}

static void every_tensor_and_key_is_copied(void **state) {
    (void)state;
    static const kernel_type sources[] = {KERNEL_F32, KERNEL_F16, KERNEL_BF16};
    for (size_t i = 0; i < BASE_ARRAY_LEN(sources); i++) {
        tiny_model_shape s = wide_shape(sources[i]);
        write_in(&s);
        quantize("Q8_0", 2);
        check_copy("Q8_0", KERNEL_Q8_0, 7);
    }
    quantize("Q4_0", 2);
    check_copy("Q4_0", KERNEL_Q4_0, 2);
    quantize("Q4_K", 2);
    check_copy("Q4_K", KERNEL_Q4_K, 14);
    quantize("Q6_K", 2);
    check_copy("Q6_K", KERNEL_Q6_K, 18);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    tiny_model_shape s = wide_shape(KERNEL_F32);
    base_buffer one, five;
    write_in(&s);
    quantize("Q4_K", 1);
    assert_int_equal(base_file_read(out, 1 << 24, &one, NULL), 0);
    quantize("Q4_K", 5);
    assert_int_equal(base_file_read(out, 1 << 24, &five, NULL), 0);
    assert_int_equal(one.len, five.len);
    assert_memory_equal(one.data, five.data, one.len);
    base_buffer_free(&one);
    base_buffer_free(&five);
}

/* ---- fallbacks
   ------------------------------------------------------------------------------------------------------ */

typedef struct steps {
    int tensors, fallbacks, ends, stop_at;
    uint64_t done;
} steps;

static bool count_steps(void *user, const rp_quantize_step *step) {
    steps *s = user;
    assert_true(step->done_bytes >= s->done && step->done_bytes <= step->total_bytes);
    s->done = step->done_bytes;
    s->ends += step->tensor == NULL;
    if (!step->tensor) assert_true(step->done_bytes == step->total_bytes && step->total_bytes > 0);
    if (step->tensor && step->is_first_row) {
        s->tensors++;
        s->fallbacks += step->is_fallback;
        if (step->is_fallback) assert_string_equal(step->from, "F16");
    }
    return s->tensors != s->stop_at;
}

/* 96 is divisible by 32, 48 by neither, 256 by both. */
static void check_fallback(const char *type, kernel_type wide, kernel_type narrow, int fallbacks) {
    steps s = {0};
    rp_error err = {0};
    rp_quantize_options o = {.struct_size = sizeof(o), .n_threads = 1, .on_step = count_steps, .user = &s};
    if (rp_model_quantize(in, out, type, &o, &err)) fail_msg("%s", err.message);
    gguf_file *f = open_file(out);
    assert_int_equal(gguf_find_tensor(f, "blk.0.ffn_down.weight")->type, wide);
    assert_int_equal(gguf_find_tensor(f, "blk.0.ffn_up.weight")->type, narrow);
    assert_int_equal(gguf_find_tensor(f, "blk.0.attn_output.weight")->type, KERNEL_F16);
    assert_int_equal(gguf_find_tensor(f, "blk.0.attn_norm.weight")->type, KERNEL_F32);
    assert_int_equal(s.tensors, gguf_n_tensors(f));
    assert_int_equal(s.fallbacks, fallbacks);
    assert_int_equal(s.ends, 1);
    gguf_close(f);
}

static void rows_that_are_not_whole_blocks_get_another_type(void **state) {
    (void)state;
    tiny_model_shape s = tiny_model_defaults();
    s.n_embd = 96, s.n_heads = 3, s.n_kv_heads = 1, s.head_dim = 16, s.n_ff = 256;
    s.weight_type = s.embd_type = KERNEL_F16;
    write_in(&s);
    gguf_file *f = open_file(in);
    int matrices = 0;
    for (size_t i = 0; i < gguf_n_tensors(f); i++) matrices += !is_vector(gguf_tensor_at(f, i));
    gguf_close(f);
    check_fallback("Q4_K", KERNEL_Q4_K, KERNEL_Q5_0, matrices - 2);
    check_fallback("Q6_K", KERNEL_Q6_K, KERNEL_Q8_0, matrices - 2);
    check_fallback("Q8_0", KERNEL_Q8_0, KERNEL_Q8_0, 2);
    check_fallback("Q4_0", KERNEL_Q4_0, KERNEL_Q4_0, 2);
}

/* Tensors that no matrix product uses are F32 in every family: otherwise the copy could not be opened (biases of
 * experts) or would choose other experts. */
static void copies_of_every_family_can_be_opened(void **state) {
    (void)state;
    static const char *const small[] = {".bias", "norm", "ffn_gate_inp", "position_embd", "ssm_conv1d",
                                        "shortconv.conv", "ssm_a", "ssm_beta", "ssm_ba", "ssm_d"};
    golden *g = golden_open();
    for (int32_t k = 0; k < g->n_models; k++) {
        rp_error err = {0};
        rp_model *m;
        if (strcmp(g->models[k].name, "gpt-oss-mxfp4") == 0) continue; /* already quantized */
        for (int t = 0; t < 2; t++) {
            if (rp_model_quantize(g->models[k].path, out, t ? "Q4_K" : "Q8_0", NULL, &err)) fail_msg("%s", err.message);
            if (rp_model_open(&m, out, NULL, &err)) fail_msg("%s: %s", g->models[k].name, err.message);
            rp_model_close(m);
        }
        gguf_file *f = open_file(out);
        for (size_t i = 0; i < gguf_n_tensors(f); i++) {
            char name[GGUF_MAX_NAME + 1];
            c_string(gguf_tensor_at(f, i)->name, name);
            for (size_t s = 0; s < BASE_ARRAY_LEN(small); s++)
                if (strstr(name, small[s])) assert_int_equal(gguf_tensor_at(f, i)->type, KERNEL_F32);
        }
        gguf_close(f);
    }
    golden_close(g);
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

static void expect_error(const char *from, const char *to, const char *type, int code, const char *says) {
    rp_error err = {0};
    int rc = rp_model_quantize(from, to, type, NULL, &err);
    if (rc != code || !strstr(err.message, says)) fail_msg("%d: %s", rc, err.message);
}

static void what_cannot_be_done_is_said(void **state) {
    (void)state;
    tiny_model_shape s = wide_shape(KERNEL_F32);
    char link_path[64];
    write_in(&s);
    remove(out);
    expect_error(in, out, "Q3_K", RP_ERR_NAME, "cannot quantize to 'Q3_K': give one of Q8_0, Q4_0, Q4_K, Q6_K");
    expect_error(in, in, "Q8_0", RP_ERR_INVALID, "would overwrite the model itself");
    snprintf(link_path, sizeof link_path, "%s/link.gguf", folder);
    assert_int_equal(link(in, link_path), 0);
    expect_error(in, link_path, "Q8_0", RP_ERR_INVALID, "would overwrite the model itself");
    assert_int_equal(unlink(link_path), 0);
    expect_error("/nowhere/a.gguf", out, "Q8_0", RP_ERR_IO, "/nowhere/a.gguf");
    expect_error(in, "/nowhere/b.gguf", "Q8_0", RP_ERR_IO, "/nowhere/b.gguf");
    expect_error(in, folder, "Q8_0", RP_ERR_IO, "it is a directory");
    expect_error(NULL, out, "Q8_0", RP_ERR_INVALID, "are needed");
    rp_quantize_options o = {.struct_size = sizeof(o), .n_threads = -1};
    assert_int_equal(rp_model_quantize(in, out, "Q8_0", &o, NULL), RP_ERR_INVALID);
    assert_int_not_equal(access(out, F_OK), 0);
    s.weight_type = KERNEL_Q8_0;
    write_in(&s);
    expect_error(in, out, "Q4_0", RP_ERR_UNSUPPORTED, "is already Q8_0: quantize a model in F32, F16 or BF16");
}

static void write_part(const char *path, uint32_t no, const char *tensor) {
    static const float zeros[64];
    rp_error err = {0};
    gguf_writer *w = gguf_writer_new(3, 0);
    assert_non_null(w);
    gguf_writer_u32(w, "split.no", no);
    gguf_writer_u32(w, "split.count", 2);
    gguf_writer_u32(w, "split.tensors.count", 2);
    gguf_writer_tensor(w, tensor, KERNEL_F32, 2, (const int64_t[]){32, 2}, zeros);
    if (gguf_writer_save(w, path, &err)) fail_msg("%s", err.message);
    gguf_writer_free(w);
}

static void no_part_of_a_split_model_is_replaced(void **state) {
    (void)state;
    char parts[2][64];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/s-0000%u-of-00002.gguf", folder, i + 1);
        write_part(parts[i], i, i ? "b.weight" : "a.weight");
    }
    for (int i = 0; i < 2; i++)
        expect_error(parts[0], parts[i], "Q8_0", RP_ERR_INVALID, "would overwrite the model itself");
    assert_int_equal(rp_model_quantize(parts[0], out, "Q8_0", NULL, NULL), RP_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(remove(parts[i]), 0);
}

/* The older file of that name still exists, and nothing else. */
static void stopping_leaves_the_older_file(void **state) {
    (void)state;
    tiny_model_shape shape = wide_shape(KERNEL_F16);
    write_in(&shape);
    quantize("Q8_0", 1);
    for (int at = 1; at < 8; at += 3) {
        steps s = {.stop_at = at};
        rp_quantize_options o = {.struct_size = sizeof(o), .n_threads = 2, .on_step = count_steps, .user = &s};
        rp_error err = {0};
        assert_int_equal(rp_model_quantize(in, out, "Q4_0", &o, &err), RP_ERR_CANCELLED);
        assert_non_null(strstr(err.message, "was not written"));
        assert_int_equal(s.tensors, at);
    }
    check_copy("Q8_0", KERNEL_Q8_0, 7);
}

static void every_failed_allocation_is_a_clean_error(void **state) {
    (void)state;
    tiny_model_shape s = tiny_model_defaults();
    write_in(&s);
    remove(out);
    int rc = RP_ERR_MEMORY;
    for (uint64_t n = 1; rc; n++) {
        rp_quantize_options o = {.struct_size = sizeof(o), .n_threads = 1};
        rp_error err = {0};
        base_alloc_fail_at(n, 0);
        rc = rp_model_quantize(in, out, "Q8_0", &o, &err);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != RP_ERR_MEMORY || !err.message[0])) fail_msg("allocation %d: %d, %s", (int)n, rc, err.message);
        if (rc) assert_int_not_equal(access(out, F_OK), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_and_key_is_copied),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(rows_that_are_not_whole_blocks_get_another_type),
        cmocka_unit_test(copies_of_every_family_can_be_opened),
        cmocka_unit_test(what_cannot_be_done_is_said),
        cmocka_unit_test(no_part_of_a_split_model_is_replaced),
        cmocka_unit_test(stopping_leaves_the_older_file),
        cmocka_unit_test(every_failed_allocation_is_a_clean_error),
    };
    return cmocka_run_group_tests_name("quantize_model", tests, open_folder, remove_folder);
}
