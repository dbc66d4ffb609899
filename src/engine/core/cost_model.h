/* SPDX-License-Identifier: Apache-2.0 */
/* cost_model.h: predicts the time of a step from measured steps.
 *
 *   time = speed * (table(rows) + d sum(rows x slots they attend to) + e sum(slots of all contexts))
 *
 *   us                          .    table: linear between knots at 1, 2, 4, 8, ... rows. Few rows are bound by
 *    |               .               loading the weights, which does not depend on their number; many by arithmetic.
 *    |      .                        The transition depends on the machine. A knot without measurements is estimated:
 *    | .  .                          interpolated between its neighbours, equal to the next one above, or proportional
 *    +-1--2--4-------8------ rows    to the next one below: too much rather than too little.
 *
 * Knots, d (arithmetic of attention) and e (loading the KV cache) are fitted by recursive least squares with forgetting
 * (Ljung and Söderström, 1983). `speed` follows the last steps: load of other processes slows all of them alike.
 *
 * Schedules depend on the prediction, results do not. One thread.
 */
#ifndef ENGINE_COST_MODEL_H
#define ENGINE_COST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define COST_KNOTS 13 /* up to 4096 rows */
#define COST_FEATURES (COST_KNOTS + 2)

/* The load of a step. */
typedef struct cost_load {
    int32_t rows;
    double row_slots; /* sum over rows of the slots that each attends to */
    double slots;     /* sum over contexts */
} cost_load;

typedef struct cost_model {
    double weights[COST_FEATURES];                   /* us at each knot; us for each unit of the other features */
    double covariance[COST_FEATURES][COST_FEATURES]; /* of the weights, up to a factor */
    double table[COST_KNOTS];                        /* the knots' weights, rising; estimated where not measured */
    bool seen[COST_KNOTS];                           /* a measured step was near */
    double speed;
    double usual; /* log of the usual us of USUAL_TOKENS tokens */
    uint64_t n;   /* steps it was fitted to */
} cost_model;

void cost_model_init(cost_model *m);
/* Adds a measured step of this load. */
void cost_model_learn(cost_model *m, const cost_load *load, double us);
/* Predicted microseconds of a step; 0: none was measured. */
double cost_model_predict(const cost_model *m, const cost_load *load);
/* Predicted time to compute n tokens after `slots` others, alone in their steps, in us. */
uint64_t cost_model_tokens_us(const cost_model *m, int32_t n, int64_t slots);
/* The same at the usual speed of this machine rather than at that of the last steps. Eviction compares what was
 * computed now with what was computed an hour ago: load of other processes must not change which of them costs more. */
uint64_t cost_model_usual_us(const cost_model *m, int32_t n, int64_t slots);
/* Was a step of about as many rows measured? */
bool cost_model_knows(const cost_model *m, int32_t rows);
/* The prediction as its coefficients: us at each knot, for a row slot, and for a slot. All 0: no step was measured. */
void cost_model_coefficients(const cost_model *m, double knots[COST_KNOTS], double *row_slot, double *slot);
/* The number of rows, up to `most`, of one context of `slots` slots that may join a step of this load so that it takes
 * at most `us`. At least a minimum always joins, so that every prompt makes progress. */
int32_t cost_model_overhead(const cost_model *m, const cost_load *load, double slots, int32_t most, double us);

#endif
