/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.c: reads and checks one GGUF file, and looks up its metadata and tensors. gguf.h shows the format; gguf_open.c
 * opens files.
 *
 * Owns: the lists of metadata and of tensors, and an index of each by name. general.alignment is the only key that it
 * interprets.
 *
 * One pass of a cursor over the header checks everything; the getters cannot fail afterwards:
 *
 *   take_*      the only functions that read bytes; each checks the end of the file first
 *   read_*      one part of the file each (value, array, key, tensor, header)
 *   gguf_get_*  after opening
 *
 * A count of the file is used for an allocation only if that many entries of the smallest possible size fit into the
 * remaining bytes. Memory therefore stays below a few times the file's size for any count.
 *
 * Threads: immutable after opening.
 */
#include "model/gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT 8                   /* the specification's; enough for every element type */
#define MAX_ALIGNMENT ((uint64_t)1 << 24) /* larger than any page; keeps sums of sizes far from overflow */
#define MAX_ARRAY_DEPTH 4                 /* arrays of arrays are skipped, but walked to find their end */
#define MIN_METADATA_BYTES 14             /* key of one byte, type, one byte */
#define MIN_TENSOR_BYTES 33               /* name of one byte, one dimension */
#define SHOWN_NAME_BYTES 80               /* of a name in a message */
#define SHOWN_PATH_BYTES 120              /* of the path in a message; its end is kept */

/* The position of the reader, and the part of the file that it is in (for messages). */
typedef struct cursor {
    const gguf_file *file;
    size_t pos;
    const char *part; /* "header", "key", "tensor" */
    gguf_string part_name;
    rp_error *err;
} cursor;

static const uint8_t value_bytes[GGUF_VALUE_TYPE_COUNT] = {
    [GGUF_U8] = 1,
    [GGUF_I8] = 1,
    [GGUF_U16] = 2,
    [GGUF_I16] = 2,
    [GGUF_U32] = 4,
    [GGUF_I32] = 4,
    [GGUF_F32] = 4,
    [GGUF_BOOL] = 1,
    [GGUF_U64] = 8,
    [GGUF_I64] = 8,
    [GGUF_F64] = 8,
};

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* A name as text for a message: truncated, and without control bytes. */
static void show_name(gguf_string name, char out[SHOWN_NAME_BYTES + 4]) {
    size_t n = name.n < SHOWN_NAME_BYTES ? (size_t)name.n : SHOWN_NAME_BYTES;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)name.bytes[i];
        out[i] = (b < 0x20 || b >= 0x7f) ? '?' : (char)b;
    }
    memcpy(out + n, name.n > n ? "..." : "", name.n > n ? 4 : 1);
}

static void show_where(const cursor *c, char *out, size_t out_bytes) {
    const char *path = c->file->name ? c->file->name : "";
    size_t n = strlen(path);
    bool cut = n > SHOWN_PATH_BYTES;
    if (cut) path += n - SHOWN_PATH_BYTES;
    if (!c->part_name.n) {
        snprintf(out, out_bytes, "%s%s: %s", cut ? "..." : "", path, c->part);
        return;
    }
    char name[SHOWN_NAME_BYTES + 4];
    show_name(c->part_name, name);
    snprintf(out, out_bytes, "%s%s: %s '%s'", cut ? "..." : "", path, c->part, name);
}

