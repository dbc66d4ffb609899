/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c: see json_read.h. Owns the shared integers. Any thread.
 *
 * Left to jansson: errors of any kind, halves of surrogate pairs, keys that come twice or have U+0000, more than
 * MAX_DEPTH levels, no memory. Numbers other than short integers are those of json_number.h, one by one. */
#include "base/bytes.h"
#include "base/check.h"
#include "base/json_read.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "base/text.h"

#define MAX_DEPTH 2048 /* jansson's */
#define MOST_DIGITS 18 /* that surely fit json_int_t */

typedef struct reader {
    const char *at, *end;
    int depth;
    unsigned flags;
    base_buffer text; /* of a string with escapes, or of a key */
} reader;

static json_t *read_value(reader *r);

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

/* Bit 7 of some byte is set if one of the eight ends a run of plain characters: '"', '\\', a control character, or a
 * byte beyond ASCII. Bits above the first such one may be set in vain. */
static uint64_t special_bytes(uint64_t eight) {
    const uint64_t each = UINT64_C(0x0101010101010101), high = each << 7;
    const uint64_t quote = eight ^ each * '"', slash = eight ^ each * '\\';
    return (((quote - each) & ~quote) | ((slash - each) & ~slash) | ((eight - each * 0x20) & ~eight) | eight) & high;
}

const char *base_json_run_end(const char *at, const char *end) {
    for (const char *from = NULL; from != at;) {
        from = at;
        for (uint64_t eight; end - at >= 8; at += 8) { /* plain ASCII characters of a string */
            memcpy(&eight, at, 8);
            if (special_bytes(eight)) break;
        }
        while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' && *at != '\\') at++;
        while (at < end && (unsigned char)*at >= 0x80) { /* whole characters, each beyond ASCII */
            const int n = base_utf8_length((const unsigned char *)at, (size_t)(end - at));
            if (n <= 0) break; /* invalid */
            at += n;
        }
        BASE_DCHECK(from <= at && at <= end);
    }
    return at;
}

static bool read_hex(reader *r, uint32_t *value) {
    *value = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        const int digit = base_hex_digit(*r->at++);
        if (digit < 0) return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

/* After "\u". */
static bool read_code(reader *r) {
    uint32_t c, low;
    unsigned char out[4];
    if (!read_hex(r, &c) || (c >= 0xdc00 && c <= 0xdfff)) return false;
    if (c >= 0xd800 && c <= 0xdbff) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') return false;
        r->at += 2;
        if (!read_hex(r, &low) || low < 0xdc00 || low > 0xdfff) return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c == 0 && (r->flags & BASE_JSON_REPLACE_NUL)) c = 0xfffd;
    const int n = base_utf8_encode(c, out);
    return base_buffer_append(&r->text, out, (size_t)n) == 0;
}

/* After a backslash. */
static bool read_escape(reader *r) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end) return false;
    const char c = *r->at++;
    if (c == 'u') return read_code(r);
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    return letter && base_buffer_append(&r->text, &values[letter - letters], 1) == 0;
}

/* After the first quote. *bytes: in the text, or, if it has escapes or must end with NUL, in r->text. */
static bool read_string(reader *r, bool copies, const char **bytes, size_t *n) {
    const char *begin = r->at;
    base_buffer_clear(&r->text);
    for (;;) {
        const char *run = r->at;
        r->at = base_json_run_end(run, r->end);
        if (r->at == r->end || (*r->at != '"' && *r->at != '\\')) return false;
        const bool is_whole = *r->at == '"' && run == begin && !copies;
        if (!is_whole && base_buffer_append(&r->text, run, (size_t)(r->at - run))) return false;
        *bytes = is_whole ? begin : r->text.data;
        *n = is_whole ? (size_t)(r->at - begin) : r->text.len;
        if (*r->at++ == '"') return true;
        if (!read_escape(r)) return false;
    }
}

/* ---- numbers ---- */

/* Prompts of token ids are long arrays of small integers: one value for each id, for ever, instead of one for each
 * element. jansson neither counts the references of a value with this count nor frees it (as it treats null); nobody
 * changes integers. 0 to 262,143, in pages made when needed. */
#define UNCOUNTED ((size_t)-1)
#define PAGE_VALUES 1024
#define N_PAGES 256

static _Atomic(json_t **) shared_pages[N_PAGES];

