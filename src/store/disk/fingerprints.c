/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprints.c: see fingerprints.h. Owns the file's format. One user of a folder at a time. */
#include "store/disk/fingerprints.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "store/disk/disk_folder.h"

#define HEAD_BYTES 16
#define ENTRY_BYTES (2 * BASE_KEY_BYTES)
#define MOST_BYTES (HEAD_BYTES + FINGERPRINTS_MOST * ENTRY_BYTES + BASE_KEY_BYTES)
#define DOMAIN "reprise fingerprints 1"

static const uint8_t head[12] = {0x89, 'R', 'P', 'F', 0x0d, 0x0a, 0x1a, 0x0a, 1, 0, 0, 0};

/* Reads and checks the file: entries from HEAD_BYTES on. Returns their number; 0: no file, or an invalid one. */
static size_t read_entries(const char *dir, const record_cipher *cipher, uint8_t out[MOST_BYTES]) {
    char path[DISK_PATH_BYTES];
    base_buffer b;
    base_key mac;
    snprintf(path, sizeof(path), "%s/" FINGERPRINTS_NAME, dir);
    if (base_file_read(path, MOST_BYTES, &b, NULL)) return 0;
    size_t n = b.len;
    bool fits = n >= HEAD_BYTES + BASE_KEY_BYTES && (n - HEAD_BYTES - BASE_KEY_BYTES) % ENTRY_BYTES == 0;
    if (fits) memcpy(out, b.data, n);
    base_buffer_free(&b);
    size_t entries = fits ? (n - HEAD_BYTES - BASE_KEY_BYTES) / ENTRY_BYTES : 0;
    if (fits) record_cipher_mac(cipher, DOMAIN, out, n - BASE_KEY_BYTES, &mac);
    fits = fits && memcmp(out, head, sizeof(head)) == 0 && out[12] == entries && !(out[13] | out[14] | out[15]) &&
           memcmp(out + n - BASE_KEY_BYTES, mac.bytes, BASE_KEY_BYTES) == 0;
    if (!fits) base_log(BASE_LOG_WARN, "store: %s is not trusted: computing model fingerprints again", path);
    return fits ? entries : 0;
}

static uint8_t *entry_at(uint8_t *bytes, size_t i) {
    BASE_ASSERT(i < FINGERPRINTS_MOST);
    return bytes + HEAD_BYTES + i * ENTRY_BYTES;
}

bool fingerprints_find(const char *dir, const record_cipher *cipher, const base_key *files, base_key *digest) {
    uint8_t bytes[MOST_BYTES];
    size_t n = read_entries(dir, cipher, bytes);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *entry = entry_at(bytes, i);
        if (memcmp(entry, files->bytes, BASE_KEY_BYTES) != 0) continue;
        memcpy(digest->bytes, entry + BASE_KEY_BYTES, BASE_KEY_BYTES);
        return true;
    }
    return false;
}

int fingerprints_keep(const char *dir, const record_cipher *cipher, const base_key *files, const base_key *digest,
                      rp_error *err) {
    uint8_t bytes[MOST_BYTES], *first = entry_at(bytes, 0);
    char path[DISK_PATH_BYTES];
    base_key mac;
    size_t n = read_entries(dir, cipher, bytes), most = FINGERPRINTS_MOST - 1;
    n = n < most ? n : most;
    memmove(entry_at(bytes, 1), first, n * ENTRY_BYTES);
    memcpy(bytes, head, sizeof(head));
    memset(bytes + sizeof(head), 0, HEAD_BYTES - sizeof(head));
    bytes[12] = (uint8_t)++n;
    memcpy(first, files->bytes, BASE_KEY_BYTES);
    memcpy(first + BASE_KEY_BYTES, digest->bytes, BASE_KEY_BYTES);
    size_t end = HEAD_BYTES + n * ENTRY_BYTES;
    BASE_ASSERT(n <= FINGERPRINTS_MOST && end + BASE_KEY_BYTES <= sizeof(bytes));
    record_cipher_mac(cipher, DOMAIN, bytes, end, &mac);
    memcpy(bytes + end, mac.bytes, BASE_KEY_BYTES);
    snprintf(path, sizeof(path), "%s/" FINGERPRINTS_NAME, dir);
    return base_io_write_whole(path, bytes, end + BASE_KEY_BYTES, err);
}
