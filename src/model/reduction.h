/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.h: methods that choose the slots of a module's KV that are kept (kv/slot_selection.h). A module is
 * prefilled before its question is known: a method may look at the module alone.
 *
 *   KV of the module, what its rows attended to or asked for --score--> [layer][KV head][slot] --highest--> selection
 *
 *   kvzip      the model is asked to repeat the module and reads it again as its own answer; a slot's score is the
 *         highest
 *              weight that a row of this repetition gives it (KVzip; Kim et al., 2025). All heads share one budget
 *   kvzip+     the same, each weight times |W v| / |h|: the norm of what the slot's value adds to the residual stream
 *         through the query head,
 *              and of the row's input of the layer's attention (KVzip+; Jegou and Jeblick, 2026; h as in their
 *              implementation)
 *   expected   the attention that queries with the mean and covariance of the module's are expected to give from the
 *         next
 *              REDUCTION_FUTURE positions, times the norm of the slot's value (Expected Attention; Devoto et al., 2025)
 *   compactor  leverage of a slot's key before its rotation, and the attention that all queries of its 256 tokens,
 *   later ones
 *              included, give it, times the norm of its value (Compactor; Chari and Van Durme, 2025)
 *
 * With expected and compactor every head keeps the same share. The same input gives the same selection
 * everywhere; weights and elements of KV are the same bits for every number of threads and all levels of one
 * arithmetic.
 */
#ifndef MODEL_REDUCTION_H
#define MODEL_REDUCTION_H

#include "backend/backend.h"
#include "model/model.h"

/* X(NAME, name, budget, observes the rows of a repetition, how their weights are joined, needs the module's queries) */
#define REDUCTION_METHODS(X) \
    X(KVZIP, "kvzip", ALL, true, MAXIMUM, false) \
    X(KVZIP_PLUS, "kvzip+", ALL, true, RELATIVE, false) \
    X(EXPECTED, "expected", HEAD, false, SUM, true) \
    X(COMPACTOR, "compactor", HEAD, false, SUM, true)

typedef enum reduction_method {
#define X(NAME, name, budget, repeats, measure, queries) REDUCTION_##NAME,
    REDUCTION_METHODS(X)
#undef X
        REDUCTION_N_METHODS
} reduction_method;

#define REDUCTION_FIRST 4      /* first tokens of a context, which many heads attend to whatever they are */
#define REDUCTION_FUTURE 512   /* positions, as in the paper's implementation */
#define REDUCTION_LEVERAGE 0.3 /* weight of leverage beside attention; of Compactor, as are */
#define REDUCTION_EDGE_FIRST 8 /* first slots, */
#define REDUCTION_EDGE_LAST 4  /* and last ones, that are kept */

/* Shares of slots, in 1/1000. */
#define REDUCTION_ALL 1000
#define REDUCTION_AUTO 1001 /* calibrated by the module's own text */
#define REDUCTION_SHARE_BYTES 8
#define REDUCTION_SHARE_ADVICE "write a share from 0.1% to 100%, \"25%\", or auto"
#define REDUCTION_METHOD_NAMES "kvzip, kvzip+, expected or compactor" /* for messages */
/* "12.5%": 125; "auto". false: it is not a share. */
bool reduction_share_parse(const char *text, int32_t *permille);
char *reduction_share_text(int32_t permille, char out[REDUCTION_SHARE_BYTES]);

/* Options keep_share and keep_method; each may be NULL: unchanged. RP_ERR_INVALID. */
int reduction_options_read(const char *share, const char *method, int32_t *permille, reduction_method *m,
                           rp_error *err);

const char *reduction_method_name(reduction_method m); /* "kvzip" */
bool reduction_method_parse(const char *name, reduction_method *out);
/* Does the method observe the rows of a repetition of the module? Else it observes none. */
bool reduction_method_repeats(reduction_method m);
bool reduction_method_needs_queries(reduction_method m);

/* Of the weights of a method's rows, in n_views views from first_view on; *out NULL: it needs none. RP_ERR_MEMORY. */
int reduction_observer_new(attention_observer **out, const rp_model *model, reduction_method m, size_t first_view,
                           size_t n_views, rp_error *err);

/* What a method needs of the module's own queries, span by span. */
typedef struct reduction_queries reduction_queries;

/* For a module of n_slots tokens; n_ctx selects the frequencies of long-rope models. The model is borrowed.
   RP_ERR_MEMORY. */
int reduction_queries_new(reduction_queries **out, const rp_model *model, int32_t n_ctx, reduction_method m,
                          int32_t n_slots, rp_error *err);
void reduction_queries_free(reduction_queries *q); /* NULL is fine */
/* Adds the queries of the next span, all of whose rows are computed. RP_ERR_MEMORY, RP_ERR_IO. */
int reduction_queries_add(reduction_queries *q, backend *b, const kv_span *span, query_record *record, rp_error *err);

/* The KV of a module: a run of complete spans, all but the last of 256 tokens. */
typedef struct reduction_run {
    const rp_model *model;
    const kv_span *const *spans; /* [n_spans] */
    size_t n_spans;
    const attention_observer *observer; /* of the spans' views, in their order; NULL: the method needs no rows */
    const reduction_queries *queries;   /* of all spans; NULL: it needs none */
    const bool *left_out;               /* [slots of the run]: not selected, whatever their scores; NULL: none */
} reduction_run;

/* The scores of all slots of a run: *out [layers][KV heads][slots], the caller's (base_free); -INFINITY: not there, or
   left out. RP_ERR_MEMORY, RP_ERR_IO. */
int reduction_score(float **out, backend *b, reduction_method m, const reduction_run *run, rp_error *err);
/* Selects a share of the slots by their scores, in 1/1000, rounded up. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int reduction_select_scored(kv_selection **out, reduction_method m, int32_t permille, const reduction_run *run,
                            const float *scores, rp_error *err);
/* Both. */
int reduction_select(kv_selection **out, backend *b, reduction_method m, int32_t permille, const reduction_run *run,
                     rp_error *err);

#endif
