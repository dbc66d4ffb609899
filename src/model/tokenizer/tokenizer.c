/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c: opening a vocabulary, and look-ups in it. tokenizer_internal.h lists the files of each kind.
 * All data of the file are checked at opening. */
#include "model/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

/* ---- reading the vocabulary ---- */

static int tokenizer_damaged(const gguf_file *f, rp_error *err, const char *key, const char *what) {
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "metadata '%s' %s", key, what);
}

static int read_texts(tokenizer *t, const gguf_file *f, rp_error *err) {
    const char *key = "tokenizer.ggml.tokens";
    gguf_array a;
    if (!gguf_get_array(f, key, &a) || a.type != GGUF_STRING)
        return tokenizer_damaged(f, err, key, "is missing or not a list of strings");
    if (a.n < 1 || a.n > TOKENIZER_MAX_VOCAB) return tokenizer_damaged(f, err, key, "is empty or too long");
    t->n_vocab = (int32_t)a.n;
    size_t n = (size_t)a.n;
    t->texts = base_calloc(n, sizeof(*t->texts));
    t->types = base_calloc(n, sizeof(*t->types));
    t->scores = base_calloc(n, sizeof(*t->scores));
    t->ends = base_calloc(n, sizeof(*t->ends));
    t->byte_start = base_calloc(n + 1, sizeof(*t->byte_start));
    if (!t->texts || !t->types || !t->scores || !t->ends || !t->byte_start || token_map_init(&t->by_text, n))
        return base_fail_memory(err, n * 64, "the vocabulary");
    gguf_array_strings(&a, t->texts);
    for (size_t i = 0; i < n; i++)
        if (t->texts[i].n > TOKENIZER_MAX_TOKEN_BYTES)
            return tokenizer_damaged(f, err, key, "contains a token of more than 64 KiB");
    tokenizer_map_fill(t);
    return RP_OK;
}

/* Types (absent: all normal) and scores (absent: all 0). */
static int tokenizer_read_attributes(tokenizer *t, const gguf_file *f, rp_error *err) {
    gguf_array types, scores;
    memset(t->types, TOKEN_NORMAL, (size_t)t->n_vocab);
    if (gguf_get_array(f, "tokenizer.ggml.token_type", &types)) {
        if ((types.type != GGUF_I32 && types.type != GGUF_U32) || types.n != (uint64_t)t->n_vocab)
            return tokenizer_damaged(f, err, "tokenizer.ggml.token_type", "does not have one 32-bit number per token");
        for (int32_t i = 0; i < t->n_vocab; i++) {
            int32_t type;
            memcpy(&type, (const char *)types.data + 4 * (size_t)i, 4);
            t->types[i] = type >= TOKEN_NORMAL && type <= TOKEN_BYTE ? (uint8_t)type : TOKEN_NORMAL;
        }
    }
    if (!gguf_get_array(f, "tokenizer.ggml.scores", &scores))
        return t->kind == TOKENIZER_BPE || t->kind == TOKENIZER_WORDPIECE
                   ? RP_OK
                   : tokenizer_damaged(f, err, "tokenizer.ggml.scores", "is missing");
    if (scores.type != GGUF_F32 || scores.n != (uint64_t)t->n_vocab)
        return tokenizer_damaged(f, err, "tokenizer.ggml.scores", "does not have one F32 per token");
    memcpy(t->scores, scores.data, sizeof(float) * (size_t)t->n_vocab);
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (t->scores[i] != t->scores[i])
            return tokenizer_damaged(f, err, "tokenizer.ggml.scores", "contains a score that is not a number");
    return RP_OK;
}

static int32_t read_id(const tokenizer *t, const gguf_file *f, const char *key, int32_t fallback) {
    uint64_t id;
    if (!gguf_get_u64(f, key, &id)) return fallback < t->n_vocab ? fallback : -1;
    return id < (uint64_t)t->n_vocab ? (int32_t)id : -1;
}

