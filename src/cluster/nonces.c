/* SPDX-License-Identifier: Apache-2.0 */
/* nonces.c: see nonces.h. Two sets: nonces go into the newer one; when it is full, the older one is emptied and becomes the newer. Of a set: open
 * addressing, half full at most; a nonce of zeros is kept as a flag, since zeros are an empty place. */
#include "cluster/nonces.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

#define PLACES (2 * (uint32_t)CLUSTER_KNOWN_NONCES)

_Static_assert((PLACES & (PLACES - 1)) == 0, "random bytes modulo PLACES are uniform");

typedef struct nonce_set {
    uint8_t places[PLACES][CLUSTER_NONCE_BYTES];
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

/* Where it is, or would be. */
static uint8_t *place_of(nonce_set *s, const uint8_t *nonce) {
    uint32_t at;
    memcpy(&at, nonce, sizeof(at)); /* they are random */
    for (at %= PLACES; memcmp(s->places[at], zeros, sizeof(zeros)) != 0 && memcmp(s->places[at], nonce, sizeof(zeros)) != 0;) at = (at + 1) % PLACES;
    return s->places[at];
}

static bool has(nonce_set *s, const uint8_t *nonce, bool is_zeros) {
    return is_zeros ? s->has_zeros : memcmp(place_of(s, nonce), nonce, CLUSTER_NONCE_BYTES) == 0;
}

bool cluster_nonces_add(cluster_nonces *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    const bool is_zeros = memcmp(nonce, zeros, sizeof(zeros)) == 0;
    if (has(&n->sets[0], nonce, is_zeros) || has(&n->sets[1], nonce, is_zeros)) return false;
    if (n->sets[n->newer].n == CLUSTER_KNOWN_NONCES) {
        n->newer = !n->newer;
        memset(&n->sets[n->newer], 0, sizeof(n->sets[n->newer]));
    }
    nonce_set *s = &n->sets[n->newer];
    BASE_ASSERT(s->n < CLUSTER_KNOWN_NONCES); /* half full at most: a search ends at an empty place */
    if (is_zeros) s->has_zeros = true;
    else memcpy(place_of(s, nonce), nonce, CLUSTER_NONCE_BYTES);
    s->n++;
    return true;
}
