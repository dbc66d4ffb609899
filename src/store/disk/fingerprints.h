/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprints.h: a cache of computed model digests, in a file of the store: DIR/fingerprints.
 *
 *     0   8   magic: 89 'R' 'P' 'F' 0D 0A 1A 0A
 *     8   4   version: 1
 *    12   4   N, entries: 0 to FINGERPRINTS_MOST
 *    16  64N  entries, the newest first: 32 bytes that identify a model's files (device, inode, size, mtime, ctime of
 *             each part, hashed), 32 bytes of their digest (model_fingerprint.c)
 *         32  BLAKE2b of all before; keyed if the store has a key
 *
 * Little-endian. An attacker who can write here could give one model another's digest, and so its KV: a key prevents
 * this; without a key they could as well forge the records themselves. A file that is truncated, altered, of another
 * version or of another key is ignored: the digest is computed again, and the file is rewritten.
 */
#ifndef STORE_FINGERPRINTS_H
#define STORE_FINGERPRINTS_H

#include <stdbool.h>

#include "base/hash.h"
#include "store/record/record_cipher.h"

#define FINGERPRINTS_NAME "fingerprints"
#define FINGERPRINTS_MOST 63 /* the file then fits into a page */

/* The digest of these files; false: it is not cached. */
bool fingerprints_find(const char *dir, const record_cipher *cipher, const base_key *files, base_key *digest);
/* Adds a digest, and removes the oldest beyond FINGERPRINTS_MOST. Only for the process that holds the store's lock.
 * RP_ERR_IO. */
int fingerprints_keep(const char *dir, const record_cipher *cipher, const base_key *files, const base_key *digest,
                      rp_error *err);

#endif
