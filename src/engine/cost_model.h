/* SPDX-License-Identifier: Apache-2.0 */
/* cost_model.h: how long a step will take, learned from those that were timed.
 *
 *   time = speed * (table(rows) + d sum(rows x slots they attend to) + e sum(slots of all contexts))
 *
 *   us                          .    table: straight between knots at 1, 2, 4, 8, ... rows. Few rows wait for the weights, which are
 *    |               .               read whatever their number is, many for their products; where the one becomes the other is the
 *    |      .                        machine's matter. A knot that no step came near is guessed: between its neighbours, as much as
 *    | .  .                          the next one above, or in proportion to the next one below: too much rather than too little.
 *    +-1--2--4-------8------ rows
 *
 * Knots, d (attention's products) and e (reading states) are fitted by recursive least squares that forgets (Ljung and Söderström, 1983);
 * speed follows the last steps, for a machine that others use too slows all of them alike.
 *
 * A guess: schedules depend on it, results do not. One thread.
 */
#ifndef ENGINE_COST_MODEL_H
#define ENGINE_COST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define COST_KNOTS 13 /* up to 4096 rows */
#define COST_FEATURES (COST_KNOTS + 2)

/* What a step computes. */
typedef struct cost_load {
    int32_t rows;
    double row_slots; /* sum over rows of the slots that each attends to */
    double slots;     /* sum over contexts */
} cost_load;

typedef struct cost_model {
    double weights[COST_FEATURES];                   /* us at each knot; us for each unit of the other features */
    double covariance[COST_FEATURES][COST_FEATURES]; /* of the weights, up to a factor */
    double table[COST_KNOTS];                        /* the knots' weights, rising, guessed where they were not seen */
    bool seen[COST_KNOTS];                           /* some step was near */
    double speed;
    uint64_t n;                                      /* steps it was fitted to */
} cost_model;

void cost_model_init(cost_model *m);
/* A step of this load took so long. */
void cost_model_learn(cost_model *m, const cost_load *load, double us);
/* Microseconds that a step will take; 0: none was seen. */
double cost_model_predict(const cost_model *m, const cost_load *load);
/* Predicted time to compute n tokens after `slots` others, alone in their steps, in us. */
uint64_t cost_model_tokens_us(const cost_model *m, int32_t n, int64_t slots);
/* Was a step of about as many rows seen? */
bool cost_model_knows(const cost_model *m, int32_t rows);
/* How many of up to `most` rows of one context of `slots` slots may join a step of this load, so that it takes at most `us`. Some can
 * always: a prompt must come to its end. */
int32_t cost_model_overhead(const cost_model *m, const cost_load *load, double slots, int32_t most, double us);

#endif
