/* SPDX-License-Identifier: Apache-2.0 */
/* record_forge.c: see record_forge.h. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "support/record_forge.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "kv/host_memory.h"
#include "support/reduced_run.h"

static void die(const char *what) {
    fprintf(stderr, "record_forge: %s\n", what);
    abort();
}

/* ---- a world ---- */

static base_key forge_key(const char *domain, uint64_t seed) {
    base_hash h;
    base_key key;
    base_hash_init(&h, domain);
    base_hash_u64(&h, seed);
    base_hash_final(&h, &key);
    return key;
}

/* The content of a slot's element, by its index: independent of the rest of the block. */
static uint8_t forge_byte(uint64_t seed, uint64_t layer, uint64_t slot, uint64_t i) {
    tiny_random r = {seed ^ layer << 48 ^ slot << 32 ^ i};
    return (uint8_t)tiny_random_u64(&r);
}

/* Of an element that is not of int8. */
static size_t element_bytes(const kv_layer *s) { return (size_t)kv_element_bits(kv_format_keys(s->format)) / 8; }

/* Bytes of one slot of a head's keys or values. */
static size_t slot_bytes(const kv_layer *s, bool is_key) {
    size_t dim = (size_t)(is_key ? s->key_dim : s->value_dim);
    if (!is_key && s->value_bytes == 0) return 0; /* a view of the keys */
    return s->format == RP_KV_INT8 ? dim + 2 : dim * element_bytes(s);
}

/* The place of byte i of a slot in a head's keys or values. */
static size_t slot_byte_at(const kv_layer *s, bool is_key, size_t slot, size_t i) {
    size_t dim = (size_t)(is_key ? s->key_dim : s->value_dim), element = element_bytes(s);
    if (s->format == RP_KV_INT8 && i >= dim) return dim * KV_BLOCK_SLOTS + 2 * slot + (i - dim); /* its scale */
    if (s->format == RP_KV_INT8)
        return is_key ? (i / 2 * KV_BLOCK_SLOTS + slot) * 2 + i % 2 : (slot / 2 * dim + i) * 2 + slot % 2;
    return is_key ? (i / element * KV_BLOCK_SLOTS + slot) * element + i % element : slot * dim * element + i;
}

/* A head's keys or values in a block. */
static char *head_of(const kv_span *s, int32_t layer, int32_t block, int32_t head, bool is_key) {
    return kv_host_bytes(is_key ? kv_span_keys(s, layer, block, head) : kv_span_values(s, layer, block, head));
}

static void fill_slot(const kv_shape *shape, kv_span *span, int32_t layer, int32_t slot, uint64_t seed) {
    const kv_layer s = kv_shape_layer(shape, layer);
    uint64_t at = 0;
    for (int32_t i = 0; i < 2 * s.n_heads; i++) {
        bool is_key = i % 2 == 0;
        char *head = head_of(span, layer, slot / KV_BLOCK_SLOTS, i / 2, is_key);
        for (size_t b = 0; b < slot_bytes(&s, is_key); b++)
            head[slot_byte_at(&s, is_key, (size_t)slot % KV_BLOCK_SLOTS, b)] =
                (char)forge_byte(seed, (uint64_t)layer, (uint64_t)slot, at++);
    }
}