static void tokenizer_read_ids(tokenizer *t, const gguf_file *f) {
    static const struct {
        int32_t bos, eos, unk, pad, sep;
    } defaults[] = {
        [TOKENIZER_SPM] = {1, 2, 0, -1, -1},
        [TOKENIZER_UNIGRAM] = {-1, 1, 2, 0, -1},
        [TOKENIZER_BPE] = {-1, -1, -1, -1, -1},
        [TOKENIZER_WORDPIECE] = {101, -1, 100, 0, 102},
    };
    t->bos = read_id(t, f, "tokenizer.ggml.bos_token_id", defaults[t->kind].bos);
    t->eos = read_id(t, f, "tokenizer.ggml.eos_token_id", defaults[t->kind].eos);
    t->unk = read_id(t, f, "tokenizer.ggml.unknown_token_id", defaults[t->kind].unk);
    t->pad = read_id(t, f, "tokenizer.ggml.padding_token_id", defaults[t->kind].pad);
    t->eot = read_id(t, f, "tokenizer.ggml.eot_token_id", -1);
    t->sep = read_id(t, f, "tokenizer.ggml.seperator_token_id", defaults[t->kind].sep); /* as GGUF spells it */
    if (t->kind == TOKENIZER_WORDPIECE) t->bos = read_id(t, f, "tokenizer.ggml.cls_token_id", t->bos);
    BASE_ASSERT(t->bos < t->n_vocab && t->eos < t->n_vocab && t->unk < t->n_vocab); /* invariant 3 of src/model */
}

/* ---- the bytes of every token ---- */

/* The byte of "<0xNN>", or -1. */
static int byte_token(gguf_string s) {
    if (s.n != 6 || memcmp(s.bytes, "<0x", 3) != 0 || s.bytes[5] != '>') return -1;
    int high = base_hex_digit(s.bytes[3]), low = base_hex_digit(s.bytes[4]);
    return high >= 0 && low >= 0 ? high * 16 + low : -1;
}

static size_t spm_text_to_bytes(const char *text, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        bool space = n - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        out[used++] = space ? ' ' : text[i];
        i += space ? 3 : 1;
    }
    return used;
}

static size_t bytes_of_token(const tokenizer *t, int32_t id, char *out) {
    BASE_DCHECK(id >= 0 && id < t->n_vocab);
    gguf_string s = t->texts[id];
    int byte = t->types[id] == TOKEN_BYTE ? byte_token(s) : -1;
    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    bool plain = t->types[id] == TOKEN_NORMAL || t->types[id] == TOKEN_UNUSED;
    if (plain && t->kind == TOKENIZER_BPE) return bpe_text_to_bytes(s.bytes, (size_t)s.n, out);
    if (t->kind != TOKENIZER_BPE && (plain || t->types[id] == TOKEN_USER_DEFINED))
        return spm_text_to_bytes(s.bytes, (size_t)s.n, out);
    if (s.n > 0) memcpy(out, s.bytes, (size_t)s.n);
    return (size_t)s.n;
}

static int make_bytes(tokenizer *t, rp_error *err) {
    size_t total = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) total += (size_t)t->texts[i].n + 1;
    /* a byte token's text is longer than its byte; "" needs a NUL as well */
    t->bytes = base_alloc(total + (size_t)t->n_vocab);
    if (!t->bytes) return base_fail_memory(err, total, "the vocabulary");
    size_t used = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        t->byte_start[i] = used;
        used += bytes_of_token(t, i, t->bytes + used);
        t->bytes[used++] = '\0';
    }
    BASE_ASSERT(used <= total + (size_t)t->n_vocab);
    t->byte_start[t->n_vocab] = used;
    return RP_OK;
}

static void map_byte_tokens(tokenizer *t) {
    memset(t->byte_tokens, 0xff, sizeof(t->byte_tokens));
    for (int32_t i = 0; i < t->n_vocab; i++) {
        int byte = t->types[i] == TOKEN_BYTE ? byte_token(t->texts[i]) : -1;
        if (byte >= 0 && t->byte_tokens[byte] < 0) t->byte_tokens[byte] = i;
    }
}

/* ---- opening ---- */

