/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_seeds.c: writes small GGUF files as seeds for a fuzzer: gguf_seeds DIR (fuzz/corpus/gguf).
 *
 * One seed for each element of the format, so that every branch of the reader is one mutation away. Deterministic.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "model/gguf/gguf_writer.h"
#include "support/tiny_model.h"

/* [[1, 2], []] of U8 */
static const uint8_t nested[] = {9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
                                 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};

static void add_scalars(gguf_writer *w) {
    static const uint8_t value[8] = {1};
    static const gguf_value_type types[] = {GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32,
                                            GGUF_F32, GGUF_BOOL, GGUF_U64, GGUF_I64, GGUF_F64};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++) {
        char key[16];
        snprintf(key, sizeof key, "v%d", (int)types[i]);
        gguf_writer_scalar(w, key, types[i], value);
    }
}

static void add_arrays(gguf_writer *w) {
    static const char *const strings[] = {"a", "", "bc"};
    static const uint8_t zeros[64];
    gguf_writer_strings(w, "strings", strings, BASE_ARRAY_LEN(strings));
    gguf_writer_array(w, "bools", GGUF_BOOL, zeros, 3);
    gguf_writer_array(w, "i32", GGUF_I32, zeros, 3);
    gguf_writer_array(w, "f64", GGUF_F64, zeros, 2);
    gguf_writer_raw(w, "nested", GGUF_ARRAY, nested, sizeof nested);
}

static void add_tensors(gguf_writer *w) {
    static const float data[512];
    static const kernel_type types[] = {
#define X(name, number, block, bytes) KERNEL_##name,
        KERNEL_TYPES(X)
#undef X
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++) {
        int64_t block = kernel_type_block(types[i]);
        gguf_writer_tensor(w, kernel_type_name(types[i]), types[i], 1 + (int)(i % 4), (int64_t[]){block, 2, 1, 1},
                           data);
    }
}

typedef struct seed {
    const char *name;
    uint32_t version, alignment;
    void (*add[3])(gguf_writer *w);
} seed;

static const seed seeds[] = {
    {"empty", 3, 0, {0}},
    {"version2", 2, 0, {add_scalars}},
    {"scalars", 3, 8, {add_scalars}},
    {"arrays", 3, 0, {add_arrays}},
    {"tensors", 3, 64, {add_tensors}},
    {"all", 3, 16, {add_scalars, add_arrays, add_tensors}},
};

static int save(const gguf_writer *w, const char *dir, const char *name, rp_error *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return gguf_writer_save(w, path, err);
}

static int write_seed(const seed *s, const char *dir, rp_error *err) {
    gguf_writer *w = gguf_writer_new(s->version, s->alignment);
    if (!w) return RP_ERR_MEMORY;
    for (size_t i = 0; i < BASE_ARRAY_LEN(s->add) && s->add[i]; i++) s->add[i](w);
    int rc = save(w, dir, s->name, err);
    gguf_writer_free(w);
    return rc;
}

/* A complete model of minimum size. */
static int write_model(const char *dir, rp_error *err) {
    tiny_model_shape shape = tiny_model_defaults();
    char path[1024];
    shape.n_layers = shape.n_heads = shape.n_kv_heads = 1;
    shape.n_embd = shape.head_dim = shape.n_ff = 4;
    shape.n_vocab = 260;
    shape.attention_bias = shape.tied_output = shape.rope_freqs = true;
    snprintf(path, sizeof path, "%s/model", dir);
    return tiny_model_write(path, &shape, err);
}

/* Two parts of a split model and the length of the first, in fuzz_gguf.c's format. */
static int write_split(const char *dir, rp_error *err) {
    static const float data[64];
    uint8_t *parts[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    int rc = RP_OK;
    for (uint32_t no = 0; !rc && no < 2; no++) {
        gguf_writer *w = gguf_writer_new(3, 0);
        if (!w) return RP_ERR_MEMORY;
        gguf_writer_u32(w, "split.no", no);
        gguf_writer_u32(w, "split.count", 2);
        gguf_writer_u32(w, "split.tensors.count", 2);
        gguf_writer_tensor(w, no ? "b" : "a", KERNEL_Q8_0, 1, (int64_t[]){32}, data);
        rc = gguf_writer_save_memory(w, &parts[no], &n[no], err);
        gguf_writer_free(w);
    }
    char path[1024];
    snprintf(path, sizeof path, "%s/split", dir);
    FILE *f = rc ? NULL : fopen(path, "wb");
    uint32_t first = (uint32_t)n[0];
    for (int no = 0; f && no < 2; no++) fwrite(parts[no], 1, n[no], f);
    if (f) fwrite(&first, sizeof first, 1, f);
    if (!rc && (!f || fclose(f))) rc = RP_ERR_IO;
    base_free(parts[0]);
    base_free(parts[1]);
    return rc;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--help"))
        return printf("usage: gguf_seeds DIR\nwrites the seeds of fuzz_gguf\n"), 0;
    if (argc != 2 || argv[1][0] == '-') return fprintf(stderr, "usage: gguf_seeds DIR\n"), 2;
    rp_error err = {0};
    int rc = write_model(argv[1], &err);
    if (!rc) rc = write_split(argv[1], &err);
    for (size_t i = 0; !rc && i < BASE_ARRAY_LEN(seeds); i++) rc = write_seed(&seeds[i], argv[1], &err);
    if (rc) fprintf(stderr, "gguf_seeds: %s\n", err.message[0] ? err.message : rp_code_text((rp_code)rc));
    return rc ? 1 : 0;
}
