/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_pre.c: the table of pre-tokenizers, and splitting a text into words by their patterns.
 *
 * Patterns run in order, each on the pieces of the previous one; text between matches is a piece as well. Invalid UTF-8
 * matches no pattern (PCRE2_MATCH_INVALID_UTF) and forms separate pieces.
 *
 * Patterns follow the models' own tokenizers (their published tokenizer.json or tiktoken source); names are llama.cpp's
 * values of tokenizer.ggml.pre. White space is Unicode's White_Space: PCRE2's \s contains U+180E as well.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

/* ---- patterns ---- */

#define S "\\p{wspace}"
#define NOT_S "\\P{wspace}"
#define SUFFIXES "'s|'t|'re|'ve|'m|'ll|'d"
#define SPACES "|" S "+(?!" NOT_S ")|" S "+"

/* GPT-2's. */
#define GPT2 SUFFIXES "| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+" SPACES

/* tiktoken's cl100k and variants: words of `letters` (contents of a character class) with one character before them,
 * numbers of `digits`. */
#define CL100K(letters, digits) \
    "(?i:" SUFFIXES ")|[^\\r\\n\\p{L}\\p{N}]?[" letters "]+|" digits "| ?[^" S letters "\\p{N}]+[\\r\\n]*|" S \
    "*[\\r\\n]+" SPACES

/* tiktoken's o200k and variants: a capital letter starts a new word; letters that may end a word. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, ending) \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" ending
#define O200K(ending, digits) \
    CASED(UPPER, LOWER, ending) \
    "|" digits "| ?[^" S "\\p{L}\\p{N}]+[\\r\\n/]*|" S "*[\\r\\n]+" SPACES

/* Of Kimi K2: the same, without slashes after punctuation; Han characters are words apart. Its letters are those that
 * are no Han: the complement of all other categories. Han is the script, not its extensions. */
#define NO_LETTERS "\\p{sc:Han}\\p{C}\\p{N}\\p{P}\\p{S}\\p{Z}"
#define KIMI_LETTERS CASED("[^\\p{Ll}" NO_LETTERS "]", "[^\\p{Lu}\\p{Lt}" NO_LETTERS "]", "(?i:" SUFFIXES ")?")
#define KIMI_K2 \
    "\\p{sc:Han}+|" KIMI_LETTERS "|\\p{N}{1,3}| ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*|" S "*[\\r\\n]+" SPACES

#define PUNCTUATION(more) "[\\p{P}$+<=>^~|" more "]+"
#define BLOOM " ?[^(" S "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

/* DeepSeek's: Chinese, Japanese and Korean; cased letters as the first model listed them; ASCII, fullwidth and
 * quotation punctuation. */
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_LETTERS \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{" \
    "1d9a}" \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{" \
    "1f5b}" \
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{" \
    "1fcc}" \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{" \
    "2107}" \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}" \
    "\\x{2139}" \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}" \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{" \
    "a787}" \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{" \
    "ff5a}" \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_SIGNS "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define DEEPSEEK_V3 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" S "*[\\r\\n]+" SPACES

/* Of bailingmoe and seed-coder: cl100k without case folding; line ends end each other, or join no punctuation. */
#define BAILING \
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" S \
    "\\p{L}\\p{N}]+[\\r\\n]*|" S "*[\\r\\n]" SPACES
#define SEED_CODER \
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" S \
    "\\p{L}\\p{N}\\r\\n]+|" S "*[\\r\\n]+" SPACES

/* Of exaone-moe: cl100k in which letters, with marks, of several words are one; punctuation is followed by one line end
 * at most, and each line end is a word. */
#define EXAONE_MOE \
    "(?i:" SUFFIXES ")|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^" S \
    "\\p{L}\\p{N}]+[\\r\\n/]?|" S "*[\\r\\n]" SPACES

/* Of afmoe: scripts of East and South East Asia. */
#define AFMOE_SCRIPTS \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}" \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}" \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"

/* ---- the table ---- */

