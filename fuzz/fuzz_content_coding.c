/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_content_coding.c: arbitrary bytes as a compressed body: decoded, refused with one line, or ended by the sink,
 * with a memory that does not depend on them; and what zlib and zstd compress of them decodes to them. The first byte
 * is the coding. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>
#include <zstd.h>

#include "server/http/content_coding.h"

#define MOST_BYTES ((size_t)1 << 20)
#define MAX_BYTES ((size_t)1 << 16)
#define PACKED_BYTES (2 * MAX_BYTES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct decoded {
    const uint8_t *wanted; /* NULL: anything */
    size_t n, most;
} decoded;

static int take(void *user, const void *bytes, size_t n) {
    decoded *d = user;
    if (n == 0) abort();
    if (d->n + n > d->most) return RP_ERR_LIMIT;
    if (d->wanted && memcmp(d->wanted + d->n, bytes, n) != 0) abort();
    d->n += n;
    return RP_OK;
}

static size_t pack(content_coding coding, const uint8_t *data, size_t n, uint8_t *to) {
    if (coding == CONTENT_ZSTD) return ZSTD_compress(to, PACKED_BYTES, data, n, 1);
    z_stream z = {.next_in = (uint8_t *)data, .avail_in = (unsigned)n, .next_out = to, .avail_out = PACKED_BYTES};
    if (deflateInit2(&z, 1, Z_DEFLATED, coding == CONTENT_GZIP ? 31 : n % 2 ? 15
                                                                            : -15,
                     8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    deflateEnd(&z);
    return z.total_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static uint8_t packed[PACKED_BYTES];
    rp_error err;
    if (n < 2 || n > MAX_BYTES) return 0;
    const content_coding coding = (content_coding)(data[0] % (CONTENT_ZSTD + 1));
    decoded d = {NULL, 0, MOST_BYTES};
    int rc = content_decode(coding, data + 1, n - 1, take, &d, &err);
    if (rc != RP_OK && rc != RP_ERR_FORMAT && rc != RP_ERR_LIMIT) abort();
    if (rc == RP_ERR_FORMAT && (!strstr(err.message, content_coding_name(coding)) || strpbrk(err.message, "\r\n")))
        abort();
    d = (decoded){data + 1, 0, n - 1};
    if (content_decode(coding, packed, pack(coding, data + 1, n - 1, packed), take, &d, &err) != RP_OK || d.n != n - 1)
        abort();
    content_codings codings;
    char value[128] = "";
    memcpy(value, data, n < sizeof(value) ? n : sizeof(value) - 1);
    if (content_codings_parse(&codings, value) && (codings.n < 0 || codings.n > CONTENT_MAX_CODINGS)) abort();
    return 0;
}