static json_t **make_page(size_t index) {
    BASE_ASSERT(index < N_PAGES);
    base_budget *budget = base_budget_enter(NULL); /* it outlives the request */
    json_t **page = base_calloc(PAGE_VALUES, sizeof(json_t *)), **there = NULL;
    bool fine = page != NULL;
    for (size_t i = 0; i < PAGE_VALUES && fine; i++)
        fine = (page[i] = json_integer((json_int_t)(index * PAGE_VALUES + i))) != NULL;
    for (size_t i = 0; i < PAGE_VALUES && fine; i++) page[i]->refcount = UNCOUNTED;
    if (!fine || !atomic_compare_exchange_strong(&shared_pages[index], &there, page)) { /* another thread was first */
        for (size_t i = 0; page && i < PAGE_VALUES && page[i]; i++) {
            page[i]->refcount = 1;
            json_decref(page[i]);
        }
        base_free(page);
        page = there;
    }
    base_budget_enter(budget);
    return page;
}

static json_t *make_integer(json_int_t value) {
    if (value < 0 || value >= N_PAGES * PAGE_VALUES) return json_integer(value);
    const size_t index = (size_t)value / PAGE_VALUES;
    json_t **page = atomic_load_explicit(&shared_pages[index], memory_order_acquire);
    if (!page && !(page = make_page(index))) return json_integer(value);
    BASE_DCHECK(json_integer_value(page[(size_t)value % PAGE_VALUES]) == value);
    return page[(size_t)value % PAGE_VALUES];
}

static json_t *read_number(reader *r) {
    const char *begin = r->at;
    json_int_t value = 0;
    while (r->at < r->end && *r->at && strchr("+-.0123456789eE", *r->at)) r->at++;
    const size_t n = (size_t)(r->at - begin), sign = n > 0 && *begin == '-';
    const char *digit = begin + sign;
    while (digit < r->at && *digit >= '0' && *digit <= '9' && (size_t)(digit - begin) < sign + MOST_DIGITS)
        value = value * 10 + (*digit++ - '0');
    const bool is_plain =
        digit == r->at && n > sign && n - sign <= MOST_DIGITS && (begin[sign] != '0' || n - sign == 1);
    if (is_plain) return make_integer(sign ? -value : value);
    return r->flags & BASE_JSON_TEXT_NUMBERS ? base_json_number_as_text(begin, n) : base_json_number(begin, n);
}

/* ---- other values ---- */

static bool take_word(reader *r, const char *word) {
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool read_item(reader *r, json_t *array) {
    json_t *value = read_value(r);
    return value && json_array_append_new(array, value) == 0;
}

static bool read_member(reader *r, json_t *object) {
    const char *key;
    size_t n;
    if (!take(r, '"') || !read_string(r, true, &key, &n) || !take(r, ':')) return false;
    if (memchr(key, '\0', n) || (!(r->flags & BASE_JSON_LAST_KEY) && json_object_get(object, key))) return false;
    base_buffer own = r->text; /* the value's strings use another one */
    BASE_DCHECK(key == own.data && n == own.len);
    r->text = BASE_BUFFER(own.limit);
    json_t *value = read_value(r);
    const bool fine = value && json_object_set_new_nocheck(object, own.data, value) == 0;
    base_buffer_free(&r->text);
    r->text = own;
    return fine;
}

/* After '[' or '{'. */
static json_t *read_all(reader *r, json_t *all, bool (*one)(reader *, json_t *), char close) {
    bool fine = all && ++r->depth <= MAX_DEPTH;
    if (fine && !take(r, close)) {
        do fine = one(r, all);
        while (fine && take(r, ','));
        fine = fine && take(r, close);
    }
    r->depth--;
    if (fine) return all;
    json_decref(all);
    return NULL;
}

static json_t *read_value(reader *r) {
    const char *bytes;
    size_t n;
    if (take(r, '{')) return read_all(r, json_object(), read_member, '}');
    if (take(r, '[')) return read_all(r, json_array(), read_item, ']');
    if (take(r, '"')) return read_string(r, false, &bytes, &n) ? json_stringn_nocheck(bytes ? bytes : "", n) : NULL;
    if (take_word(r, "true")) return json_true();
    if (take_word(r, "false")) return json_false();
    if (take_word(r, "null")) return json_null();
    return read_number(r);
}

json_t *base_json_read(const char *bytes, size_t n, unsigned flags) {
    reader r = {.at = bytes, .end = bytes + n, .flags = flags, .text = BASE_BUFFER(n + 1)};
    json_t *root = NULL;
    skip_space(&r);
    if (r.at < r.end && (*r.at == '{' || *r.at == '[' || (flags & BASE_JSON_ANY))) root = read_value(&r);
    skip_space(&r);
    base_buffer_free(&r.text);
    BASE_ASSERT(r.at <= r.end && (!root || r.depth == 0));
    if (root && r.at == r.end) return root;
    json_decref(root);
    return NULL;
}
