/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c: see regex.h.
 *
 *   pattern  := alternative ("|" alternative)*       alternative := (atom quantifier?)*       atom := set | group | ^ |
 *         $
 *
 * Nodes and ranges are two arrays. A node's children are a list (first, next). Anchors are taken off the ends of the
 * alternatives once the tree is complete (regex_find_branches); any other anchor is refused. A text is matched by sets
 * of positions: each node maps the positions at which it may begin to those at which it may end, so that no pattern
 * takes exponential time.
 */
#include "structured/regex.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"
#include "reprise.h"

#define NONE (-1)
#define LAST_CODE_POINT 0x10ffffu
#define MAX_BRANCHES 512

typedef enum regex_kind { REGEX_EMPTY,
                          REGEX_SET,
                          REGEX_SEQUENCE,
                          REGEX_CHOICE,
                          REGEX_REPEAT,
                          REGEX_BEGIN,
                          REGEX_END } regex_kind;

typedef struct regex_range {
    uint32_t low, high;
} regex_range;

typedef struct regex_node {
    regex_kind kind;
    int first, next; /* SET: first is its first range; else its first child. next: the sibling after it */
    int n;           /* SET: ranges */
    int min, max;    /* REPEAT */
    int at;          /* BEGIN, END: character of the pattern, from 1 */
} regex_node;

typedef struct regex_branch {
    int node;
    bool begins, ends; /* anchored */
} regex_branch;

struct regex {
    regex_node *nodes;
    regex_range *ranges;
    size_t n_nodes, cap_nodes, n_ranges, cap_ranges;
    regex_branch branches[MAX_BRANCHES];
    int n_branches;
};

typedef struct regex_parser {
    regex *r;
    const unsigned char *text;
    size_t at, n;
    int character; /* number of the one at `at`, from 1 */
    int depth;
    char *why;
    bool failed;
} regex_parser;

/* ---- errors ---- */

static void regex_fail(regex_parser *p, const char *fmt, ...) BASE_PRINTF(2, 3);

static void regex_fail(regex_parser *p, const char *fmt, ...) {
    char text[REGEX_WHY_BYTES - 32];
    va_list ap;
    if (p->failed) return;
    p->failed = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(p->why, REGEX_WHY_BYTES, "character %d: %s", p->character, text);
}

/* Without a reason. */
static void regex_fail_memory(regex_parser *p) { p->failed = true; }

/* ---- nodes ---- */

static int regex_add(regex_parser *p, regex_node node) {
    regex *r = p->r;
    int rc = base_grow((void **)&r->nodes, &r->cap_nodes, r->n_nodes + 1, REGEX_MAX_NODES, sizeof(*r->nodes));
    if (rc == RP_ERR_LIMIT) regex_fail(p, "the pattern is too long");
    else if (rc) regex_fail_memory(p);
    if (p->failed) return 0;
    node.next = NONE;
    r->nodes[r->n_nodes] = node;
    return (int)r->n_nodes++;
}

static void regex_add_range(regex_parser *p, uint32_t low, uint32_t high) {
    BASE_ASSERT(low <= high);
    regex *r = p->r;
    int rc = base_grow((void **)&r->ranges, &r->cap_ranges, r->n_ranges + 1, REGEX_MAX_RANGES, sizeof(*r->ranges));
    if (rc == RP_ERR_LIMIT) regex_fail(p, "the pattern has too many characters in its sets");
    else if (rc) regex_fail_memory(p);
    if (!p->failed) r->ranges[r->n_ranges++] = (regex_range){low, high};
}

/* ---- sets of characters ---- */

static const regex_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                         spaces[] = {{'\t', '\r'}, {' ', ' '}},
                         line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}},
                         all_spaces[] = {
                             {'\t', '\r'}, {0x1c, 0x20}, {0x85, 0x85}, {0xa0, 0xa0}, /* Latin-1 */
                             {0x1680, 0x1680},
                             {0x2000, 0x200a}, /* general punctuation */
                             {0x2028, 0x2029},
                             {0x202f, 0x202f},
                             {0x205f, 0x205f},
                             {0x3000, 0x3000},
                             {0xfeff, 0xfeff}};

static void regex_add_ranges(regex_parser *p, const regex_range *list, size_t n) {
    for (size_t i = 0; i < n; i++) regex_add_range(p, list[i].low, list[i].high);
}

/* All other characters. list: in order, apart. */
static void regex_add_others(regex_parser *p, const regex_range *list, size_t n) {
    uint32_t from = 1;
    for (size_t i = 0; i < n; i++) {
        if (list[i].low > from) regex_add_range(p, from, list[i].low - 1);
        from = list[i].high + 1;
    }
    if (from <= LAST_CODE_POINT) regex_add_range(p, from, LAST_CODE_POINT);
}

