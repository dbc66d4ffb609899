/* SPDX-License-Identifier: Apache-2.0 */
/* cache_world.h: small stores written by an engine, for tests of rp_store_*. A failing setup ends the program. */
#ifndef SUPPORT_CACHE_WORLD_H
#define SUPPORT_CACHE_WORLD_H

#include "oracle_run.h"
#include "store_folder.h"
#include "reprise_store.h"

/* The prompts: the first two import modules of the schema "cities", "plan/miami" and "plan/lisbon"; the third is plain
 * text. */
#define CACHE_WORLD_REQUESTS 3

typedef struct cache_world {
    rp_model *model;
    bool is_tiny;
    oracle_run cold[CACHE_WORLD_REQUESTS]; /* without a store */
} cache_world;

/* is_tiny: a random model, fast enough for thousands of runs; else the bundled one. */
void cache_world_open(cache_world *w, bool is_tiny);
void cache_world_close(cache_world *w);

/* key_file NULL: not encrypted. Returns NULL if it cannot be opened. */
rp_engine *cache_world_engine(const cache_world *w, const char *dir, const char *key_file, rp_error *err);
/* Sends all requests to an engine. Returns whether all answers have the bytes of a cold run. *cached: reused tokens;
 * from_disk: those of them in plan lines of the disk tier. Each may be NULL. */
bool cache_world_ask(const cache_world *w, rp_engine *e, int32_t *cached, int32_t *from_disk);
/* A store in dir with the KV of all requests. */
void cache_world_fill(const cache_world *w, const char *dir, const char *key_file);

/* Exports the schema's modules of a filled store as a bundle; its path, dir with a suffix, into
 * out[STORE_FOLDER_BYTES + 16]. */
void cache_world_bundle(const char *dir, char *out);

/* A listing; a failure ends the program. */
rp_store *cache_world_cache(const char *dir, const char *key_file, bool read_only);
rp_store_listing *cache_world_list(rp_store *c);
/* Are two listings equal except for use counts and times? */
bool cache_world_same(const rp_store_listing *a, const rp_store_listing *b);
/* The path of a record into out[STORE_FOLDER_BYTES + 80]. */
void cache_world_path(const char *dir, const rp_store_entry *e, char *out);

#endif
