/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: the order of the work, and what a cache of prefixes would find. */
#include "tools/split/split.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/split/split_internal.h"

/* ---- Prefixes ---- */

/* Earlier rows are sorted, so the longest shared prefix is one with a neighbour. */
int split_prefixes(const int32_t *const *rows, const size_t *lengths, size_t n, size_t *shared, rp_error *err) {
    uint32_t *sorted = base_calloc(n + 1, sizeof(*sorted));
    if (!sorted) return base_fail_memory(err, n * sizeof(*sorted), "prefixes");
    for (size_t i = 0; i < n; i++) {
        size_t low = 0, high = i, best = 0;
        while (low < high) {
            size_t mid = low + (high - low) / 2, other = sorted[mid];
            size_t most = BASE_MIN(lengths[i], lengths[other]), k = 0;
            while (k < most && rows[i][k] == rows[other][k]) k++;
            best = BASE_MAX(best, k);
            bool behind = k < lengths[i] && (k == lengths[other] || rows[other][k] < rows[i][k]);
            if (behind) low = mid + 1;
            else high = mid;
        }
        shared[i] = best; /* the last ones compared are the neighbours */
        memmove(sorted + low + 1, sorted + low, (i - low) * sizeof(*sorted));
        sorted[low] = (uint32_t)i;
    }
    base_free(sorted);
    return RP_OK;
}

/* A prompt as a row: its messages, each between its role and its end; all numbers below those of atoms are free. */
static void split_corpus_write_row(const split_corpus *c, uint32_t prompt, int32_t *row) {
    for (uint32_t i = c->prompts[prompt].first; i < c->prompts[prompt].end; i++) {
        const split_message *m = &c->messages[i];
        *row++ = -3 - m->role; /* -2 to -6 */
        for (uint32_t a = m->first; a < m->end; a++) *row++ = (int32_t)c->id[a];
        *row++ = -1;
    }
}

static size_t row_length(const split_corpus *c, uint32_t prompt) {
    size_t n = 0;
    for (uint32_t i = c->prompts[prompt].first; i < c->prompts[prompt].end; i++)
        n += c->messages[i].end - c->messages[i].first + 2;
    return n;
}

/* Bytes of the first n elements of a row. */
static size_t row_bytes(const split_corpus *c, uint32_t prompt, size_t n) {
    size_t bytes = 0;
    for (uint32_t i = c->prompts[prompt].first; i < c->prompts[prompt].end && n > 1; i++) {
        const split_message *m = &c->messages[i];
        uint32_t length = (uint32_t)BASE_MIN((size_t)(m->end - m->first), n - 1);
        bytes += split_bytes(c, m->first, m->first + length);
        n -= BASE_MIN(n, (size_t)length + 2);
    }
    return bytes;
}

static int split_find_prefixes(split_proposed *s, const split_corpus *c, rp_error *err) {
    size_t total = 0, n = c->n_prompts, used = 0;
    for (uint32_t p = 0; p < n; p++) total += row_length(c, p);
    int32_t *all = base_alloc((total + 1) * sizeof(*all));
    const int32_t **rows = base_calloc(n, sizeof(*rows));
    size_t *lengths = base_calloc(n, sizeof(*lengths)), *shared = base_calloc(n, sizeof(*shared));
    int rc = all && rows && lengths && shared ? RP_OK : base_fail_memory(err, total * sizeof(*all), "prefixes");
    for (uint32_t p = 0; p < n && !rc; p++) {
        rows[p] = all + used;
        lengths[p] = row_length(c, p);
        split_corpus_write_row(c, p, all + used);
        used += lengths[p];
    }
    BASE_ASSERT(rc || used == total);
    if (!rc) rc = split_prefixes(rows, lengths, n, shared, err);
    for (uint32_t p = 0; p < n && !rc; p++) s->figures[p].prefix = row_bytes(c, p, shared[p]);
    base_free(all);
    base_free(rows);
    base_free(lengths);
    base_free(shared);
    return rc;
}

/* ---- All of it ---- */

int split_new(split_proposed **out, const rp_split_prompt *prompts, size_t n, const rp_split_options *options,
              rp_error *err) {
    split_corpus corpus = {0};
    split_shares shares = {0};
    split_plan plan = {0};
    *out = NULL;
    split_proposed *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a schema");
    int rc;
    if (!(rc = split_corpus_build(&corpus, prompts, n, err)) &&
        !(rc = split_shares_find(&shares, &corpus, (size_t)options->min_bytes, err)) &&
        !(rc = split_plan_make(&plan, &corpus, &shares, (size_t)options->min_bytes, err)) &&
        !(rc = split_write(s, &plan, options->name, options->model, err)))
        rc = split_find_prefixes(s, &corpus, err);
    split_plan_free(&plan);
    split_shares_free(&shares);
    split_corpus_free(&corpus);
    if (rc) split_free(s);
    else *out = s;
    return rc;
}

void split_free(split_proposed *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_prompts && s->prompts; i++) base_free(s->prompts[i].bytes);
    for (size_t i = 0; i < s->n_modules && s->modules; i++) base_free(s->modules[i].name);
    base_free(s->prompts);
    base_free(s->figures);
    base_free(s->modules);
    base_free(s->schema.bytes);
    base_free(s);
}
