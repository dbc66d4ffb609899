/* SPDX-License-Identifier: Apache-2.0 */
/* record_cipher.h: encryption of records at rest, by libsodium's secretstream (XChaCha20, Poly1305).
 *
 *   stream   start (24 bytes, random) | message | message | ...        a message: its bytes and 17 more
 *
 * A message that was altered, left out, repeated or put elsewhere does not open, and neither does any behind it. How many there are is
 * the record's matter. A cipher is immutable and may be used by any thread; a stream has one user.
 */
#ifndef STORE_RECORD_CIPHER_H
#define STORE_RECORD_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "reprise.h"

#define RECORD_CIPHER_KEY_BYTES 32
#define RECORD_CIPHER_ID_BYTES 16
#define RECORD_STREAM_START_BYTES 24
#define RECORD_MESSAGE_EXTRA 17

typedef struct record_cipher record_cipher;

/* Reads a key: from a file of 32 bytes or 64 hexadecimal digits (and white space behind them); if path is NULL, from REPRISE_STORE_KEY
 * in the environment, 64 digits. *out is NULL, without an error, if path is NULL and that is not set: records are not encrypted.
 * RP_ERR_IO, RP_ERR_INVALID (not a key), RP_ERR_LIMIT (a file far too large for one), RP_ERR_MEMORY, RP_ERR_INTERNAL (libsodium does not
 * start). */
int record_cipher_open(record_cipher **out, const char *path, rp_error *err);
void record_cipher_close(record_cipher *c); /* wipes the key; NULL is fine */
/* Tells keys apart and tells nothing about them. */
const uint8_t *record_cipher_id(const record_cipher *c);

/* A hash of n bytes that only who has the key can make; c NULL: that everybody can, and that finds damage alone. domain separates uses. */
void record_cipher_mac(const record_cipher *c, const char *domain, const void *bytes, size_t n, base_key *out);

typedef struct record_stream {
    _Alignas(16) unsigned char state[64]; /* crypto_secretstream_xchacha20poly1305_state; checked by a static assertion */
} record_stream;

/* Begins a stream of one's own: start[0..24) is written in front of the messages. */
void record_stream_begin(record_stream *s, const record_cipher *c, uint8_t *start);
/* Begins to read one. */
void record_stream_resume(record_stream *s, const record_cipher *c, const uint8_t *start);
/* out[0..n + 17): the next message. bound[0..n_bound): bytes beside it that must be the same when it is opened. */
void record_stream_seal(record_stream *s, const void *bytes, size_t n, const void *bound, size_t n_bound, uint8_t *out);
/* out[0..n) of a message of n + 17 bytes; false: it is not the next message of this stream, or another cipher's. */
bool record_stream_open(record_stream *s, const uint8_t *message, size_t n, const void *bound, size_t n_bound, void *out);
void record_stream_wipe(record_stream *s);

#endif
