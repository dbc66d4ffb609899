/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_charsmap.c: SentencePiece's normalisation (Kudo and Richardson 2018): a table from strings to strings; the
 * longest match at a position of the text is replaced. Models contain it as "precompiled_charsmap":
 *
 *   u32 bytes of the array | u32 units[] | replacements, each NUL-terminated
 *
 * The array is a trie as a double array (Aoe 1989, in the compact form of Yata's Darts-clone). A unit, little-endian:
 *
 *   bits 0-7   label: the byte that leads here      bit 8   the node is a key: unit[base] holds its value
 *   bits 10-30 offset, times 256 if bit 9 is set    bit 31  this unit is a value: where its replacement begins (bits
 *         0-30)
 *
 *   base(node) = node ^ offset          child(node, byte) = base(node) ^ byte, if its label matches
 *
 * Nodes with equal subtrees are shared, so the structure is a graph. Offsets come from an untrusted file, so the whole
 * graph is checked at opening: it must have no cycle, and every value must refer to a replacement. A step of a lookup
 * consumes one byte of text.
 */
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

#define KEY "tokenizer.ggml.precompiled_charsmap"
#define MAX_BYTES (1u << 24) /* published models have 250 KB */

static bool is_key(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t base_of(uint32_t node, uint32_t unit) { return node ^ (unit >> 10) << ((unit >> 6) & 8); }
static uint32_t tokenizer_charsmap_value_of(uint32_t unit) { return unit & 0x7fffffff; }

/* The child of the node with the given base; 0: none, as the root is no node's child. */
static uint32_t charsmap_child(const charsmap *m, uint32_t base, unsigned char byte) {
    uint32_t node = base ^ byte;
    return byte && node < m->n_units && (m->units[node] & 0x800000ff) == byte ? node : 0;
}

/* ---- opening ---- */

/* A node on the path from the root, and the byte that was last tried as its child. */
typedef struct step {
    uint32_t node, byte;
} step;

enum { NEW,
       ON_PATH,
       DONE };

static bool leads_to_text(const charsmap *m, uint32_t node) {
    uint32_t unit = m->units[node], base = base_of(node, unit);
    return !is_key(unit) || (base < m->n_units && tokenizer_charsmap_value_of(m->units[base]) < m->texts_bytes);
}

/* Checks the trie depth first. A node occurs at most once on a path, so no path is longer than the array. */
static bool is_sound(const charsmap *m, uint8_t *state, step *path) {
    size_t n = 0;
    state[0] = ON_PATH;
    path[n++] = (step){0, 0};
    if (!leads_to_text(m, 0)) return false;
    while (n > 0) {
        step *s = &path[n - 1];
        uint32_t base = base_of(s->node, m->units[s->node]), next = 0;
        while (next == 0 && ++s->byte < 256) {
            next = charsmap_child(m, base, (unsigned char)s->byte);
            if (next && state[next] == ON_PATH) return false;
            if (state[next] == DONE) next = 0;
        }
        if (next == 0) {
            state[s->node] = DONE;
            n--;
            continue;
        }
        if (!leads_to_text(m, next)) return false;
        state[next] = ON_PATH;
        BASE_ASSERT(n < m->n_units); /* a node is at most once on a path */
        path[n++] = (step){next, 0};
    }
    return true;
}

static int charsmap_check(const charsmap *m, const gguf_file *f, rp_error *err) {
    uint8_t *state = base_calloc(m->n_units, 1);
    step *path = base_calloc(m->n_units, sizeof(*path));
    int rc = RP_OK;
    if (!state || !path) rc = base_fail_memory(err, m->n_units * sizeof(*path), "a normalization table");
    else if (!is_sound(m, state, path))
        rc = base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0,
                          "metadata '%s' is corrupt: its trie has a cycle or an offset out of range", KEY);
    base_free(state);
    base_free(path);
    return rc;
}

int charsmap_open(charsmap *m, const gguf_file *f, rp_error *err) {
    gguf_array a;
    uint32_t bytes;
    *m = (charsmap){0};
    if (!gguf_has(f, KEY)) return RP_OK;
    if (!gguf_get_array(f, KEY, &a) || (a.type != GGUF_U8 && a.type != GGUF_I8))
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "metadata '%s' is not a list of bytes", KEY);
    if (a.n == 0) return RP_OK;
    if (a.n < 8 || a.n > MAX_BYTES)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "metadata '%s' is too short or too long", KEY);
    memcpy(&bytes, a.data, 4);
    const char *texts = (const char *)a.data + 4;
    if (bytes == 0 || bytes % 4 != 0 || bytes > a.n - 4 || (bytes < a.n - 4 && texts[a.n - 5] != '\0'))
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "metadata '%s' is truncated", KEY);
    m->n_units = bytes / 4;
    m->texts = texts + bytes;
    m->texts_bytes = (size_t)a.n - 4 - bytes;
    m->units = base_alloc(bytes);
    if (!m->units) return base_fail_memory(err, bytes, "a normalization table");
    memcpy(m->units, texts, bytes);
    return charsmap_check(m, f, err);
}

void charsmap_close(charsmap *m) { base_free(m->units); }

/* ---- use ---- */

/* The longest key that is a prefix of text: its length, 0 if there is none, and its value. */
static size_t charsmap_longest(const charsmap *m, const char *text, size_t n, uint32_t *value) {
    uint32_t node = 0, base = base_of(0, m->units[0]);
    size_t found = 0;
    for (size_t i = 0; i < n && (node = charsmap_child(m, base, (unsigned char)text[i])) != 0; i++) {
        base = base_of(node, m->units[node]);
        if (!is_key(m->units[node])) continue;
        BASE_DCHECK(base < m->n_units); /* leads_to_text */
        *value = tokenizer_charsmap_value_of(m->units[base]);
        found = i + 1;
    }
    return found;
}

size_t charsmap_step(const charsmap *m, const char *text, size_t n, gguf_string *out) {
    uint32_t value = 0;
    size_t used = charsmap_longest(m, text, n, &value);
    BASE_ASSERT(used <= n && (used == 0 || value < m->texts_bytes)); /* is_sound */
    if (used > 0) {
        *out = (gguf_string){m->texts + value, strlen(m->texts + value)};
        return used;
    }
    utf8proc_int32_t c;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)BASE_MIN(n, 4), &c);
    *out = length > 0 ? (gguf_string){text, (uint64_t)length} : (gguf_string){"\xef\xbf\xbd", 3}; /* U+FFFD */
    return length > 0 ? (size_t)length : 1;
}
