/* SPDX-License-Identifier: Apache-2.0 */
/* pool_names.h: what the objects of a pool are called, and with which key each is encrypted. All of it follows from the
 * cluster's secret: who lacks it can neither compute a name nor read an object, and sees sizes and times alone.
 *
 *   record     name: BLAKE2b-256(secret; "reprise pool record 1", version of records, key of the span)
 *              content: a record (record/record.h), encrypted
 *   pointer    name: BLAKE2b-256(secret; "reprise pool text 1", version of records, name of a text)
 *              content: the key of the span that has the last tokens of this text, encrypted: a text is found by its
 *              tokens (index/span_names.h), wherever its spans begin
 *   cipher     key: BLAKE2b-256(secret; "reprise pool tenant 1", salt of the tenant)
 *
 * A span's key covers model, arithmetic and format, so that the names of two arithmetic levels differ.
 *
 *   pointer    start of a stream (24 bytes) | one message: the key, authenticated with the object's name (49 bytes)
 *
 * Functions without a state; any thread.
 */
#ifndef STORE_POOL_NAMES_H
#define STORE_POOL_NAMES_H

#include "base/hash.h"
#include "reprise_cluster.h"
#include "store/record/record_cipher.h"
#include "store/remote/pool_driver.h"

#define POOL_POINTER_BYTES (RECORD_STREAM_START_BYTES + BASE_KEY_BYTES + RECORD_MESSAGE_EXTRA)

void pool_record_name(const base_key *secret, const base_key *span, char out[POOL_NAME_CHARS + 1]);
void pool_text_name(const base_key *secret, const rp_name *text, char out[POOL_NAME_CHARS + 1]);
/* The cipher of a tenant's objects; record_cipher_close. RP_ERR_MEMORY, RP_ERR_INTERNAL. */
int pool_cipher(record_cipher **out, const base_key *secret, const base_key *salt, rp_error *err);

/* name: of the pointer's object. */
void pool_pointer_seal(uint8_t out[POOL_POINTER_BYTES], const record_cipher *cipher, const char *name,
                       const base_key *span);
/* false: it is not the pointer of that name, written with this cipher. */
bool pool_pointer_open(base_key *span, const record_cipher *cipher, const char *name, const uint8_t *bytes, size_t n);

#endif
