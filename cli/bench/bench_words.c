/* SPDX-License-Identifier: Apache-2.0 */
/* bench_words.c: see bench_words.h. Owns nothing except returned texts. One thread. */
#include "bench/bench_words.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench_stats.h"
#include "common/command.h"

#define LEAST_WORDS 16
#define CHECKED_TOKENS 8192
#define CHECKS_MAX 64

/* ---- texts ---- */

const char *bench_text_bytes(const bench_words *w, const bench_text *t) {
    if (t->bytes == NULL) return "";
    return t->bytes + (w->bare_start ? 1 : 0);
}

void bench_text_add(bench_text *t, const bench_words *w, uint32_t word) {
    size_t n = w->sizes[word];
    if (t->n_bytes + n + 1 > t->cap_bytes) {
        t->cap_bytes = 2 * (t->n_bytes + n + 1);
        t->bytes = cli_realloc(t->bytes, t->cap_bytes);
    }
    memcpy(t->bytes + t->n_bytes, w->bytes[word], n + 1);
    t->n_bytes += n;
    t->n_tokens++;
}

void bench_text_add_random(bench_text *t, const bench_words *w, int32_t n, uint64_t *state) {
    for (int32_t i = 0; i < n; i++) bench_text_add(t, w, bench_random_below(state, w->n));
}

/* The number's digits, the last one first; then words seeded by the number. */
void bench_text_add_block(bench_text *t, const bench_words *w, uint64_t number, int32_t n) {
    uint64_t rest = number, state = bench_random_stream(0, number);
    for (int32_t i = 0; i < n; i++) {
        bool is_digit = i == 0 || rest > 0;
        bench_text_add(t, w, is_digit ? (uint32_t)(rest % w->n) : bench_random_below(&state, w->n));
        rest /= w->n;
    }
}

/* ---- choice of words ---- */

/* Index of the first of n words with an unexpected token; n if there is none; -1 if tokenization failed. */
static int32_t first_difference(const bench_words *w, const rp_model *model, const char *text, const int32_t *ids,
                                int32_t n) {
    int32_t *tokens = NULL, i = 0;
    size_t n_tokens = 0, first = (size_t)w->n_first;
    if (rp_tokenize(model, text, strlen(text), false, true, &tokens, &n_tokens, NULL) != RP_OK) return -1;
    while (i < n && first + (size_t)i < n_tokens && tokens[first + (size_t)i] == ids[i]) i++;
    if (i == n && n_tokens != first + (size_t)n) i = n - 1;
    rp_free(tokens);
    return i;
}

/* True if the word, twice in a row, is two tokens of its own. */
static bool bench_words_is_placed_alone(const bench_words *w, const rp_model *model, uint32_t word) {
    bench_text t = {0};
    const int32_t ids[] = {w->ids[word], w->ids[word]};
    bench_text_add(&t, w, word);
    bench_text_add(&t, w, word);
    bool alone = first_difference(w, model, bench_text_bytes(w, &t), ids, 2) == 2;
    free(t.bytes);
    return alone;
}

static void remove_word(bench_words *w, uint32_t word) {
    uint32_t last = --w->n;
    w->bytes[word] = w->bytes[last];
    w->sizes[word] = w->sizes[last];
    w->ids[word] = w->ids[last];
}

static bool bench_words_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool bench_words_is_word(const char *bytes, size_t n) {
    if (n < 2 || bytes[0] != ' ') return false;
    for (size_t i = 1; i < n; i++)
        if (!bench_words_is_letter(bytes[i])) return false;
    return true;
}

static void find_words(bench_words *w, const rp_model *model, bool letters) {
    size_t n = 0;
    const char *bytes;
    w->n = 0;
    for (int32_t id = 0; w->n < BENCH_WORDS_MAX && (bytes = rp_token_bytes(model, id, false, &n)) != NULL; id++) {
        if (letters ? n != 1 || !bench_words_is_letter(bytes[0]) : !bench_words_is_word(bytes, n)) continue;
        w->bytes[w->n] = bytes;
        w->sizes[w->n] = (uint32_t)n;
        w->ids[w->n++] = id;
    }
}

/* The minimum number of extra tokens of a text of one word. */
static int32_t count_first(const bench_words *w, const rp_model *model) {
    int32_t least = INT32_MAX, *tokens = NULL;
    for (uint32_t i = 0; i < w->n; i++) {
        size_t n = 0, skip = w->bare_start ? 1 : 0;
        if (rp_tokenize(model, w->bytes[i] + skip, w->sizes[i] - skip, false, true, &tokens, &n, NULL) != RP_OK)
            continue;
        rp_free(tokens);
        if (n > 0 && (int32_t)n - 1 < least) least = (int32_t)n - 1;
    }
    return least;
}

static uint32_t count_alone(bench_words *w, const rp_model *model, bool bare_start) {
    uint32_t n = 0;
    w->bare_start = bare_start;
    w->n_first = count_first(w, model);
    for (uint32_t i = 0; i < w->n; i++) n += bench_words_is_placed_alone(w, model, i);
    return n;
}

