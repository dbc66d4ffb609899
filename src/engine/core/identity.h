/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h: the identity of an engine's KV: everything that its bytes depend on besides scope and tokens.
 *
 *   fingerprint   model, KV format, long-rope, arithmetic, and     in each record, and in the index
 *                 the layers in f16, if there are any; of a
 *                 device, its name, driver, and version of kernels
 *   salt          the fingerprint and a tenant                     part of every key
 *   adapter       a hash of its file, and its scale                part of the keys of KV that is computed with it: in
 *         the salt of
 *                                                                  modules (fallback.c), in the root of text
 *                                                                  (adapters.c)
 *
 * With a store, the model is identified by a hash of all bytes of its files (model_fingerprint). Without one, keys are
 * used by this process only, for one opened model, and a hash of its header is enough; if the fingerprint is already
 * known, it is used, and the keys are the same as with a store.
 */
#ifndef ENGINE_IDENTITY_H
#define ENGINE_IDENTITY_H

#include <stdatomic.h>

#include "engine/core/engine_state.h"
#include "kernels/kernels.h"
#include "pml/layout.h"

/* What the store remembers once it is open. */
typedef struct identity_note {
    bool is_new;
    base_key files, digest;
} identity_note;

/* Fills in e->states and e->salt from the parts of the model that are known so far. Needs backend and n_ctx.
 * arithmetic: of the CPU's kernels; a backend with one of its own (backend_ops.arithmetic) replaces it. */
void identity_make(rp_engine *e, kernel_arithmetic arithmetic);
/* The same from another engine's identity (rp_engine_identity), for plans alone. */
void identity_take(rp_engine *e, const base_key *identity);
/* Computes the model's fingerprint, or takes it from the store's folder, if there is one, and fills in both again.
 * Needs the cipher; must precede the first key. RP_ERR_IO, RP_ERR_MEMORY. */
int identity_find(rp_engine *e, const rp_engine_options *o, identity_note *note, rp_error *err);
/* Writes a computed fingerprint to the folder of a store that is open for writing. Failures are logged. */
void identity_keep(const rp_engine *e, const rp_engine_options *o, const identity_note *note);
/* The fingerprints of records with this model's KV, computed with another arithmetic of the CPU (those of devices are
 * not known). out[KERNEL_ARITHMETIC_END];
 * returns their number. */
size_t identity_others(const rp_engine *e, base_key *out);
/* Is the engine's KV identified by all bytes of its model? */
bool identity_is_whole(const rp_engine *e);

/* The salt of a tenant's KV; tenant NULL or "": that of shared KV. RP_ERR_LIMIT. Any thread. */
int engine_salt(const rp_engine *e, const char *tenant, base_key *out, rp_error *err);
/* KV format of the text of requests that are planned now. Any thread. */
static inline rp_kv_format engine_text_format(const rp_engine *e) {
    return atomic_load(&e->falls_back) ? RP_KV_F16 : e->formats->text;
}

#endif
