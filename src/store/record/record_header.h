/* SPDX-License-Identifier: Apache-2.0 */
/* record_header.h: encodes and decodes the two headers of a record. Accesses no files; used by the writer, the
 * reader and their tests.
 *
 *   public header                                       private header
 *     0   8  magic                                        0  32  fingerprint           124   4  first_pos
 *     8   4  version                                     32  32  key                   128   4  readable_from
 *    12   4  flags: 1 encrypted                          64  32  parent                132   4  format: 0 f16, 1 f32; +
 *          256 a
 *    16   8  bytes of the file                           96   8  cost_us               136   4  n_layers
 *    24   4  bytes of the private header                104   4  kind                  140   4  n_kv_heads
 *    28   4  zeros                                      108   4  at                    144   4  key_dim
 *    32  16  id of the cipher's key, or zeros           112   4  first_slot            148   4  value_dim
 *    48  16  checksum over [0, 48) and the bytes        116   4  n_tokens              152   4  bytes of the label
 *            between this header and layer 0            120   4  slots                 156   4  zeros
 *                                                       160  16  id of the key's derivation: zeros (not in version 1)
 *                                                       176  64  signature: zeros (not in version 1)
 *                                                       240      layers, 32 bytes each (version 1: 160; 3: 56 each)
 *                                                             a: a kernel_arithmetic; + 128: some layers are in f16
 *                                                              of a reduced span: end, 4 bytes; parts, 4; slots of each
 *   a layer                                                        head of each layer, 2 each
 *     0   8  offset in the file                                  tokens, 4 bytes each
 *     8   4  window                                              label
 *    12   1  blocks that were kept, bit b: block b
 *    13   1  1: in f16, with a format of less than 16 bits (kv_layer_shape.in_f16)
 *    14   2  zeros
 *    16  16  checksum over its bytes as stored, not encrypted
 *    32   4  version 3: kind: 0 pairs, 1 latent, 2 state          44   4  version 3: value_dim
 *    36   4  version 3: n_kv_heads                                48   4  version 3: bytes of a state
 *    40   4  version 3: key_dim                                   52   4  version 3: zeros
 *
 * Version 3 is written where layers differ in more than windows and formats: its n_kv_heads, key_dim and value_dim of
 * all layers are zeros. Stored blocks have used slots only (kv_block_pack); version 1 has all 64, the others as zeros,
 * and no reduced spans. record_layer.h has the bytes of a layer.
 */
#ifndef STORE_RECORD_HEADER_H
#define STORE_RECORD_HEADER_H

#include <sys/uio.h>

#include "base/compiler.h"
#include "store/record/record.h"

#define RECORD_FILE_VERSION 3            /* the newest that is read, and written: record_version_of */
#define RECORD_MAGIC "\x89RPS\r\n\x1a\n" /* not text, and detects a transfer as text (as in PNG) */

enum {
    RECORD_MAGIC_BYTES = 8,
    RECORD_PUBLIC_BYTES = 64,
    RECORD_BOUND_BYTES = 48, /* of the public header: under the checksum, and authenticated with the first message */
    RECORD_FIXED_BYTES = 240,
    RECORD_FIXED_BYTES_1 = 160, /* of version 1 */
    RECORD_LAYER_BYTES = 32,
    RECORD_LAYER_BYTES_3 = 56, /* of version 3 */
    RECORD_ENCRYPTED = 1,
    RECORD_MIXES = 128,       /* added to the number of a format: some layers are in f16 */
    RECORD_PAGE = 4096,       /* the KV of a plain record begins at a page: it can be mapped, or read with direct I/O */
    RECORD_REDUCED_BYTES = 8, /* end and parts */
    RECORD_MAX_PRIVATE = RECORD_FIXED_BYTES + RECORD_MAX_LAYERS * RECORD_LAYER_BYTES_3 + KV_SPAN_TOKENS * 4 +
                         RECORD_MAX_LABEL + RECORD_REDUCED_BYTES + KV_REDUCED_MAX_HEADS * 2,
};

/* XXH3, 128 bits: little-endian low half, then high. */
typedef struct record_checksum {
    uint64_t low, high;
} record_checksum;

record_checksum record_checksum_of(const struct iovec *pieces, int n); /* of the concatenated pieces */
static inline bool record_checksum_equal(record_checksum a, record_checksum b) {
    return a.low == b.low && a.high == b.high;
}

/* ---- sizes ---- */

uint8_t record_all_kept(int32_t n_slots); /* a bit for each block of that many slots */
/* The version that a record of this shape has: 2, or 3. */
uint32_t record_version_of(const kv_shape *shape);
static inline size_t record_layer_row_bytes(uint32_t version) {
    return version < 3 ? RECORD_LAYER_BYTES : RECORD_LAYER_BYTES_3;
}
static inline size_t record_fixed_bytes(uint32_t version) {
    return version == 1 ? RECORD_FIXED_BYTES_1 : RECORD_FIXED_BYTES;
}
/* n_heads: of all layers of a reduced span; else 0 */
size_t record_private_bytes(uint32_t version, int32_t n_layers, int32_t n_heads, int32_t n_tokens, size_t label_bytes);
/* Offset of layer 0. */
uint64_t record_kv_at(bool is_encrypted, uint64_t private_bytes);

/* ---- the public header ---- */

typedef struct record_public {
    uint32_t version, flags;
    uint64_t file_bytes;
    uint32_t private_bytes;
    uint8_t cipher_id[RECORD_CIPHER_ID_BYTES];
    record_checksum checksum;
} record_public;

void record_put_public(uint8_t out[RECORD_PUBLIC_BYTES], const record_public *p);
void record_put_checksum(uint8_t out[16], record_checksum sum);
/* The checksum of a header: header[0..kv_at) is the beginning of a file. */
record_checksum record_header_checksum(const uint8_t *header, size_t kv_at);
/* The bytes of the file that this header says it has: not checked. */
uint64_t record_get_file_bytes(const uint8_t in[RECORD_PUBLIC_BYTES]);
/* Checks everything except the checksum, of a file of that many bytes. where: for messages. */
record_fault record_get_public(record_public *out, const uint8_t in[RECORD_PUBLIC_BYTES], uint64_t file_bytes,
                               const char *where, rp_error *err);

/* ---- the private header ---- */

typedef struct record_layer {
    uint64_t begin; /* offset in the file */
    record_checksum checksum;
} record_layer;

/* out[0..record_private_bytes), of record_version_of the shape */
void record_put_private(uint8_t *out, const record_format *format, const record *r, const record_layer *layers);

typedef struct record_head {
    record record;
    record_format format;
    const record_layer *layers;
    void *memory; /* the pointers above point into it */
} record_head;

/* Checks everything that can be checked without the KV. On a fault *out needs no freeing. */
record_fault record_get_private(record_head *out, const uint8_t *in, const record_public *p, const char *where,
                                rp_error *err);
void record_head_free(record_head *h);

/* Fills in an error: "WHERE: the fault's text: the detail". Returns the fault. */
record_fault record_fail(rp_error *err, record_fault fault, const char *where, const char *fmt, ...) BASE_PRINTF(4, 5);

#endif
