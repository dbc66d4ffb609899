/* text_stream.c: bytes of tokens to whole UTF-8 characters. A token may end inside a character; the next one completes it. */
#include <string.h>

#include "base/error.h"
#include "engine/engine_internal.h"

/* Length of the character at s (n >= 1 bytes): 1 to 4; 0: its end is missing; -1: no UTF-8 (RFC 3629). */
static int character_length(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return -1;
    if (n > 1) {
        unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
        unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
        if (s[1] < low || s[1] > high) return -1;
    }
    for (int i = 2; i < length && (size_t)i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return -1;
    return (size_t)length <= n ? length : 0;
}

static int put(text_stream *s, const char *bytes, size_t n, rp_error *err) {
    int rc = base_buffer_append(&s->text, bytes, n);
    return rc ? base_fail(err, rc, "the answer's text does not fit into memory") : RP_OK;
}

static int add_byte(text_stream *s, char byte, rp_error *err) {
    s->pending[s->n_pending++] = byte;
    int length = character_length((const unsigned char *)s->pending, s->n_pending);
    if (length == 0) return RP_OK;
    if (length > 0) {
        s->n_pending = 0;
        return put(s, s->pending, (size_t)length, err);
    }
    /* The bytes before this one began a character that it does not continue: one U+FFFD for them; it may begin another. */
    bool alone = s->n_pending == 1;
    s->n_pending = 0;
    int rc = put(s, "\xef\xbf\xbd", 3, err);
    return rc || alone ? rc : add_byte(s, byte, err);
}

int text_stream_add(text_stream *s, const char *bytes, size_t n, rp_error *err) {
    size_t before = s->text.len;
    for (size_t i = 0; i < n; i++) {
        int rc = add_byte(s, bytes[i], err);
        if (rc) return rc;
    }
    if (s->on_text && s->text.len > before && !s->on_text(s->user, s->text.data + before, s->text.len - before)) s->stopped = true;
    return RP_OK;
}
