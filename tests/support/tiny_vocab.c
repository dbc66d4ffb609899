/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_vocab.c: makes small vocabularies.
 *
 * Pieces come from a list of words: every prefix of a word is a piece, shorter prefixes first. So each piece is the
 * previous one plus a character, both families of tokenizers can reach every one by merging pairs, and "the best
 * merge first" (by score or by rank) grows words from their left.
 *
 * Threads: none of its own.
 */
#include "tiny_vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

#define TOKEN_BYTES 48 /* the longest token, with its NUL */
#define TOKENS_MAX 262144
#define PREFIX_MAX 16 /* characters of the longest word */

enum { TYPE_NORMAL = 1,
       TYPE_UNKNOWN = 2,
       TYPE_CONTROL = 3,
       TYPE_UNUSED = 5,
       TYPE_BYTE = 6 };

/* '_' is the leading space. */
static const char *const words[] = {
    "_the",
    "_of",
    "_and",
    "_to",
    "_in",
    "_is",
    "_that",
    "_for",
    "_it",
    "_was",
    "_on",
    "_are",
    "_as",
    "_with",
    "_his",
    "_they",
    "_at",
    "_be",
    "_this",
    "_have",
    "_from",
    "_or",
    "_one",
    "_had",
    "_by",
    "_word",
    "_but",
    "_not",
    "_what",
    "_all",
    "_were",
    "_we",
    "_when",
    "_your",
    "_can",
    "_said",
    "_there",
    "_use",
    "_an",
    "_each",
    "_which",
    "_she",
    "_do",
    "_how",
    "_their",
    "_if",
    "_will",
    "_up",
    "_other",
    "_about",
    "_out",
    "_many",
    "_then",
    "_them",
    "_these",
    "_so",
    "_some",
    "_her",
    "_would",
    "_make",
    "_like",
    "_him",
    "_into",
    "_time",
    "_has",
    "_look",
    "_two",
    "_more",
    "_write",
    "_go",
    "_see",
    "_number",
    "_no",
    "_way",
    "_could",
    "_people",
    "_my",
    "_than",
    "_first",
    "_water",
    "_been",
    "_call",
    "_who",
    "_its",
    "_now",
    "_find",
    "_long",
    "_down",
    "_day",
    "_did",
    "_get",
    "_come",
    "_made",
    "_may",
    "_part",
    "_you",
    "_I",
    "_a",
    "_plan",
    "_trip",
    "_city",
    "_travel",
    "_guide",
    "_days",
    "_user",
    "_system",
    "_assistant",
    "_The",
    "_You",
    "ing",
    "er",
    "ed",
    "ion",
    "es",
    "ly",
    "al",
    "en",
    "st",
    "nd",
    "ent",
    "ation",
    "ment",
    "ity",
    "ous",
    "ness",
    "ch",
    "sh",
    "th",
    "re",
    "in",
    "on",
    "at",
    "or",
    "ar",
    "it",
    "is",
    "an",
    "le",
    "ou",
    "ea",
    "ll",
    "ck",
    "qu",
    "ight",
    "ough",
    "_Once",
    "_upon",
    "_little",
    "_girl",
    "_named",
    "_play",
    "_big",
    "_happy",
    "_mom",
    "_wanted",
    "_very",
    "_park",
};

typedef struct token {
    char text[TOKEN_BYTES];
    char merge[2 * TOKEN_BYTES]; /* "left right", or "" */
    float score;
    int32_t type;
} token;

typedef struct vocab {
    token *tokens;
    size_t n, cap, limit;
    size_t n_plain; /* tokens before the pieces: duplicates are searched for after them and among the characters */
    const char *space;
    int rc;
} vocab;

static token *add(vocab *v, const char *text, int32_t type, float score) {
    if (!v->rc) v->rc = base_grow((void **)&v->tokens, &v->cap, v->n + 1, TOKENS_MAX, sizeof *v->tokens);
    if (v->rc) return NULL;
    token *t = &v->tokens[v->n++];
    *t = (token){.type = type, .score = score};
    snprintf(t->text, sizeof t->text, "%s", text);
    return t;
}

static bool has(const vocab *v, const char *text) {
    for (size_t i = v->n_plain; i < v->n; i++)
        if (!strcmp(v->tokens[i].text, text)) return true;
    return false;
}

/* The first n characters of a word as a token's text. */
static void spell(const vocab *v, const char *word, size_t n, char out[TOKEN_BYTES]) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char plain[2] = {word[i], '\0'};
        len += (size_t)snprintf(out + len, TOKEN_BYTES - len, "%s", word[i] == '_' ? v->space : plain);
    }
}

static void add_prefix(vocab *v, const char *word, size_t n) {
    char text[TOKEN_BYTES], stem[TOKEN_BYTES];
    spell(v, word, n, text);
    if (has(v, text)) return;
    spell(v, word, n - 1, stem);
    token *t = add(v, text, TYPE_NORMAL, -(float)v->n);
    if (t) snprintf(t->merge, sizeof t->merge, "%s %s", stem, text + strlen(stem));
}

static void add_pieces(vocab *v, size_t limit) {
    for (size_t n = 2; n <= PREFIX_MAX; n++)
        for (size_t i = 0; i < BASE_ARRAY_LEN(words); i++)
            if (strlen(words[i]) >= n && v->n < limit) add_prefix(v, words[i], n);
}

static void add_unreachable(vocab *v, size_t limit) {
    for (int i = 0; v->n < limit && !v->rc; i++) {
        char text[TOKEN_BYTES];
        snprintf(text, sizeof text, "[unused%d]", i);
        add(v, text, TYPE_NORMAL, -(float)v->n);
    }
}

