/* SPDX-License-Identifier: Apache-2.0 */
/* answer_memory.c: see answer_memory.h. A table by key, chained; a list by use. */
#include "engine/reuse/answer_memory.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define NONE UINT32_MAX
#define N_BUCKETS (2 * ANSWER_MEMORY_ANSWERS) /* a power of two */

typedef struct kept_answer {
    base_key key;
    int32_t *tokens; /* NULL: free */
    size_t n;
    uint32_t next;         /* in its bucket, or in the free list */
    uint32_t newer, older; /* by use */
} kept_answer;

struct answer_memory {
    kept_answer answers[ANSWER_MEMORY_ANSWERS];
    uint32_t buckets[N_BUCKETS];
    uint32_t newest, oldest, first_free;
    size_t n_tokens;
};

/* ---- keys ---- */

void answer_before_init(answer_before *b, const base_key *salt) {
    base_hash_init(&b->hash, "reprise before an answer 1");
    base_hash_key(&b->hash, salt);
    b->n = 0;
}

void answer_before_add(answer_before *b, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) base_hash_u64(&b->hash, (uint64_t)tokens[i]);
    b->n += n;
}

base_key answer_before_key(const answer_before *b) {
    base_hash h = b->hash;
    base_key key;
    base_hash_final(&h, &key);
    return key;
}

static base_key key_after(const char *domain, const base_key *before, const void *bytes, size_t n) {
    base_hash h;
    base_key key;
    base_hash_init(&h, domain);
    base_hash_key(&h, before);
    base_hash_bytes(&h, bytes, n);
    base_hash_final(&h, &key);
    return key;
}

base_key answer_memory_key(const base_key *before, const char *text, size_t n) {
    return key_after("reprise answer 1", before, text, n);
}

base_key answer_memory_key_of_meaning(const base_key *before, const uint8_t meaning[RP_MEANING_BYTES]) {
    return key_after("reprise meaning 1", before, meaning, RP_MEANING_BYTES);
}

/* ---- the table ---- */

int answer_memory_new(answer_memory **out, rp_error *err) {
    answer_memory *m = *out = base_calloc(1, sizeof(*m));
    if (!m) return base_fail_memory(err, sizeof(*m), "the record of answers");
    memset(m->buckets, 0xff, sizeof(m->buckets));
    m->newest = m->oldest = NONE;
    for (uint32_t i = 0; i < ANSWER_MEMORY_ANSWERS; i++)
        m->answers[i].next = i + 1 < ANSWER_MEMORY_ANSWERS ? i + 1 : NONE;
    return RP_OK;
}

void answer_memory_free(answer_memory *m) {
    if (!m) return;
    for (uint32_t i = 0; i < ANSWER_MEMORY_ANSWERS; i++) base_free(m->answers[i].tokens);
    base_free(m);
}

static uint32_t *answer_memory_bucket_of(answer_memory *m, const base_key *key) {
    uint32_t h;
    memcpy(&h, key->bytes, sizeof(h));
    return &m->buckets[h & (N_BUCKETS - 1)];
}

static void link_newest(answer_memory *m, uint32_t i) {
    m->answers[i].newer = NONE;
    m->answers[i].older = m->newest;
    *(m->newest == NONE ? &m->oldest : &m->answers[m->newest].newer) = i;
    m->newest = i;
}

static void unlink_use(answer_memory *m, uint32_t i) {
    kept_answer *a = &m->answers[i];
    BASE_ASSERT((a->newer == NONE) == (m->newest == i) && (a->older == NONE) == (m->oldest == i));
    *(a->newer == NONE ? &m->newest : &m->answers[a->newer].older) = a->older;
    *(a->older == NONE ? &m->oldest : &m->answers[a->older].newer) = a->newer;
}

static void answer_memory_forget(answer_memory *m, uint32_t i) {
    BASE_ASSERT(i < ANSWER_MEMORY_ANSWERS && m->answers[i].tokens);
    kept_answer *a = &m->answers[i];
    uint32_t *link = answer_memory_bucket_of(m, &a->key);
    while (*link != i) link = &m->answers[*link].next;
    *link = a->next;
    unlink_use(m, i);
    BASE_ASSERT(m->n_tokens >= a->n);
    m->n_tokens -= a->n;
    base_free(a->tokens);
    *a = (kept_answer){.next = m->first_free};
    m->first_free = i;
}

static uint32_t find(answer_memory *m, const base_key *key) {
    uint32_t i = *answer_memory_bucket_of(m, key);
    while (i != NONE && !base_key_equal(&m->answers[i].key, key)) i = m->answers[i].next;
    return i;
}

void answer_memory_put(answer_memory *m, const base_key *key, int32_t *tokens, size_t n) {
    uint32_t i = find(m, key);
    if (i != NONE) answer_memory_forget(m, i);
    if (n == 0 || n > ANSWER_MEMORY_TOKENS) {
        base_free(tokens);
        return;
    }
    while (m->first_free == NONE || m->n_tokens + n > ANSWER_MEMORY_TOKENS) answer_memory_forget(m, m->oldest);
    uint32_t *bucket = answer_memory_bucket_of(m, key);
    i = m->first_free;
    BASE_ASSERT(!m->answers[i].tokens);
    m->first_free = m->answers[i].next;
    m->answers[i] = (kept_answer){.key = *key, .tokens = tokens, .n = n, .next = *bucket};
    *bucket = i;
    m->n_tokens += n;
    BASE_ASSERT(m->n_tokens <= ANSWER_MEMORY_TOKENS);
    link_newest(m, i);
}

const int32_t *answer_memory_find(answer_memory *m, const base_key *key, size_t *n) {
    uint32_t i = find(m, key);
    if (i == NONE) return NULL;
    unlink_use(m, i);
    link_newest(m, i);
    *n = m->answers[i].n;
    return m->answers[i].tokens;
}
