/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent_states.h: the layout of the states of recurrent layers, and what backends do with them on the host.
 *
 *   states   [layer 0: state_bytes][layer 3: state_bytes] ...      of one sequence, layers of other kinds have none;
 *         each begins at a cache line
 *   a state  [kernel - 1][channels] inputs of the convolution, [n_heads][state_dim][head_dim] matrices; of Mamba2
 *         [n_heads] products of the decays since the states began a module; f32 (model_state_bytes)
 */
#ifndef BACKEND_RECURRENT_STATES_H
#define BACKEND_RECURRENT_STATES_H

#include <stddef.h>

#include "backend/backend.h"
#include "kv/kv_plan.h"

#define RECURRENT_STATE_ALIGNMENT 64
/* Of the norms of keys and queries of delta nets: no metadata have it. */
#define RECURRENT_QK_EPSILON 1e-6

/* Where the state of a layer of a span begins: bytes; of the layer after the last: bytes of all. */
size_t recurrent_state_at(const kv_shape *shape, int32_t layer);

/* Where a state's matrices begin, and its products of decays: numbers of floats. */
size_t recurrent_matrices_at(const model_network *net);
size_t recurrent_matrix_floats(const model_network *net); /* of one head */
size_t recurrent_decays_at(const model_network *net);

/* A layer's state begins a module: its products of decays are 1 (backend_recurrence.states_begin). For networks with
   states that compose. */
void recurrent_state_begin(const model_network *net, float *state);
/* One layer: now = end + decays (now - begin); begin NULL: zeros. The products of both stretches are multiplied. */
void recurrent_state_compose(const model_network *net, float *now, const float *end, const float *begin);

/* The columns of what a layer's scan reads; 0: no such input. */
void recurrent_input_widths(const model_hparams *hp, const model_layer *l, int64_t widths[MODEL_MAX_SCANNED]);

/* What tentative rows need (model_step.tentative): buffers of the backend, or NULL. */
typedef struct recurrent_kept {
    /* [n_layers]: what the rows' scans read, [rows][width] */
    backend_buffer *(*inputs)[MODEL_MAX_SCANNED];
    /* Where the output goes when states_accept scans them again; it is not read */
    backend_buffer *accepted;
} recurrent_kept;

/* For so many rows; 0: nothing. RP_ERR_MEMORY, RP_ERR_BUDGET: free what there is. */
int recurrent_kept_open(recurrent_kept *k, backend *b, const model_network *net, int32_t rows, rp_error *err);
void recurrent_kept_free(recurrent_kept *k, backend *b, const model_network *net);

#endif
