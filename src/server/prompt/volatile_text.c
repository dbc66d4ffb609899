/* SPDX-License-Identifier: Apache-2.0 */
/* volatile_text.c: see volatile_text.h. Each matcher tests one position, the start of a word, and returns the
 * number of bytes it matches, 0 for none. */
#include "server/prompt/volatile_text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/compiler.h"

#define MIN_HEX_DIGITS 16
#define MAX_HEADER_NAME 48

static bool volatile_text_is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return base_hex_digit(c) >= 0; }
static bool volatile_text_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool volatile_text_is_word(char c) {
    return volatile_text_is_digit(c) || volatile_text_is_letter(c) || c == '_';
}

/* d: a digit, h: a hexadecimal one; all else itself. */
static size_t volatile_text_pattern(const char *s, size_t n, const char *p) {
    size_t i = 0;
    for (; p[i]; i++)
        if (i == n || (p[i] == 'd' ? !volatile_text_is_digit(s[i]) : p[i] == 'h' ? !is_hex(s[i])
                                                                                 : s[i] != p[i])) return 0;
    return i;
}

/* The same, up to the end of a word. */
static size_t whole_pattern(const char *s, size_t n, const char *p) {
    size_t used = volatile_text_pattern(s, n, p);
    return used > 0 && (used == n || !volatile_text_is_word(s[used])) ? used : 0;
}

static size_t volatile_text_count(const char *s, size_t n, bool (*is)(char c)) {
    size_t i = 0;
    while (i < n && is(s[i])) i++;
    return i;
}

/* ---- dates and times ---- */

static size_t clock_time(const char *s, size_t n) {
    size_t used = volatile_text_pattern(s, n, "dd:dd:dd");
    if (used == 0) used = volatile_text_pattern(s, n, "dd:dd");
    if (used == 0) return 0;
    if (used + 1 < n && s[used] == '.' && volatile_text_is_digit(s[used + 1]))
        used += 1 + volatile_text_count(s + used + 1, n - used - 1, volatile_text_is_digit);
    if (used < n && s[used] == 'Z') return used + 1;
    return used + volatile_text_pattern(s + used, n - used, used < n && s[used] == '-' ? "-dd:dd" : "+dd:dd");
}

static size_t volatile_text_month(const char *s, size_t n) {
    static const char *const names[] = {"january", "february", "march", "april", "may", "june",
                                        "july", "august", "september", "october", "november", "december"};
    size_t letters = volatile_text_count(s, n, volatile_text_is_letter);
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if ((letters == 3 || letters == strlen(names[i])) && strncasecmp(s, names[i], letters) == 0) return letters;
    return 0;
}

/* "November 22, 2026", "22 Nov 2026" */
static size_t named_date(const char *s, size_t n) {
    size_t used = volatile_text_month(s, n), days;
    bool month_first = used > 0;
    if (!month_first && ((used = volatile_text_count(s, n, volatile_text_is_digit)) == 0 || used > 2)) return 0;
    if (used == n || s[used] != ' ') return 0;
    used++;
    days = month_first ? volatile_text_count(s + used, n - used, volatile_text_is_digit)
                       : volatile_text_month(s + used, n - used);
    if (days == 0 || (month_first && days > 2)) return 0;
    used += days;
    if (used < n && s[used] == ',') used++;
    if (used == n || s[used] != ' ') return 0;
    size_t year = whole_pattern(s + used + 1, n - used - 1, "dddd");
    return year > 0 ? used + 1 + year : 0;
}

static size_t volatile_text_date(const char *s, size_t n) {
    static const char *const patterns[] = {"dddd-dd-dd", "dddd/dd/dd", "dd/dd/dddd", "dd.dd.dddd"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(patterns); i++) {
        size_t used = volatile_text_pattern(s, n, patterns[i]);
        if (used == 0 || (used < n && volatile_text_is_digit(s[used]))) continue;
        if (used + 1 < n && (s[used] == 'T' || s[used] == ' ')) {
            size_t time = clock_time(s + used + 1, n - used - 1);
            if (time > 0) return used + 1 + time;
        }
        return used;
    }
    return named_date(s, n);
}

static size_t time_of_day(const char *s, size_t n) {
    return volatile_text_pattern(s, n, "dd:dd:dd") > 0 ? clock_time(s, n) : 0;
}

