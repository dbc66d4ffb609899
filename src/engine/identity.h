/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h: what names an engine's KV: all that its bytes depend on besides scope and tokens.
 *
 *   fingerprint   model, KV format, long-rope, arithmetic          a record's, and the index's
 *   salt          the fingerprint, and a tenant                    part of every key
 *
 * With a store the model is named by every byte of its files (model_fingerprint). Without one, keys are used by this process alone, for one
 * opened model, and its header names it; where the fingerprint is known already, that names it, so that keys are those of stores.
 */
#ifndef ENGINE_IDENTITY_H
#define ENGINE_IDENTITY_H

#include "engine/engine_internal.h"
#include "kernels/kernels.h"

/* What the store is to remember once it is open. */
typedef struct identity_note {
    bool is_new;
    base_key files, digest;
} identity_note;

/* Fills in e->states and e->salt by what is known of the model now. Needs backend and n_ctx. */
void identity_make(rp_engine *e, kernel_arithmetic arithmetic);
/* Has the model's fingerprint computed, or found in the store's folder, and fills in both again. Needs the cipher; no key was made before.
 * RP_ERR_IO, RP_ERR_MEMORY. */
int identity_find(rp_engine *e, const rp_engine_options *o, identity_note *note, rp_error *err);
/* Writes down what was computed, in the folder of a store that is open for writing. What fails is a line in the log. */
void identity_keep(const rp_engine *e, const rp_engine_options *o, const identity_note *note);
/* Records of these fingerprints hold this model's KV, computed with another arithmetic. out[KERNEL_ARITHMETIC_END]; returns how many. */
size_t identity_others(const rp_engine *e, base_key *out);
/* Is the engine's KV named by every byte of its model? */
bool identity_is_whole(const rp_engine *e);

#endif