/* Keeps the words that are tokens of their own, with or without a space before a text's first word: the variant with
 * more words. */
static void choose_words(bench_words *w, const rp_model *model, bool letters) {
    find_words(w, model, letters);
    if (letters || count_alone(w, model, true) < count_alone(w, model, false)) count_alone(w, model, false);
    else count_alone(w, model, true);
    for (uint32_t i = w->n; i-- > 0;)
        if (!bench_words_is_placed_alone(w, model, i)) remove_word(w, i);
}

/* A long text of random words; removes the words around the first unexpected token. Returns true if there was none. */
static bool check_row(bench_words *w, const rp_model *model, uint64_t *state) {
    bench_text t = {0};
    uint32_t *words = cli_alloc(CHECKED_TOKENS * sizeof *words);
    int32_t *ids = cli_alloc(CHECKED_TOKENS * sizeof *ids);
    for (int32_t i = 0; i < CHECKED_TOKENS; i++) {
        words[i] = bench_random_below(state, w->n);
        ids[i] = w->ids[words[i]];
        bench_text_add(&t, w, words[i]);
    }
    int32_t i = first_difference(w, model, bench_text_bytes(w, &t), ids, CHECKED_TOKENS);
    uint32_t a = i > 0 && i < CHECKED_TOKENS ? words[i - 1] : 0, b = i >= 0 && i < CHECKED_TOKENS ? words[i] : 0;
    free(t.bytes);
    free(words);
    free(ids);
    if (i == CHECKED_TOKENS) return true;
    remove_word(w, a > b ? a : b); /* the later one first: the last word replaces it */
    if (a != b) remove_word(w, a > b ? b : a);
    return false;
}

static bool check_words(bench_words *w, const rp_model *model) {
    uint64_t state = 1;
    bool sure = false;
    for (int i = 0; i < CHECKS_MAX && w->n >= LEAST_WORDS && !sure; i++) sure = check_row(w, model, &state);
    return sure;
}

int bench_words_open(bench_words *w, const rp_model *model) {
    *w = (bench_words){0};
    for (int letters = 0; letters < 2; letters++) {
        choose_words(w, model, letters);
        if (check_words(w, model)) return CLI_OK;
    }
    return cli_fail(
        CLI_FAILED,
        "the vocabulary has fewer than %d words or letters that are one token each in every context: give a text model",
        LEAST_WORDS);
}

void bench_words_common(bench_words *w) {
    static const char *const common[] = {
        " the",
        " of",
        " and",
        " to",
        " in",
        " is",
        " that",
        " for",
        " it",
        " as",
        " was",
        " with",
        " be",
        " by",
        " on",
        " not",
        " he",
        " his",
        " but",
        " at",
        " are",
        " this",
        " have",
        " from",
        " or",
        " had",
        " an",
        " they",
        " which",
        " one",
        " you",
        " were",
        " all",
        " her",
        " she",
        " there",
        " would",
        " their",
        " we",
        " him",
        " been",
        " has",
        " when",
        " who",
        " will",
        " no",
        " more",
        " if",
        " out",
        " so",
        " up",
        " said",
        " what",
        " its",
        " about",
        " than",
        " into",
        " them",
        " can",
        " only",
        " other",
        " time",
        " new",
        " some",
        " could",
        " these",
        " two",
        " may",
        " first",
        " then",
        " do",
        " any",
        " like",
        " my",
        " now",
        " over",
        " such",
        " our",
        " man",
        " me",
        " even",
        " most",
        " made",
        " after",
        " also",
        " did",
        " many",
        " off",
        " before",
        " must",
        " well",
        " back",
        " through",
        " years",
        " much",
        " where",
        " your",
        " way",
        " down",
        " should",
        " because",
        " long",
        " each",
        " just",
        " those",
        " people",
        " how",
        " too",
        " little",
        " state",
        " good",
        " very",
        " make",
        " world",
        " still",
        " see",
        " own",
        " work",
        " men",
        " day",
        " get",
        " here",
        " old",
        " life",
        " both",
        " between",
        " being",
        " under",
        " three",
        " never",
        " know",
        " same",
        " last",
        " another",
        " while",
        " us",
        " might",
        " great",
        " go",
        " come",
        " since",
        " against",
        " right",
        " came",
        " take",
        " used",
        " himself",
        " few",
        " house",
        " use",
        " place",
        " during",
        " high",
        " without",
        " again",
        " home",
        " around",
        " small",
        " found",
        " hand",
        " part",
        " once",
        " eyes",
        " water",
        " side",
        " need",
        " name",
        " left",
        " head",
        " night",
        " set",
        " find",
        " end",
        " line",
        " city",
        " road",
        " river",
    };
    *w = (bench_words){.n = sizeof common / sizeof common[0], .bare_start = true};
    for (uint32_t i = 0; i < w->n; i++) {
        w->bytes[i] = common[i];
        w->sizes[i] = (uint32_t)strlen(common[i]);
    }
}
