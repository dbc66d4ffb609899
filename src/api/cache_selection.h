/* SPDX-License-Identifier: Apache-2.0 */
/* cache_selection.h: which entries of a cache are meant: of a folder (cache.c) or of an engine that runs (live_cache.c). */
#ifndef ENGINE_CACHE_SELECTION_H
#define ENGINE_CACHE_SELECTION_H

#include "reprise.h"

#include "store/store_admin.h"

#define CACHE_KEY_DIGITS 64

store_admin *cache_admin(rp_cache *c); /* borrowed */

/* Does it say something, in digits that keys have? RP_ERR_INVALID. */
int cache_selection_check(const rp_cache_selection *s, rp_error *err);
/* Is an entry meant? Of its key and model only those are looked at that the selection names. */
bool cache_selection_means(const rp_cache_selection *s, const rp_cache_entry *e);
/* Does it name something that ought to be there? */
bool cache_selection_is_named(const rp_cache_selection *s);

#endif