static int find_kind(tokenizer *t, const gguf_file *f, rp_error *err) {
    static const char *const names[] = {
        [TOKENIZER_SPM] = "llama",
        [TOKENIZER_UNIGRAM] = "t5",
        [TOKENIZER_BPE] = "gpt2",
        [TOKENIZER_WORDPIECE] = "bert",
    };
    gguf_string model;
    BASE_ASSERT(t->kind == TOKENIZER_SPM); /* 0: until another is found */
    if (!gguf_get_string(f, "tokenizer.ggml.model", &model))
        return tokenizer_damaged(f, err, "tokenizer.ggml.model", "is missing");
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        if (!gguf_string_is(model, names[i])) continue;
        t->kind = (tokenizer_kind)i;
        return RP_OK;
    }
    t->is_ranked = gguf_string_is(model, "gemma4");
    if (t->is_ranked) return RP_OK; /* TOKENIZER_SPM */
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(f), 0,
                        "vocabulary '%.*s' is not supported (supported: llama, gpt2, t5, bert, gemma4)",
                        (int)BASE_MIN(model.n, 64), model.bytes);
}

static int tokenizer_open_all(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc;
    if ((rc = find_kind(t, f, err)) || (rc = read_texts(t, f, err)) || (rc = tokenizer_read_attributes(t, f, err)))
        return rc;
    tokenizer_read_ids(t, f);
    infill_open(t, f);
    map_byte_tokens(t);
    if (t->kind == TOKENIZER_BPE) rc = bpe_open(t, f, err);
    else if (t->kind == TOKENIZER_WORDPIECE) wordpiece_open(t);
    else rc = spm_open(t, f, err);
    if (rc) return rc;
    gguf_get_bool(f, "tokenizer.ggml.add_bos_token", &t->adds_bos);
    gguf_get_bool(f, "tokenizer.ggml.add_eos_token", &t->adds_eos);
    gguf_get_bool(f, "tokenizer.ggml.add_sep_token", &t->adds_sep);
    if ((rc = make_bytes(t, err))) return rc;
    return special_open(t, f, err);
}

int tokenizer_new(tokenizer **out, const gguf_file *f, rp_error *err) {
    *out = NULL;
    tokenizer *t = base_calloc(1, sizeof(*t));
    if (!t) return base_fail_memory(err, sizeof(*t), "the tokenizer");
    int rc = tokenizer_open_all(t, f, err);
    if (rc) tokenizer_free(t);
    else *out = t;
    return rc;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    spm_close(t);
    bpe_close(t);
    base_free(t->texts);
    base_free(t->types);
    base_free(t->scores);
    base_free(t->ends);
    base_free(t->by_text.slots);
    base_free(t->bytes);
    base_free(t->byte_start);
    base_free(t->specials.texts);
    base_free(t);
}

/* ---- look-ups ---- */

int32_t tokenizer_n_vocab(const tokenizer *t) { return t->n_vocab; }

const char *tokenizer_bytes(const tokenizer *t, int32_t id, bool special, size_t *n) {
    if (id < 0 || id >= t->n_vocab) {
        *n = 0;
        return NULL;
    }
    bool hidden = !special && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN);
    const gguf_string bytes = hidden ? (gguf_string){"", 0} : token_bytes(t, id);
    *n = (size_t)bytes.n;
    return bytes.bytes;
}

const char *tokenizer_answer_bytes(const tokenizer *t, int32_t id, bool special, size_t *n) {
    const bool named = special && id >= 0 && id < t->n_vocab && t->types[id] == TOKEN_CONTROL && !t->ends[id];
    return tokenizer_bytes(t, id, named, n);
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n) { return tokenizer_map_find(t, text, n); }
int32_t tokenizer_control_at(const tokenizer *t, const char *text, size_t n) {
    return n > 0 ? special_at(t, text, n, true) : -1;
}
int32_t tokenizer_bos(const tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const tokenizer *t) { return t->eos; }
int32_t tokenizer_unk(const tokenizer *t) { return t->unk; }
int32_t tokenizer_pad(const tokenizer *t) { return t->pad; }
int32_t tokenizer_sep(const tokenizer *t) { return t->sep; }
bool tokenizer_adds_bos(const tokenizer *t) { return t->adds_bos; }
bool tokenizer_has_space_prefix(const tokenizer *t) { return t->space_prefix; }
bool tokenizer_is_end(const tokenizer *t, int32_t id) { return id >= 0 && id < t->n_vocab && t->ends[id]; }
