/* SPDX-License-Identifier: Apache-2.0 */
/* store.h: an rp_store (reprise_store.h): a folder without an engine (folder.c), or the store of a running engine
 * (live.c). store.c has the public functions, checks their arguments and calls one of the two.
 */
#ifndef API_STORE_H
#define API_STORE_H

#include "reprise_store.h"

#include "store/disk/store_admin.h"

#define STORE_KEY_DIGITS 64

struct rp_store {
    store_admin *admin; /* owned; NULL: attached to an engine */
    rp_engine *engine;  /* borrowed; NULL: a folder */
};

/* ---- selection.c ---- */

/* An entry as the public header describes it; its label is borrowed from the item. digits: with key and model, which
 * take time. */
rp_store_entry store_item_describe(const store_item *item, bool digits);
/* Is it KV of a module, reduced KV, or states after one? It may be pinned then. */
bool store_entry_is_of_module(const rp_store_entry *e);
/* After a change of `pinned` or `expires`: makes `expired` what a new listing would have. */
void store_entry_update_expired(rp_store_entry *e);
/* RP_ERR_INVALID: no field is set, or a key or a model is malformed. */
int store_selection_check(const rp_store_selection *s, rp_error *err);
/* Whether an entry is selected. e needs its key and its model only if the selection has one. */
bool store_selection_matches(const rp_store_selection *s, const rp_store_entry *e);
/* Whether the selection has a name, a key or a model: then it is an error if no entry matches. */
bool store_selection_is_named(const rp_store_selection *s);
/* RP_ERR_INVALID: the selection has texts only, which cannot be pinned. */
int store_fail_pin_texts(rp_error *err);

int store_page_check(const rp_store_page *p, bool is_live, rp_error *err);
/* Whether a key comes after p->after, or there is none. */
bool store_page_follows(const rp_store_page *p, const base_key *key);

/* An empty listing, or NULL: RP_ERR_MEMORY. rp_store_listing_free. */
rp_store_listing *store_listing_new(rp_error *err);
/* Swaps entry `from` with entry `to` <= from. */
void store_listing_keep(rp_store_listing *l, size_t from, size_t to);
/* Frees the entries from the n-th on. */
void store_listing_cut(rp_store_listing *l, size_t n);

/* ---- folder.c and live.c ---- */

/* As the public functions: arguments are checked; `changed` and `removed` may be NULL. */
int folder_list(rp_store *s, const rp_store_selection *selection, const rp_store_page *page, rp_store_listing **out,
                rp_error *err);
int folder_pin(rp_store *s, const rp_store_selection *selection, bool pinned, rp_store_listing **changed,
               rp_error *err);
int folder_set_ttl(rp_store *s, const rp_store_selection *selection, int64_t ttl_s, rp_store_listing **changed,
                   rp_error *err);
int folder_remove(rp_store *s, const rp_store_selection *selection, rp_store_listing **removed, rp_error *err);

int live_list(rp_engine *e, const rp_store_selection *selection, const rp_store_page *page, rp_store_listing **out,
              rp_error *err);
int live_pin(rp_engine *e, const rp_store_selection *selection, bool pinned, rp_store_listing **changed, rp_error *err);
int live_set_ttl(rp_engine *e, const rp_store_selection *selection, int64_t ttl_s, rp_store_listing **changed,
                 rp_error *err);
int live_remove(rp_engine *e, const rp_store_selection *selection, rp_store_listing **removed, rp_error *err);

/* RP_ERR_CONFLICT: s is attached to an engine. `what` names the function. */
int store_check_folder(const rp_store *s, const char *what, rp_error *err);
#endif
