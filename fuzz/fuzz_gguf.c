/* fuzz_gguf.c: any bytes as a GGUF file: opening fails cleanly, or everything that the reader gives out lies inside the bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t sink;

static void touch(const void *p, uint64_t n) {
    if (n == 0) return;
    sink ^= ((const uint8_t *)p)[0];
    sink ^= ((const uint8_t *)p)[n - 1];
}

static void walk_metadata(const gguf_file *f) {
    for (size_t i = 0; i < gguf_n_metadata(f); i++) {
        gguf_string key = gguf_metadata_key(f, i), text;
        gguf_array array;
        uint64_t u;
        int64_t s;
        double d;
        bool b;
        char name[GGUF_MAX_NAME + 1];
        touch(key.bytes, key.n);
        if (key.n > GGUF_MAX_NAME) abort();
        memcpy(name, key.bytes, (size_t)key.n);
        name[key.n] = '\0';
        (void)gguf_get_u64(f, name, &u);
        (void)gguf_get_i64(f, name, &s);
        (void)gguf_get_f64(f, name, &d);
        (void)gguf_get_bool(f, name, &b);
        if (gguf_get_string(f, name, &text)) touch(text.bytes, text.n);
        if (!gguf_get_array(f, name, &array) || array.n > 100000) continue;
        if (array.type != GGUF_STRING) continue;
        gguf_string *strings = calloc((size_t)array.n + 1, sizeof(*strings));
        gguf_array_strings(&array, strings);
        for (uint64_t k = 0; k < array.n; k++) touch(strings[k].bytes, strings[k].n);
        free(strings);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gguf_file *f;
    rp_error err = {0};
    int rc = gguf_open_memory(&f, data, n, "fuzz", &err);
    if (rc) {
        if (f || err.code != rc || !err.message[0]) abort();
        return 0;
    }
    walk_metadata(f);
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        const uint8_t *begin = t->data;
        if (t->bytes > 0 && (begin < data || begin + t->bytes > data + n)) abort();
        touch(t->data, t->bytes);
    }
    gguf_close(f);
    return 0;
}
