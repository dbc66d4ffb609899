/* tokenizer_bpe.c: byte-level BPE (GPT-2, Radford et al. 2019): patterns cut a text into words; the bytes of a word, written in printable
 * stand-ins, are merged by rank.
 *
 * Patterns run one after the other, each over the pieces of the one before; what a pattern does not match is a piece as well.
 * Bytes that are no UTF-8 match nothing (PCRE2_MATCH_INVALID_UTF), and so become pieces of their own.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer_internal.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define WORDS(digits) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The first of each kind is the name that messages show. */
static const pre_tokenizer pre_tokenizers[] = {
    {"gpt-2", {GPT2}, false, false},
    {"llama-bpe", {WORDS("\\p{N}{1,3}")}, true, true},
    {"llama3", {WORDS("\\p{N}{1,3}")}, true, true},
    {"llama-v3", {WORDS("\\p{N}{1,3}")}, true, true},
    {"qwen2", {WORDS("\\p{N}")}, false, false},
    {"smollm", {"\\p{N}", GPT2}, false, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
};

/* Steps of the matcher for one word; real texts need a few times their length. */
#define MATCH_LIMIT 50000000u

/* ---- bytes and their stand-ins ---- */

/* Printable bytes stand for themselves, the others for U+0100 and on, in order. */
static bool stands_for_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

static int stand_in(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    int n = 0;
    for (int b = 0; b < byte; b++) n += !stands_for_itself(b);
    return 0x100 + n;
}

int bpe_byte_to_text(uint8_t byte, char out[2]) {
    int c = stand_in(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* The byte of a stand-in, or -1. */
static int byte_of(int c) {
    if (c < 0x100) return stands_for_itself(c) ? c : -1;
    for (int b = 0, n = 0x100; b < 256; b++)
        if (!stands_for_itself(b) && n++ == c) return b;
    return -1;
}

size_t bpe_text_to_bytes(const char *text, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        bool two = (c & 0xe0) == 0xc0 && i + 1 < n;
        int byte = two ? byte_of((c & 0x1f) << 6 | (text[i + 1] & 0x3f)) : c < 0x80 ? byte_of(c) : -1;
        if (byte >= 0) out[used++] = (char)byte;
        else
            for (int k = 0; k < (two ? 2 : 1); k++) out[used++] = text[i + (size_t)k]; /* no stand-in: as it is */
        i += two ? 2 : 1;
    }
    return used;
}

/* ---- opening ---- */

static void *pcre_alloc(size_t n, void *user) {
    (void)user;
    return base_alloc(n);
}

static void pcre_free(void *p, void *user) {
    (void)user;
    base_free(p);
}

static int find_pre(tokenizer *t, const gguf_file *f, rp_error *err) {
    gguf_string name;
    if (!gguf_get_string(f, "tokenizer.ggml.pre", &name)) name = (gguf_string){"default", 7};
    char list[256] = "";
    for (size_t i = 0; i < BASE_ARRAY_LEN(pre_tokenizers); i++) {
        const pre_tokenizer *p = &pre_tokenizers[i];
        if (name.n == strlen(p->name) && memcmp(name.bytes, p->name, name.n) == 0) {
            t->pre = p;
            return RP_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", p->name);
    }
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(f), 0, "pre-tokenizer '%.*s' is not supported (supported: %s)",
                        (int)BASE_MIN(name.n, 64), name.bytes, list);
}

static int compile(tokenizer *t, rp_error *err) {
    t->pcre_memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *c = t->pcre_memory ? pcre2_compile_context_create(t->pcre_memory) : NULL;
    for (size_t i = 0; c && i < BASE_ARRAY_LEN(t->pre->patterns) && t->pre->patterns[i]; i++) {
        int code = 0;
        PCRE2_SIZE offset = 0;
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
        t->codes[i] = pcre2_compile((PCRE2_SPTR)t->pre->patterns[i], PCRE2_ZERO_TERMINATED, options, &code, &offset, c);
        if (!t->codes[i]) break;
        (void)pcre2_jit_compile(t->codes[i], PCRE2_JIT_COMPLETE); /* where there is none, the interpreter serves */
        t->n_codes++;
    }
    bool all = c && (t->n_codes == (int)BASE_ARRAY_LEN(t->pre->patterns) || !t->pre->patterns[t->n_codes]);
    pcre2_compile_context_free(c);
    return all ? RP_OK : base_fail_memory(err, 4096, "the patterns of the pre-tokenizer");
}

/* One line "left right"; a token may begin with a space. */
static bool parse_merge(const tokenizer *t, gguf_string s, token_pair *out) {
    const char *space = s.n > 1 ? memchr(s.bytes + 1, ' ', (size_t)s.n - 1) : NULL;
    if (!space) return false;
    size_t left = (size_t)(space - s.bytes), right = (size_t)s.n - left - 1;
    char joined[512];
    *out = (token_pair){tokenizer_map_find(t, s.bytes, left), tokenizer_map_find(t, space + 1, right), -1};
    if (out->left < 0 || out->right < 0 || left + right > sizeof(joined)) return true;
    memcpy(joined, s.bytes, left);
    memcpy(joined + left, space + 1, right);
    out->merged = tokenizer_map_find(t, joined, left + right);
    return true;
}

static int read_merges(tokenizer *t, const gguf_file *f, rp_error *err) {
    gguf_array a;
    if (!gguf_get_array(f, "tokenizer.ggml.merges", &a) || a.type != GGUF_STRING || a.n > TOKENIZER_MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "metadata 'tokenizer.ggml.merges' is missing or no list of strings");
    gguf_string *lines = base_calloc((size_t)a.n + 1, sizeof(*lines));
    t->merges = base_calloc((size_t)a.n + 1, sizeof(*t->merges));
    int rc = lines && t->merges ? token_map_init(&t->by_pair, (size_t)a.n) : RP_ERR_MEMORY;
    if (rc) {
        base_free(lines);
        return base_fail_memory(err, a.n * sizeof(*lines), "the merges of the vocabulary");
    }
    gguf_array_strings(&a, lines);
    t->n_merges = (int32_t)a.n;
    for (int32_t i = 0; i < t->n_merges && !rc; i++)
        if (!parse_merge(t, lines[i], &t->merges[i]))
            rc = base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "merge %d is not two texts with a space between", i);
    base_free(lines);
    if (!rc) tokenizer_pairs_fill(t);
    return rc;
}

int bpe_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc;
    for (int b = 0; b < 256; b++) {
        char text[2];
        t->byte_tokens[b] = tokenizer_map_find(t, text, (size_t)bpe_byte_to_text((uint8_t)b, text));
    }
    if ((rc = find_pre(t, f, err)) || (rc = compile(t, err))) return rc;
    t->adds_bos = t->pre->adds_bos;
    return read_merges(t, f, err);
}