static kv_span *make_span(kv_pool *pool, const record_plan *p) {
    kv_span *s;
    int32_t slot, n = p->n_slots + p->n_extra, n_blocks = (n + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS;
    if (kv_span_new(&s, pool, p->first_pos, NULL)) die("no span");
    for (int32_t i = 0; i < n; i++)
        if (kv_span_append(s, &slot, NULL)) die("no block");
    for (int32_t l = 0; l < p->shape->n_layers; l++)
        for (int32_t i = 0; i < n_blocks * KV_BLOCK_SLOTS; i++)
            fill_slot(p->shape, s, l, i, i < p->n_slots ? p->seed : p->junk);
    kv_span_truncate(s, p->n_extra);
    if (p->from) kv_span_trim(s, p->from, NULL, 0);
    return s;
}

/* Junk in the unused slots of a head's keys or values. */
static void fill_unused(const kv_layer *s, char *head, bool is_key, int32_t n_used, uint64_t junk) {
    for (int32_t slot = n_used; slot < KV_BLOCK_SLOTS; slot++)
        for (size_t b = 0; b < slot_bytes(s, is_key); b++)
            head[slot_byte_at(s, is_key, (size_t)slot, b)] = (char)forge_byte(junk, 0, (uint64_t)slot, b);
}

static void fill_all_unused(kv_span *s, uint64_t junk) {
    const kv_shape *shape = kv_span_shape(s);
    for (int32_t i = 0; i < shape->n_layers * kv_shape_heads(shape); i++) {
        const int32_t l = i / kv_shape_heads(shape), head = i % kv_shape_heads(shape), n = kv_span_slots(s, l, head),
                      b = n / KV_BLOCK_SLOTS;
        const kv_layer of_layer = kv_shape_layer(shape, l);
        for (int is_key = 0; is_key < 2 && n % KV_BLOCK_SLOTS > 0; is_key++)
            fill_unused(&of_layer, head_of(s, l, b, head, is_key), is_key, n % KV_BLOCK_SLOTS, junk);
    }
}

static kv_span *make_reduced(kv_pool *pool, const record_plan *p) {
    tiny_random r = {p->seed};
    kv_span *run[REDUCED_RUN_SPANS], *s, *encoded;
    reduced_run_make(&r, pool, p->shape->format, p->first_pos, p->n_slots, run);
    kv_selection *selection = reduced_run_select(&r, p->shape, p->n_slots);
    if (kv_span_reduce(&s, (const kv_span *const *)run, reduced_run_spans(run), selection, p->part, NULL))
        die("no reduced span");
    kv_selection_free(selection);
    reduced_run_free(run);
    if (!kv_format_is_encoded(p->encoded)) return fill_all_unused(s, p->junk), s;
    if (kv_span_new_like(&encoded, s, p->encoded, NULL)) die("no encoded span");
    kv_span_unref(s);
    reduced_run_fill(&r, encoded);
    return encoded;
}

static void make_record(record_world *w, const record_plan *p) {
    tiny_random r = {p->seed};
    bool is_text = p->seed & 1 && !p->is_reduced;
    for (int i = 0; i < KV_SPAN_TOKENS; i++) w->tokens[i] = (int32_t)tiny_random_below(&r, INT32_MAX);
    w->record = (record){
        .key = forge_key("key", p->seed),
        .parent = forge_key("parent", p->seed),
        .kind = p->is_reduced ? RECORD_REDUCED : is_text ? RECORD_TEXT
                                                         : RECORD_MODULE,
        .at = is_text ? (int32_t)tiny_random_below(&r, KV_SPAN_TOKENS + 1) : p->part,
        .first_slot = is_text ? (int32_t)tiny_random_below(&r, (uint64_t)p->n_slots) : 0,
        .tokens = w->tokens,
        .cost_us = tiny_random_u64(&r),
        .label = is_text ? "" : "cities/plan/miami",
    };
    w->record.n_tokens = p->is_reduced ? 0 : p->n_slots - w->record.first_slot;
}

void record_world_open(record_world *w, const record_plan *p) {
    *w = (record_world){.folder = "/tmp/reprise-record-XXXXXX"};
    if (!mkdtemp(w->folder)) die("no folder");
    snprintf(w->path, sizeof w->path, "%s/record.rps", w->folder);
    snprintf(w->other, sizeof w->other, "%s/other.rps", w->folder);
    if (kv_pool_new(&w->pool, p->shape, UINT64_C(1) << 32, NULL, NULL)) die("no pool");
    w->format = (record_format){.fingerprint = forge_key("model", 1), .shape = *p->shape};
    make_record(w, p);
    w->span = p->is_reduced ? make_reduced(w->pool, p) : make_span(w->pool, p);
    kv_span_seal(w->span, &w->record.key);
    if (!(w->form_arrays = malloc(kv_span_form_bytes(w->span)))) die("no memory");
    w->record.form = kv_span_describe(w->span, w->form_arrays);
    w->format.any_format = p->is_reduced && kv_format_is_encoded(p->encoded);
}

int record_world_files(const record_world *w, int *n_temporary) {
    int n = 0;
    DIR *d = opendir(w->folder);
    if (!d) die("no folder");
    *n_temporary = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t bytes = strlen(e->d_name), end = strlen(RECORD_TEMPORARY);
        if (e->d_name[0] == '.') continue;
        n++;
        *n_temporary += bytes > end && strcmp(e->d_name + bytes - end, RECORD_TEMPORARY) == 0;
    }
    closedir(d);
    return n;
}