static const pre_tokenizer pre_tokenizers[] = {
    {.names = "gpt-2 phi-2 jais trillion granite-docling gigachat a.x-4.0 mellum exaone4", .patterns = {GPT2}},
    {.names = "mpt olmo modern-bert", .patterns = {GPT2}, .nfc = true},
    {
        .names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
        .patterns = {CL100K("\\p{L}", "\\p{N}{1,3}")},
        .ignore_merges = true,
        .adds_bos = true,
    },
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .patterns = {CL100K("\\p{L}", "\\p{N}{1,3}")}},
    {.names = "qwen2 stablelm2 deepseek-r1-qwen kormo megrez hunyuan solar-open",
     .patterns = {CL100K("\\p{L}", "\\p{N}")},
     .nfc = true},
    {.names = "grok-2", .patterns = {CL100K("\\p{L}", "\\p{N}")}},
    {.names = "qwen35", .patterns = {CL100K("\\p{L}\\p{M}", "\\p{N}")}, .nfc = true},
    {.names = "gpt-4o llama4 kanana2 minimax-m2", .patterns = {O200K("(?i:" SUFFIXES ")?", "\\p{N}{1,3}")}},
    {.names = "kimi-k2", .patterns = {KIMI_K2}},
    {.names = "tekken", .patterns = {O200K("", "\\p{N}")}, .ignore_merges = true, .adds_bos = true},
    {.names = "starcoder refact smollm codeshell exaone minerva-7b mellum2", .patterns = {"\\p{N}", GPT2}},
    {.names = "command-r", .patterns = {"\\p{N}", GPT2}, .nfc = true},
    {.names = "falcon", .patterns = {PUNCTUATION("`"), GPT2, "[0-9]+", "[0-9][0-9][0-9]"}},
    {.names = "bloom poro-chat gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", S "?[" DEEPSEEK_LETTERS "]+", S "?[" DEEPSEEK_SIGNS "]+", S "+$", DEEPSEEK_CJK,
                  "\\p{N}"}},
    {.names = "deepseek-coder", .patterns = {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm",
     .patterns = {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+", DEEPSEEK_V3}},
    {.names = "seed-coder", .patterns = {SEED_CODER}},
    {.names = "bailingmoe bailingmoe2 llada-moe", .patterns = {BAILING}},
    {.names = "exaone-moe", .patterns = {EXAONE_MOE}},
    {.names = "afmoe", .patterns = {"\\p{N}{1,3}(?=(?:\\p{N}{3})*+(?!\\p{N}))", AFMOE_SCRIPTS, DEEPSEEK_V3}},
    /* for files without tokenizer.ggml.pre: llama.cpp's pattern from before the key existed */
    {.names = "default", .patterns = {PUNCTUATION(""), GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

/* Limit of the matcher's steps for one word; real texts need a few times their length. */
#define MATCH_LIMIT 50000000u

/* ---- opening ---- */

static void *pcre_alloc(size_t n, void *user) {
    (void)user;
    return base_alloc(n);
}

static void pcre_free(void *p, void *user) {
    (void)user;
    base_free(p);
}

static bool pre_tokenizer_has_name(const pre_tokenizer *p, gguf_string name) {
    for (const char *at = p->names + strspn(p->names, " "); *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (name.n == n && memcmp(name.bytes, at, n) == 0) return true;
        at += n;
    }
    return false;
}

static int find_pre(tokenizer *t, const gguf_file *f, rp_error *err) {
    gguf_string name;
    char list[RP_ERROR_MESSAGE_BYTES] = "";
    size_t used = 0;
    if (!gguf_get_string(f, "tokenizer.ggml.pre", &name)) name = (gguf_string){"default", 7};
    for (size_t i = 0; i < BASE_ARRAY_LEN(pre_tokenizers); i++) {
        const pre_tokenizer *p = &pre_tokenizers[i];
        if (pre_tokenizer_has_name(p, name)) {
            t->pre = p;
            return RP_OK;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.*s", i ? ", " : "", (int)strcspn(p->names, " "),
                                 p->names);
        BASE_ASSERT(used < sizeof(list));
    }
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(f), 0,
                        "pre-tokenizer '%.*s' is not supported (supported: %s)", (int)BASE_MIN(name.n, 64), name.bytes,
                        list);
}

static int tokenizer_pre_compile(tokenizer *t, rp_error *err) {
    t->pcre_memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *c = t->pcre_memory ? pcre2_compile_context_create(t->pcre_memory) : NULL;
    for (size_t i = 0; c && i < PRE_MAX_PATTERNS && t->pre->patterns[i]; i++) {
        int code = 0;
        PCRE2_SIZE offset = 0;
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
        t->codes[i] = pcre2_compile((PCRE2_SPTR)t->pre->patterns[i], PCRE2_ZERO_TERMINATED, options, &code, &offset, c);
        if (!t->codes[i]) break;
        t->is_jit[i] = pcre2_jit_compile(t->codes[i], PCRE2_JIT_COMPLETE) == 0;
        t->n_codes++;
    }
    bool all = c && (t->n_codes == PRE_MAX_PATTERNS || !t->pre->patterns[t->n_codes]);
    pcre2_compile_context_free(c);
    return all ? RP_OK : base_fail_memory(err, 4096, "the patterns of the pre-tokenizer");
}

int pre_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc = find_pre(t, f, err);
    return rc ? rc : tokenizer_pre_compile(t, err);
}

void pre_close(tokenizer *t) {
    for (int i = 0; i < t->n_codes; i++) pcre2_code_free(t->codes[i]);
    pcre2_general_context_free(t->pcre_memory);
}

/* ---- cutting ---- */

typedef struct cutter {
    const tokenizer *t;
    pcre2_match_data *match[PRE_MAX_PATTERNS];
    pcre2_match_context *limits;
    int (*word)(void *user, const char *text, size_t n);
    void *user;
} cutter;

/* Finds the next match of a pattern at or after *at and its borders. If the matcher exceeds its limits, *rc is
 * RP_ERR_LIMIT. */
static bool find_match(cutter *c, int pattern, const char *text, size_t n, size_t at, size_t *begin, size_t *end,
                       int *rc) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    const pcre2_code *code = c->t->codes[pattern];
    /* Called for each word: pcre2_match would spend a tenth of a text's time on checks of its arguments. Invalid UTF-8
     * is none of them: PCRE2_MATCH_INVALID_UTF. */
    int found = c->t->is_jit[pattern] ? pcre2_jit_match(code, subject, n, at, 0, c->match[pattern], c->limits)
                                      : pcre2_match(code, subject, n, at, 0, c->match[pattern], c->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, subject, n, at, PCRE2_NO_JIT, c->match[pattern], c->limits);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) *rc = found == PCRE2_ERROR_NOMEMORY ? RP_ERR_MEMORY : RP_ERR_LIMIT;
    if (found <= 0) return false;
    PCRE2_SIZE *borders = pcre2_get_ovector_pointer(c->match[pattern]);
    *begin = borders[0];
    *end = borders[1];
    BASE_ASSERT(at <= *begin && *end <= n);
    return *end > *begin;
}

static int cutter_cut(cutter *c, int pattern, const char *text, size_t n) {
    BASE_DCHECK(pattern <= c->t->n_codes);
    size_t at = 0, begin, end;
    int rc = RP_OK;
    if (n == 0) return RP_OK;
    if (pattern == c->t->n_codes) return c->word(c->user, text, n);
    while (at < n && find_match(c, pattern, text, n, at, &begin, &end, &rc)) {
        if ((rc = cutter_cut(c, pattern + 1, text + at, begin - at)) ||
            (rc = cutter_cut(c, pattern + 1, text + begin, end - begin)))
            return rc;
        at = end;
    }
    return rc ? rc : cutter_cut(c, pattern + 1, text + at, n - at);
}

int pre_cut(const tokenizer *t, const char *text, size_t n, int (*word)(void *user, const char *text, size_t n),
            void *user) {
    cutter c = {.t = t, .word = word, .user = user};
    int rc = RP_OK;
    c.limits = pcre2_match_context_create(t->pcre_memory);
    if (c.limits) pcre2_set_match_limit(c.limits, MATCH_LIMIT);
    else rc = RP_ERR_MEMORY;
    for (int i = 0; i < t->n_codes && !rc; i++)
        if (!(c.match[i] = pcre2_match_data_create(1, t->pcre_memory))) rc = RP_ERR_MEMORY;
    if (!rc) rc = cutter_cut(&c, 0, text, n);
    for (int i = 0; i < t->n_codes; i++) pcre2_match_data_free(c.match[i]);
    pcre2_match_context_free(c.limits);
    return rc;
}
