/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_methods.h: methods that choose the slots that one sequence keeps for its decode, once its prompt is
 * complete. Methods for modules, which know no question: reduction.h.
 *
 *   weights that the last rows of the prompt gave each slot --score--> [layer][KV head][slot] --highest--> selection
 *
 *   snapkv   the sum of the weights that the last SEQUENCE_WINDOW rows give a slot, then the highest of its neighbours
 *            (SnapKV; Li et al., 2024); all heads of all layers share one budget, and more neighbours count: both keep
 *            more answers of our models than the paper's settings (docs/quality.md)
 *   sinks    the first REDUCTION_FIRST slots and the last ones (StreamingLLM; Xiao et al., 2024)
 *   quest    drops none: each row of the answer chooses groups of slots anew (slot_bounds.h)
 *
 * The slots of the last SEQUENCE_WINDOW tokens of the prompt's own text, the question as a rule, are kept by all
 * methods, besides the budget (in the papers, within it). In layers with a window, slots that no later row sees are
 * never kept. The same input gives the same selection everywhere.
 */
#ifndef MODEL_SEQUENCE_METHODS_H
#define MODEL_SEQUENCE_METHODS_H

#include "backend/attention_observer.h"
#include "backend/slot_bounds.h"

#define SEQUENCE_WINDOW 32 /* of SnapKV, as in its experiments with long documents */
#define SEQUENCE_POOL 15   /* neighbours of a slot; the paper has 7 */

/* X(NAME, name, rows that are observed, whose slots share a budget) */
#define SEQUENCE_METHODS(X) \
    X(SNAPKV, "snapkv", SEQUENCE_WINDOW, ALL) \
    X(SINKS, "sinks", 0, HEAD) \
    X(QUEST, "quest", 0, HEAD)

typedef enum sequence_method {
#define X(NAME, name, rows, budget) SEQUENCE_##NAME,
    SEQUENCE_METHODS(X)
#undef X
        SEQUENCE_N_METHODS
} sequence_method;

#define SEQUENCE_METHOD_NAMES "snapkv, sinks or quest" /* for messages */

const char *sequence_method_name(sequence_method m); /* "snapkv" */
bool sequence_method_parse(const char *name, sequence_method *out);
/* Number of the prompt's last rows that are observed. */
int32_t sequence_method_rows(sequence_method m);

typedef struct sequence_slots {
    const kv_shape *shape;
    const sequence_slot *slots; /* [n] by rising position */
    int32_t n;
    const attention_observer *observer; /* sums of the observed rows; NULL: the method observes none */
    const int32_t *kept;                /* [n_kept] positions of slots that are kept besides the budget, rising */
    int32_t n_kept;
    int32_t end; /* position of the first row that attends to the reduced KV */
} sequence_slots;

/* Does each row of the answer choose its slots, instead of a selection that drops the others? */
bool sequence_method_is_dynamic(sequence_method m);
/* Of the other methods: selects `mean` slots in the mean of all heads, 1 <= mean, besides the kept ones; heads of
 * layers with a window at most those within its reach. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int sequence_select(kv_selection **out, sequence_method m, int32_t mean, const sequence_slots *in, rp_error *err);

#endif