void record_world_close(record_world *w) {
    DIR *d = opendir(w->folder);
    if (!d) die("no folder");
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", w->folder, e->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(w->folder);
    kv_span_unref(w->span);
    kv_pool_free(w->pool);
    free(w->form_arrays);
}

record_cipher *forge_cipher(uint8_t byte) {
    char path[] = "/tmp/reprise-cipher-XXXXXX";
    uint8_t key[RECORD_CIPHER_KEY_BYTES];
    record_cipher *c = NULL;
    int fd = mkstemp(path);
    memset(key, byte, sizeof key);
    if (fd < 0 || write(fd, key, sizeof key) != (ssize_t)sizeof key || close(fd) || record_cipher_open(&c, path, NULL))
        die("no cipher");
    unlink(path);
    return c;
}

/* Is a used slot of head b that of a, an unused one zero? */
static bool slot_is(const kv_layer *s, const char *a, const char *b, bool is_key, size_t slot, bool is_used) {
    for (size_t i = 0; i < slot_bytes(s, is_key); i++) {
        size_t at = slot_byte_at(s, is_key, slot, i);
        if (b[at] != (is_used ? a[at] : 0)) return false;
    }
    return true;
}

static bool blocks_equal(const kv_shape *shape, const kv_span *a, const kv_span *b, int32_t layer, int32_t block,
                         int32_t n_used) {
    const kv_layer s = kv_shape_layer(shape, layer);
    for (int32_t i = 0; i < 2 * s.n_heads; i++) {
        bool is_key = i % 2 == 0;
        const char *x = head_of(a, layer, block, i / 2, is_key), *y = head_of(b, layer, block, i / 2, is_key);
        for (size_t slot = 0; slot < KV_BLOCK_SLOTS; slot++)
            if (!slot_is(&s, x, y, is_key, slot, (int32_t)slot < n_used)) return false;
    }
    return true;
}

/* A cell with its unused slots as zeros. */
static void get_cell(const kv_span *s, int32_t layer, int32_t block, int32_t head, uint8_t *out) {
    const kv_layer one = kv_layer_cell(kv_span_layer(s, layer));
    const int32_t n_used = kv_span_slots(s, layer, head) - block * KV_BLOCK_SLOTS;
    kv_span_get_cell(s, layer, block, head, out);
    if (n_used < KV_BLOCK_SLOTS) kv_block_clear_slots(&one, out, n_used);
}

static bool cells_equal(const kv_span *a, const kv_span *b, int32_t layer, int32_t block, int32_t head) {
    const kv_layer shape = kv_shape_layer(kv_span_shape(a), layer);
    const size_t bytes = shape.cell_bytes;
    uint8_t *x = malloc(2 * bytes), *y = x + bytes;
    if (!x) die("no memory");
    get_cell(a, layer, block, head, x);
    get_cell(b, layer, block, head, y);
    bool same = memcmp(x, y, bytes) == 0;
    kv_span_get_cell(b, layer, block, head, x);
    same = same && memcmp(x, y, bytes) == 0; /* unused slots are zeros in the copy */
    free(x);
    return same;
}

