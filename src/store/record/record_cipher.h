/* SPDX-License-Identifier: Apache-2.0 */
/* record_cipher.h: encryption of records at rest, by libsodium's secretstream (XChaCha20, Poly1305).
 *
 *   stream   start (24 bytes, random) | message | message | ...        a message: its bytes and 17 more
 *
 * A message that was altered, omitted, repeated or moved is rejected, and so are all messages after it. The number of
 * messages is the record's concern. A cipher is immutable and thread-safe; a stream has one user.
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

/* Reads a key: from a file of 32 bytes or 64 hexadecimal digits (and trailing white space); if path is NULL, from
 * REPRISE_STORE_KEY in the environment, 64 digits. *out is NULL, without an error, if path is NULL and the variable
 * is not set: records are not encrypted. RP_ERR_IO, RP_ERR_INVALID (not a key), RP_ERR_LIMIT (a file that is far too
 * large), RP_ERR_MEMORY, RP_ERR_INTERNAL (libsodium cannot be initialised). */
int record_cipher_open(record_cipher **out, const char *path, rp_error *err);
/* The cipher of a key that was derived from another one. RP_ERR_MEMORY, RP_ERR_INTERNAL. */
int record_cipher_of(record_cipher **out, const base_key *key, rp_error *err);
void record_cipher_close(record_cipher *c); /* wipes the key; NULL is fine */
/* Identifies the key and reveals nothing about it. */
const uint8_t *record_cipher_id(const record_cipher *c);

/* A keyed hash of n bytes; c NULL: an unkeyed one, which detects damage only. domain separates uses. */
void record_cipher_mac(const record_cipher *c, const char *domain, const void *bytes, size_t n, base_key *out);

typedef struct record_stream {
    _Alignas(16) unsigned char state[64]; /* crypto_secretstream_xchacha20poly1305_state (static assertion) */
} record_stream;

/* Starts a new stream to write: start[0..24) is written before the messages. */
void record_stream_begin(record_stream *s, const record_cipher *c, uint8_t *start);
/* Starts to read a stream. */
void record_stream_resume(record_stream *s, const record_cipher *c, const uint8_t *start);
/* out[0..n + 17): the next message. bound[0..n_bound): associated data, which must be the same when it is opened. */
void record_stream_seal(record_stream *s, const void *bytes, size_t n, const void *bound, size_t n_bound, uint8_t *out);
/* out[0..n) of a message of n + 17 bytes; false: it is not the next message of this stream, or of another key. */
bool record_stream_open(record_stream *s, const uint8_t *message, size_t n, const void *bound, size_t n_bound,
                        void *out);
void record_stream_wipe(record_stream *s);

#endif
