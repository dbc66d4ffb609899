/* SPDX-License-Identifier: Apache-2.0 */
/* template_strings.c: strings with the origin of their bytes, and texts while they are written. One thread. */
#define _GNU_SOURCE /* memmem, memrchr */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/check.h"
#include "base/text.h"
#include "template/template_internal.h"

#define MANY_RUNS 4096

static const string empty_string = {.bytes = "", .n = 0};

/* ---- Building ---- */

static bool builder_add_run(state *s, builder *b, size_t end, uint32_t origin, size_t offset) {
    BASE_ASSERT(b->n_runs == 0 ? b->n == 0 : b->runs[b->n_runs - 1].end == b->n && end > b->n);
    template_run *last = b->n_runs > 0 ? &b->runs[b->n_runs - 1] : NULL;
    size_t begin = b->n_runs > 1 ? b->runs[b->n_runs - 2].end : 0;
    if (last && last->origin == origin) {
        bool has_none = last->offset == TEMPLATE_NO_OFFSET && offset == TEMPLATE_NO_OFFSET;
        bool continues = last->offset != TEMPLATE_NO_OFFSET && offset == last->offset + (last->end - begin);
        if (has_none || continues) {
            last->end = end;
            return true;
        }
    }
    if (!state_grow(s, (void **)&b->runs, &b->cap_runs, b->n_runs + 1, sizeof(*b->runs))) return false;
    b->runs[b->n_runs++] = (template_run){.end = end, .offset = offset, .origin = origin};
    return true;
}

void builder_add(state *s, builder *b, const char *bytes, size_t n, uint32_t origin, size_t offset) {
    BASE_ASSERT(b->n <= TEMPLATE_MAX_OUTPUT_BYTES);
    if (s->failed || n == 0 || !state_step(s, n / STEP_COPIED)) return;
    if (n > TEMPLATE_MAX_OUTPUT_BYTES - b->n) {
        state_fail(s, MEMORY_ERROR, "a text has more than %zu bytes", TEMPLATE_MAX_OUTPUT_BYTES);
        s->code = RP_ERR_LIMIT;
        return;
    }
    if (!state_grow(s, (void **)&b->bytes, &b->cap, b->n + n + 1, 1)) return;
    memcpy(b->bytes + b->n, bytes, n);
    b->bytes[b->n + n] = '\0';
    if (builder_add_run(s, b, b->n + n, origin, offset)) b->n += n;
}

void builder_add_string(state *s, builder *b, const string *text) {
    size_t begin = 0;
    for (uint32_t i = 0; i < text->n_runs && !s->failed; i++) {
        builder_add(s, b, text->bytes + begin, text->runs[i].end - begin, text->runs[i].origin, text->runs[i].offset);
        begin = text->runs[i].end;
    }
}

const string *builder_string(state *s, const builder *b) {
    BASE_ASSERT(s->failed || b->n_runs == 0 || b->runs[b->n_runs - 1].end == b->n);
    string *text = s->failed || b->n == 0 ? NULL : state_alloc(s, sizeof(*text));
    if (!text) return &empty_string;
    *text = (string){.bytes = b->bytes, .n = b->n, .runs = b->runs, .n_runs = (uint32_t)b->n_runs};
    return text;
}

const string *string_new(state *s, const char *bytes, size_t n, uint32_t origin) {
    builder b = {0};
    builder_add(s, &b, bytes, n, origin, origin >= TEMPLATE_FIRST_STRING ? 0 : TEMPLATE_NO_OFFSET);
    return builder_string(s, &b);
}

