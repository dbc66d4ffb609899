/* SPDX-License-Identifier: Apache-2.0 */
/* eval_score.c: see eval_score.h. No state. */
#include "eval/eval_score.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/console.h"

static bool eval_score_is_space(char c) { return c != '\0' && strchr(" \t\r\n", c) != NULL; }
static char eval_score_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
/* True for letters, digits and every byte of a character outside ASCII. */
static bool eval_score_is_word(char c) {
    return (c >= '0' && c <= '9') || (eval_score_lower(c) >= 'a' && eval_score_lower(c) <= 'z') ||
           (unsigned char)c >= 0x80;
}

/* Lower case, single spaces, none at the ends, no full stop at the end. Freed by the caller. */
static char *eval_score_plain(const char *s) {
    char *out = cli_alloc(strlen(s) + 1);
    size_t n = 0;
    for (; *s; s++) {
        if (!eval_score_is_space(*s)) out[n++] = eval_score_lower(*s);
        else if (n > 0 && out[n - 1] != ' ') out[n++] = ' ';
    }
    while (n > 0 && (out[n - 1] == ' ' || out[n - 1] == '.')) n--;
    out[n] = '\0';
    return out;
}

static double eval_score_exact(const char *answer, const char *accepted) { return strcmp(answer, accepted) == 0; }

static double eval_score_contains(const char *answer, const char *accepted) {
    size_t n = strlen(accepted);
    for (const char *p = answer; n > 0 && (p = strstr(p, accepted)) != NULL; p++) {
        bool begins = p == answer || !eval_score_is_word(p[-1]) || !eval_score_is_word(p[0]);
        bool ends = !eval_score_is_word(p[n - 1]) || !eval_score_is_word(p[n]);
        if (begins && ends) return 1;
    }
    return 0;
}

typedef struct word_list {
    const char **words; /* pointers into the text */
    size_t *lengths, n;
} word_list;

static word_list words_of(const char *text, bool articles) {
    size_t most = strlen(text) / 2 + 1;
    word_list l = {cli_alloc(most * sizeof *l.words), cli_alloc(most * sizeof *l.lengths), 0};
    while (*text) {
        size_t n = 0;
        while (text[n] && eval_score_is_word(text[n])) n++;
        bool article = (n == 1 && text[0] == 'a') || (n == 2 && memcmp(text, "an", 2) == 0) ||
                       (n == 3 && memcmp(text, "the", 3) == 0);
        if (n > 0 && (articles || !article)) {
            l.words[l.n] = text;
            l.lengths[l.n++] = n;
        }
        text += n > 0 ? n : 1;
    }
    return l;
}

static void free_words(word_list *l) {
    free(l->words);
    free(l->lengths);
}

static bool word_list_same(const word_list *a, size_t i, const word_list *b, size_t k) {
    return a->lengths[i] == b->lengths[k] && memcmp(a->words[i], b->words[k], a->lengths[i]) == 0;
}

/* Number of common words, each counted as often as in the text with fewer of it. */
static size_t in_common(const word_list *a, const word_list *b) {
    bool *taken = cli_alloc(b->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n; k++) {
            if (taken[k] || !word_list_same(a, i, b, k)) continue;
            taken[k] = true;
            n++;
            break;
        }
    free(taken);
    return n;
}

static size_t longest_subsequence(const word_list *a, const word_list *b) {
    size_t *row = cli_alloc((b->n + 1) * sizeof *row);
    for (size_t i = 0; i < a->n; i++) {
        size_t corner = 0; /* row[k] of the previous row */
        for (size_t k = 0; k < b->n; k++) {
            size_t above = row[k + 1];
            row[k + 1] = word_list_same(a, i, b, k) ? corner + 1 : above > row[k] ? above
                                                                                  : row[k];
            corner = above;
        }
    }
    size_t n = row[b->n];
    free(row);
    return n;
}

static double eval_score_overlap(const char *answer, const char *accepted, bool in_order) {
    word_list a = words_of(answer, in_order), b = words_of(accepted, in_order);
    size_t n = in_order ? longest_subsequence(&a, &b) : in_common(&a, &b);
    double f = a.n + b.n > 0 ? 2.0 * (double)n / (double)(a.n + b.n) : 1;
    free_words(&a);
    free_words(&b);
    return f;
}

double eval_score(eval_metric metric, const char *answer, const char *const *accepted, size_t n_accepted) {
    double best = 0;
    char *given = eval_score_plain(answer);
    for (size_t i = 0; i < n_accepted; i++) {
        char *wanted = eval_score_plain(accepted[i]);
        double score = metric == EVAL_EXACT      ? eval_score_exact(given, wanted)
                       : metric == EVAL_CONTAINS ? eval_score_contains(given, wanted)
                                                 : eval_score_overlap(given, wanted, metric == EVAL_ROUGE_L);
        if (score > best) best = score;
        free(wanted);
    }
    free(given);
    return best;
}

void eval_log_softmax(float *logits, int32_t n) {
    double sum = 0, most = logits[eval_argmax(logits, n)];
    for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - most);
    double shift = most + log(sum);
    for (int32_t i = 0; i < n; i++) logits[i] = (float)(logits[i] - shift);
}

double eval_kl(const float *p, const float *q, int32_t n) {
    double kl = 0;
    for (int32_t i = 0; i < n; i++) kl += exp(p[i]) * ((double)p[i] - (double)q[i]);
    return kl > 0 ? kl : 0;
}

int32_t eval_argmax(const float *values, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t eval_score_next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int eval_score_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean_of(const double *values, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    return n > 0 ? sum / (double)n : 0;
}

eval_mean eval_bootstrap(const double *values, size_t n, int resamples, uint64_t seed) {
    eval_mean m = {.mean = mean_of(values, n)};
    m.low = m.high = m.mean;
    if (n < 2 || resamples < 2) return m;
    double *means = cli_alloc((size_t)resamples * sizeof *means);
    for (int r = 0; r < resamples; r++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += values[eval_score_next_random(&seed) % n];
        means[r] = sum / (double)n;
    }
    qsort(means, (size_t)resamples, sizeof *means, eval_score_compare);
    m.low = means[(int)(0.025 * (resamples - 1))];
    m.high = means[(int)(0.975 * (resamples - 1) + 0.5)];
    free(means);
    return m;
}

double eval_median(double *values, size_t n) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, eval_score_compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