/* \d, \w, \s and their opposites. Returns whether the letter is one of them. */
static bool regex_add_class(regex_parser *p, char letter) {
    switch (letter) {
    case 'd': regex_add_ranges(p, digits, BASE_ARRAY_LEN(digits)); return true;
    case 'D': regex_add_others(p, digits, BASE_ARRAY_LEN(digits)); return true;
    case 'w': regex_add_ranges(p, words, BASE_ARRAY_LEN(words)); return true;
    case 'W': regex_add_others(p, words, BASE_ARRAY_LEN(words)); return true;
    case 's': regex_add_ranges(p, spaces, BASE_ARRAY_LEN(spaces)); return true;
    case 'S': regex_add_others(p, all_spaces, BASE_ARRAY_LEN(all_spaces)); return true;
    default: return false;
    }
}

/* Puts the ranges from `first` on in order, and joins those that touch. */
static void regex_settle_ranges(regex *r, size_t first) {
    BASE_ASSERT(first <= r->n_ranges);
    size_t n = first;
    for (size_t i = first + 1; i < r->n_ranges; i++) { /* short lists, mostly in order */
        regex_range range = r->ranges[i];
        size_t k = i;
        for (; k > first && r->ranges[k - 1].low > range.low; k--) r->ranges[k] = r->ranges[k - 1];
        r->ranges[k] = range;
    }
    for (size_t i = first; i < r->n_ranges; i++) {
        if (n > first && r->ranges[i].low <= r->ranges[n - 1].high + 1)
            r->ranges[n - 1].high = BASE_MAX(r->ranges[n - 1].high, r->ranges[i].high);
        else r->ranges[n++] = r->ranges[i];
    }
    r->n_ranges = n;
}

/* Instead of the ranges from `first` on, which are settled: all other characters. */
static void regex_negate(regex_parser *p, size_t first) {
    BASE_ASSERT(first <= p->r->n_ranges);
    regex *r = p->r;
    const size_t n = r->n_ranges - first;
    for (size_t i = 0; i < n && !p->failed; i++)
        regex_add_range(p, r->ranges[first + i].low, r->ranges[first + i].high);
    if (p->failed) return;
    uint32_t from = 1;
    size_t used = first;
    for (size_t i = 0; i < n; i++) { /* reads the copy: there may be one range more than before */
        regex_range range = r->ranges[first + n + i];
        if (range.low > from) r->ranges[used++] = (regex_range){from, range.low - 1};
        from = range.high + 1;
    }
    r->n_ranges = used;
    if (from <= LAST_CODE_POINT) regex_add_range(p, from, LAST_CODE_POINT);
}

/* A node of the ranges from `first` on. */
static int regex_end_set(regex_parser *p, size_t first) {
    BASE_ASSERT(first <= p->r->n_ranges);
    if (p->failed) return 0;
    regex_settle_ranges(p->r, first);
    if (p->r->n_ranges == first) regex_fail(p, "the set has no character");
    return regex_add(p, (regex_node){.kind = REGEX_SET, .first = (int)first, .n = (int)(p->r->n_ranges - first)});
}

/* ---- characters of the pattern ---- */

static int regex_peek(const regex_parser *p) { return p->at < p->n ? p->text[p->at] : -1; }
static int regex_peek_after(const regex_parser *p, size_t n) { return p->at + n < p->n ? p->text[p->at + n] : -1; }

static uint32_t regex_take(regex_parser *p) {
    BASE_ASSERT(p->at <= p->n);
    int length = base_utf8_length(p->text + p->at, p->n - p->at);
    if (length <= 0) {
        regex_fail(p, "the pattern is not UTF-8");
        return 0;
    }
    uint32_t c = base_utf8_decode(p->text + p->at, length);
    p->at += (size_t)length;
    p->character++;
    return c;
}

static bool regex_skip(regex_parser *p, const char *text) {
    BASE_ASSERT(p->at <= p->n);
    size_t n = strlen(text);
    if (p->n - p->at < n || memcmp(p->text + p->at, text, n) != 0) return false;
    p->at += n;
    p->character += (int)n;
    return true;
}

/* n hexadecimal digits. */
static uint32_t regex_take_hex(regex_parser *p, int n) {
    BASE_ASSERT(n > 0 && n <= 8);
    uint32_t c = 0;
    for (int i = 0; i < n && !p->failed; i++) {
        int digit = base_hex_digit(regex_peek(p));
        if (digit < 0) regex_fail(p, "a hexadecimal digit is missing");
        else c = c << 4 | (uint32_t)digit, regex_take(p);
    }
    return c;
}