static bool reduced_equal(const kv_span *a, const kv_span *b) {
    const kv_shape *shape = kv_span_shape(a);
    bool same = kv_span_parts(a) == kv_span_parts(b) && kv_span_end(a) == kv_span_end(b) &&
                kv_span_format(a) == kv_span_format(b);
    for (int32_t i = 0; same && i < shape->n_layers * kv_shape_heads(shape); i++) {
        const int32_t l = i / kv_shape_heads(shape), head = i % kv_shape_heads(shape), n = kv_span_slots(a, l, head);
        const int32_t *x = kv_span_positions(a, l, head), *y = kv_span_positions(b, l, head);
        same = kv_span_slots(b, l, head) == n && (n == 0 || memcmp(x, y, sizeof(*x) * (size_t)n) == 0);
        for (int32_t block = 0; same && block * KV_BLOCK_SLOTS < n; block++) same = cells_equal(a, b, l, block, head);
    }
    return same;
}

bool forge_spans_equal(const kv_shape *shape, const kv_span *span, const kv_span *copy) {
    int32_t n = kv_span_tokens(span);
    if (n != kv_span_tokens(copy) || kv_span_position(span) != kv_span_position(copy) ||
        kv_span_readable_from(span) != kv_span_readable_from(copy) ||
        !base_key_equal(kv_span_key(span), kv_span_key(copy)) || kv_span_is_reduced(span) != kv_span_is_reduced(copy))
        return false;
    if (kv_span_is_reduced(span)) return reduced_equal(span, copy);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        uint8_t kept = kv_span_kept(span, l) & record_all_kept(n);
        if (kept != kv_span_kept(copy, l)) return false;
        for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) {
            if (!(kept >> b & 1)) continue;
            if (!blocks_equal(shape, span, copy, l, b, n - b * KV_BLOCK_SLOTS)) return false;
        }
    }
    return true;
}

/* ---- files in memory ---- */

forged forge_load(const char *path) {
    forged f = {0};
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) die("cannot read a file");
    f.n = (size_t)ftell(file);
    f.bytes = malloc(f.n + 1);
    rewind(file);
    if (!f.bytes || fread(f.bytes, 1, f.n, file) != f.n) die("cannot read a file");
    fclose(file);
    return f;
}

void forge_save(const char *path, const uint8_t *bytes, size_t n) {
    /* Truncated after the write, not before: some file systems flush at once if a file is emptied and written again. */
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0 || close(fd) != 0)
        die("cannot write a file");
}

void forge_free(forged *f) {
    free(f->bytes);
    *f = (forged){0};
}

static uint64_t number(const uint8_t *at, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)at[i] << (8 * i);
    return v;
}

static void set_number(uint8_t *at, uint64_t v, int n) {
    for (int i = 0; i < n; i++) at[i] = (uint8_t)(v >> (8 * i));
}

void forge_header_checksum(uint8_t *bytes, size_t n) {
    if (n < RECORD_PUBLIC_BYTES) return;
    uint64_t kv_at = record_kv_at(number(bytes + 12, 4) & RECORD_ENCRYPTED, number(bytes + 24, 4));
    if (kv_at <= n) record_put_checksum(bytes + RECORD_BOUND_BYTES, record_header_checksum(bytes, (size_t)kv_at));
}

/* The numbers of a plain record that determine sizes. */
typedef struct numbers {
    kv_layer_shape layers[RECORD_MAX_LAYERS];
    uint8_t kept[RECORD_MAX_LAYERS];      /* blocks of a layer that exist: forged numbers may name others */
    uint16_t slots[KV_REDUCED_MAX_HEADS]; /* of a reduced span */
    kv_span_form form;                    /* as far as sizes depend on it */
    uint32_t version;
    int32_t n_layers, n_tokens;
    kv_shape shape;
    uint64_t private_bytes, kv_at;
} numbers;

static int32_t field(const uint8_t *private, int at) { return (int32_t)number(private + at, 4); }

static uint8_t *layer_at(uint8_t *private, const numbers *k, int32_t i) {
    return private + record_fixed_bytes(k->version) + (size_t)i * RECORD_LAYER_BYTES;
}

