/* SPDX-License-Identifier: Apache-2.0 */
/* redis_address.h: the address of a pool on Redis, read strictly.
 *
 *   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]...[/DB][?NAME=VALUE[&NAME=VALUE]...]
 *   rediss://...                                                                     the same over TLS
 *
 *   cluster=auto      one server, or a cluster as soon as an answer redirects (the default); yes: a cluster; no: an
 *                     answer that redirects is an error
 *   sentinel=NAME     the hosts are Sentinels (port 26379), which know the master of that name
 *   prefix=TEXT       before the names of keys: "reprise:"
 *   ttl=SECONDS       time to live of an object; 0: no limit (the default)
 *   password_file=F   the password, instead of one in the address
 *   ca=F              TLS: certificates that are trusted, instead of the system's
 *   cert=F, key=F     TLS: a certificate of this client, and its key
 *
 * Several hosts are seeds of a cluster, Sentinels, or addresses of one server, which are tried in turn. A host that is
 * an IPv6 address is in brackets. User, password and values are percent-decoded. */
#ifndef STORE_REDIS_ADDRESS_H
#define STORE_REDIS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

#define REDIS_SCHEME "redis://"
#define REDIS_TLS_SCHEME "rediss://"
#define REDIS_MAX_HOSTS 16
#define REDIS_HOST_BYTES 256 /* of a name of DNS, and its NUL */
#define REDIS_MAX_PREFIX 64
#define REDIS_MAX_WORD 1024       /* a user, a password, the name of a master, a path */
#define REDIS_MAX_TTL_S 315360000 /* ten years: Redis refuses times that overflow */

typedef struct redis_host {
    char name[REDIS_HOST_BYTES];
    uint16_t port;
} redis_host;

typedef enum redis_cluster_mode { REDIS_CLUSTER_AUTO,
                                  REDIS_CLUSTER_YES,
                                  REDIS_CLUSTER_NO } redis_cluster_mode;

typedef struct redis_address {
    redis_host hosts[REDIS_MAX_HOSTS];
    int n_hosts; /* >= 1 */
    bool is_tls;
    char *user, *password; /* NULL: none */
    uint32_t db;
    redis_cluster_mode cluster;
    char *sentinel; /* name of the master; NULL: the hosts are servers */
    char *prefix;   /* NULL: the default */
    uint32_t ttl_s;
    char *password_file, *ca, *cert, *key; /* NULL: none */
} redis_address;

/* RP_ERR_INVALID, RP_ERR_MEMORY; of the file of the password RP_ERR_IO, RP_ERR_INVALID (others may read it),
 * RP_ERR_LIMIT. No message has any part of the address that may be a password. redis_address_free in any case. */
int redis_address_parse(redis_address *out, const char *address, rp_error *err);
void redis_address_free(redis_address *a); /* zero-initialised is fine */

#endif
