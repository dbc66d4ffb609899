/* SPDX-License-Identifier: Apache-2.0 */
/* text_stream.c: bytes of tokens to whole UTF-8 characters, given out as far as no stop string can begin in them. A
 * token may end inside a character; the next one completes it. */
#include "sampling/text_stream.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "sampling/answer_stream.h"

/* Does the text end before this stop string, which ends at `end`? Also true where that is not decided. */
static bool text_stream_stops(text_stream *s, const stop_string *stop, size_t end) {
    BASE_ASSERT(end >= (size_t)stop->n && end <= s->text.len);
    const rp_stop_verdict verdict =
        s->on_stop ? s->on_stop(s->user, stop->text, s->text.data, s->text.len, end) : RP_STOP_COUNTS;
    s->undecided = verdict == RP_STOP_UNDECIDED ? stop : NULL;
    s->undecided_end = end;
    if (verdict == RP_STOP_COUNTS) {
        base_buffer_truncate(&s->text, end - (size_t)stop->n);
        s->stop = stop->text;
    }
    return verdict != RP_STOP_IS_TEXT;
}

/* Adds a character. If it completes a stop string that counts, the text ends before that. */
static int text_stream_put(text_stream *s, const char *bytes, size_t n, rp_error *err) {
    BASE_DCHECK(base_utf8_length((const unsigned char *)bytes, n) == (int)n); /* invariant 2: a whole character */
    const stop_string *stop = NULL;
    int rc = base_buffer_append(&s->text, bytes, n);
    if (rc) return base_fail(err, rc, "out of memory: the answer's text");
    for (size_t i = 0; i < n; i++) {
        BASE_ASSERT(!stop); /* stop strings are whole characters too */
        stop = stop_matcher_next(&s->stops, bytes[i]);
    }
    if (s->undecided) text_stream_stops(s, s->undecided, s->undecided_end);
    else
        for (const stop_string *one = stop; one && !text_stream_stops(s, one, s->text.len);)
            one = stop_matcher_shorter(&s->stops, one);
    if (stop) stop_matcher_pass(&s->stops);
    return RP_OK;
}

static int add_byte(text_stream *s, char byte, rp_error *err) {
    BASE_ASSERT(s->n_pending < sizeof(s->pending)); /* so many bytes are a character, or none */
    s->pending[s->n_pending++] = byte;
    int length = base_utf8_length((const unsigned char *)s->pending, s->n_pending);
    if (length == 0) return RP_OK;
    if (length > 0) {
        s->n_pending = 0;
        return text_stream_put(s, s->pending, (size_t)length, err);
    }
    /* The bytes before this one began a character that it does not continue: one U+FFFD for them; it may begin
       another. */
    bool alone = s->n_pending == 1;
    s->n_pending = 0;
    int rc = text_stream_put(s, "\xef\xbf\xbd", 3, err);
    return rc || alone || s->stop ? rc : add_byte(s, byte, err);
}

/* The piece is in the text itself, with a NUL after it for the call. */
void text_stream_give(text_stream *s, size_t end) {
    size_t first = s->released;
    BASE_ASSERT(end >= first && end <= s->text.len); /* bytes held back now were held back before, or are new */
    if (end == first) return;
    s->released = end;
    if (s->on_text) {
        char next = s->text.data[end];
        s->text.data[end] = '\0';
        s->cancelled = !s->on_text(s->user, s->text.data + first, end - first);
        s->text.data[end] = next;
    }
    if (!s->incomplete) s->incomplete = !answer_stream_append(s->events, s->tag, s->text.data + first, end - first);
}

int text_stream_hold(text_stream *s, const char *bytes, size_t n, size_t *end, rp_error *err) {
    for (size_t i = 0; i < n && !s->stop; i++) {
        int rc = add_byte(s, bytes[i], err);
        if (rc) return rc;
    }
    size_t held = s->stop ? 0 : stop_matcher_held(&s->stops);
    if (s->undecided) held = BASE_MAX(held, s->text.len - (s->undecided_end - (size_t)s->undecided->n));
    BASE_ASSERT(held <= s->text.len);
    *end = s->text.len - held;
    return RP_OK;
}

int text_stream_add(text_stream *s, const char *bytes, size_t n, rp_error *err) {
    size_t end = 0;
    const int rc = text_stream_hold(s, bytes, n, &end, err);
    if (!rc) text_stream_give(s, end);
    return rc;
}

void text_stream_end(text_stream *s) {
    if (s->cancelled) base_buffer_truncate(&s->text, s->released);
    else text_stream_give(s, s->text.len);
}

void text_stream_close(text_stream *s) {
    stop_matcher_close(&s->stops);
    base_buffer_free(&s->text);
}