/* After "\u": HHHH, two halves of a surrogate pair, or {H...}. */
static uint32_t regex_take_unicode(regex_parser *p) {
    uint32_t c = 0;
    if (regex_skip(p, "{")) {
        int n = 0;
        while (base_hex_digit(regex_peek(p)) >= 0 && n < 6) c = c << 4 | regex_take_hex(p, 1), n++;
        if (n == 0 || !regex_skip(p, "}")) regex_fail(p, "\\u{...} needs one to six hexadecimal digits");
        return c;
    }
    c = regex_take_hex(p, 4);
    if (c < 0xd800 || c > 0xdbff || !regex_skip(p, "\\u")) return c;
    uint32_t low = regex_take_hex(p, 4);
    if (low < 0xdc00 || low > 0xdfff) return c; /* refused as half of a pair */
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* After a backslash: a character. */
static uint32_t regex_take_escape(regex_parser *p, bool in_set) {
    static const char names[] = "nrtfv", values[] = "\n\r\t\f\v";
    uint32_t c = regex_take(p);
    const char *known = c && c < 0x80 ? strchr(names, (int)c) : NULL;
    if (p->failed) return 0;
    if (known) return (uint32_t)values[known - names];
    if (c == 'b' && in_set) return '\b';
    if (c == 'x') return regex_take_hex(p, 2);
    if (c == 'u') return regex_take_unicode(p);
    if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z')
        regex_fail(p, "\\%c is not supported: anchors are ^ and $", (char)c);
    else if (c == 'p' || c == 'P')
        regex_fail(p, "Unicode properties are not supported: list the characters, as in [A-Za-z]");
    else if (c >= '1' && c <= '9') regex_fail(p, "back-references are not supported");
    else if (c == '0' && regex_peek(p) >= '0' && regex_peek(p) <= '9') regex_fail(p, "octal escapes are not supported");
    else if (c == '0') return 0;
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80)
        regex_fail(p, "the escape \\%c is not supported", (char)c);
    return c;
}

/* in_set: NUL may be there, and is left out. */
static uint32_t regex_checked(regex_parser *p, uint32_t c, bool in_set) {
    if (c == 0 && !in_set) regex_fail(p, "NUL is not allowed");
    else if (c >= 0xd800 && c <= 0xdfff) regex_fail(p, "half of a surrogate pair is no character");
    else if (c > LAST_CODE_POINT) regex_fail(p, "the number is above U+10FFFF");
    return c;
}

/* An entry of a set: a class, added, or a character, returned in *c. Returns whether it is a character. */
static bool regex_parse_entry(regex_parser *p, uint32_t *c) {
    if (regex_peek(p) == '[' && regex_peek_after(p, 1) == ':')
        regex_fail(p, "POSIX classes are not supported: list the characters, as in [A-Za-z]");
    if (!regex_skip(p, "\\")) {
        *c = regex_checked(p, regex_take(p), true);
        return true;
    }
    if (regex_peek(p) >= 0 && regex_add_class(p, (char)regex_peek(p))) {
        regex_take(p);
        return false;
    }
    if (regex_peek(p) < 0) regex_fail(p, "a backslash ends the pattern");
    else *c = regex_checked(p, regex_take_escape(p, true), true);
    return true;
}

/* After "[". */
static int regex_parse_set(regex_parser *p) {
    const size_t first = p->r->n_ranges;
    const bool negated = regex_skip(p, "^");
    if (regex_peek(p) == ']') regex_fail(p, "']' begins the set: write \\]");
    while (!p->failed && !regex_skip(p, "]")) {
        uint32_t low = 0, high = 0;
        if (regex_peek(p) < 0) regex_fail(p, "']' is missing");
        else if (!regex_parse_entry(p, &low)) continue;
        high = low;
        if (!p->failed && regex_peek(p) == '-' && regex_peek_after(p, 1) != ']' && regex_peek_after(p, 1) >= 0) {
            regex_take(p);
            if (!regex_parse_entry(p, &high)) regex_fail(p, "a range cannot end with a class");
            if (high < low) regex_fail(p, "a range is descending");
        }
        if (!p->failed && high > 0) regex_add_range(p, BASE_MAX(low, 1), high);
    }
    if (p->failed) return 0;
    regex_settle_ranges(p->r, first);
    if (negated) regex_negate(p, first);
    return regex_end_set(p, first);
}

/* ---- groups, quantifiers ---- */

static int regex_parse_choice(regex_parser *p);

/* After "(": what a group begins with. */
static void regex_parse_group_head(regex_parser *p) {
    if (!regex_skip(p, "?")) return;
    if (regex_skip(p, ":")) return;
    bool python = regex_skip(p, "P");
    int next = regex_peek_after(p, 1);
    if (regex_peek(p) == '<' && next != '=' && next != '!') { /* a name */
        regex_take(p);
        while (regex_peek(p) >= 0 && regex_peek(p) != '>') regex_take(p);
        if (!regex_skip(p, ">")) regex_fail(p, "'>' is missing after a group's name");
        return;
    }
    if (python) regex_fail(p, "the group (?P... is not supported");
    else if (regex_peek(p) == '=' || regex_peek(p) == '!') regex_fail(p, "look-ahead is not supported");
    else if (regex_peek(p) == '<') regex_fail(p, "look-behind is not supported");
    else regex_fail(p, "flags are not supported");
}

