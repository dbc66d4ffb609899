/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent_model.h: models with recurrent layers. recurrent_model_make makes every second layer of an opened model
 * recurrent: state = decay * state + q(x), output
 * o(state), the simplest layer of the kind KV_STATE. A state depends on each token before it, so a wrong checkpoint, or
 * a step from the wrong token, changes all later logits.
 */
#ifndef SUPPORT_RECURRENT_MODEL_H
#define SUPPORT_RECURRENT_MODEL_H

#include "reprise.h"

/* Layers 1, 3, ... of a model of the architecture llama, with as many key as value dimensions. Before the first
   engine. */
void recurrent_model_make(rp_model *m);
/* A golden model, or NULL: a made-up llama of four layers, with decayed sums. rp_model_close. */
rp_model *recurrent_model_open(const char *golden_name);

#endif