/* The run with byte `at` < n. */
static uint32_t run_after(const string *text, size_t at) {
    BASE_ASSERT(at < text->n && text->n_runs > 0 && text->runs[text->n_runs - 1].end == text->n);
    uint32_t low = 0, high = text->n_runs - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (text->runs[middle].end <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

const string *string_part(state *s, const string *text, size_t from, size_t to) {
    BASE_ASSERT(to <= text->n);
    if (from == 0 && to == text->n) return text;
    if (from >= to) return &empty_string;
    const uint32_t first = run_after(text, from), n = run_after(text, to - 1) - first + 1;
    string *part = state_alloc(s, sizeof(*part));
    template_run *runs = part ? state_alloc(s, n * sizeof(*runs)) : NULL;
    size_t begin = first > 0 ? text->runs[first - 1].end : 0;
    if (!runs || !state_step(s, text->n_runs > MANY_RUNS ? 8 : 0))
        return &empty_string; /* a search in what no cache holds */
    for (uint32_t i = 0; i < n; begin = text->runs[first + i++].end) {
        const template_run *run = &text->runs[first + i];
        size_t skipped = begin < from ? from - begin : 0;
        size_t offset = run->offset == TEMPLATE_NO_OFFSET ? TEMPLATE_NO_OFFSET : run->offset + skipped;
        runs[i] =
            (template_run){.end = (run->end < to ? run->end : to) - from, .origin = run->origin, .offset = offset};
    }
    *part = (string){.bytes = text->bytes + from, .n = to - from, .runs = runs, .n_runs = n, .markup = text->markup};
    return part;
}

value value_string(const string *text) { return (value){.type = VALUE_STRING, .as.s = text}; }

value value_text(state *s, const char *text) {
    return value_string(string_new(s, text, strlen(text), TEMPLATE_TRUSTED));
}

/* ---- Markup ---- */

const string *string_marked(state *s, const string *text) {
    string *marked = state_alloc(s, sizeof(*marked));
    if (!marked) return &empty_string;
    *marked = *text;
    marked->markup = true;
    return marked;
}

const string *string_escaped(state *s, const string *text) {
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    builder b = {0};
    size_t from = 0;
    state_step(s, text->n / STEP_SCANNED);
    for (size_t i = 0; i < text->n && !s->failed; i++)
        for (size_t k = 0; k < sizeof(entities) / sizeof(*entities); k++)
            if (text->bytes[i] == entities[k].c) {
                builder_add_string(s, &b, string_part(s, text, from, i));
                builder_add(s, &b, entities[k].entity, strlen(entities[k].entity), TEMPLATE_UNTRUSTED,
                            TEMPLATE_NO_OFFSET);
                from = i + 1;
            }
    builder_add_string(s, &b, string_part(s, text, from, text->n));
    return string_marked(s, builder_string(s, &b));
}

value value_concat(state *s, const string *a, const string *b) {
    builder out = {0};
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) a = string_escaped(s, a);
    if (markup && !b->markup) b = string_escaped(s, b);
    builder_add_string(s, &out, a);
    builder_add_string(s, &out, b);
    const string *text = builder_string(s, &out);
    return value_string(markup ? string_marked(s, text) : text);
}

/* ---- Comparing and searching ---- */

bool string_equal(state *s, const string *a, const string *b) {
    return a->n == b->n && state_step(s, a->n / STEP_COPIED) && memcmp(a->bytes, b->bytes, a->n) == 0;
}

bool string_is(const string *a, const char *text) { return a->n == strlen(text) && memcmp(a->bytes, text, a->n) == 0; }

/* The order of UTF-8's bytes is that of code points. */
int string_compare(state *s, const string *a, const string *b) {
    if (!state_step(s, BASE_MIN(a->n, b->n) / STEP_COPIED)) return 0;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return order ? (order > 0) - (order < 0) : (a->n > b->n) - (a->n < b->n);
}

size_t string_length(state *s, const string *text) {
    size_t n = 0;
    if (!state_step(s, text->n / STEP_COUNTED)) return 0;
    for (size_t i = 0; i < text->n; i++) n += ((unsigned char)text->bytes[i] & 0xc0) != 0x80;
    return n;
}

size_t string_offset(state *s, const string *text, size_t index) {
    size_t i = 0;
    for (; i < text->n; i++)
        if (((unsigned char)text->bytes[i] & 0xc0) != 0x80 && index-- == 0) break;
    state_step(s, i / STEP_COUNTED);
    return i;
}

size_t string_find(state *s, const string *text, const string *part, size_t from) {
    if (part->n > text->n || from > text->n - part->n) return SIZE_MAX;
    const char *begin = text->bytes + from,
               *found = memmem(begin, text->n - from, part->bytes, part->n); /* linear time */
    const size_t seen = found ? (size_t)(found - begin) : text->n - from;
    if (!state_step(s, (seen + part->n) / (part->n == 1 ? STEP_COPIED : STEP_SEARCHED))) return SIZE_MAX;
    return found ? from + seen : SIZE_MAX;
}

/* Compares wherever the first byte is: as many steps as it takes. */
size_t string_find_last(state *s, const string *text, const string *part) {
    if (part->n > text->n) return SIZE_MAX;
    if (part->n == 0) return text->n;
    for (size_t end = text->n - part->n + 1, at = 0; end > 0; end = at) {
        const char *first = memrchr(text->bytes, part->bytes[0], end);
        at = first ? (size_t)(first - text->bytes) : 0;
        if (!state_step(s, (end - at + part->n) / STEP_COPIED) || !first) return SIZE_MAX;
        if (memcmp(first, part->bytes, part->n) == 0) return at;
    }
    return SIZE_MAX;
}

uint32_t string_at(const string *text, size_t at, size_t *n) {
    BASE_ASSERT(at < text->n);
    const unsigned char *c = (const unsigned char *)text->bytes + at;
    int length = base_utf8_length(c, text->n - at);
    *n = length > 0 ? (size_t)length : 1;
    return length > 0 ? base_utf8_decode(c, length) : *c;
}

/* ---- White space ---- */

bool is_python_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Letters and numbers: Python's isalnum, and \w but for "_". */
bool is_python_alnum(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

static bool is_stripped(state *s, const string *set, uint32_t c, const char *bytes, size_t n) {
    return set ? string_find(s, set, &(string){.bytes = bytes, .n = n}, 0) != SIZE_MAX : is_python_space(c);
}

const string *string_strip(state *s, const string *text, const string *set, bool left, bool right) {
    size_t from = 0, to = text->n, n;
    while (left && from < to) {
        uint32_t c = string_at(text, from, &n);
        if (!is_stripped(s, set, c, text->bytes + from, n)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)text->bytes[at] & 0xc0) == 0x80) at--;
        uint32_t c = string_at(text, at, &n);
        if (!is_stripped(s, set, c, text->bytes + at, n)) break;
        to = at;
    }
    state_step(s, (text->n - (to - from)) / STEP_SCANNED);
    return string_part(s, text, from, to);
}