static int regex_parse_group(regex_parser *p) {
    if (++p->depth > REGEX_MAX_DEPTH) regex_fail(p, "groups are nested more than %d deep", REGEX_MAX_DEPTH);
    if (!p->failed) regex_parse_group_head(p);
    int node = p->failed ? 0 : regex_parse_choice(p);
    if (!p->failed && !regex_skip(p, ")")) regex_fail(p, "')' is missing");
    p->depth--;
    return node;
}

/* A number of up to 5 digits; -1: none. */
static int regex_take_number(regex_parser *p) {
    int n = -1;
    for (int i = 0; i < 5 && regex_peek(p) >= '0' && regex_peek(p) <= '9'; i++)
        n = (n < 0 ? 0 : 10 * n) + (int)(regex_take(p) - '0');
    return n;
}

/* {m}, {m,} or {m,n}. Returns false, at the brace, if it is none of them: then it is a character. */
static bool regex_parse_times(regex_parser *p, int *min, int *max) {
    const regex_parser before = *p;
    regex_take(p);
    *min = *max = regex_take_number(p);
    if (*min < 0 && regex_peek(p) == ',' && regex_peek_after(p, 1) >= '0' && regex_peek_after(p, 1) <= '9')
        regex_fail(p, "write {0,n} for {,n}");
    if (*min >= 0 && regex_skip(p, ",")) *max = regex_take_number(p);
    if (*min >= 0 && regex_skip(p, "}")) {
        if (*min > REGEX_MAX_REPEAT || *max > REGEX_MAX_REPEAT)
            regex_fail(p, "repetitions are limited to %d", REGEX_MAX_REPEAT);
        if (*max >= 0 && *max < *min) regex_fail(p, "a repetition is descending");
        return true;
    }
    if (!p->failed) *p = before;
    return p->failed;
}

static bool regex_parse_quantifier(regex_parser *p, int *min, int *max) {
    *min = 0, *max = REGEX_UNBOUNDED;
    if (p->failed) return false;
    if (regex_peek(p) == '{') return regex_parse_times(p, min, max);
    if (regex_skip(p, "*")) return true;
    if (regex_skip(p, "+")) return *min = 1, true;
    if (regex_skip(p, "?")) return *max = 1, true;
    return false;
}

static int regex_quantified(regex_parser *p, int node) {
    int min, max;
    if (!regex_parse_quantifier(p, &min, &max) || p->failed) return node;
    const regex_kind kind = p->r->nodes[node].kind;
    if (kind == REGEX_BEGIN || kind == REGEX_END) regex_fail(p, "an anchor cannot be repeated");
    if (regex_peek(p) == '+') regex_fail(p, "possessive quantifiers are not supported");
    regex_skip(p, "?"); /* lazy */
    int next = regex_peek(p);
    if (next == '*' || next == '+' || next == '?') regex_fail(p, "a quantifier follows another one");
    return regex_add(p, (regex_node){.kind = REGEX_REPEAT, .first = node, .min = min, .max = max});
}

/* ---- the tree ---- */

static int regex_parse_atom(regex_parser *p) {
    const size_t first = p->r->n_ranges;
    if (regex_skip(p, "^"))
        return regex_add(p, (regex_node){.kind = REGEX_BEGIN, .first = NONE, .at = p->character - 1});
    if (regex_skip(p, "$")) return regex_add(p, (regex_node){.kind = REGEX_END, .first = NONE, .at = p->character - 1});
    if (regex_skip(p, "(")) return regex_parse_group(p);
    if (regex_skip(p, "[")) return regex_parse_set(p);
    if (regex_peek(p) == '*' || regex_peek(p) == '+' || regex_peek(p) == '?')
        regex_fail(p, "nothing is before the quantifier");
    if (regex_skip(p, ".")) {
        regex_add_others(p, line_ends, BASE_ARRAY_LEN(line_ends));
        return regex_end_set(p, first);
    }
    uint32_t c = 0;
    if (regex_skip(p, "\\")) {
        int letter = regex_peek(p);
        if (letter < 0) regex_fail(p, "a backslash ends the pattern");
        else if (regex_add_class(p, (char)letter)) {
            regex_take(p);
            return regex_end_set(p, first);
        } else c = regex_take_escape(p, false);
    } else c = regex_take(p);
    c = regex_checked(p, c, false);
    if (!p->failed) regex_add_range(p, c, c);
    return regex_end_set(p, first);
}

