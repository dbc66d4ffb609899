/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprints.h: digests of models that were computed before, in a file of the store: DIR/fingerprints.
 *
 *     0   8   magic: 89 'R' 'P' 'F' 0D 0A 1A 0A
 *     8   4   version: 1
 *    12   4   N, entries: 0 to FINGERPRINTS_MOST
 *    16  64N  entries, the newest first: 32 bytes that name a model's files as they were (device, inode, size, mtime, ctime of each
 *             part, hashed), 32 bytes of their digest (model_fingerprint.c)
 *         32  BLAKE2b of all before; with a store's key only who has it can make this hash
 *
 * Little-endian. Whoever can write here could give one model another's digest, and so its KV: with a key that is impossible, and without one
 * they could as well forge the records themselves. A file that is cut, altered, of another version or of another key is none: the digest is
 * computed again, and the file is written anew.
 */
#ifndef STORE_FINGERPRINTS_H
#define STORE_FINGERPRINTS_H

#include <stdbool.h>

#include "base/hash.h"
#include "store/record_cipher.h"

#define FINGERPRINTS_NAME "fingerprints"
#define FINGERPRINTS_MOST 63 /* with them the file fits a page */

/* The digest of files that are named so; false: it is not known. */
bool fingerprints_find(const char *dir, const record_cipher *cipher, const base_key *files, base_key *digest);
/* Remembers it, and forgets the oldest beyond FINGERPRINTS_MOST. By the process that has the store locked. RP_ERR_IO. */
int fingerprints_keep(const char *dir, const record_cipher *cipher, const base_key *files, const base_key *digest, rp_error *err);

#endif
