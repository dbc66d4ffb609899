/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_lookup.c: see prompt_lookup.h. */
#include "sampling/prompt_lookup.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define LONGEST 3 /* tokens that are looked for; shorter ones match by chance */
#define SHORTEST 2
#define LOOK_BACK 16384 /* tokens: the search reads them all for every token of the answer */
/* The first estimate, as if this many tokens had been seen, and the weight of a token relative to the next one. */
#define FIRST_RATE 0.5
#define FIRST_WEIGHT 2.0
#define FORGETTING 0.95

int prompt_lookup_open(prompt_lookup *d, const int32_t *prompt, int32_t n, int32_t cap, int32_t most, rp_error *err) {
    BASE_ASSERT(most >= 0 && most <= RP_MAX_DRAFT && (most == 0 || (n >= 0 && n <= cap)));
    *d = (prompt_lookup){.cap = cap, .most = most, .length = most};
    for (int i = 0; i < LONGEST - SHORTEST + 1; i++) {
        d->seen[i].right = FIRST_RATE * FIRST_WEIGHT;
        d->seen[i].all = FIRST_WEIGHT;
    }
    if (most == 0) return RP_OK;
    d->history = base_alloc((size_t)cap * sizeof(*d->history));
    if (!d->history) return base_fail_memory(err, (uint64_t)cap * sizeof(*d->history), "drafts");
    memcpy(d->history, prompt, (size_t)n * sizeof(*prompt));
    d->n = n;
    return RP_OK;
}

void prompt_lookup_close(prompt_lookup *d) {
    base_free(d->history);
    *d = (prompt_lookup){0};
}

void prompt_lookup_accept(prompt_lookup *d, int32_t token) {
    if (d->n < d->cap) d->history[d->n++] = token;
}

/* The previous occurrence of the last n tokens: the index after it; 0: none. */
static int32_t prompt_lookup_find_last(const prompt_lookup *d, int32_t n) {
    const int32_t *last = d->history + d->n - n;
    for (int32_t i = d->n - 1; i >= n && i > d->n - LOOK_BACK; i--)
        if (d->history[i - 1] == last[n - 1] && memcmp(d->history + i - n, last, (size_t)n * sizeof(*last)) == 0)
            return i;
    return 0;
}

void prompt_lookup_guess(prompt_lookup *d, int32_t room) {
    int32_t begin = 0, most = BASE_MIN(room, d->length);
    d->n_tokens = d->n_guessed = 0;
    if (most <= 0) return;
    for (int32_t n = LONGEST; n >= SHORTEST && !begin; n--) {
        if (d->n > n) begin = prompt_lookup_find_last(d, n);
        d->matched = n;
    }
    if (!begin) return;
    d->n_guessed = BASE_MIN(most, d->n - begin);
    BASE_ASSERT(d->n_guessed > 0 && d->n_guessed <= RP_MAX_DRAFT);
    memcpy(d->tokens, d->history + begin, (size_t)d->n_guessed * sizeof(*d->tokens));
}

double prompt_lookup_rate(const prompt_lookup *d) {
    if (d->n_guessed == 0) return 0;
    return d->seen[d->matched - SHORTEST].right / d->seen[d->matched - SHORTEST].all;
}

static void see(prompt_lookup *d, bool is_right) {
    BASE_ASSERT(d->matched >= SHORTEST && d->matched <= LONGEST); /* there was a guess */
    double *right = &d->seen[d->matched - SHORTEST].right, *all = &d->seen[d->matched - SHORTEST].all;
    *right = *right * FORGETTING + is_right;
    *all = *all * FORGETTING + 1;
}

/* Twice as many after a draft that was right to its end, else one more than were right: additive steps find the length
 * too slowly. */
void prompt_lookup_learn(prompt_lookup *d, int32_t right, int32_t next) {
    BASE_ASSERT(right >= 0 && right <= d->n_tokens && d->n_tokens <= d->n_guessed);
    for (int32_t i = 0; i < right; i++) see(d, true);
    if (right < d->n_guessed) see(d, d->tokens[right] == next);
    if (d->n_tokens == 0) return;
    d->length = right == d->n_tokens ? BASE_MIN(2 * d->length, d->most) : right + 1;
    d->length = BASE_MIN(d->length, d->most);
}
