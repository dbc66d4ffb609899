/* SPDX-License-Identifier: Apache-2.0 */
/* pool_http_address.h: the address of a pool over HTTP: where its objects are, and with what credentials.
 *
 *   https://[USER:PASSWORD@]HOST[:PORT]/PATH/[?OPTION=VALUE&...]     http://: the same without TLS
 *   s3://BUCKET[/PREFIX][?OPTION=VALUE&...]
 *
 * Options of both:
 *   ca=FILE                certificates (PEM) to trust instead of the system's
 * Of https:// and http://:
 *   bearer_file=FILE       a token: "Authorization: Bearer TOKEN"
 * Of s3://, with the variables of the environment that are read without the option:
 *   endpoint=URL           http[s]://HOST[:PORT], without a path; AWS_ENDPOINT_URL; https://s3.REGION.amazonaws.com
 *   region=REGION          AWS_REGION; us-east-1
 *   style=path|virtual     where the bucket is: https://HOST/BUCKET/PREFIX or https://BUCKET.HOST/PREFIX; virtual for
 *                          hosts of amazonaws.com, path for others
 *   credentials_file=FILE  access key and secret key in two lines, or the section [default] of a file of the AWS tools;
 *                          AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *
 * Values are percent-decoded. Files of secrets must not be readable by others (base_file_read_secret), and are
 * read at opening.
 */
#ifndef STORE_POOL_HTTP_ADDRESS_H
#define STORE_POOL_HTTP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "reprise.h"

#define POOL_HTTP_URL_BYTES 1024
#define POOL_HTTP_FILE_BYTES 1024
#define POOL_HTTP_USER_BYTES 256
#define POOL_HTTP_TOKEN_BYTES 4096
#define POOL_HTTP_REGION_BYTES 64

typedef struct pool_http_address {
    char base[POOL_HTTP_URL_BYTES];                                  /* "https://host/path": of the folder */
    char ca[POOL_HTTP_FILE_BYTES];                                   /* "": the system's certificates */
    char user[POOL_HTTP_USER_BYTES], password[POOL_HTTP_USER_BYTES]; /* S3: access key, secret key; "": none */
    char token[POOL_HTTP_TOKEN_BYTES];                               /* bearer; S3: of the session; "": none */
    char region[POOL_HTTP_REGION_BYTES];                             /* S3 */
    bool is_tls, is_s3;
} pool_http_address;

/* Reads an address of https:// or http://. RP_ERR_INVALID (the message has the syntax), RP_ERR_IO and
 * RP_ERR_LIMIT (a file that it names), RP_ERR_MEMORY. */
int pool_http_address_read(pool_http_address *out, const char *address, rp_error *err);
/* Reads an address of s3://. The same errors. */
int pool_s3_address_read(pool_http_address *out, const char *address, rp_error *err);
/* Overwrites the secrets. */
void pool_http_address_wipe(pool_http_address *a);

/* ---- for both ---- */

typedef struct pool_http_option {
    const char *name;
    char *value; /* [n]; "" is kept if the address does not have the option */
    size_t n;
} pool_http_option;

/* Reads "OPTION=VALUE&..." address: for messages. RP_ERR_INVALID: an option that is unknown, has no value
 * or one that is too long, or is given twice. */
int pool_http_options_read(const char *query, const pool_http_option *options, int n_options, const char *address,
                           rp_error *err);
/* RP_ERR_INVALID: "'ADDRESS' is not the address of a pool: WHAT: use ..."; the address without its password. */
int pool_http_address_wrong(const char *address, const char *what, rp_error *err);
/* Checks a URL and writes it without user and password, and without '/' at its end, into out->base; user and password
 * into those of out, decoded. url: without a query. */
int pool_http_url_read(pool_http_address *out, const char *url, const char *address, rp_error *err);
/* Checks that a file of certificates can be read. */
int pool_http_ca_check(const pool_http_address *a, const char *address, rp_error *err);
/* May a secret be sent in a header: no space, no control character, not empty? */
bool pool_http_is_plain(const char *secret);

#endif