/* The slots of each head, and the range of positions. */
static bool get_reduced(numbers *k, const uint8_t *private) {
    const uint8_t *at = layer_at((uint8_t *)(uintptr_t) private, k, k->n_layers);
    k->form.end = (int32_t)number(at, 4);
    for (int32_t i = 0; i < k->n_layers * k->form.n_kv_heads; i++)
        k->slots[i] = BASE_MIN((uint16_t)number(at + RECORD_REDUCED_BYTES + (size_t)i * 2, 2), KV_SPAN_TOKENS);
    k->form.slots = k->slots;
    return k->form.first_pos >= 0 && k->form.end > k->form.first_pos;
}

/* False: they are impossible, or do not fit. */
static bool get_numbers(numbers *out, const uint8_t *bytes, size_t n) {
    const uint8_t *private = bytes + RECORD_PUBLIC_BYTES;
    if (n < RECORD_PUBLIC_BYTES + RECORD_FIXED_BYTES_1) return false;
    numbers k = {.version = (uint32_t)number(bytes + 8, 4), .n_layers = field(private, 136)};
    k.n_tokens = field(private, 116);
    k.form.n_tokens = field(private, 120);
    k.form.first_pos = field(private, 124);
    const int32_t heads = field(private, 140), key_dim = field(private, 144), value_dim = field(private, 148),
                  label = field(private, 152);
    const uint32_t format = (uint32_t)number(private + 132, 1) & ~(uint32_t)RECORD_MIXES;
    const kv_layer_shape common = {.n_heads = heads, .key_dim = key_dim, .value_dim = value_dim};
    k.shape = (kv_shape){.n_layers = k.n_layers};
    if (k.version < 1 || k.version > RECORD_FILE_VERSION || !kv_format_of_number(format, &k.shape.format)) return false;
    if (k.n_layers < 1 || k.n_layers > RECORD_MAX_LAYERS || k.n_tokens < 0 || k.n_tokens > KV_SPAN_TOKENS ||
        k.form.n_tokens < 1 || k.form.n_tokens > KV_SPAN_TOKENS || heads < 1 || heads > 65536 || key_dim < 1 ||
        key_dim > 65536 || value_dim < 1 || value_dim > 65536 || label < 0 || label > RECORD_MAX_LABEL)
        return false;
    const kv_layer first = kv_layer_make(&common, k.shape.format);
    if (!kv_layer_is_supported(&first)) return false;
    const bool is_reduced = field(private, 104) == RECORD_REDUCED;
    if (is_reduced && (int64_t)k.n_layers * heads > KV_REDUCED_MAX_HEADS) return false;
    if (is_reduced) k.form.n_kv_heads = heads;
    k.private_bytes =
        record_private_bytes(k.version, k.n_layers, k.n_layers * k.form.n_kv_heads, k.n_tokens, (size_t)label);
    k.kv_at = record_kv_at(false, k.private_bytes);
    *out = k;
    if (RECORD_PUBLIC_BYTES + k.private_bytes > n) return false;
    out->shape.layers = out->layers;
    out->form.kept = out->kept;
    for (int32_t i = 0; i < k.n_layers; i++) {
        const uint8_t *layer = layer_at((uint8_t *)(uintptr_t) private, &k, i);
        out->layers[i] = common;
        out->layers[i].in_f16 = layer[13] && number(private + 132, 1) & RECORD_MIXES;
        out->kept[i] = layer[12] & record_all_kept(k.form.n_tokens);
    }
    return !is_reduced || get_reduced(out, private);
}

bool forge_places(const uint8_t *bytes, size_t n, uint64_t *private_bytes, uint64_t *kv_at) {
    numbers k;
    bool is_found = get_numbers(&k, bytes, n);
    if (is_found) *private_bytes = k.private_bytes, *kv_at = k.kv_at;
    return is_found;
}

static uint64_t layer_bytes(const numbers *k, int32_t i, bool is_encrypted) {
    return record_layer_bytes(&k->shape, &k->form, i, k->version, is_encrypted);
}

void forge_sizes(uint8_t *bytes, size_t n) {
    numbers k;
    if (!get_numbers(&k, bytes, n)) return;
    uint64_t begin = k.kv_at;
    for (int32_t i = 0; i < k.n_layers; i++) {
        uint8_t *layer = layer_at(bytes + RECORD_PUBLIC_BYTES, &k, i);
        set_number(layer, begin, 8);
        begin += layer_bytes(&k, i, false);
    }
    set_number(bytes + 12, 0, 4);
    set_number(bytes + 16, n, 8);
    set_number(bytes + 24, k.private_bytes, 4);
}