static size_t volatile_text_timestamp(const char *s, size_t n) {
    if (n == 0 || s[0] != '1') return 0;
    size_t used = whole_pattern(s, n, "dddddddddd");
    return used > 0 ? used : whole_pattern(s, n, "ddddddddddddd");
}

/* ---- ids ---- */

static size_t volatile_text_uuid(const char *s, size_t n) {
    return whole_pattern(s, n, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh");
}

static size_t long_hex(const char *s, size_t n) {
    size_t used = volatile_text_count(s, n, is_hex), digits = 0;
    for (size_t i = 0; i < used; i++) digits += volatile_text_is_digit(s[i]);
    bool ends = used == n || !volatile_text_is_word(s[used]);
    return used >= MIN_HEX_DIGITS && ends && digits > 0 && digits < used ? used : 0;
}

/* ---- lines and counters ---- */

static bool is_header_name(char c) { return volatile_text_is_word(c) || c == '-'; }

static bool has_part(const char *name, size_t n, const char *part) {
    for (size_t i = 0; i + strlen(part) <= n; i++)
        if (strncasecmp(name + i, part, strlen(part)) == 0) return true;
    return false;
}

/* At the beginning of a line: all of it. */
static size_t volatile_text_header(const char *s, size_t n) {
    static const char *const parts[] = {"billing", "request-id", "request_id", "trace", "user-agent",
                                        "session-id", "session_id", "correlation", "timestamp"};
    size_t name = volatile_text_count(s, n, is_header_name);
    if (name == 0 || name > MAX_HEADER_NAME || name == n || s[name] != ':') return 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(parts); i++)
        if (has_part(s, name, parts[i])) {
            const char *end = memchr(s, '\n', n);
            return end ? (size_t)(end - s) : n;
        }
    return 0;
}

static size_t volatile_text_counter(const char *s, size_t n) {
    static const char *const words[] = {"request", "turn", "iteration", "attempt", "call", "session"};
    size_t letters = volatile_text_count(s, n, volatile_text_is_letter), at = letters;
    bool known = false;
    for (size_t i = 0; i < BASE_ARRAY_LEN(words); i++)
        known |= letters == strlen(words[i]) && strncasecmp(s, words[i], letters) == 0;
    if (!known) return 0;
    while (at < n && s[at] == ' ') at++;
    if (at == n || !strchr("#:=", s[at])) return 0;
    at++;
    while (at < n && s[at] == ' ') at++;
    size_t digits = volatile_text_count(s + at, n - at, volatile_text_is_digit);
    return digits > 0 && (at + digits == n || !volatile_text_is_word(s[at + digits])) ? at + digits : 0;
}

/* ---- all of them ---- */

static const struct {
    volatile_kind kind;
    size_t (*match)(const char *s, size_t n);
} matchers[] = {
    {VOLATILE_DATE, volatile_text_date},
    {VOLATILE_TIME, time_of_day},
    {VOLATILE_UUID, volatile_text_uuid},
    {VOLATILE_HEX, long_hex},
    {VOLATILE_TIMESTAMP, volatile_text_timestamp},
    {VOLATILE_COUNTER, volatile_text_counter},
};

static bool match(const char *text, size_t n, size_t at, volatile_piece *out) {
    bool begins_line = at == 0 || text[at - 1] == '\n';
    size_t used = begins_line ? volatile_text_header(text + at, n - at) : 0;
    if (used > 0) {
        *out = (volatile_piece){VOLATILE_HEADER, at, at + used};
        return true;
    }
    for (size_t i = 0; i < BASE_ARRAY_LEN(matchers); i++)
        if ((used = matchers[i].match(text + at, n - at)) > 0) {
            *out = (volatile_piece){matchers[i].kind, at, at + used};
            return true;
        }
    return false;
}

const char *volatile_word(volatile_kind kind) {
    static const char *const words[] = {
#define X(name, word) word,
        VOLATILE_KINDS(X)
#undef X
    };
    BASE_ASSERT((size_t)kind < BASE_ARRAY_LEN(words));
    return words[kind];
}

bool volatile_find(const char *text, size_t n, size_t from, volatile_piece *out) {
    for (size_t i = from; i < n; i++) {
        bool begins = volatile_text_is_word(text[i]) && (i == 0 || !volatile_text_is_word(text[i - 1]));
        if (!begins || !match(text, n, i, out)) continue;
        BASE_ASSERT(out->begin == i && out->end > i && out->end <= n);
        return true;
    }
    return false;
}
