/* SPDX-License-Identifier: Apache-2.0 */
/* template_strings.c: strings with the origin of their bytes, and texts while they are written. One thread. */
#include <stdint.h>
#include <string.h>

#include <utf8proc.h>

#include "base/text.h"
#include "template/template_internal.h"

static const string empty_string = {.bytes = "", .n = 0};

/* ---- Building ---- */

static bool builder_add_run(state *s, builder *b, size_t end, uint32_t origin, size_t offset) {
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
    if (s->failed || n == 0 || !state_step(s, n / 64)) return;
    if (n > TEMPLATE_MAX_OUTPUT_BYTES - b->n) {
        state_fail(s, "MemoryError", "a text has more than %zu bytes", TEMPLATE_MAX_OUTPUT_BYTES);
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

const string *string_part(state *s, const string *text, size_t from, size_t to) {
    if (from == 0 && to == text->n) return text;
    if (from >= to) return &empty_string;
    string *part = state_alloc(s, sizeof(*part));
    template_run *runs = part ? state_alloc(s, text->n_runs * sizeof(*runs)) : NULL;
    uint32_t n = 0;
    size_t begin = 0;
    if (!runs) return &empty_string;
    for (uint32_t i = 0; i < text->n_runs && begin < to; begin = text->runs[i++].end) {
        const template_run *run = &text->runs[i];
        if (run->end <= from) continue;
        size_t skipped = begin < from ? from - begin : 0;
        runs[n++] = (template_run){.end = (run->end < to ? run->end : to) - from, .origin = run->origin,
                                   .offset = run->offset == TEMPLATE_NO_OFFSET ? TEMPLATE_NO_OFFSET : run->offset + skipped};
    }
    *part = (string){.bytes = text->bytes + from, .n = to - from, .runs = runs, .n_runs = n, .markup = text->markup};
    return part;
}

value value_string(const string *text) { return (value){.type = VALUE_STRING, .as.s = text}; }

value value_text(state *s, const char *text) { return value_string(string_new(s, text, strlen(text), TEMPLATE_TRUSTED)); }

/* ---- Markup ---- */

const string *string_escaped(state *s, const string *text) {
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    builder b = {0};
    size_t from = 0;
    for (size_t i = 0; i < text->n && !s->failed; i++)
        for (size_t k = 0; k < sizeof(entities) / sizeof(*entities); k++)
            if (text->bytes[i] == entities[k].c) {
                builder_add_string(s, &b, string_part(s, text, from, i));
                builder_add(s, &b, entities[k].entity, strlen(entities[k].entity), TEMPLATE_UNTRUSTED, TEMPLATE_NO_OFFSET);
                from = i + 1;
            }
    builder_add_string(s, &b, string_part(s, text, from, text->n));
    string *out = state_alloc(s, sizeof(*out));
    if (!out) return &empty_string;
    *out = *builder_string(s, &b);
    out->markup = true;
    return out;
}

value value_concat(state *s, const string *a, const string *b) {
    builder out = {0};
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) a = string_escaped(s, a);
    if (markup && !b->markup) b = string_escaped(s, b);
    builder_add_string(s, &out, a);
    builder_add_string(s, &out, b);
    const string *text = builder_string(s, &out);
    string *marked = markup && !s->failed ? state_alloc(s, sizeof(*marked)) : NULL;
    if (!marked) return value_string(text);
    *marked = *text;
    marked->markup = true;
    return value_string(marked);
}

/* ---- Comparing and searching ---- */

bool string_equal(const string *a, const string *b) { return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0; }

bool string_is(const string *a, const char *text) { return a->n == strlen(text) && memcmp(a->bytes, text, a->n) == 0; }

/* The order of UTF-8's bytes is that of code points. */
int string_compare(const string *a, const string *b) {
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return order ? (order > 0) - (order < 0) : (a->n > b->n) - (a->n < b->n);
}

size_t string_length(const string *text) {
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) n += ((unsigned char)text->bytes[i] & 0xc0) != 0x80;
    return n;
}

size_t string_offset(const string *text, size_t index) {
    for (size_t i = 0; i < text->n; i++)
        if (((unsigned char)text->bytes[i] & 0xc0) != 0x80 && index-- == 0) return i;
    return text->n;
}