static int regex_parse_sequence(regex_parser *p) {
    int list = regex_add(p, (regex_node){.kind = REGEX_SEQUENCE, .first = NONE}), last = NONE;
    while (!p->failed && regex_peek(p) >= 0 && regex_peek(p) != '|' && regex_peek(p) != ')') {
        int node = regex_quantified(p, regex_parse_atom(p));
        if (p->failed) return 0;
        /* a node of a group has no sibling yet: each is added once */
        if (last == NONE) p->r->nodes[list].first = node;
        else p->r->nodes[last].next = node;
        last = node;
    }
    return list;
}

static int regex_parse_choice(regex_parser *p) {
    int list = regex_add(p, (regex_node){.kind = REGEX_CHOICE, .first = NONE}), last = NONE;
    do {
        int node = regex_parse_sequence(p);
        if (p->failed) return 0;
        if (last == NONE) p->r->nodes[list].first = node;
        else p->r->nodes[last].next = node;
        last = node;
    } while (regex_skip(p, "|"));
    return list;
}

/* ---- anchors ---- */

static void regex_find_branches(regex_parser *p, int node, bool begins, bool ends);

/* An alternative: takes the anchors off its ends. What remains is a branch, or, if it is one group, is searched
   likewise. */
static void regex_find_in_sequence(regex_parser *p, int list, bool begins, bool ends) {
    regex_node *nodes = p->r->nodes;
    while (nodes[list].first != NONE && nodes[nodes[list].first].kind == REGEX_BEGIN)
        begins = true, nodes[list].first = nodes[nodes[list].first].next;
    for (;;) {
        int before = NONE, last = nodes[list].first;
        while (last != NONE && nodes[last].next != NONE) before = last, last = nodes[last].next;
        if (last == NONE || nodes[last].kind != REGEX_END) break;
        ends = true;
        if (before == NONE) nodes[list].first = NONE;
        else nodes[before].next = NONE;
    }
    const int only = nodes[list].first;
    if (only != NONE && nodes[only].next == NONE && nodes[only].kind == REGEX_CHOICE)
        regex_find_branches(p, only, begins, ends);
    else if (p->r->n_branches == MAX_BRANCHES) regex_fail(p, "more than %d alternatives", MAX_BRANCHES);
    else p->r->branches[p->r->n_branches++] = (regex_branch){list, begins, ends};
}

static void regex_find_branches(regex_parser *p, int node, bool begins, bool ends) {
    for (int i = p->r->nodes[node].first; i != NONE && !p->failed; i = p->r->nodes[i].next)
        regex_find_in_sequence(p, i, begins, ends);
}

static void regex_refuse_anchors(regex_parser *p, int node) {
    BASE_ASSERT(node >= 0 && (size_t)node < p->r->n_nodes);
    const regex_node *n = &p->r->nodes[node];
    if (p->failed || n->kind == REGEX_SET) return;
    if (n->kind == REGEX_BEGIN || n->kind == REGEX_END) {
        p->character = n->at;
        regex_fail(p, "'%c' is supported only at the %s of an alternative of the whole pattern",
                   n->kind == REGEX_BEGIN ? '^' : '$', n->kind == REGEX_BEGIN ? "beginning" : "end");
    }
    for (int i = n->first; i != NONE; i = p->r->nodes[i].next) regex_refuse_anchors(p, i);
}

regex *regex_parse(const char *pattern, char why[REGEX_WHY_BYTES]) {
    regex_parser p = {.r = base_calloc(1, sizeof(regex)),
                      .text = (const unsigned char *)pattern,
                      .n = strlen(pattern),
                      .character = 1,
                      .why = why};
    why[0] = '\0';
    if (!p.r) return NULL;
    if (p.n > REGEX_MAX_BYTES) regex_fail(&p, "the pattern has more than %d bytes", REGEX_MAX_BYTES);
    int root = p.failed ? 0 : regex_parse_choice(&p);
    if (!p.failed && p.at < p.n) regex_fail(&p, "')' has no '('");
    if (!p.failed) regex_find_branches(&p, root, false, false);
    for (int i = 0; i < p.r->n_branches; i++) regex_refuse_anchors(&p, p.r->branches[i].node);
    BASE_ASSERT(p.failed || (p.r->n_branches > 0 && p.depth == 0 && p.at == p.n));
    if (!p.failed) return p.r;
    regex_free(p.r);
    return NULL;
}

void regex_free(regex *r) {
    if (!r) return;
    base_free(r->nodes);
    base_free(r->ranges);
    base_free(r);
}

/* ---- GBNF ---- */

/* A character in a literal or a class. */
static int regex_put_character(base_buffer *out, uint32_t c) {
    BASE_ASSERT(c <= LAST_CODE_POINT);
    unsigned char bytes[4];
    if (c < 0x80 && ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == ' ' || c == '_'))
        return base_buffer_append(out, bytes, (size_t)base_utf8_encode(c, bytes));
    if (c < 0x80) return base_buffer_printf(out, "\\x%02X", c);
    return c <= 0xffff ? base_buffer_printf(out, "\\u%04X", c) : base_buffer_printf(out, "\\U%08X", c);
}