void bpe_close(tokenizer *t) {
    for (int i = 0; i < t->n_codes; i++) pcre2_code_free(t->codes[i]);
    pcre2_general_context_free(t->pcre_memory);
    base_free(t->merges);
    base_free(t->by_pair.slots);
}

/* ---- a word ---- */

static bool propose(const merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c) {
    int32_t rank = left->id >= 0 && right->id >= 0 ? tokenizer_pair_rank(w->t, left->id, right->id) : -1;
    if (rank < 0) return false;
    c->priority = -(double)rank;
    c->id = w->t->merges[rank].merged;
    return true;
}

/* The token that a whole word is, or -1. */
static int32_t whole_word(const tokenizer *t, const char *word, size_t n) {
    char text[512];
    size_t used = 0;
    if (2 * n > sizeof(text)) return -1;
    for (size_t i = 0; i < n; i++) used += (size_t)bpe_byte_to_text((uint8_t)word[i], text + used);
    return tokenizer_map_find(t, text, used);
}

static int encode_word(merge_work *w, const char *word, size_t n, token_list *out) {
    const tokenizer *t = w->t;
    int32_t whole = t->pre->ignore_merges ? whole_word(t, word, n) : -1;
    int rc;
    if (whole >= 0) return token_list_push(out, whole);
    w->n_pieces = w->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        if ((rc = merge_add_piece(w, i, 1, t->byte_tokens[(unsigned char)word[i]]))) return rc;
    if ((rc = merge_run(w))) return rc;
    for (size_t i = 0; i < w->n_pieces && !rc; i++) {
        int32_t id = w->pieces[i].id >= 0 ? w->pieces[i].id : t->unk;
        if (w->pieces[i].n > 0 && id >= 0) rc = token_list_push(out, id);
    }
    return rc;
}

/* ---- cutting ---- */

typedef struct cutter {
    const tokenizer *t;
    merge_work work;
    pcre2_match_data *match[BASE_ARRAY_LEN(((tokenizer *)0)->codes)];
    pcre2_match_context *limits;
    token_list *out;
} cutter;

/* The next match of a pattern at or after *at: true, with its borders. A failing matcher (limits) is RP_ERR_LIMIT in *rc. */
static bool find_match(cutter *c, int pattern, const char *text, size_t n, size_t at, size_t *begin, size_t *end, int *rc) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    const pcre2_code *code = c->t->codes[pattern];
    int found = pcre2_match(code, subject, n, at, 0, c->match[pattern], c->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = pcre2_match(code, subject, n, at, PCRE2_NO_JIT, c->match[pattern], c->limits);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) *rc = found == PCRE2_ERROR_NOMEMORY ? RP_ERR_MEMORY : RP_ERR_LIMIT;
    if (found <= 0) return false;
    PCRE2_SIZE *borders = pcre2_get_ovector_pointer(c->match[pattern]);
    *begin = borders[0];
    *end = borders[1];
    return *end > *begin;
}

static int cut(cutter *c, int pattern, const char *text, size_t n) {
    size_t at = 0, begin, end;
    int rc = RP_OK;
    if (n == 0) return RP_OK;
    if (pattern == c->t->n_codes) return encode_word(&c->work, text, n, c->out);
    while (at < n && find_match(c, pattern, text, n, at, &begin, &end, &rc)) {
        if ((rc = cut(c, pattern + 1, text + at, begin - at)) || (rc = cut(c, pattern + 1, text + begin, end - begin))) return rc;
        at = end;
    }
    return rc ? rc : cut(c, pattern + 1, text + at, n - at);
}

int bpe_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err) {
    cutter c = {.t = t, .work = {.t = t, .propose = propose}, .out = out};
    int rc = RP_OK;
    c.limits = pcre2_match_context_create(t->pcre_memory);
    if (c.limits) pcre2_set_match_limit(c.limits, MATCH_LIMIT);
    else rc = RP_ERR_MEMORY;
    for (int i = 0; i < t->n_codes && !rc; i++)
        if (!(c.match[i] = pcre2_match_data_create(1, t->pcre_memory))) rc = RP_ERR_MEMORY;
    if (!rc) rc = cut(&c, 0, text, n);
    for (int i = 0; i < t->n_codes; i++) pcre2_match_data_free(c.match[i]);
    pcre2_match_context_free(c.limits);
    merge_free(&c.work);
    return rc ? base_fail(err, rc, "a text of %zu bytes cannot be tokenized: too long, or no memory", n) : RP_OK;
}
