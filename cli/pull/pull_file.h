/* SPDX-License-Identifier: Apache-2.0 */
/* pull_file.h: the download of one file into FILE.part, which is resumed after failures and in later runs.
 *
 *   FILE.part        the bytes so far, a prefix of the file at the server
 *   FILE.part.json   what they are of: {"url", "validator", "length"}; written before the first byte
 *
 *   no part, or of another URL ------------------------------> GET
 *   a part of n bytes of this URL with a validator ----------> GET, Range: bytes=n-, If-Range: validator
 *        206 of the same length: appended.  200 (changed, or no ranges): from the start.
 *
 * The validator is the server's ETag, if it is a strong one, or else Last-Modified. Without either a part cannot be
 * told from a part of another version, and the download starts again. A lock on the part keeps two processes apart.
 * Others may be able to make names in the folder. A part is therefore opened only if it is a regular file of this user
 * under one name: links, symbolic and hard, pipes and devices are refused, and no file is written through a name that
 * was there before.
 *
 * Size: that of Content-Length; of a model also that of its GGUF header, which is read as soon as it is there. A server
 * that sends more is stopped. One thread.
 */
#ifndef CLI_PULL_FILE_H
#define CLI_PULL_FILE_H

#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/console.h"
#include "common/http_client.h"

#define PULL_UNKNOWN UINT64_MAX
#define PULL_UNSIZED_BYTES ((uint64_t)1 << 30) /* without a Content-Length, until a GGUF header gives the size */

typedef struct pull_settings {
    const char *key;        /* sent as "Authorization: Bearer KEY" to the URL's own host; NULL: none */
    const char *ca_file;    /* NULL: the system's certificates */
    int32_t retries;        /* failures in a row, without a new byte between them */
    float retry_delay;      /* seconds before the first retry; doubled for each further one, up to a minute */
    uint64_t max_bytes;     /* of a file; 0: PULL_UNSIZED_BYTES, for a file whose size nothing gives */
    bool is_model;          /* a file ends where its GGUF header ends it */
    const char *key_advice; /* after HTTP status 401 or 403; NULL: --key-file */
} pull_settings;

typedef struct pull_file {
    const pull_settings *settings;
    const char *url, *label; /* label: before the progress bar */
    char *part, *info;       /* FILE.part, FILE.part.json */
    int fd;
    uint64_t bytes, length;        /* of the part; of the file, or PULL_UNKNOWN */
    uint64_t size;                 /* of the file, as who published it says; 0: unknown. Set after pull_file_open */
    uint64_t model_bytes;          /* the most that the GGUF header allows, or PULL_UNKNOWN */
    uint64_t measure_at;           /* bytes at which the header is looked for again */
    char validator[256];           /* "": none */
    crypto_hash_sha256_state hash; /* of the part's bytes */
    cli_progress progress;
    uint64_t best; /* the most bytes that the part had in this run */
    bool is_ours;  /* the part is locked by this process */
} pull_file;

/* Opens and locks the part of `path`, and reads what an earlier run left. Returns an exit status. Close in any case. */
int pull_file_open(pull_file *f, const pull_settings *settings, const char *url, const char *path, const char *label);
/* Downloads what is missing. Returns an exit status; on failure or Ctrl-C the part stays for the next run. */
int pull_file_run(pull_file *f);
/* Is a complete part longer than its GGUF header allows? Then it is deleted, and an error printed. Returns an exit
   status. */
int pull_file_check_size(pull_file *f);
/* SHA-256 of the complete part as hexadecimal digits. Call once. */
void pull_file_digest(pull_file *f, char hex[65]);
/* Deletes the part: the next run starts from the beginning. */
void pull_file_discard(pull_file *f);
/* Flushes the part to the device and renames it to `path`, which must not exist, not even as a link. Returns an exit
   status. */
int pull_file_publish(pull_file *f, const char *path);
void pull_file_close(pull_file *f);

/* GET of a small text (at most `max` bytes). *text: its bytes, NUL-terminated, freed by the caller; NULL on an error,
 * with its description, not printed, in `why`. Returns the HTTP status, or 0. */
#define PULL_FAULT_BYTES (CURL_ERROR_SIZE + 64)
long pull_text(const pull_settings *settings, const char *url, size_t max, char **text, char why[PULL_FAULT_BYTES]);

#endif