static int regex_put_range(base_buffer *out, uint32_t low, uint32_t high) {
    BASE_ASSERT(high <= LAST_CODE_POINT);
    if (low < 0xd800 && high > 0xdfff) {
        int rc = regex_put_range(out, low, 0xd7ff);
        return rc ? rc : regex_put_range(out, 0xe000, high);
    }
    if (low >= 0xd800 && low <= 0xdfff) low = 0xe000;
    if (high >= 0xd800 && high <= 0xdfff) high = 0xd7ff;
    if (low > high) return 0;
    int rc = regex_put_character(out, low);
    if (!rc && high > low) rc = base_buffer_append_str(out, "-");
    return rc || high == low ? rc : regex_put_character(out, high);
}

/* How JSON writes a character: 0: as itself; a letter: after a backslash; 'u': as \u00XX. */
static char regex_json_escape(uint32_t c) {
    static const char controls[] = "\b\f\n\r\t", letters[] = "bfnrt";
    const char *known = c && c < 0x20 ? strchr(controls, (int)c) : NULL;
    if (c == '"' || c == '\\') return (char)c;
    if (known) return letters[known - controls];
    return c < 0x20 || c == 0x7f ? 'u' : '\0';
}

static bool regex_set_has(const regex *r, const regex_node *set, uint32_t c) {
    BASE_ASSERT((size_t)(set->first + set->n) <= r->n_ranges);
    for (int i = 0; i < set->n; i++)
        if (c >= r->ranges[set->first + i].low && c <= r->ranges[set->first + i].high) return true;
    return false;
}

/* The characters of a set that JSON writes as themselves, as a class; nothing if there are none. */
static int regex_put_plain(const regex *r, const regex_node *set, base_buffer *out) {
    static const regex_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, LAST_CODE_POINT}};
    bool any = false;
    int rc = 0;
    for (int i = 0; i < set->n; i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(plain) && !rc; k++) {
            uint32_t low = BASE_MAX(r->ranges[set->first + i].low, plain[k].low),
                     high = BASE_MIN(r->ranges[set->first + i].high, plain[k].high);
            if (low > high) continue;
            if (!any) rc = base_buffer_append_str(out, " | [");
            any = true;
            if (!rc) rc = regex_put_range(out, low, high);
        }
    return rc || !any ? rc : base_buffer_append_str(out, "]");
}

/* The characters of a set that JSON writes with an escape. */
static int regex_put_escaped(const regex *r, const regex_node *set, base_buffer *out) {
    bool any = false;
    int rc = 0;
    for (uint32_t c = 1; c < 0x80 && !rc; c++) {
        char letter = regex_json_escape(c);
        if (!letter || letter == 'u' || !regex_set_has(r, set, c)) continue;
        if (!any) rc = base_buffer_append_str(out, " | \"\\\\\" [");
        any = true;
        if (!rc) rc = regex_put_character(out, (unsigned char)letter);
    }
    if (!rc && any) rc = base_buffer_append_str(out, "]");
    for (uint32_t c = 1; c < 0x80 && !rc; c++) {
        if (regex_json_escape(c) != 'u' || !regex_set_has(r, set, c)) continue;
        rc = base_buffer_printf(out, " | \"\\\\u00%X\" [%X%x]", c >> 4, c & 15, c & 15);
    }
    return rc;
}

static int regex_put_set(const regex *r, const regex_node *set, regex_place place, base_buffer *out) {
    BASE_ASSERT(set->kind == REGEX_SET && set->n > 0);
    int rc = 0;
    if (place == REGEX_WHOLE) {
        rc = base_buffer_append_str(out, " [");
        for (int i = 0; i < set->n && !rc; i++)
            rc = regex_put_range(out, r->ranges[set->first + i].low, r->ranges[set->first + i].high);
        return rc ? rc : base_buffer_append_str(out, "]");
    }
    base_buffer e = BASE_BUFFER(out->limit);
    if (!(rc = regex_put_plain(r, set, &e))) rc = regex_put_escaped(r, set, &e);
    if (!rc) rc = base_buffer_printf(out, " (%s)", e.data + strlen(" | "));
    base_buffer_free(&e);
    return rc;
}

static int regex_put_node(const regex *r, int node, regex_place place, base_buffer *out);

static int regex_put_children(const regex *r, const regex_node *n, regex_place place, base_buffer *out) {
    int rc = base_buffer_append_str(out, " (");
    for (int i = n->first; i != NONE && !rc; i = r->nodes[i].next) {
        if (n->kind == REGEX_CHOICE && i != n->first) rc = base_buffer_append_str(out, " |");
        if (!rc) rc = regex_put_node(r, i, place, out);
    }
    if (!rc && n->first == NONE) rc = base_buffer_append_str(out, "\"\"");
    return rc ? rc : base_buffer_append_str(out, ")");
}

