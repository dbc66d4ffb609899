/* SPDX-License-Identifier: Apache-2.0 */
/* content_coding.c: see content_coding.h. */
#define _POSIX_C_SOURCE 200809L  /* strncasecmp */
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_createDCtx_advanced: our allocator */
#define ZLIB_CONST
#include "server/http/content_coding.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define PIECE_BYTES ((size_t)64 << 10)
#define ZSTD_MAX_WINDOW_LOG 23 /* RFC 9659: 8 MiB */
#define GZIP_WINDOW (15 + 16)  /* zlib's: the largest window; + 16: gzip alone */
#define ZLIB_WINDOW 15
#define RAW_WINDOW (-15)

/* ---- names ---- */

typedef struct coding_name {
    const char *name;
    content_coding coding;
} coding_name;

static const coding_name names[] = {
    {"gzip", CONTENT_GZIP}, {"deflate", CONTENT_DEFLATE}, {"zstd", CONTENT_ZSTD}, {"x-gzip", CONTENT_GZIP}};

const char *content_coding_name(content_coding coding) {
    BASE_ASSERT((size_t)coding < BASE_ARRAY_LEN(names) && names[coding].coding == coding);
    return names[coding].name;
}

static bool is_name(const char *at, size_t n, const char *name) {
    return n == strlen(name) && strncasecmp(at, name, n) == 0;
}

static bool codings_add(content_codings *codings, const char *at, size_t n) {
    if (n == 0 || is_name(at, n, "identity")) return true;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        if (!is_name(at, n, names[i].name)) continue;
        if (codings->n == CONTENT_MAX_CODINGS) return false;
        codings->items[codings->n++] = names[i].coding;
        return true;
    }
    return false;
}

bool content_codings_parse(content_codings *codings, const char *value) {
    static const char space[] = " \t";
    bool known = true;
    *codings = (content_codings){.n = 0};
    while (value && *value && known) {
        value += strspn(value, space);
        size_t whole = strcspn(value, ","), n = whole;
        while (n > 0 && strchr(space, value[n - 1])) n--;
        known = codings_add(codings, value, n);
        value += whole;
        value += *value == ',';
    }
    return known;
}

/* ---- decoding ---- */

typedef struct decoding {
    content_coding coding;
    const unsigned char *bytes;
    size_t n;
    content_sink sink;
    void *user;
    unsigned char *piece; /* [PIECE_BYTES] */
    rp_error *err;
} decoding;

static int malformed(const decoding *d, const char *why) {
    return base_fail(d->err, RP_ERR_FORMAT, "the body is not valid %s: %s", content_coding_name(d->coding),
                     why ? why : "malformed data");
}

static int cut(const decoding *d) { return malformed(d, "it ends before its end"); }
static int no_decoder(const decoding *d) { return base_fail_memory(d->err, PIECE_BYTES, "a decoder"); }

/* ---- gzip, deflate ---- */

static void *zlib_alloc(void *user, unsigned n, unsigned bytes) {
    (void)user;
    return base_calloc(n, bytes);
}

static void zlib_free(void *user, void *p) {
    (void)user;
    base_free(p);
}

/* One stream or member, which begins at *at. */
static int zlib_member(const decoding *d, z_stream *z, size_t *at) {
    BASE_ASSERT(*at <= d->n);
    for (int result = Z_OK; result != Z_STREAM_END;) {
        const size_t some = BASE_MIN(d->n - *at, (size_t)INT_MAX);
        z->next_in = d->bytes + *at;
        z->avail_in = (unsigned)some;
        z->next_out = d->piece;
        z->avail_out = (unsigned)PIECE_BYTES;
        result = inflate(z, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) return no_decoder(d);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return malformed(d, z->msg);
        const size_t used = some - z->avail_in, made = PIECE_BYTES - z->avail_out;
        BASE_ASSERT(used <= some && made <= PIECE_BYTES);
        *at += used;
        const int rc = made > 0 ? d->sink(d->user, d->piece, made) : 0;
        if (rc) return rc;
        if (result != Z_STREAM_END && used == 0 && made == 0) return cut(d);
    }
    return RP_OK;
}

static int decode_zlib(const decoding *d) {
    const bool is_gzip = d->coding == CONTENT_GZIP;
    BASE_ASSERT(is_gzip || d->coding == CONTENT_DEFLATE);
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};
    /* A zlib stream: its method is 8, and its first two bytes are a multiple of 31. In a raw one that begins so, the
     * padding of a stored block is not 0. */
    const bool is_zlib = d->n >= 2 && (d->bytes[0] & 0x0f) == 8 && ((unsigned)d->bytes[0] << 8 | d->bytes[1]) % 31 == 0;
    const int raw_or_zlib = is_zlib ? ZLIB_WINDOW : RAW_WINDOW;
    if (inflateInit2(&z, is_gzip ? GZIP_WINDOW : raw_or_zlib) != Z_OK) return no_decoder(d);
    size_t at = 0;
    int rc = zlib_member(d, &z, &at);
    while (!rc && is_gzip && at < d->n) {
        if (inflateReset(&z) != Z_OK) rc = malformed(d, NULL);
        else if (d->bytes[at] != 0x1f) rc = malformed(d, "there are bytes after its end");
        else rc = zlib_member(d, &z, &at);
    }
    if (!rc && at < d->n) rc = malformed(d, "there are bytes after its end");
    inflateEnd(&z);
    return rc;
}

/* ---- zstd ---- */

static void *zstd_alloc(void *user, size_t bytes) {
    (void)user;
    return base_alloc(bytes);
}

static int decode_zstd(const decoding *d) {
    ZSTD_DCtx *z = ZSTD_createDCtx_advanced((ZSTD_customMem){zstd_alloc, zlib_free, NULL});
    ZSTD_inBuffer in = {d->bytes, d->n, 0};
    size_t left = 1; /* 0: a frame is complete */
    bool more = true;
    int rc = RP_OK;
    if (!z) return no_decoder(d);
    ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, ZSTD_MAX_WINDOW_LOG);
    while (!rc && more) {
        ZSTD_outBuffer out = {d->piece, PIECE_BYTES, 0};
        const size_t before = in.pos;
        left = ZSTD_decompressStream(z, &out, &in);
        if (ZSTD_isError(left)) {
            const ZSTD_ErrorCode code = ZSTD_getErrorCode(left);
            const bool is_large = code == ZSTD_error_frameParameter_windowTooLarge;
            if (code == ZSTD_error_memory_allocation) rc = no_decoder(d);
            else rc = malformed(d, is_large ? "its window is larger than 8 MiB" : ZSTD_getErrorName(left));
        } else if (out.pos > 0) rc = d->sink(d->user, d->piece, out.pos);
        more = in.pos < in.size ? in.pos > before || out.pos > 0 : left > 0 && out.pos == out.size;
    }
    if (!rc && (left > 0 || in.pos < in.size)) rc = cut(d);
    ZSTD_freeDCtx(z);
    return rc;
}

int content_decode(content_coding coding, const void *bytes, size_t n, content_sink sink, void *user, rp_error *err) {
    decoding d = {coding, bytes, n, sink, user, base_alloc(PIECE_BYTES), err};
    if (!d.piece) return no_decoder(&d);
    const int rc = coding == CONTENT_ZSTD ? decode_zstd(&d) : decode_zlib(&d);
    base_free(d.piece);
    return rc;
}
