/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http_stream.c: arbitrary bytes from a client. In one piece, in two, and byte by byte they are split into the
 * same requests; no byte is forwarded twice; and a forwarded head is canonical: it contains nothing that another parser
 * could interpret differently, and parses to itself and to the same framing. The first byte is where the input is
 * split. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/http_stream.h"

#define MAX_BYTES ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Outcome for the bytes so far. */
typedef struct outcome {
    char passed[MAX_BYTES];
    size_t n_passed;
    http_verdict end; /* HTTP_WAIT, or the reason why reading stopped */
} outcome;

/* Every line of a canonical head: no white space around values; a target that is a path. */
static void check_head(const char *head, size_t n) {
    size_t lengths = 0, codings = 0;
    if (n < 16 || n > HTTP_MAX_HEAD || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) abort();
    const char *target = memchr(head, ' ', n);
    if (!target || (target[1] != '/' && memcmp(target, " * HTTP/1.", 10) != 0)) abort();
    for (size_t i = 0; i < n; i++) {
        if (!head[i] || (head[i] == '\n') != (i > 0 && head[i - 1] == '\r')) abort();
        if (head[i] == '\r' && i > 0 && (head[i - 1] == ' ' || head[i - 1] == '\t')) abort();
        if (head[i] != '\n' || i + 1 == n || head[i + 1] == '\r') continue;
        const char *colon = memchr(head + i, ':', n - i);
        if (!colon || colon[1] == ' ' || colon[1] == '\t' || head[i + 1] == ' ' || head[i + 1] == '\t') abort();
        lengths += i + 15 < n && strncasecmp(head + i + 1, "content-length", 14) == 0 && head[i + 15] == ':';
        codings += i + 27 < n && strncasecmp(head + i + 1, "transfer-encoding:chunked\r", 26) == 0;
        if (strncasecmp(head + i + 1, "cookie:", 7) == 0) abort();
    }
    if (lengths + codings > 1) abort();
}

/* A second parser, which reads what the first one has passed on, gets the same request. */
static void check_canonical(const char *head, size_t n, const http_stream *after) {
    static char copy[HTTP_MAX_HEAD];
    http_stream s = {0};
    size_t used, dropped;
    const char *why;
    check_head(head, n);
    memcpy(copy, head, n);
    if (http_stream_next(&s, copy, n, &used, &dropped, &why) != HTTP_PASS || used != n || dropped != 0) abort();
    if (memcmp(copy, head, n) != 0 || s.state != after->state || s.left != after->left) abort();
}

/* Works like the gate, with pieces that end at `first` and then have `step` bytes. */
static void cut(outcome *o, char *bytes, size_t n, size_t first, size_t step) {
    http_stream s = {0};
    size_t at = 0, there = first < n ? first : n;
    o->n_passed = 0;
    o->end = HTTP_WAIT;
    for (;;) {
        while (at < there) {
            const char *why;
            size_t used, dropped;
            http_state before = s.state;
            http_verdict v = http_stream_next(&s, bytes + at, there - at, &used, &dropped, &why);
            if ((v == HTTP_REFUSE || v == HTTP_TOO_LARGE) != (why != NULL) || used > there - at || dropped > used)
                abort();
            if ((v == HTTP_PASS) != (used > 0)) abort();
            o->end = v == HTTP_REFUSE || v == HTTP_TOO_LARGE ? v : HTTP_WAIT;
            if (o->end != HTTP_WAIT) return;
            if (v == HTTP_WAIT) break;
            if (before == HTTP_HEAD && used > dropped) check_canonical(bytes + at + dropped, used - dropped, &s);
            if (before == HTTP_TRAILER && (used - dropped != 2 || memcmp(bytes + at + dropped, "\r\n", 2) != 0))
                abort();
            if (before != HTTP_HEAD && before != HTTP_TRAILER && dropped > 0) abort();
            memcpy(o->passed + o->n_passed, bytes + at + dropped, used - dropped);
            o->n_passed += used - dropped;
            at += used;
        }
        if (there == n) return;
        there = there + step < n ? there + step : n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static outcome whole, other;
    static char bytes[MAX_BYTES];
    if (n < 2 || n > MAX_BYTES) return 0;
    memcpy(bytes, data + 1, n - 1);
    cut(&whole, bytes, n - 1, n - 1, 1);
    for (int way = 0; way < 2; way++) {
        memcpy(bytes, data + 1, n - 1);
        if (way == 0) cut(&other, bytes, n - 1, data[0] + 1u, n - 1);
        else cut(&other, bytes, n - 1, 1, 1);
        if (other.end != whole.end || other.n_passed != whole.n_passed ||
            memcmp(other.passed, whole.passed, whole.n_passed) != 0)
            abort();
    }
    return 0;
}
