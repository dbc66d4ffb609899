/* SPDX-License-Identifier: Apache-2.0 */
/* http_stream.c: see http_stream.h. */
#define _POSIX_C_SOURCE 200809L /* strncasecmp */
#include "server/http/http_stream.h"

#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/compiler.h"

#define MAX_SIZE_LINE 32   /* of a chunk: its digits and CR LF */
#define MAX_SIZE_DIGITS 15 /* below 2^60 */
#define MAX_LENGTH_DIGITS 18
#define MAX_METHOD 15

typedef struct text {
    const char *at;
    size_t n;
} text;

static bool http_stream_is_digit(char c) { return c >= '0' && c <= '9'; }
/* tchar of RFC 9110, 5.6.2. */
static bool is_token(char c) {
    const bool is_alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_alpha || http_stream_is_digit(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}
static bool http_stream_is_text(const text *t, const char *wanted) {
    return t->n == strlen(wanted) && strncasecmp(t->at, wanted, t->n) == 0;
}

/* ---- lines ---- */

/* Finds the end of a block of lines, closed by an empty line, or of one line. Returns the bytes up to there; 0:
 * incomplete, or malformed, with the reason in *why. */
static size_t block_end(http_stream *s, const char *bytes, size_t n, bool one_line, const char **why) {
    BASE_ASSERT(s->scanned <= n); /* the bytes of the call before are still there */
    for (size_t i = s->scanned; i < n; i++) {
        char c = bytes[i];
        bool after_cr = i > 0 && bytes[i - 1] == '\r';
        if (c == '\0') *why = "it contains a NUL";
        else if (after_cr && c != '\n') *why = "it contains a CR without LF";
        else if (c == '\n' && !after_cr) *why = "a line ends in LF without CR";
        if (*why) return 0;
        if (c == '\n' && (one_line || (i >= 3 && bytes[i - 2] == '\n'))) return i + 1;
    }
    s->scanned = n;
    return 0;
}

/* The next line without its CR LF; advances *rest past it. The block must come from block_end. */
static text next_line(text *rest) {
    const char *end = memchr(rest->at, '\n', rest->n);
    BASE_ASSERT(end && end > rest->at && end[-1] == '\r');
    text line = {rest->at, (size_t)(end - rest->at) - 1};
    rest->n -= line.n + 2;
    rest->at += line.n + 2;
    return line;
}

/* ---- fields ---- */

/* A head, or a trailer, that is checked and rewritten in place: what is written is never beyond what was read. */
typedef struct head {
    char *to;      /* end of the canonical bytes */
    uint32_t seen; /* bit i: of `once`, field i */
    int n, minor;  /* fields; HTTP/1.minor */
    int n_arguments;
    bool is_absolute;
    text length, coding; /* canonical values */
    size_t n_authority;
    char authority[HTTP_MAX_AUTHORITY]; /* of an absolute target */
} head;

static void head_put(head *h, const char *bytes, size_t n) {
    memmove(h->to, bytes, n);
    h->to += n;
}

/* Fields that say one thing: of two, one reader takes the first and another the last. */
static const char *const once[] = {"host",
                                   "content-length",
                                   "transfer-encoding",
                                   "content-type",
                                   "authorization",
                                   "x-api-key",
                                   "x-goog-api-key",
                                   "origin",
                                   "expect",
                                   "sec-fetch-site",
                                   "x-reprise-cluster",
                                   "x-reprise-route",
                                   "x-reprise-resume",
                                   "content-encoding",
                                   "referer"};
enum { HOST,
       LENGTH,
       CODING,
       NO_FIELD = BASE_ARRAY_LEN(once) };
static const char *const once_why[] = {"it has two Host fields", "it has two Content-Length fields",
                                       "it has two Transfer-Encoding fields"};

/* The value that is passed on for that of field i of `once`. */
static text canonical_value(const head *h, size_t i, text value) {
    static const char chunked[] = "chunked";
    if (i == HOST && h->is_absolute) return (text){h->authority, h->n_authority};
    if (i == CODING && http_stream_is_text(&value, chunked)) return (text){chunked, sizeof(chunked) - 1};
    for (; i == LENGTH && value.n > 1 && value.at[0] == '0'; value.n--) value.at++;
    return value;
}

static const char *take_field(head *h, const text *name, const text *value) {
    size_t i = 0; /* which of `once` the field is */
    while (i < NO_FIELD && !http_stream_is_text(name, once[i])) i++;
    if (i < NO_FIELD && h->seen >> i & 1)
        return i < BASE_ARRAY_LEN(once_why) ? once_why[i] : "a field that must be unique is repeated";
    if (http_stream_is_text(name, HTTP_REFUSED)) return "it has a reserved header field";
    if (http_stream_is_text(name, "cookie")) return NULL;
    if (i < NO_FIELD) h->seen |= 1u << i;
    const text put = canonical_value(h, i, *value);
    head_put(h, name->at, name->n);
    head_put(h, ":", 1);
    head_put(h, put.at, put.n);
    if (i == LENGTH) h->length = (text){h->to - put.n, put.n};
    if (i == CODING) h->coding = (text){h->to - put.n, put.n};
    head_put(h, "\r\n", 2);
    return NULL;
}

static const char *check_field(head *h, const text *line) {
    size_t n = 0, end = line->n;
    if (line->at[0] == ' ' || line->at[0] == '\t') return "a header field is folded over two lines";
    while (n < line->n && is_token(line->at[n])) n++;
    if (n == 0 || n == line->n || line->at[n] != ':')
        return "a header field is not NAME: VALUE without white space before the colon";
    for (size_t i = n + 1; i < line->n; i++) {
        unsigned char c = (unsigned char)line->at[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) return "a header field contains a control character";
    }
    text name = {line->at, n++}, value;
    while (n < end && (line->at[n] == ' ' || line->at[n] == '\t')) n++;
    while (end > n && (line->at[end - 1] == ' ' || line->at[end - 1] == '\t')) end--;
    value = (text){line->at + n, end - n};
    return take_field(h, &name, &value);
}

/* Fields up to the empty line. NULL: they are right. */
static const char *http_stream_check_fields(head *h, text rest) {
    const char *why = NULL;
    while (!why && rest.n > 2 && h->n <= HTTP_MAX_FIELDS) {
        text line = next_line(&rest);
        h->n++;
        why = check_field(h, &line);
        BASE_ASSERT(why || h->to <= rest.at); /* what is written is never beyond what was read */
    }
    return why;
}

/* ---- heads ---- */

static bool begins_with(const text *t, const char *prefix) {
    return t->n >= strlen(prefix) && strncasecmp(t->at, prefix, strlen(prefix)) == 0;
}

/* RFC 9112, 3.2.2: takes the authority of an absolute target, which *target then begins after. */
static const char *take_authority(head *h, text *target) {
    const size_t scheme = begins_with(target, "https://") ? 8 : begins_with(target, "http://") ? 7
                                                                                               : 0;
    size_t n = scheme;
    if (scheme == 0) return "the request target is neither a path nor an http address";
    while (n < target->n && !strchr("/?", target->at[n])) n++;
    h->n_authority = n - scheme;
    if (h->n_authority == 0 || memchr(target->at, '@', n))
        return "the address in the request target has no host, or names a user";
    if (h->n_authority > HTTP_MAX_AUTHORITY) return "the host in the request target is too long";
    memcpy(h->authority, target->at + scheme, h->n_authority);
    h->is_absolute = true;
    target->at += n;
    target->n -= n;
    return NULL;
}

/* Writes the request line with the path of the target. */
static const char *take_target(head *h, const text *method, text target, const text *version) {
    const bool asks_options = http_stream_is_text(method, "OPTIONS");
    const char *why = NULL;
    if (memchr(target.at, '#', target.n)) return "the request target contains a fragment";
    if (target.at[0] != '/' && !(asks_options && target.n == 1 && target.at[0] == '*') &&
        (why = take_authority(h, &target)))
        return why;
    const char *query = memchr(target.at, '?', target.n);
    h->n_arguments = query != NULL; /* parameters of the query, as everybody who splits it at & counts them */
    for (const char *at = query; at && at < target.at + target.n; at++) h->n_arguments += *at == '&';
    head_put(h, method->at, method->n);
    head_put(h, " ", 1);
    if (target.n == 0) head_put(h, asks_options ? "*" : "/", 1); /* RFC 9112, 3.2.4 */
    else if (target.at[0] == '?') head_put(h, "/", 1);
    head_put(h, target.at, target.n);
    head_put(h, " ", 1);
    head_put(h, version->at, version->n);
    head_put(h, "\r\n", 2);
    return NULL;
}

/* METHOD SP TARGET SP HTTP/1.x. */
static const char *check_request_line(head *h, const text *line) {
    size_t method = 0, target;
    while (method < line->n && is_token(line->at[method])) method++;
    if (method == 0 || method > MAX_METHOD || method == line->n || line->at[method] != ' ')
        return "the request line does not begin with a method and a space";
    size_t at = target = method + 1;
    while (at < line->n && line->at[at] > ' ' && line->at[at] < 0x7f) at++;
    if (at == target || at == line->n || line->at[at] != ' ')
        return "the request target is not one word of visible ASCII characters";
    text version = {line->at + at + 1, line->n - at - 1};
    if (version.n != 8 || memcmp(version.at, "HTTP/1.", 7) != 0 || !(version.at[7] == '0' || version.at[7] == '1'))
        return "its version is not HTTP/1.1 or HTTP/1.0";
    h->minor = version.at[7] - '0';
    return take_target(h, &(text){line->at, method}, (text){line->at + target, at - target}, &version);
}

static const char *http_stream_take_length(http_stream *s, const text *value) {
    s->left = 0;
    for (size_t i = 0; i < value->n; i++) {
        if (!http_stream_is_digit(value->at[i]) || value->n > MAX_LENGTH_DIGITS)
            return "Content-Length is not a number of bytes";
        s->left = s->left * 10 + (uint64_t)(value->at[i] - '0');
    }
    if (value->n == 0) return "Content-Length is not a number of bytes";
    s->state = s->left > 0 ? HTTP_BODY : HTTP_HEAD;
    return NULL;
}

/* Where the body ends, which everybody has to agree on. */
static const char *take_framing(http_stream *s, const head *h) {
    BASE_ASSERT(s->state == HTTP_HEAD);
    bool has_length = h->seen >> LENGTH & 1, has_coding = h->seen >> CODING & 1;
    if (h->minor == 1 && !(h->seen >> HOST & 1)) return "it has no Host field";
    if (has_length && has_coding) return "it has both Content-Length and Transfer-Encoding";
    if (has_coding && (h->minor == 0 || !http_stream_is_text(&h->coding, "chunked")))
        return "the Transfer-Encoding is not chunked (of HTTP/1.1)";
    s->state = has_coding ? HTTP_SIZE : HTTP_HEAD;
    return has_length ? http_stream_take_length(s, &h->length) : NULL;
}

/* The end of a canonical head that may use `room` bytes. HTTP/1.0 may have an absolute target and no Host. */
static const char *end_head(head *h, const char *room) {
    static const char name[] = "Host:";
    if (h->is_absolute && !(h->seen >> HOST & 1)) {
        if ((size_t)(room - h->to) < sizeof(name) - 1 + h->n_authority + 4)
            return "it has an address without a path, and no Host field";
        head_put(h, name, sizeof(name) - 1);
        head_put(h, h->authority, h->n_authority);
        head_put(h, "\r\n", 2);
    }
    head_put(h, "\r\n", 2);
    BASE_ASSERT(h->to <= room);
    return NULL;
}

static http_verdict next_head(http_stream *s, char *bytes, size_t n, size_t *used, size_t *dropped, const char **why) {
    if (bytes[0] == '\r' && n == 1) return HTTP_WAIT;
    if (bytes[0] == '\r' && bytes[1] == '\n') return *used = *dropped = 2, HTTP_PASS; /* RFC 9112, 2.2 */
    if (!is_token(bytes[0])) return *why = "it does not begin with a method", HTTP_REFUSE;
    size_t end = block_end(s, bytes, BASE_MIN(n, HTTP_MAX_HEAD), false, why);
    if (*why) return HTTP_REFUSE;
    if (end == 0 && n >= HTTP_MAX_HEAD) return *why = "the header section has more than 32 KiB", HTTP_TOO_LARGE;
    if (end == 0) return HTTP_WAIT;
    text rest = {bytes, end}, line = next_line(&rest);
    head h = {.to = bytes};
    if ((*why = check_request_line(&h, &line)) || (*why = http_stream_check_fields(&h, rest))) return HTTP_REFUSE;
    if (h.n > HTTP_MAX_FIELDS) return *why = "the header section has more than 128 fields", HTTP_TOO_LARGE;
    if (h.n_arguments > HTTP_MAX_ARGUMENTS) return *why = "the query has more than 128 parameters", HTTP_TOO_LARGE;
    if ((*why = end_head(&h, bytes + end)) || (*why = take_framing(s, &h)))
        return HTTP_REFUSE; /* this order: a refused head has no body */
    s->scanned = 0;
    *dropped = end - (size_t)(h.to - bytes);
    memmove(bytes + *dropped, bytes, end - *dropped);
    return *used = end, HTTP_PASS;
}

/* ---- bodies ---- */

/* Digits and CR LF only: chunk extensions are unused in practice, and parsers disagree about them. */
static http_verdict next_size(http_stream *s, const char *bytes, size_t n, size_t *used, const char **why) {
    static const char wrong[] = "a chunk size is not hexadecimal digits and CR LF";
    size_t end = block_end(s, bytes, BASE_MIN(n, (size_t)MAX_SIZE_LINE), true, why);
    if (*why) return HTTP_REFUSE;
    if (end == 0) return n < MAX_SIZE_LINE ? HTTP_WAIT : (*why = wrong, HTTP_REFUSE);
    BASE_ASSERT(end >= 2); /* CR LF */
    uint64_t size = 0;
    size_t digits = end - 2;
    for (size_t i = 0; i < digits; i++) {
        if (base_hex_digit(bytes[i]) < 0) return *why = wrong, HTTP_REFUSE;
        size = size << 4 | (uint64_t)base_hex_digit(bytes[i]);
    }
    if (digits == 0 || digits > MAX_SIZE_DIGITS) return *why = wrong, HTTP_REFUSE;
    *s = (http_stream){.state = size > 0 ? HTTP_DATA : HTTP_TRAILER, .left = size};
    return *used = end, HTTP_PASS;
}

static http_verdict next_data(http_stream *s, size_t n, size_t *used) {
    BASE_ASSERT(s->left > 0); /* a body or a chunk that has ended has another state */
    *used = (size_t)BASE_MIN(s->left, (uint64_t)n);
    s->left -= *used;
    if (s->left == 0) s->state = s->state == HTTP_BODY ? HTTP_HEAD : HTTP_DATA_END;
    return HTTP_PASS;
}

static http_verdict next_data_end(http_stream *s, const char *bytes, size_t n, size_t *used, const char **why) {
    BASE_ASSERT(s->left == 0);
    if (bytes[0] != '\r' || (n > 1 && bytes[1] != '\n')) return *why = "a chunk is longer than its size", HTTP_REFUSE;
    if (n == 1) return HTTP_WAIT;
    s->state = HTTP_SIZE;
    return *used = 2, HTTP_PASS;
}

static http_verdict next_trailer(http_stream *s, char *bytes, size_t n, size_t *used, size_t *dropped,
                                 const char **why) {
    size_t end = n > 1 && bytes[0] == '\r' && bytes[1] == '\n'
                     ? 2
                     : block_end(s, bytes, BASE_MIN(n, HTTP_MAX_TRAILER), false, why);
    if (*why) return HTTP_REFUSE;
    if (end == 0) return n < HTTP_MAX_TRAILER ? HTTP_WAIT : (*why = "the trailer has more than 8 KiB", HTTP_REFUSE);
    head h = {.to = bytes};
    *why = http_stream_check_fields(&h, (text){bytes, end});
    if (!*why && (h.seen || h.n > HTTP_MAX_FIELDS)) *why = "the trailer has a field that belongs in the header section";
    if (*why) return HTTP_REFUSE;
    BASE_ASSERT(end >= 2 && h.to <= bytes + end);
    *s = (http_stream){.state = HTTP_HEAD};
    *dropped = end - 2; /* all of its fields */
    return *used = end, HTTP_PASS;
}

http_verdict http_stream_next(http_stream *s, char *bytes, size_t n, size_t *used, size_t *dropped, const char **why) {
    BASE_ASSERT(n > 0);
    *used = *dropped = 0;
    *why = NULL;
    switch (s->state) {
    case HTTP_HEAD: return next_head(s, bytes, n, used, dropped, why);
    case HTTP_SIZE: return next_size(s, bytes, n, used, why);
    case HTTP_DATA_END: return next_data_end(s, bytes, n, used, why);
    case HTTP_TRAILER: return next_trailer(s, bytes, n, used, dropped, why);
    default: return next_data(s, n, used);
    }
}
