/* SPDX-License-Identifier: Apache-2.0 */
/* nonces.c: see nonces.h. Two sets: a nonce is added to the newer one; when that is full, the older one is emptied and
 * becomes the newer one. A set is an open-addressing table, half full at most. A nonce of zeros is a flag, because
 * zeros mark an empty slot. */
#include "cluster/nonces.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

#define SLOTS (2 * (uint32_t)CLUSTER_KNOWN_NONCES)

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "random bytes modulo SLOTS are uniform");

typedef struct nonce_set {
    uint8_t slots[SLOTS][CLUSTER_NONCE_BYTES];
    bool has_zeros;
    uint32_t n;
} nonce_set;

struct cluster_nonces {
    nonce_set sets[2];
    int newer;
};

static const uint8_t zeros[CLUSTER_NONCE_BYTES];

cluster_nonces *cluster_nonces_new(void) { return base_calloc(1, sizeof(cluster_nonces)); }

void cluster_nonces_free(cluster_nonces *n) { base_free(n); }

/* The slot that has the nonce, or the empty one where it belongs. */
static uint8_t *slot_of(nonce_set *s, const uint8_t *nonce) {
    uint32_t at;
    memcpy(&at, nonce, sizeof(at)); /* nonces are random */
    at %= SLOTS;
    while (memcmp(s->slots[at], zeros, sizeof(zeros)) != 0 && memcmp(s->slots[at], nonce, sizeof(zeros)) != 0)
        at = (at + 1) % SLOTS;
    return s->slots[at];
}

static bool has(nonce_set *s, const uint8_t *nonce, bool is_zeros) {
    return is_zeros ? s->has_zeros : memcmp(slot_of(s, nonce), nonce, CLUSTER_NONCE_BYTES) == 0;
}

bool cluster_nonces_add(cluster_nonces *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    const bool is_zeros = memcmp(nonce, zeros, sizeof(zeros)) == 0;
    if (has(&n->sets[0], nonce, is_zeros) || has(&n->sets[1], nonce, is_zeros)) return false;
    if (n->sets[n->newer].n == CLUSTER_KNOWN_NONCES) {
        n->newer = !n->newer;
        memset(&n->sets[n->newer], 0, sizeof(n->sets[n->newer]));
    }
    nonce_set *s = &n->sets[n->newer];
    BASE_ASSERT(s->n < CLUSTER_KNOWN_NONCES); /* half full at most: a search ends at an empty slot */
    if (is_zeros) s->has_zeros = true;
    else memcpy(slot_of(s, nonce), nonce, CLUSTER_NONCE_BYTES);
    s->n++;
    return true;
}