static int cursor_fail(const cursor *c, rp_code code, uint64_t offset, const char *fmt, ...) BASE_PRINTF(4, 5);
static int cursor_fail(const cursor *c, rp_code code, uint64_t offset, const char *fmt, ...) {
    char where[RP_ERROR_WHERE_BYTES], text[RP_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    show_where(c, where, sizeof where);
    return base_fail_at(c->err, code, where, offset, "%s", text);
}

/* ---- cursor ---------------------------------------------------------------------------------------------------- */

static size_t cursor_left(const cursor *c) {
    BASE_ASSERT(c->pos <= c->file->bytes);
    return c->file->bytes - c->pos;
}

static int cursor_take_bytes(cursor *c, uint64_t n, const uint8_t **out, const char *what) {
    if (n > cursor_left(c))
        return cursor_fail(c, RP_ERR_FORMAT, c->pos,
                           "%s at byte %zu needs %" PRIu64
                           " bytes, but the file ends at byte %zu: it is truncated or corrupt",
                           what, c->pos, n, c->file->bytes);
    *out = c->file->data + c->pos;
    c->pos += (size_t)n;
    return RP_OK;
}

static uint64_t load_le(const uint8_t *p, size_t n) {
    BASE_DCHECK(n >= 1 && n <= 8);
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int take_u32(cursor *c, uint32_t *out, const char *what) {
    const uint8_t *p = NULL;
    int rc = cursor_take_bytes(c, 4, &p, what);
    if (!rc) *out = (uint32_t)load_le(p, 4);
    return rc;
}

static int take_u64(cursor *c, uint64_t *out, const char *what) {
    const uint8_t *p = NULL;
    int rc = cursor_take_bytes(c, 8, &p, what);
    if (!rc) *out = load_le(p, 8);
    return rc;
}

static int take_string(cursor *c, gguf_string *out, const char *what) {
    uint64_t n;
    const uint8_t *p = NULL;
    int rc = take_u64(c, &n, what);
    if (rc) return rc;
    rc = cursor_take_bytes(c, n, &p, what);
    if (!rc) *out = (gguf_string){.bytes = (const char *)p, .n = n};
    return rc;
}

/* A key or a tensor's name: a string of 1 to GGUF_MAX_NAME bytes. Later messages name the part by it. */
static int cursor_take_name(cursor *c, gguf_string *out, const char *part) {
    size_t begin = c->pos;
    c->part = part;
    c->part_name = (gguf_string){0};
    int rc = take_string(c, out, "a name");
    if (rc) return rc;
    if (out->n == 0 || out->n > GGUF_MAX_NAME)
        return cursor_fail(c, RP_ERR_FORMAT, begin, "the name at byte %zu is %" PRIu64 " bytes long, expected 1 to %d",
                           begin, out->n, GGUF_MAX_NAME);
    if (memchr(out->bytes, '\0', (size_t)out->n))
        return cursor_fail(c, RP_ERR_FORMAT, begin, "the name at byte %zu has a NUL character", begin);
    c->part_name = *out;
    return RP_OK;
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

static int take_value_type(cursor *c, gguf_value_type *out) {
    uint32_t type = 0;
    size_t begin = c->pos;
    int rc = take_u32(c, &type, "a value's type");
    if (rc) return rc;
    if (type >= GGUF_VALUE_TYPE_COUNT)
        return cursor_fail(c, RP_ERR_FORMAT, begin, "unknown value type %" PRIu32 " at byte %zu, expected 0 to %d",
                           type, begin, GGUF_VALUE_TYPE_COUNT - 1);
    *out = (gguf_value_type)type;
    return RP_OK;
}

static int take_fixed(cursor *c, gguf_value_type type, uint64_t n, const uint8_t **out) {
    size_t size = value_bytes[type];
    BASE_ASSERT(size > 0); /* neither a string nor an array */
    if (n > cursor_left(c) / size)
        return cursor_fail(c, RP_ERR_FORMAT, c->pos,
                           "%" PRIu64 " values of %zu bytes at byte %zu do not fit into a file of %zu bytes", n, size,
                           c->pos, c->file->bytes);
    int rc = cursor_take_bytes(c, n * size, out, "a value");
    if (rc || type != GGUF_BOOL) return rc;
    for (uint64_t i = 0; i < n; i++) {
        if ((*out)[i] > 1)
            return cursor_fail(c, RP_ERR_FORMAT, (uint64_t)(*out - c->file->data) + i,
                               "a boolean is %u, expected 0 or 1", (unsigned)(*out)[i]);
    }
    return RP_OK;
}

/* Reads an array's header and skips its elements. `depth` is 1 for an array that is itself a value. */
static int read_array(cursor *c, int depth, gguf_value_type *type, uint64_t *n, const uint8_t **data) {
    size_t begin = c->pos;
    BASE_ASSERT(depth >= 1 && depth <= MAX_ARRAY_DEPTH);
    int rc = take_value_type(c, type);
    if (rc || (rc = take_u64(c, n, "an array's length"))) return rc;
    if (*type != GGUF_STRING && *type != GGUF_ARRAY) return take_fixed(c, *type, *n, data);

    size_t smallest = *type == GGUF_STRING ? 8 : 12; /* an empty string or array */
    if (*n > cursor_left(c) / smallest)
        return cursor_fail(c, RP_ERR_FORMAT, begin,
                           "an array of %" PRIu64 " entries at byte %zu does not fit into a file of %zu bytes", *n,
                           begin, c->file->bytes);
    if (*type == GGUF_ARRAY && depth == MAX_ARRAY_DEPTH)
        return cursor_fail(c, RP_ERR_FORMAT, begin, "arrays are nested more than %d deep at byte %zu", MAX_ARRAY_DEPTH,
                           begin);
    *data = c->file->data + c->pos;
    for (uint64_t i = 0; i < *n; i++) {
        gguf_string string;
        gguf_value_type inner;
        uint64_t inner_n;
        const uint8_t *inner_data;
        rc = *type == GGUF_STRING ? take_string(c, &string, "a string")
                                  : read_array(c, depth + 1, &inner, &inner_n, &inner_data);
        if (rc) return rc;
    }
    return RP_OK;
}

static int read_value(cursor *c, gguf_item *item) {
    if (item->type == GGUF_ARRAY) return read_array(c, 1, &item->element, &item->n, &item->value);
    if (item->type != GGUF_STRING) return take_fixed(c, item->type, 1, &item->value);

    gguf_string string;
    int rc = take_string(c, &string, "a string");
    if (rc) return rc;
    item->value = (const uint8_t *)string.bytes;
    item->n = string.n;
    return RP_OK;
}

static int read_metadata_item(cursor *c, gguf_item *item) {
    int rc = cursor_take_name(c, &item->key, "key");
    if (rc || (rc = take_value_type(c, &item->type))) return rc;
    size_t begin = c->pos;
    rc = read_value(c, item);
    item->raw = c->file->data + begin;
    item->raw_bytes = c->pos - begin;
    return rc;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

static int gguf_compare_names(gguf_string a, gguf_string b) {
    size_t n = (size_t)BASE_MIN(a.n, b.n);
    int order = n ? memcmp(a.bytes, b.bytes, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* Equal names are ordered as in the file, so that the later one is reported. */
static int gguf_compare_entries(const void *a, const void *b) {
    const gguf_name_entry *x = a, *y = b;
    int order = gguf_compare_names(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

size_t gguf_sort_names(gguf_name_entry *entries, size_t n) {
    if (n > 1) qsort(entries, n, sizeof *entries, gguf_compare_entries);
    for (size_t i = 1; i < n; i++)
        if (gguf_compare_names(entries[i - 1].name, entries[i].name) == 0) return i;
    return n;
}

static int cursor_sort_names(cursor *c, gguf_name_entry *index, size_t n, const char *part) {
    size_t i = gguf_sort_names(index, n);
    if (i == n) return RP_OK;
    BASE_ASSERT(i > 0 && i < n);
    c->part = part;
    c->part_name = index[i].name;
    return cursor_fail(c, RP_ERR_FORMAT, (uint64_t)((const uint8_t *)index[i].name.bytes - c->file->data),
                       "is duplicate (entries %zu and %zu)", index[i - 1].index, index[i].index);
}

/* Returns the entry's index, or SIZE_MAX. */
static size_t find_name(const gguf_name_entry *index, size_t n, const char *name) {
    gguf_string wanted = {.bytes = name, .n = strlen(name)};
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = gguf_compare_names(index[mid].name, wanted);
        if (order == 0) return index[mid].index;
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return SIZE_MAX;
}

static const gguf_item *find_metadata(const gguf_file *f, const char *key) {
    size_t i = find_name(f->metadata_index, f->n_metadata, key);
    return i == SIZE_MAX ? NULL : &f->metadata[i];
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

/* GGML's names by type number, for messages about unsupported types. */
static const char *ggml_type_name(uint32_t number) {
    static const char *const names[] = {
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
    };
    return number < BASE_ARRAY_LEN(names) ? names[number] : "unknown to this version";
}

static int fail_tensor_type(const cursor *c, uint32_t number, size_t offset) {
    char list[256] = "";
    size_t n = 0;
    for (uint32_t t = 0; t < KERNEL_TYPE_END; t++) {
        if (!kernel_type_known(t) || n >= sizeof list) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", kernel_type_name((kernel_type)t));
    }
    return cursor_fail(c, RP_ERR_UNSUPPORTED, offset,
                       "tensor type %" PRIu32 " (%s) is not supported: use a model with tensors of the types %s",
                       number, ggml_type_name(number), list);
}

static int read_dims(cursor *c, gguf_tensor *t) {
    uint32_t n_dims;
    size_t begin = c->pos;
    int rc = take_u32(c, &n_dims, "the number of dimensions");
    if (rc) return rc;
    if (n_dims == 0 || n_dims > GGUF_MAX_DIMS)
        return cursor_fail(c, RP_ERR_FORMAT, begin, "has %" PRIu32 " dimensions, expected 1 to %d", n_dims,
                           GGUF_MAX_DIMS);
    t->n_dims = (int32_t)n_dims;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) t->dims[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t dim;
        begin = c->pos;
        rc = take_u64(c, &dim, "a dimension");
        if (rc) return rc;
        if (dim == 0 || dim > INT64_MAX)
            return cursor_fail(c, RP_ERR_FORMAT, begin, "dimension %" PRIu32 " is %" PRIu64 ", expected 1 or more", i,
                               dim);
        t->dims[i] = (int64_t)dim;
    }
    return RP_OK;
}

/* Sets t->bytes and refuses sizes beyond the file's, so that no later product of the dimensions overflows. */
static int size_tensor(const cursor *c, gguf_tensor *t, size_t at) {
    uint64_t block = (uint64_t)kernel_type_block(t->type), block_bytes = (uint64_t)kernel_type_bytes(t->type);
    BASE_ASSERT(block > 0 && block_bytes > 0); /* kernel_type_known */
    uint64_t n = (uint64_t)t->dims[0];
    if (n % block)
        return cursor_fail(c, RP_ERR_FORMAT, at,
                           "rows of %" PRIu64 " elements are not whole blocks of %" PRIu64 " (%s)", n, block,
                           kernel_type_name(t->type));
    uint64_t limit = c->file->room / block_bytes;
    uint64_t blocks = n / block;
    for (int i = 1; blocks <= limit && i < GGUF_MAX_DIMS; i++) {
        uint64_t dim = (uint64_t)t->dims[i];
        blocks = dim > limit / blocks ? limit + 1 : blocks * dim;
    }
    if (blocks > limit)
        return cursor_fail(c, RP_ERR_FORMAT, at,
                           "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                           " elements of %s are more than the file's %" PRIu64 " bytes",
                           t->dims[0], t->dims[1], t->dims[2], t->dims[3], kernel_type_name(t->type), c->file->room);
    t->bytes = blocks * block_bytes;
    BASE_ASSERT(t->bytes > 0 && t->bytes <= c->file->room);
    return RP_OK;
}

/* *offset is the data's offset, from the start of the data section, which is known only at the table's end. */
static int read_tensor(cursor *c, gguf_tensor *t, uint64_t *offset) {
    int rc = cursor_take_name(c, &t->name, "tensor");
    if (rc || (rc = read_dims(c, t))) return rc;
    uint32_t number;
    size_t at = c->pos;
    rc = take_u32(c, &number, "the tensor's type");
    if (rc) return rc;
    if (!kernel_type_known(number)) return fail_tensor_type(c, number, at);
    t->type = (kernel_type)number;
    rc = size_tensor(c, t, at);
    return rc ? rc : take_u64(c, offset, "the data's offset");
}

static int read_alignment(cursor *c, uint64_t *out) {
    const gguf_item *item = find_metadata(c->file, "general.alignment");
    *out = DEFAULT_ALIGNMENT;
    if (!item) return RP_OK;
    c->part = "key";
    c->part_name = item->key;
    uint64_t at = (uint64_t)(item->value - c->file->data);
    if (!gguf_get_u64(c->file, "general.alignment", out))
        return cursor_fail(c, RP_ERR_FORMAT, at, "is not an unsigned integer");
    if (*out < MIN_ALIGNMENT || *out > MAX_ALIGNMENT || (*out & (*out - 1)))
        return cursor_fail(c, RP_ERR_FORMAT, at, "is %" PRIu64 ", expected a power of two from %d to %" PRIu64, *out,
                           MIN_ALIGNMENT, (uint64_t)MAX_ALIGNMENT);
    return RP_OK;
}

static int place_tensor(const cursor *c, gguf_tensor *t, uint64_t offset, uint64_t alignment, uint64_t data_begin) {
    uint64_t at = (uint64_t)((const uint8_t *)t->name.bytes - c->file->data);
    uint64_t room = c->file->room > data_begin ? c->file->room - data_begin : 0;
    if (offset % alignment)
        return cursor_fail(c, RP_ERR_FORMAT, at, "data offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                           offset, alignment);
    if (offset > room || t->bytes > room - offset)
        return cursor_fail(c, RP_ERR_FORMAT, at,
                           "its %" PRIu64 " bytes at data offset %" PRIu64 " end beyond the file's last byte (%" PRIu64
                           "): it is truncated or corrupt",
                           t->bytes, offset, c->file->room);
    BASE_ASSERT(data_begin + offset + t->bytes <= c->file->room); /* invariant 1 of src/model */
    if (c->file->room == c->file->bytes) t->data = c->file->data + data_begin + offset;
    return RP_OK;
}

static int gguf_compare_places(const void *a, const void *b) {
    const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
    const uint8_t *p = x->data, *q = y->data;
    return (p > q) - (p < q);
}

/* Tensors that overlap mean a corrupt table, even if every byte is inside the file. */
static int check_overlap(cursor *c, const gguf_tensor **order) {
    const gguf_file *f = c->file;
    for (size_t i = 0; i < f->n_tensors; i++) order[i] = &f->tensors[i];
    if (f->n_tensors > 1) qsort(order, f->n_tensors, sizeof *order, gguf_compare_places);
    for (size_t i = 1; i < f->n_tensors; i++) {
        const gguf_tensor *before = order[i - 1], *t = order[i];
        if ((const uint8_t *)t->data - (const uint8_t *)before->data >= (ptrdiff_t)before->bytes) continue;
        char name[SHOWN_NAME_BYTES + 4];
        show_name(before->name, name);
        c->part_name = t->name;
        return cursor_fail(c, RP_ERR_FORMAT, (uint64_t)((const uint8_t *)t->data - f->data),
                           "its data overlaps that of tensor '%s'", name);
    }
    return RP_OK;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static int check_count(const cursor *c, uint64_t n, uint64_t max, size_t smallest, const char *what) {
    BASE_ASSERT(c->pos >= sizeof(uint64_t)); /* the count was read */
    if (n > max)
        return cursor_fail(c, RP_ERR_FORMAT, c->pos - 8,
                           "the file declares %" PRIu64 " %s, more than the limit of %" PRIu64, n, what, max);
    if (n > cursor_left(c) / smallest)
        return cursor_fail(c, RP_ERR_FORMAT, c->pos - 8, "%" PRIu64 " %s do not fit into a file of %zu bytes", n, what,
                           c->file->bytes);
    return RP_OK;
}

static bool begins_with(const gguf_file *f, size_t at, const char *with) {
    const size_t n = strlen(with);
    return f->bytes >= at + n && memcmp(f->data + at, with, n) == 0;
}

/* What a file that is not GGUF is, and what to do; files that people take for models. */
static const char *name_other_format(const gguf_file *f) {
    if (!f->bytes) return "it is empty";
    if (begins_with(f, 8, "{\"")) return "it is safetensors: convert it with llama.cpp's convert_hf_to_gguf.py";
    if (begins_with(f, 0, "PK\003\004"))
        return "it is a PyTorch or zip archive: convert it with llama.cpp's convert_hf_to_gguf.py";
    if (begins_with(f, 0, "version https://git-lfs"))
        return "it is a Git LFS pointer: download the file itself, as with git lfs pull";
    if (begins_with(f, 0, "<")) return "it is a web page or XML: download the file itself";
    return "it does not begin with 'GGUF'";
}

static int read_version(cursor *c, gguf_file *f) {
    const uint8_t *magic;
    if (!begins_with(f, 0, "GGUF"))
        return cursor_fail(c, RP_ERR_FORMAT, 0, "not a GGUF file: %s", name_other_format(f));
    int rc = cursor_take_bytes(c, 4, &magic, "the magic number");
    if (rc || (rc = take_u32(c, &f->version, "the version"))) return rc;
    if (f->version && !(f->version & 0xffff))
        return cursor_fail(c, RP_ERR_UNSUPPORTED, 4, "a big-endian GGUF file; convert it to little-endian first");
    if (f->version != 2 && f->version != 3)
        return cursor_fail(c, RP_ERR_UNSUPPORTED, 4, "GGUF version %" PRIu32 " is not supported, only 2 and 3",
                           f->version);
    return RP_OK;
}

/* Returns a pointer for an empty list as well, so that NULL always means out of memory. */
static void *new_array(size_t n, size_t bytes) { return base_calloc(n ? n : 1, bytes); }

static int cursor_read_header(cursor *c, gguf_file *f) {
    uint64_t n_tensors, n_metadata;
    int rc = read_version(c, f);
    if (rc || (rc = take_u64(c, &n_tensors, "the number of tensors")) ||
        (rc = check_count(c, n_tensors, GGUF_MAX_TENSORS, MIN_TENSOR_BYTES, "tensors")) ||
        (rc = take_u64(c, &n_metadata, "the number of metadata entries")) ||
        (rc = check_count(c, n_metadata, GGUF_MAX_METADATA, MIN_METADATA_BYTES, "metadata entries")))
        return rc;
    f->n_tensors = (size_t)n_tensors;
    f->n_metadata = (size_t)n_metadata;
    f->metadata = new_array(f->n_metadata, sizeof *f->metadata);
    f->metadata_index = new_array(f->n_metadata, sizeof *f->metadata_index);
    f->tensors = new_array(f->n_tensors, sizeof *f->tensors);
    f->tensor_index = new_array(f->n_tensors, sizeof *f->tensor_index);
    if (!f->metadata || !f->metadata_index || !f->tensors || !f->tensor_index)
        return base_fail_memory(c->err,
                                f->n_metadata * (sizeof *f->metadata + sizeof *f->metadata_index) +
                                    f->n_tensors * (sizeof *f->tensors + sizeof *f->tensor_index),
                                "a model's tables");
    return RP_OK;
}

static int read_tensor_table(cursor *c, gguf_file *f, uint64_t *offsets) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        int rc = read_tensor(c, &f->tensors[i], &offsets[i]);
        if (rc) return rc;
        f->tensor_index[i] = (gguf_name_entry){.name = f->tensors[i].name, .index = i};
    }
    f->header_bytes = c->pos;
    int rc = cursor_sort_names(c, f->tensor_index, f->n_tensors, "tensor");
    uint64_t alignment = DEFAULT_ALIGNMENT;
    if (rc || (rc = read_alignment(c, &alignment))) return rc;
    uint64_t data_begin = ((uint64_t)c->pos + alignment - 1) & ~(alignment - 1);
    c->part = "tensor";
    f->data_end = f->n_tensors > 0 ? data_begin : c->pos;
    for (size_t i = 0; i < f->n_tensors; i++) {
        c->part_name = f->tensors[i].name;
        rc = place_tensor(c, &f->tensors[i], offsets[i], alignment, data_begin);
        if (rc) return rc;
        f->data_end = BASE_MAX(f->data_end, data_begin + offsets[i] + f->tensors[i].bytes);
    }
    f->padded_end = (BASE_MAX(f->data_end, data_begin) + alignment - 1) & ~(alignment - 1);
    BASE_ASSERT(f->padded_end >= f->data_end);
    return RP_OK;
}

static int read_tensors(cursor *c, gguf_file *f) {
    int rc = RP_ERR_MEMORY;
    uint64_t *offsets = new_array(f->n_tensors, sizeof *offsets);
    const gguf_tensor **order = new_array(f->n_tensors, sizeof *order);
    if (!offsets || !order) {
        rc = base_fail_memory(c->err, f->n_tensors * (sizeof *offsets + sizeof *order), "a model's tensor table");
        goto out;
    }
    rc = read_tensor_table(c, f, offsets);
    if (!rc && f->room == f->bytes) rc = check_overlap(c, order);
out:
    base_free(offsets);
    base_free(order);
    return rc;
}

static int gguf_read_within(gguf_file *f, uint64_t room, rp_error *err) {
    f->room = room;
    BASE_ASSERT(room >= f->bytes);
    cursor c = {.file = f, .part = "header", .err = err};
    int rc = cursor_read_header(&c, f);
    for (size_t i = 0; !rc && i < f->n_metadata; i++) {
        rc = read_metadata_item(&c, &f->metadata[i]);
        if (!rc) f->metadata_index[i] = (gguf_name_entry){.name = f->metadata[i].key, .index = i};
    }
    if (!rc) rc = cursor_sort_names(&c, f->metadata_index, f->n_metadata, "key");
    return rc ? rc : read_tensors(&c, f);
}

int gguf_read(gguf_file *f, rp_error *err) { return gguf_read_within(f, f->bytes, err); }

int gguf_read_header(gguf_file *f, rp_error *err) { return gguf_read_within(f, GGUF_MAX_FILE_BYTES, err); }

/* ---- looking up ------------------------------------------------------------------------------------------------ */

const char *gguf_name(const gguf_file *f) { return f->name; }
uint32_t gguf_version(const gguf_file *f) { return f->version; }
size_t gguf_n_tensors(const gguf_file *f) { return f->n_tensors; }
size_t gguf_n_metadata(const gguf_file *f) { return f->n_metadata; }

const gguf_tensor *gguf_tensor_at(const gguf_file *f, size_t i) { return i < f->n_tensors ? &f->tensors[i] : NULL; }

const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name) {
    size_t i = find_name(f->tensor_index, f->n_tensors, name);
    return i == SIZE_MAX ? NULL : &f->tensors[i];
}

size_t gguf_n_parts(const gguf_file *f) { return 1 + f->n_others; }
const char *gguf_part_name(const gguf_file *f, size_t part) {
    BASE_ASSERT(part <= f->n_others);
    return part ? f->others[part - 1]->name : f->name;
}

bool gguf_part_id(const gguf_file *f, size_t part, base_file_id *out) {
    BASE_ASSERT(part <= f->n_others);
    if (part) f = f->others[part - 1];
    if (f->map.data) *out = f->map.id;
    return f->map.data != NULL;
}

const void *gguf_header(const gguf_file *f, size_t part, size_t *bytes) {
    BASE_ASSERT(part <= f->n_others);
    if (part) f = f->others[part - 1];
    *bytes = f->header_bytes;
    return f->data;
}

gguf_string gguf_metadata_key(const gguf_file *f, size_t i) {
    return i < f->n_metadata ? f->metadata[i].key : (gguf_string){.bytes = "", .n = 0};
}

gguf_bytes gguf_metadata_raw(const gguf_file *f, size_t i, gguf_value_type *type) {
    BASE_ASSERT(i < f->n_metadata);
    *type = f->metadata[i].type;
    return (gguf_bytes){f->metadata[i].raw, f->metadata[i].raw_bytes};
}

bool gguf_has(const gguf_file *f, const char *key) { return find_metadata(f, key) != NULL; }

static bool gguf_is_signed(gguf_value_type t) {
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}
static bool is_unsigned(gguf_value_type t) { return t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64; }

/* The value of a signed item, sign-extended. */
static int64_t load_signed(const gguf_item *item) {
    BASE_ASSERT(gguf_is_signed(item->type));
    size_t n = value_bytes[item->type];
    uint64_t v = load_le(item->value, n), sign = (uint64_t)1 << (8 * n - 1);
    v = (v ^ sign) - sign;
    int64_t out;
    memcpy(&out, &v, sizeof out);
    return out;
}

bool gguf_get_u64(const gguf_file *f, const char *key, uint64_t *out) {
    const gguf_item *item = find_metadata(f, key);
    if (item && is_unsigned(item->type)) {
        *out = load_le(item->value, value_bytes[item->type]);
        return true;
    }
    if (!item || !gguf_is_signed(item->type) || load_signed(item) < 0) return false;
    *out = (uint64_t)load_signed(item);
    return true;
}

bool gguf_get_i64(const gguf_file *f, const char *key, int64_t *out) {
    const gguf_item *item = find_metadata(f, key);
    uint64_t v;
    if (item && gguf_is_signed(item->type)) {
        *out = load_signed(item);
        return true;
    }
    if (!item || !gguf_get_u64(f, key, &v) || v > INT64_MAX) return false;
    *out = (int64_t)v;
    return true;
}

bool gguf_get_f64(const gguf_file *f, const char *key, double *out) {
    const gguf_item *item = find_metadata(f, key);
    if (!item || (item->type != GGUF_F32 && item->type != GGUF_F64)) return false;
    uint64_t bits = load_le(item->value, value_bytes[item->type]);
    if (item->type == GGUF_F64) {
        memcpy(out, &bits, sizeof *out);
    } else {
        uint32_t bits32 = (uint32_t)bits;
        float v;
        memcpy(&v, &bits32, sizeof v);
        *out = (double)v;
    }
    return true;
}

bool gguf_get_bool(const gguf_file *f, const char *key, bool *out) {
    const gguf_item *item = find_metadata(f, key);
    if (!item || item->type != GGUF_BOOL) return false;
    *out = *item->value != 0;
    return true;
}

bool gguf_get_string(const gguf_file *f, const char *key, gguf_string *out) {
    const gguf_item *item = find_metadata(f, key);
    if (!item || item->type != GGUF_STRING) return false;
    *out = (gguf_string){.bytes = (const char *)item->value, .n = item->n};
    return true;
}

bool gguf_get_array(const gguf_file *f, const char *key, gguf_array *out) {
    const gguf_item *item = find_metadata(f, key);
    if (!item || item->type != GGUF_ARRAY || item->element == GGUF_ARRAY) return false;
    *out = (gguf_array){.type = item->element, .n = item->n, .data = item->value};
    return true;
}

void gguf_array_strings(const gguf_array *a, gguf_string *out) {
    BASE_ASSERT(a->type == GGUF_STRING);
    const uint8_t *p = a->data;
    for (uint64_t i = 0; i < a->n; i++) {
        uint64_t n = load_le(p, 8);
        out[i] = (gguf_string){.bytes = (const char *)(p + 8), .n = n};
        p += 8 + n;
    }
}