static int regex_put_node(const regex *r, int node, regex_place place, base_buffer *out) {
    BASE_ASSERT(node >= 0 && (size_t)node < r->n_nodes);
    const regex_node *n = &r->nodes[node];
    if (n->kind == REGEX_SET) return regex_put_set(r, n, place, out);
    if (n->kind != REGEX_REPEAT) return regex_put_children(r, n, place, out);
    int rc = regex_put_node(r, n->first, place, out);
    if (rc) return rc;
    return n->max < 0 ? base_buffer_printf(out, "{%d,}", n->min) : base_buffer_printf(out, "{%d,%d}", n->min, n->max);
}

int regex_put(const regex *r, regex_place place, base_buffer *out) {
    BASE_ASSERT(r->n_branches > 0);
    int rc = base_buffer_append_str(out, " (");
    for (int i = 0; i < r->n_branches && !rc; i++) {
        const regex_branch *b = &r->branches[i];
        const bool searches = place == REGEX_JSON;
        if (i > 0) rc = base_buffer_append_str(out, " |");
        if (!rc && searches && !b->begins) rc = base_buffer_append_str(out, " char*");
        if (!rc) rc = regex_put_node(r, b->node, place, out);
        if (!rc && searches && !b->ends) rc = base_buffer_append_str(out, " char*");
    }
    return rc ? rc : base_buffer_append_str(out, ")");
}

/* ---- matching ---- */

typedef struct regex_text {
    uint32_t characters[REGEX_MAX_TEXT];
    int n;
} regex_text;

/* Positions 0 to n of a text. */
typedef struct regex_positions {
    bool at[REGEX_MAX_TEXT + 1];
} regex_positions;

static void regex_walk(const regex *r, int node, const regex_text *t, const regex_positions *from, regex_positions *to,
                       int *work);

/* Adds b to a; returns whether a grew. */
static bool regex_unite(regex_positions *a, const regex_positions *b, int n) {
    BASE_ASSERT(n <= REGEX_MAX_TEXT);
    bool grew = false;
    for (int i = 0; i <= n; i++) grew |= b->at[i] && !a->at[i], a->at[i] |= b->at[i];
    return grew;
}

static void regex_walk_repeat(const regex *r, const regex_node *n, const regex_text *t, const regex_positions *from,
                              regex_positions *to, int *work) {
    BASE_ASSERT(n->kind == REGEX_REPEAT && n->min >= 0);
    regex_positions now = *from, next;
    memset(to, 0, sizeof(*to));
    if (n->min == 0) *to = *from;
    for (int i = 1; (n->max < 0 || i <= n->max) && *work > 0; i++) {
        regex_walk(r, n->first, t, &now, &next, work);
        now = next;
        if (i >= n->min && !regex_unite(to, &now, t->n)) break; /* the later ones add none either */
    }
}

static void regex_walk(const regex *r, int node, const regex_text *t, const regex_positions *from, regex_positions *to,
                       int *work) {
    BASE_ASSERT(node >= 0 && (size_t)node < r->n_nodes);
    const regex_node *n = &r->nodes[node];
    regex_positions now = *from, next;
    if (--*work <= 0) {
        memset(to, 0, sizeof(*to));
        return;
    }
    if (n->kind == REGEX_REPEAT) {
        regex_walk_repeat(r, n, t, from, to, work);
        return;
    }
    memset(to, 0, sizeof(*to));
    if (n->kind == REGEX_SET)
        for (int i = 0; i < t->n; i++) to->at[i + 1] = from->at[i] && regex_set_has(r, n, t->characters[i]);
    for (int i = n->kind == REGEX_SET ? NONE : n->first; i != NONE; i = r->nodes[i].next) {
        regex_walk(r, i, t, n->kind == REGEX_CHOICE ? from : &now, &next, work);
        if (n->kind == REGEX_CHOICE) regex_unite(to, &next, t->n);
        else now = next;
    }
    if (n->kind == REGEX_SEQUENCE) *to = now;
}

static bool regex_decode(const char *text, regex_text *t) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n = strlen(text);
    t->n = 0;
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length(s + i, n - i);
        if (length <= 0 || t->n == REGEX_MAX_TEXT) return false;
        t->characters[t->n++] = base_utf8_decode(s + i, length);
        i += (size_t)length;
    }
    return true;
}

#define MOST_WORK 20000 /* nodes; each takes at most REGEX_MAX_TEXT steps */

bool regex_matches(const regex *r, const char *text) {
    regex_text *t = base_calloc(1, sizeof(*t));
    int work = MOST_WORK;
    bool found = false, decoded = t && regex_decode(text, t);
    for (int i = 0; decoded && i < r->n_branches && !found; i++) {
        const regex_branch *b = &r->branches[i];
        regex_positions from = {.at = {true}}, to;
        for (int k = 1; k <= t->n && !b->begins; k++) from.at[k] = true;
        regex_walk(r, b->node, t, &from, &to, &work);
        for (int k = b->ends ? t->n : 0; k <= t->n; k++) found |= to.at[k];
    }
    base_free(t);
    return found && work > 0;
}