void forge_layer_checksums(uint8_t *bytes, size_t n) {
    numbers k;
    if (!get_numbers(&k, bytes, n)) return;
    for (int32_t i = 0; i < k.n_layers; i++) {
        uint8_t *layer = layer_at(bytes + RECORD_PUBLIC_BYTES, &k, i);
        uint64_t begin = number(layer, 8), size = layer_bytes(&k, i, false);
        const struct iovec kv = {bytes + BASE_MIN(begin, n), (size_t)size};
        if (begin <= n && size <= n - begin) record_put_checksum(layer + 16, record_checksum_of(&kv, 1));
    }
}

/* Where a plain record's layers should begin, and those of an encrypted one: moves those that are in their place. */
static void shift_layers(uint8_t *private, const numbers *k) {
    uint64_t plain = k->kv_at, encrypted = record_kv_at(true, k->private_bytes);
    for (int32_t i = 0; i < k->n_layers; i++) {
        uint8_t *layer = layer_at(private, k, i);
        if (number(layer, 8) == plain) set_number(layer, encrypted, 8);
        plain += layer_bytes(k, i, false);
        encrypted += layer_bytes(k, i, true);
    }
}

/* Seals the pieces of all layers, one after the other, as long as the record has bytes for them. Returns the number of
 * bytes at *to. */
static size_t seal_pieces(const numbers *k, const uint8_t *from, size_t n, record_stream *stream, uint8_t *to) {
    size_t out = 0, sizes[KV_SPAN_BLOCKS];
    for (int32_t i = 0; i < k->n_layers; i++) {
        const int n_pieces = record_layer_pieces(&k->shape, &k->form, i, k->version, sizes);
        for (int b = 0; b < n_pieces; b++) {
            if (sizes[b] > n) return out + n; /* of a piece that is cut off: left as zeros */
            if (stream) record_stream_seal(stream, from, sizes[b], NULL, 0, to + out);
            out += sizes[b] + RECORD_MESSAGE_EXTRA;
            from += sizes[b];
            n -= sizes[b];
        }
    }
    return out + n;
}

forged forge_encrypt(const uint8_t *plain, size_t n, const record_cipher *cipher) {
    numbers k;
    record_stream stream;
    uint8_t *bytes = malloc(n + 1), *private = bytes + RECORD_PUBLIC_BYTES;
    if (!bytes) die("no memory");
    memcpy(bytes, plain, n);
    forged f = {0};
    if (!get_numbers(&k, bytes, n) || k.kv_at > n) return free(bytes), f;
    const size_t kv_at = (size_t)record_kv_at(true, k.private_bytes), kv_bytes = n - (size_t)k.kv_at;
    f.n = kv_at + seal_pieces(&k, bytes + k.kv_at, kv_bytes, NULL, NULL);
    f.bytes = calloc(1, f.n + 1);
    if (!f.bytes) die("no memory");
    memcpy(f.bytes, bytes, RECORD_PUBLIC_BYTES);
    set_number(f.bytes + 12, number(bytes + 12, 4) | RECORD_ENCRYPTED, 4);
    set_number(f.bytes + 16, f.n, 8);
    memcpy(f.bytes + 32, record_cipher_id(cipher), RECORD_CIPHER_ID_BYTES);
    shift_layers(private, &k);
    record_stream_begin(&stream, cipher, f.bytes + RECORD_PUBLIC_BYTES);
    record_stream_seal(&stream, private, (size_t)k.private_bytes, f.bytes, RECORD_BOUND_BYTES,
                       f.bytes + RECORD_PUBLIC_BYTES + RECORD_STREAM_START_BYTES);
    seal_pieces(&k, bytes + k.kv_at, kv_bytes, &stream, f.bytes + kv_at);
    record_stream_wipe(&stream);
    free(bytes);
    forge_header_checksum(f.bytes, f.n);
    return f;
}
