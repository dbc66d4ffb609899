/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer.c: arbitrary bytes as a text for vocabularies of every kind, or as a vocabulary.
 *
 * First byte: bit 0 byte-level BPE, bit 1 special tokens, bit 2 space prefix, bit 3: the rest is a GGUF file, and its
 * vocabulary tokenizes a fixed text; bits 4 to 6: BPE's pre-tokenizer, or SentencePiece's algorithm. Tokens decode to
 * the original text: byte-level BPE always, SentencePiece except for its dummy space and control tokens. (No vocabulary
 * here composes or normalises.)
 */
#define _GNU_SOURCE /* memmem */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/tokenizer/tokenizer.h"
#include "support/tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const tokenizer *vocabulary(uint8_t mode) {
    static const char *const pres[8] = {"gpt-2", "llama-bpe", "gpt-4o", "falcon",
                                        "bloom", "deepseek-llm", "deepseek-v3", "smollm"};
    static const char *const control[] = {"<|im_start|>", "<|im_end|>", NULL};
    static tokenizer *made[16];
    static gguf_file *files[16]; /* live as long as the process */
    static uint8_t *images[16];
    int which = (mode & 1) << 3 | (mode >> 4 & 7);
    tiny_model_shape shape = tiny_model_defaults();
    size_t bytes;
    if (made[which]) return made[which];
    shape.vocab = mode & 1 ? TINY_VOCAB_BPE : mode & 16 ? TINY_VOCAB_UNIGRAM
                                                        : TINY_VOCAB_SPM;
    shape.pre = pres[which & 7];
    shape.control = control;
    if (tiny_model_write_memory(&images[which], &bytes, &shape, NULL) ||
        gguf_open_memory(&files[which], images[which], bytes, "tiny", NULL) ||
        tokenizer_new(&made[which], files[which], NULL))
        abort();
    return made[which];
}

/* The decoded tokens equal the text. */
static void check_round_trip(const tokenizer *t, const token_list *l, const char *text, size_t n, bool prefixed) {
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t k;
        const char *bytes = tokenizer_bytes(t, l->ids[i], true, &k);
        if (!bytes) abort();
        if (prefixed && i == 0 && k > 0 && bytes[0] == ' ') bytes++, k--;
        if (k > n - at || memcmp(bytes, text + at, k) != 0) abort();
        at += k;
    }
    if (at != n) abort();
}

static void encode(const uint8_t *data, size_t n, uint8_t mode) {
    const tokenizer *t = vocabulary(mode);
    tokenizer_options o = {.parse_special = (mode & 2) != 0, .space_prefix = (mode & 4) != 0};
    token_list l = {0};
    rp_error err = {0};
    int rc = tokenizer_encode(t, (const char *)data, n, o, &l, &err);
    if (rc && rc != RP_ERR_LIMIT && rc != RP_ERR_MEMORY) abort();
    bool prefix = o.space_prefix && tokenizer_has_space_prefix(t);
    /* a text with U+2581 decodes to a space, and after a special token a dummy space is inside the text */
    bool ambiguous = !(mode & 1) && (memmem(data, n, "\xe2\x96\x81", 3) || (prefix && o.parse_special));
    if (!rc && !ambiguous) check_round_trip(t, &l, (const char *)data, n, prefix);
    token_list_free(&l);
}

static void open_vocabulary(const uint8_t *data, size_t n) {
    gguf_file *f;
    tokenizer *t;
    token_list l = {0};
    if (gguf_open_memory(&f, data, n, "fuzz", NULL)) return;
    if (!tokenizer_new(&t, f, NULL)) {
        static const char text[] = "Hello <|im_end|> 123  \xf0\x9f\xa6\x99\n\xff w\xc3\xb6rld";
        (void)tokenizer_encode(t, text, sizeof(text) - 1,
                               (tokenizer_options){.parse_special = true, .space_prefix = true}, &l, NULL);
        for (size_t i = 0; i < l.n; i++) {
            size_t k;
            if (!tokenizer_bytes(t, l.ids[i], true, &k)) abort();
        }
        token_list_free(&l);
        tokenizer_free(t);
    }
    gguf_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    if (data[0] & 8) open_vocabulary(data + 1, n - 1);
    else encode(data + 1, n - 1, data[0]);
    return 0;
}