/* ---- Changing ---- */

/* An empty `old` is found before every character and at the end. */
static const string *replace_empty(state *s, const string *text, const string *with, int64_t most) {
    builder b = {0};
    size_t at = 0, n;
    for (; at < text->n && !s->failed; at += n) {
        if (most != 0) builder_add_string(s, &b, with);
        if (most > 0) most--;
        string_at(text, at, &n);
        builder_add_string(s, &b, string_part(s, text, at, at + n));
    }
    if (most != 0) builder_add_string(s, &b, with);
    return builder_string(s, &b);
}

const string *string_replace(state *s, const string *text, const string *old, const string *with, int64_t most) {
    BASE_ASSERT(text->n_runs > 0 || text->n == 0);
    if (old->n == 0) return replace_empty(s, text, with, most);
    builder b = {0};
    size_t from = 0, at;
    for (; most != 0 && !s->failed && (at = string_find(s, text, old, from)) != SIZE_MAX; from = at + old->n) {
        builder_add_string(s, &b, string_part(s, text, from, at));
        builder_add_string(s, &b, with);
        if (most > 0) most--;
    }
    if (from == 0) return text;
    builder_add_string(s, &b, string_part(s, text, from, text->n));
    return builder_string(s, &b);
}

/* Characters whose other case has several: lower case; upper case and title case (NULL: the same) as UTF-8. Greek with
 * iota below keeps its simple mapping, unlike in Python. */
