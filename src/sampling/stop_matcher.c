/* SPDX-License-Identifier: Apache-2.0 */
/* stop_matcher.c: stop strings in a text that comes byte by byte. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "sampling/text_stream.h"

/* Length of the longest prefix of the string that is a suffix of the text, after one more byte. matched < n. */
static int32_t stop_string_advance(const stop_string *s, int32_t matched, char byte) {
    BASE_DCHECK(matched >= 0 && matched < s->n);
    while (matched > 0 && s->text[matched] != byte) matched = s->borders[matched - 1];
    return s->text[matched] == byte ? matched + 1 : 0;
}

int stop_matcher_open(stop_matcher *m, const char *const *stops, int32_t n_stops, rp_error *err) {
    size_t bytes = 0, used = 0;
    if (n_stops == 0) return RP_OK;
    for (int32_t i = 0; i < n_stops; i++) bytes += strlen(stops[i]);
    m->stops = base_calloc((size_t)n_stops, sizeof(*m->stops));
    m->borders = base_calloc(bytes, sizeof(*m->borders));
    if (!m->stops || !m->borders) return base_fail_memory(err, bytes * sizeof(*m->borders), "stop strings");
    m->n_stops = n_stops;
    for (int32_t i = 0; i < n_stops; i++) {
        stop_string *s = &m->stops[i];
        *s = (stop_string){.text = stops[i], .n = (int32_t)strlen(stops[i]), .borders = m->borders + used};
        used += (size_t)s->n;
        s->borders[0] = 0;
        for (int32_t k = 1; k < s->n; k++) s->borders[k] = stop_string_advance(s, s->borders[k - 1], s->text[k]);
    }
    BASE_ASSERT(used == bytes);
    return RP_OK;
}

void stop_matcher_close(stop_matcher *m) {
    base_free(m->stops);
    base_free(m->borders);
    *m = (stop_matcher){0};
}

const stop_string *stop_matcher_next(stop_matcher *m, char byte) {
    const stop_string *longest = NULL;
    for (int32_t i = 0; i < m->n_stops; i++) {
        stop_string *s = &m->stops[i];
        s->matched = stop_string_advance(s, s->matched, byte);
        if (s->matched == s->n && (!longest || s->n > longest->n)) longest = s;
    }
    return longest;
}

const stop_string *stop_matcher_shorter(const stop_matcher *m, const stop_string *than) {
    const stop_string *longest = NULL;
    BASE_ASSERT(than->matched == than->n); /* it ends there */
    for (int32_t i = 0; i < m->n_stops; i++) {
        const stop_string *s = &m->stops[i];
        if (s->matched == s->n && s->n < than->n && (!longest || s->n > longest->n)) longest = s;
    }
    return longest;
}

void stop_matcher_pass(stop_matcher *m) {
    for (int32_t i = 0; i < m->n_stops; i++) {
        stop_string *s = &m->stops[i];
        if (s->matched == s->n) s->matched = s->borders[s->n - 1];
    }
}

size_t stop_matcher_held(const stop_matcher *m) {
    int32_t held = 0;
    for (int32_t i = 0; i < m->n_stops; i++) held = BASE_MAX(held, m->stops[i].matched);
    return (size_t)held;
}
