/* SPDX-License-Identifier: Apache-2.0 */
/* redis_nodes.h: the servers of a pool on Redis as one link sees them, each with a connection: one server, the master
 * that Sentinels know, or the masters of a cluster.
 *
 *   key -> {name} -> CRC16 mod 16384 -> slot -> node -> connection
 *
 * Outside a cluster there is one node for all slots, and its address is found when it is connected. In a cluster the
 * map of slots comes from CLUSTER SLOTS and from redirections (MOVED); it is read again when it is stale: after a
 * redirection, and after a node failed. All of it is a hint: a node that does not have a slot says who has.
 *
 * One thread at a time. */
#ifndef STORE_REDIS_NODES_H
#define STORE_REDIS_NODES_H

#include "store/remote/redis_connection.h"

#define REDIS_SLOTS 16384
#define REDIS_MAX_NODES 1024

typedef struct redis_node {
    redis_host host;              /* in a cluster */
    redis_connection *connection; /* NULL: none */
    bool is_mapped;               /* a slot is its */
} redis_node;

typedef struct redis_nodes {
    const redis_address *address; /* borrowed */
    const redis_tls *tls;         /* borrowed; NULL: none */
    bool is_cluster, is_stale;
    int first;          /* of the hosts: the last one that answered */
    redis_node **nodes; /* of a cluster; else one */
    size_t n_nodes, cap;
    uint16_t slots[REDIS_SLOTS]; /* index of the node, and 1; 0: unknown */
} redis_nodes;

/* RP_ERR_MEMORY. Nothing is sent. */
int redis_nodes_open(redis_nodes *out, const redis_address *address, const redis_tls *tls, rp_error *err);
void redis_nodes_close(redis_nodes *r); /* zero-initialised is fine */

uint16_t redis_slot(const char *text, size_t n); /* of a key's part in braces */

/* The node of a slot. */
redis_node *redis_nodes_of(redis_nodes *r, uint16_t slot);
/* Connects it if it is not connected. RP_ERR_IO, RP_ERR_MEMORY. */
int redis_node_connect(redis_nodes *r, redis_node *node, uint64_t deadline_us, rp_error *err);
/* Its connection failed, or has replies that are not awaited. Keeps errno. */
void redis_node_disconnect(redis_node *node);

/* Reads the map of a cluster if it is stale; does nothing otherwise. RP_ERR_IO, RP_ERR_MEMORY. */
int redis_nodes_refresh(redis_nodes *r, uint64_t deadline_us, rp_error *err);

typedef enum redis_redirection { REDIS_NO_REDIRECTION, /* an error of another kind */
                                 REDIS_MOVED,          /* the node has the slot from now on; the map knows it */
                                 REDIS_ASK } redis_redirection;

/* Reads an error as a redirection, from which *out is the node. RP_ERR_MEMORY; RP_ERR_IO: EPROTO. */
int redis_nodes_redirect(redis_nodes *r, const redis_connection *from, const char *text, redis_redirection *what,
                         redis_node **out, rp_error *err);

#endif