static const struct {
    uint32_t c;
    const char *upper, *title;
} special_cases[] = {
    {0xdf, "SS", "Ss"},
    {0x149, "\xca\xbcN", NULL},
    {0x1f0, "J\xcc\x8c", NULL},
    {0x390, "\xce\x99\xcc\x88\xcc\x81", NULL},
    {0x3b0, "\xce\xa5\xcc\x88\xcc\x81", NULL},
    {0x587, "\xd4\xb5\xd5\x92", "\xd4\xb5\xd6\x82"},
    {0x1e96, "H\xcc\xb1", NULL},
    {0x1e97, "T\xcc\x88", NULL},
    {0x1e98, "W\xcc\x8a", NULL},
    {0x1e99, "Y\xcc\x8a", NULL},
    {0x1e9a, "A\xca\xbe", NULL},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

static bool is_upper_or_title(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LT;
}

static bool is_cased(uint32_t c) {
    return is_upper_or_title(c) || utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL || c == 0xaa ||
           c == 0xba;
}

/* Does not separate letters of a word, for the final sigma. */
static bool is_ignored_in_case(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xb7 ||
           c == 0x2019;
}

/* Is the sigma at `at` the last letter of its word? */
static bool is_final_sigma(const string *text, size_t at) {
    size_t n, before = at, after = at + 2;
    uint32_t c = 0;
    while (before > 0) {
        do before--;
        while (before > 0 && ((unsigned char)text->bytes[before] & 0xc0) == 0x80);
        c = string_at(text, before, &n);
        if (!is_ignored_in_case(c)) break;
        c = 0;
    }
    if (!is_cased(c)) return false;
    for (; after < text->n; after += n) {
        c = string_at(text, after, &n);
        if (!is_ignored_in_case(c)) return !is_cased(c);
    }
    return true;
}

/* A character in another case; returns its bytes. */
static size_t in_case(const string *text, size_t at, uint32_t c, case_kind kind, bool is_first, char out[8]) {
    BASE_ASSERT(at < text->n);
    utf8proc_int32_t u = (utf8proc_int32_t)c;
    bool rises = kind == CASE_UPPER || ((kind == CASE_TITLE || kind == CASE_CAPITAL) && is_first) ||
                 (kind == CASE_SWAP && !is_upper_or_title(c));
    bool is_title = kind == CASE_TITLE || kind == CASE_CAPITAL;
    const char *several = NULL;
    for (size_t i = 0; rises && i < sizeof(special_cases) / sizeof(*special_cases); i++)
        if (special_cases[i].c == c)
            several = is_title && special_cases[i].title ? special_cases[i].title : special_cases[i].upper;
    if (!rises && c == 0x130) several = "i\xcc\x87";
    if (!rises && c == 0x3a3 && is_final_sigma(text, at)) several = "\xcf\x82";
    if (several) {
        size_t n = strlen(several);
        memcpy(out, several, n);
        return n;
    }
    u = !rises ? utf8proc_tolower(u) : is_title ? utf8proc_totitle(u)
                                                : utf8proc_toupper(u);
    return (size_t)base_utf8_encode((uint32_t)u, (unsigned char *)out);
}

/* Adds the ASCII letters from `at` on, in lower or upper case; returns where they end. */
static size_t add_ascii_case(state *s, builder *b, const string *text, size_t at, size_t end, case_kind kind) {
    BASE_ASSERT(at <= end && end <= text->n);
    char out[256];
    while (at < end && !s->failed) {
        size_t n = 0;
        for (; n < sizeof(out) && at + n < end && (unsigned char)text->bytes[at + n] < 0x80; n++) {
            const char c = text->bytes[at + n];
            const bool changes = kind == CASE_LOWER ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
            out[n] = changes ? (char)(c ^ 0x20) : c;
        }
        builder_add(s, b, out, n, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
        state_step(s, n / STEP_SCANNED);
        at += n;
        if (n < sizeof(out)) break;
    }
    return at;
}

const string *string_case(state *s, const string *text, case_kind kind) {
    builder b = {0};
    bool is_first = true;
    size_t begin = 0, at = 0;
    for (uint32_t i = 0; i < text->n_runs && !s->failed; begin = text->runs[i++].end) {
        const template_run *run = &text->runs[i];
        builder changed = {0};
        for (size_t n; at < run->end && !s->failed; at += n) {
            char out[8];
            if (kind == CASE_LOWER || kind == CASE_UPPER) at = add_ascii_case(s, &changed, text, at, run->end, kind);
            if (at >= run->end || !state_step(s, 4)) break; /* tables of Unicode */
            uint32_t c = string_at(text, at, &n);
            size_t length = in_case(text, at, c, kind, is_first, out);
            builder_add(s, &changed, out, length, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
            is_first = kind == CASE_TITLE && !is_cased(c);
        }
        bool same = changed.n == run->end - begin && changed.n > 0 &&
                    memcmp(changed.bytes, text->bytes + begin, changed.n) == 0;
        builder_add(s, &b, changed.bytes, changed.n, run->origin, same ? run->offset : TEMPLATE_NO_OFFSET);
    }
    return text->markup ? string_marked(s, builder_string(s, &b)) : builder_string(s, &b);
}

bool string_has_case(state *s, const string *text, case_kind kind) {
    bool any = false, inside = false;
    for (size_t at = 0, n; at < text->n && state_step(s, 0); at += n) {
        uint32_t c = string_at(text, at, &n);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        if (!is_cased(c)) {
            inside = false;
            continue;
        }
        bool upper = k == UTF8PROC_CATEGORY_LU, title = k == UTF8PROC_CATEGORY_LT;
        if (kind == CASE_UPPER ? !upper : kind == CASE_LOWER ? upper || title
                                                             : (upper || title) == inside) return false;
        any = inside = true;
    }
    return any;
}

/* ---- Characters ---- */

const string *string_of_character(state *s, int64_t c) {
    unsigned char utf8[4];
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return NULL;
    return string_new(s, (const char *)utf8, (size_t)base_utf8_encode((uint32_t)c, utf8), TEMPLATE_UNTRUSTED);
}

const string *string_ascii(state *s, const string *text) {
    builder b = {0};
    char escape[16];
    for (size_t at = 0, n; at < text->n && !s->failed; at += n) {
        uint32_t c = string_at(text, at, &n);
        if (c < 0x80) {
            builder_add(s, &b, text->bytes + at, n, TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
            continue;
        }
        state_step(s, STEP_PRINTED);
        snprintf(escape, sizeof(escape), c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x"
                                                                             : "\\U%08x",
                 c);
        builder_add(s, &b, escape, strlen(escape), TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
    }
    return builder_string(s, &b);
}