size_t string_find(const string *text, const string *part, size_t from) {
    if (part->n > text->n) return SIZE_MAX;
    for (size_t i = from; i <= text->n - part->n; i++)
        if (memcmp(text->bytes + i, part->bytes, part->n) == 0) return i;
    return SIZE_MAX;
}

size_t string_find_last(const string *text, const string *part) {
    if (part->n > text->n) return SIZE_MAX;
    for (size_t i = text->n - part->n + 1; i-- > 0;)
        if (memcmp(text->bytes + i, part->bytes, part->n) == 0) return i;
    return SIZE_MAX;
}

uint32_t string_at(const string *text, size_t at, size_t *n) {
    const unsigned char *c = (const unsigned char *)text->bytes + at;
    int length = base_utf8_length(c, text->n - at);
    *n = length > 0 ? (size_t)length : 1;
    return length > 0 ? base_utf8_decode(c, length) : *c;
}

/* ---- White space ---- */

bool is_python_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_stripped(const string *set, uint32_t c, const char *bytes, size_t n) {
    return set ? string_find(set, &(string){.bytes = bytes, .n = n}, 0) != SIZE_MAX : is_python_space(c);
}

const string *string_strip(state *s, const string *text, const string *set, bool left, bool right) {
    size_t from = 0, to = text->n, n;
    while (left && from < to) {
        uint32_t c = string_at(text, from, &n);
        if (!is_stripped(set, c, text->bytes + from, n)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)text->bytes[at] & 0xc0) == 0x80) at--;
        uint32_t c = string_at(text, at, &n);
        if (!is_stripped(set, c, text->bytes + at, n)) break;
        to = at;
    }
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
    if (old->n == 0) return replace_empty(s, text, with, most);
    builder b = {0};
    size_t from = 0, at;
    for (; most != 0 && !s->failed && (at = string_find(text, old, from)) != SIZE_MAX; from = at + old->n) {
        builder_add_string(s, &b, string_part(s, text, from, at));
        builder_add_string(s, &b, with);
        if (most > 0) most--;
    }
    if (from == 0) return text;
    builder_add_string(s, &b, string_part(s, text, from, text->n));
    return builder_string(s, &b);
}

static bool is_cased(uint32_t c) {
    return utf8proc_tolower((utf8proc_int32_t)c) != (utf8proc_int32_t)c || utf8proc_toupper((utf8proc_int32_t)c) != (utf8proc_int32_t)c;
}

static uint32_t in_case(uint32_t c, case_kind kind, bool is_first) {
    utf8proc_int32_t u = (utf8proc_int32_t)c;
    switch (kind) {
    case CASE_LOWER: return (uint32_t)utf8proc_tolower(u);
    case CASE_UPPER: return (uint32_t)utf8proc_toupper(u);
    case CASE_SWAP: return (uint32_t)(utf8proc_tolower(u) != u ? utf8proc_tolower(u) : utf8proc_toupper(u));
    default: return (uint32_t)(is_first ? utf8proc_totitle(u) : utf8proc_tolower(u));
    }
}

/* Characters whose other case has several (ß) are left as they are, unlike in Python. */
const string *string_case(state *s, const string *text, case_kind kind) {
    builder b = {0};
    bool is_first = true;
    size_t begin = 0, at = 0;
    for (uint32_t i = 0; i < text->n_runs && !s->failed; begin = text->runs[i++].end) {
        const template_run *run = &text->runs[i];
        builder changed = {0};
        for (size_t n; at < run->end && !s->failed; at += n) {
            unsigned char out[4];
            uint32_t c = string_at(text, at, &n), to = in_case(c, kind, is_first);
            int length = base_utf8_encode(to, out);
            builder_add(s, &changed, (const char *)out, (size_t)length, TEMPLATE_TRUSTED, TEMPLATE_NO_OFFSET);
            is_first = kind == CASE_TITLE && !is_cased(c);
        }
        bool same = changed.n == run->end - begin && changed.n > 0 && memcmp(changed.bytes, text->bytes + begin, changed.n) == 0;
        builder_add(s, &b, changed.bytes, changed.n, run->origin, same ? run->offset : TEMPLATE_NO_OFFSET);
    }
    return builder_string(s, &b);
}