/* ---- lengths ---- */

#define MOST_LENGTH 1000000 /* beyond any text that is compared with it */

static void regex_length_of(const regex *r, int node, int *least, int *most) {
    BASE_ASSERT(node >= 0 && (size_t)node < r->n_nodes);
    const regex_node *n = &r->nodes[node];
    *least = *most = n->kind == REGEX_SET;
    if (n->kind == REGEX_SET) return;
    for (int i = n->first; i != NONE; i = r->nodes[i].next) {
        int low, high;
        regex_length_of(r, i, &low, &high);
        if (n->kind == REGEX_CHOICE && i != n->first) {
            *least = BASE_MIN(*least, low);
            *most = *most < 0 || high < 0 ? REGEX_UNBOUNDED : BASE_MAX(*most, high);
        } else {
            *least = BASE_MIN(*least + low, MOST_LENGTH);
            *most = *most < 0 || high < 0 ? REGEX_UNBOUNDED : BASE_MIN(*most + high, MOST_LENGTH);
        }
    }
    if (n->kind != REGEX_REPEAT) return;
    *least = (int)BASE_MIN((int64_t)*least * n->min, MOST_LENGTH);
    if (*most != 0)
        *most = *most < 0 || n->max < 0 ? REGEX_UNBOUNDED : (int)BASE_MIN((int64_t)*most * n->max, MOST_LENGTH);
}

void regex_lengths(const regex *r, int *least, int *most) {
    BASE_ASSERT(r->n_branches > 0);
    *least = MOST_LENGTH;
    *most = 0;
    for (int i = 0; i < r->n_branches; i++) {
        int low, high;
        regex_length_of(r, r->branches[i].node, &low, &high);
        if (!r->branches[i].begins || !r->branches[i].ends) high = REGEX_UNBOUNDED;
        *least = BASE_MIN(*least, low);
        *most = *most < 0 || high < 0 ? REGEX_UNBOUNDED : BASE_MAX(*most, high);
    }
}

/* The node of ^[set]{m,n}$; NULL: it is another pattern. */
static regex_node *regex_only_repeat(regex *r) {
    BASE_ASSERT(r->n_branches > 0);
    const regex_branch *b = &r->branches[0];
    if (r->n_branches != 1 || !b->begins || !b->ends) return NULL;
    int only = r->nodes[b->node].first;
    if (only == NONE || r->nodes[only].next != NONE || r->nodes[only].kind != REGEX_REPEAT) return NULL;
    return r->nodes[r->nodes[only].first].kind == REGEX_SET ? &r->nodes[only] : NULL;
}

bool regex_limit(regex *r, int min, int max) {
    int least, most;
    regex_lengths(r, &least, &most);
    if (least >= min && (max < 0 || (most >= 0 && most <= max))) return true;
    regex_node *repeat = regex_only_repeat(r);
    if (!repeat || min > REGEX_MAX_REPEAT || max > REGEX_MAX_REPEAT) return false;
    min = BASE_MAX(min, repeat->min);
    max = max < 0 ? repeat->max : repeat->max < 0 ? max
                                                  : BASE_MIN(max, repeat->max);
    if (max >= 0 && max < min) return false;
    repeat->min = min, repeat->max = max;
    return true;
}

static bool regex_sets_meet(const regex *a, const regex_node *x, const regex *b, const regex_node *y) {
    BASE_ASSERT(x->kind == REGEX_SET && y->kind == REGEX_SET);
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < y->n; k++)
            if (a->ranges[x->first + i].low <= b->ranges[y->first + k].high &&
                b->ranges[y->first + k].low <= a->ranges[x->first + i].high)
                return true;
    return false;
}

/* Could two branches match the beginning of one text? */
static bool regex_branches_meet(const regex *a, const regex_branch *x, const regex *b, const regex_branch *y) {
    int i = a->nodes[x->node].first, k = b->nodes[y->node].first;
    if (!x->begins || !y->begins) return true;
    while (i != NONE && k != NONE && a->nodes[i].kind == REGEX_SET && b->nodes[k].kind == REGEX_SET) {
        if (!regex_sets_meet(a, &a->nodes[i], b, &b->nodes[k])) return false;
        i = a->nodes[i].next, k = b->nodes[k].next;
    }
    return true;
}

bool regex_may_overlap(const regex *a, const regex *b) {
    for (int i = 0; i < a->n_branches; i++)
        for (int k = 0; k < b->n_branches; k++)
            if (regex_branches_meet(a, &a->branches[i], b, &b->branches[k])) return true;
    return false;
}
