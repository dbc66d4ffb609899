/* SPDX-License-Identifier: Apache-2.0 */
/* kv_event_batch.c: see kv_event_batch.h. MessagePack: only what these events need; the shortest form, but for the
   number of events. */
#include "server/node/kv_event_batch.h"
#include "reprise_cluster.h"

#include <string.h>

#include "base/check.h"

/* ---- MessagePack ---- */

typedef struct packer {
    base_buffer *out;
    int rc; /* of the first failure: nothing is appended after it */
} packer;

/* A type's byte, and `bytes` big-endian bytes of v. */
static void put_number(packer *p, uint8_t type, uint64_t v, int bytes) {
    BASE_ASSERT(bytes >= 0 && bytes <= 8);
    uint8_t raw[9] = {type};
    for (int i = 0; i < bytes; i++) raw[1 + i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
    if (!p->rc) p->rc = base_buffer_append(p->out, raw, 1 + (size_t)bytes);
}

static void put_uint(packer *p, uint64_t v) {
    if (v < 0x80) put_number(p, (uint8_t)v, 0, 0);
    else if (v <= UINT8_MAX) put_number(p, 0xcc, v, 1);
    else if (v <= UINT16_MAX) put_number(p, 0xcd, v, 2);
    else if (v <= UINT32_MAX) put_number(p, 0xce, v, 4);
    else put_number(p, 0xcf, v, 8);
}

static void put_array(packer *p, size_t n) {
    BASE_ASSERT(n <= UINT32_MAX);
    if (n < 16) put_number(p, (uint8_t)(0x90 | n), 0, 0);
    else if (n <= UINT16_MAX) put_number(p, 0xdc, n, 2);
    else put_number(p, 0xdd, n, 4);
}

static void put_nil(packer *p) { put_number(p, 0xc0, 0, 0); }

static void put_float(packer *p, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    put_number(p, 0xcb, bits, 8);
}

/* Of at most 31 bytes. */
static void put_text(packer *p, const char *text) {
    const size_t n = strlen(text);
    BASE_ASSERT(n <= 31);
    put_number(p, (uint8_t)(0xa0 | n), 0, 0);
    if (!p->rc) p->rc = base_buffer_append(p->out, text, n);
}

/* ---- events ---- */

static const struct {
    uint32_t tier;
    const char *medium;
} media[] = {{RP_TIER_RAM, "CPU"}, {RP_TIER_DISK, "DISK"}};

static uint64_t name_hash(const rp_name *name) {
    uint64_t h = 0;
    for (int i = 0; i < 8; i++) h = h << 8 | name->bytes[i];
    return h ? h : 1;
}

static void put_hashes(packer *p, const kv_block_change *run, size_t n) {
    put_array(p, n);
    for (size_t i = 0; i < n; i++) put_uint(p, name_hash(&run[i].name));
}

static void put_stored(packer *p, const kv_block_change *run, size_t n, const char *medium) {
    static const rp_name none;
    put_array(p, 8);
    put_text(p, "BlockStored");
    put_hashes(p, run, n);
    if (memcmp(&run->parent, &none, sizeof(none)) == 0) put_nil(p);
    else put_uint(p, name_hash(&run->parent));
    put_array(p, n * RP_NAME_TOKENS);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < RP_NAME_TOKENS; k++) put_uint(p, (uint32_t)run[i].tokens[k]);
    put_uint(p, RP_NAME_TOKENS);
    put_nil(p);
    put_text(p, medium);
    put_nil(p);
}

static void put_removed(packer *p, const kv_block_change *run, size_t n, const char *medium) {
    put_array(p, 3);
    put_text(p, "BlockRemoved");
    put_hashes(p, run, n);
    put_text(p, medium);
}

/* Changes from the first on that are alike, and a chain if they are stored. */
static size_t run_length(const kv_block_change *c, size_t n) {
    BASE_ASSERT(n > 0 && (c->stored & c->removed) == 0); /* no block comes into a tier that it leaves */
    size_t i = 1;
    while (i < n && c[i].stored == c->stored && c[i].removed == c->removed &&
           (!c->stored || memcmp(&c[i].parent, &c[i - 1].name, sizeof(rp_name)) == 0))
        i++;
    return i;
}

int kv_event_batch_write(base_buffer *out, double seconds, bool cleared, const kv_block_change *changes, size_t n) {
    packer p = {.out = out};
    uint32_t n_events = cleared;
    put_array(&p, 3);
    put_float(&p, seconds);
    const size_t count_at = out->len + 1;
    put_number(&p, 0xdd, 0, 4); /* the number of events, known at the end */
    if (cleared) {
        put_array(&p, 1);
        put_text(&p, "AllBlocksCleared");
    }
    for (size_t i = 0, length; i < n; i += length) {
        const kv_block_change *run = &changes[i];
        length = run_length(run, n - i);
        /* into a tier before out of another: at no time are they nowhere */
        for (size_t m = 0; m < BASE_ARRAY_LEN(media); m++) {
            if (!(run->stored & media[m].tier)) continue;
            put_stored(&p, run, length, media[m].medium);
            n_events++;
        }
        for (size_t m = 0; m < BASE_ARRAY_LEN(media); m++) {
            if (!(run->removed & media[m].tier)) continue;
            put_removed(&p, run, length, media[m].medium);
            n_events++;
        }
    }
    put_uint(&p, 0);
    BASE_ASSERT(p.rc || count_at + 4 <= out->len);
    for (int i = 0; i < 4 && !p.rc; i++) out->data[count_at + (size_t)i] = (char)(n_events >> 8 * (3 - i));
    return p.rc;
}