static void add_control(vocab *v, const char *const *control) {
    for (size_t i = 0; control && control[i]; i++) add(v, control[i], TYPE_CONTROL, 0.0f);
}

static void add_spm_base(vocab *v, size_t limit) {
    static const char characters[] =
        "eaotinshrdlucmfwygpbvkxqjzETAOINSHRDLUCMFWYGPBVKXQJZ0123456789.,!?'\"-:;()<>/=_*#&@+[]{}|";
    char text[8];
    add(v, "<unk>", TYPE_UNKNOWN, 0.0f);
    add(v, "<s>", TYPE_CONTROL, 0.0f);
    add(v, "</s>", TYPE_CONTROL, 0.0f);
    for (int b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        add(v, text, TYPE_BYTE, 0.0f);
    }
    v->n_plain = v->n;
    if (v->n < limit) add(v, v->space, TYPE_NORMAL, -(float)v->n);
    for (size_t i = 0; characters[i] && v->n < limit; i++) {
        text[0] = characters[i];
        text[1] = '\0';
        add(v, text, TYPE_NORMAL, -(float)v->n);
    }
}

/* Byte-level BPE shows each byte as a printable character: those that Latin-1 prints as themselves, the others as
 * U+0100 and up, in rising order (the mapping of GPT-2's vocabulary). All are below U+0800. */
static void byte_character(int byte, char out[3]) {
    int code = byte;
    if (byte < 33 || (byte > 126 && byte < 161) || byte == 173)
        code = 256 + (byte < 33 ? byte : byte < 161 ? byte - 127 + 33
                                                    : 67);
    if (code < 0x80) {
        out[0] = (char)code;
        out[1] = '\0';
    } else {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        out[2] = '\0';
    }
}

static void add_bpe_base(vocab *v) {
    char text[3];
    add(v, "<|endoftext|>", TYPE_CONTROL, 0.0f);
    for (int b = 0; b < 256; b++) {
        byte_character(b, text);
        add(v, text, TYPE_NORMAL, 0.0f);
    }
    v->n_plain = v->n;
}

static int write_tokens(gguf_writer *w, const vocab *v, bool spm) {
    const char **texts = base_calloc(v->n, sizeof *texts);
    float *scores = base_calloc(v->n, sizeof *scores);
    int32_t *types = base_calloc(v->n, sizeof *types);
    int rc = texts && scores && types ? RP_OK : RP_ERR_MEMORY;
    for (size_t i = 0; !rc && i < v->n; i++) {
        texts[i] = v->tokens[i].text;
        scores[i] = v->tokens[i].score;
        types[i] = v->tokens[i].type;
    }
    if (!rc) {
        gguf_writer_strings(w, "tokenizer.ggml.tokens", texts, v->n);
        if (spm) gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, v->n);
        gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, v->n);
    }
    base_free(texts);
    base_free(scores);
    base_free(types);
    return rc;
}

static int write_merges(gguf_writer *w, const vocab *v) {
    const char **merges = base_calloc(v->n, sizeof *merges);
    if (!merges) return RP_ERR_MEMORY;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        if (v->tokens[i].merge[0]) merges[n++] = v->tokens[i].merge;
    gguf_writer_strings(w, "tokenizer.ggml.merges", merges, n);
    base_free(merges);
    return RP_OK;
}

static int write_vocab(gguf_writer *w, const vocab *v, const tiny_vocab_options *o) {
    static const char *const models[] = {
        [TINY_VOCAB_SPM] = "llama", [TINY_VOCAB_BPE] = "gpt2", [TINY_VOCAB_UNIGRAM] = "t5"};
    bool spm = o->kind != TINY_VOCAB_BPE;
    gguf_writer_string(w, "tokenizer.ggml.model", models[o->kind]);
    gguf_writer_string(w, "tokenizer.ggml.pre", spm ? "default" : o->pre ? o->pre
                                                                         : "gpt-2");
    int rc = write_tokens(w, v, spm);
    if (!rc && !spm) rc = write_merges(w, v);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", spm ? 1 : 0);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", spm ? 2 : 0);
    if (spm) gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", !o->no_bos);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", false);
    if (o->chat_template) gguf_writer_string(w, "tokenizer.chat_template", o->chat_template);
    return rc;
}

int tiny_vocab_add(gguf_writer *w, const tiny_vocab_options *options, int32_t *n_vocab, rp_error *err) {
    bool spm = options->kind != TINY_VOCAB_BPE;
    size_t limit = options->n_vocab > 0 ? (size_t)options->n_vocab : TOKENS_MAX, n_control = 0;
    while (options->control && options->control[n_control]) n_control++;
    size_t needed = (spm ? 259 : 257) + n_control;
    if (limit < needed || limit > TOKENS_MAX)
        return base_fail(err, RP_ERR_INVALID, "a vocabulary of %zu tokens; this kind needs %zu to %d", limit, needed,
                         TOKENS_MAX);
    vocab v = {.space = spm ? "\xe2\x96\x81" : "\xc4\xa0"};
    if (spm) add_spm_base(&v, limit - n_control);
    else add_bpe_base(&v);
    add_pieces(&v, limit - n_control);
    if (options->n_vocab > 0) add_unreachable(&v, limit - n_control);
    add_control(&v, options->control);
    *n_vocab = (int32_t)v.n;
    int rc = v.rc ? v.rc : write_vocab(w, &v, options);
    base_free(v.tokens);
    return rc ? base_fail(err, (rp_code)rc, "cannot build a vocabulary: %s", rp_code_text((rp_code)rc)) : RP_OK;
}
