/* SPDX-License-Identifier: Apache-2.0 */
/* text_stream.h: bytes of tokens -> whole characters -> text, up to a stop string.
 *
 *   text:  | released: given to on_text | held back: possibly the beginning of a stop string | then `pending`: part of
 *   a character
 *
 * Each stop string has an automaton (Knuth, Morris, Pratt, 1977) with the longest prefix of it that
 * is a suffix of the text. The longest over all stop strings is held back. The output therefore depends on the text
 * alone, not on how it was cut into tokens. Where on_stop cannot decide yet, the text is held back from the stop string
 * on, and on_stop is asked again after each character; stop strings that are complete meanwhile do not count. One
 * thread at a time.
 */
#ifndef SAMPLING_TEXT_STREAM_H
#define SAMPLING_TEXT_STREAM_H

#include "base/buffer.h"
#include "reprise.h"

/* ---- Stop strings ---- */

typedef struct stop_string {
    const char *text; /* borrowed */
    int32_t n, matched;
    int32_t *borders; /* [n] [i]: length of the longest prefix, shorter than i + 1, that is a suffix of text[0..i] */
} stop_string;

typedef struct stop_matcher {
    stop_string *stops;
    int32_t n_stops;
    int32_t *borders; /* of all of them */
} stop_matcher;

/* Zero-initialise. The strings are checked ones and borrowed. RP_ERR_MEMORY; close it after that too. */
int stop_matcher_open(stop_matcher *m, const char *const *stops, int32_t n_stops, rp_error *err);
void stop_matcher_close(stop_matcher *m);
/* Takes the next byte of the text. Returns the longest stop string that ends with it, or NULL. After one that does not
 * count, stop_matcher_pass comes before the next byte. */
const stop_string *stop_matcher_next(stop_matcher *m, char byte);
/* The next shorter stop string that ends there, or NULL. */
const stop_string *stop_matcher_shorter(const stop_matcher *m, const stop_string *than);
/* The text goes on after complete stop strings. */
void stop_matcher_pass(stop_matcher *m);
/* Bytes at the end of the text that may become a stop string. */
size_t stop_matcher_held(const stop_matcher *m);

/* ---- Text ---- */

typedef struct text_stream {
    char pending[4]; /* bytes of a character that is not whole yet */
    size_t n_pending;
    base_buffer text; /* all text so far, without a stop string */
    size_t released;
    stop_matcher stops;
    rp_on_stop on_stop;           /* NULL: every stop string counts */
    const stop_string *undecided; /* by on_stop; NULL: none */
    size_t undecided_end;         /* of it, in the text */
    rp_on_text on_text;
    void *user;
    rp_stream *events; /* gets the same pieces, after on_text; NULL: none */
    uint64_t tag;      /* in them */
    bool incomplete;   /* events lost text: there was no memory */
    const char *stop;  /* the stop string that was complete: nothing more is taken; NULL: none was */
    bool cancelled;    /* on_text returned false */
} text_stream;

/* Adds bytes: whole characters go to the text, bytes that are no UTF-8 as U+FFFD, and to on_text what need not be held
 * back. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int text_stream_add(text_stream *s, const char *bytes, size_t n, rp_error *err);
/* The same without on_text. *end: the bytes of the whole text that need not be held back. */
int text_stream_hold(text_stream *s, const char *bytes, size_t n, size_t *end, rp_error *err);
/* Passes the text up to such an end to on_text. */
void text_stream_give(text_stream *s, size_t end);
/* Ends the text. Text that was held back is passed to on_text; if the caller has stopped the answer, it is removed. */
void text_stream_end(text_stream *s);
void text_stream_close(text_stream *s);

#endif
