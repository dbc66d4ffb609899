/* SPDX-License-Identifier: Apache-2.0 */
/* cost_model.c: see cost_model.h. */
#include "engine/core/cost_model.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"

/* Weight of a step relative to the next one: the fit covers about the last 200 steps. */
#define FORGETTING 0.995
/* Weight of the last step in `speed`. */
#define SPEED_GAIN 0.1
/* Beyond this, or below its inverse, the weights must follow: both share one scale, which must not drift. */
#define MOST_SPEED 4.0
/* A step that deviates from its prediction by a larger factor was disturbed: it counts as this factor. */
#define MOST_SURPRISE 3.0
/* Rows before any measurement, and at least: enough to share the loading of the weights, few enough not to delay
 * answers. */
#define FIRST_ROOM 16
#define LEAST_ROOM 1
/* The usual speed is that of the prefill of so many tokens alone. It starts at the first prediction, which may be
 * several times too slow, and follows later ones by this share: what is computed within minutes stays comparable. */
#define USUAL_TOKENS 256
#define USUAL_GAIN 5e-4
/* The initial covariance, and its limit: without a limit, features that stay constant for long would let it grow. */
#define FIRST_VARIANCE 1e4
/* For the cost of slots: less than the knots', as it would otherwise explain costs that belong to unmeasured knots. */
#define SLOTS_VARIANCE 1.0
/* Slots are counted in thousands and row slots in hundred thousands, to give all features the same magnitude. */
#define SLOTS_UNIT 1e3
#define ROW_SLOTS_UNIT 1e5
#define ROW_SLOTS COST_KNOTS
#define SLOTS (COST_KNOTS + 1)

static double knot_rows(int k) { return (double)(1 << k); }

/* ---- a load between the knots ---- */

typedef struct place {
    int below;    /* the knot at or below it; never the last one */
    double share; /* of the knot above */
} place;

static place cost_model_place_of(int32_t rows) {
    int k = 0;
    double r = BASE_MIN(BASE_MAX((double)rows, 1.0), knot_rows(COST_KNOTS - 1));
    while (k + 2 < COST_KNOTS && knot_rows(k + 1) <= r) k++;
    BASE_ASSERT(k + 1 < COST_KNOTS && knot_rows(k) <= r && r <= knot_rows(k + 1));
    return (place){k, (r - knot_rows(k)) / knot_rows(k)};
}

static void cost_load_features(const cost_load *l, double x[COST_FEATURES]) {
    place p = cost_model_place_of(l->rows);
    for (int i = 0; i < COST_KNOTS; i++) x[i] = 0;
    x[p.below] = 1 - p.share;
    x[p.below + 1] = p.share;
    x[ROW_SLOTS] = l->row_slots / ROW_SLOTS_UNIT;
    x[SLOTS] = l->slots / SLOTS_UNIT;
}

/* ---- the table ---- */

static double cost_model_guess(const cost_model *m, int below, int k) {
    int above = k;
    while (above < COST_KNOTS && !m->seen[above]) above++;
    BASE_ASSERT(above < COST_KNOTS || below >= 0);
    if (above == COST_KNOTS) return m->table[below] * knot_rows(k) / knot_rows(below); /* in proportion to the rows */
    if (below < 0) return BASE_MAX(m->weights[above], 0);
    double share = (knot_rows(k) - knot_rows(below)) / (knot_rows(above) - knot_rows(below));
    return m->table[below] + share * (BASE_MAX(m->weights[above], m->table[below]) - m->table[below]);
}

static void fill_table(cost_model *m) {
    int below = -1;
    double least = 0; /* the table never falls */
    for (int k = 0; k < COST_KNOTS; k++) {
        m->table[k] = BASE_MAX(m->seen[k] ? m->weights[k] : cost_model_guess(m, below, k), least);
        least = m->table[k];
        if (m->seen[k]) below = k;
    }
}

/* Marks the knots next to a step as measured. Learning starts from their estimates, except for the nearer knot if it is
 * new: that starts from the measured step. */
static void cost_model_see(cost_model *m, const double x[COST_FEATURES], const cost_load *load, double us) {
    int nearer = -1;
    double rest = us;
    for (int k = 0; k < COST_KNOTS; k++) {
        if (x[k] <= 0) continue;
        if (!m->seen[k]) m->weights[k] = m->n > 0 ? m->table[k] : us * knot_rows(k) / BASE_MAX(load->rows, 1);
        if (!m->seen[k] && x[k] > 0.5) nearer = k;
        m->seen[k] = true;
    }
    if (nearer < 0) return;
    for (int i = 0; i < COST_FEATURES; i++)
        if (i != nearer) rest -= x[i] * m->weights[i];
    m->weights[nearer] = BASE_MAX(rest, 0) / x[nearer];
}

/* ---- learning ---- */

static double variance_limit(int i) { return i < COST_KNOTS ? FIRST_VARIANCE : SLOTS_VARIANCE; }

void cost_model_init(cost_model *m) {
    *m = (cost_model){.speed = 1};
    for (int i = 0; i < COST_FEATURES; i++) m->covariance[i][i] = variance_limit(i);
}

/* Recursive least squares: updates the weights and their covariance. */
static void cost_model_fit(cost_model *m, const double x[COST_FEATURES], double us) {
    double px[COST_FEATURES], sum = FORGETTING, error = us;
    for (int i = 0; i < COST_FEATURES; i++) {
        px[i] = 0;
        for (int j = 0; j < COST_FEATURES; j++) px[i] += m->covariance[i][j] * x[j];
    }
    for (int i = 0; i < COST_FEATURES; i++) {
        sum += x[i] * px[i];
        error -= x[i] * m->weights[i];
    }
    for (int i = 0; i < COST_FEATURES; i++) {
        m->weights[i] += px[i] / sum * error;
        for (int j = 0; j < COST_FEATURES; j++)
            m->covariance[i][j] = (m->covariance[i][j] - px[i] * px[j] / sum) / FORGETTING;
    }
    for (int i = 0; i < COST_FEATURES; i++)
        if (m->covariance[i][i] > variance_limit(i)) { /* and its row: the matrix stays a covariance */
            for (int j = 0; j < COST_FEATURES; j++)
                if (j != i) m->covariance[i][j] = m->covariance[j][i] = 0;
            m->covariance[i][i] = variance_limit(i);
        }
}

static double tokens_us(const cost_model *m, int32_t n, int64_t slots) {
    cost_load load = {.rows = n, .row_slots = n * ((double)slots + 0.5 * n), .slots = (double)(slots + n)};
    return cost_model_predict(m, &load);
}

void cost_model_learn(cost_model *m, const cost_load *load, double us) {
    double x[COST_FEATURES], expected = cost_model_predict(m, load);
    cost_load_features(load, x);
    if (expected > 0 && cost_model_knows(m, load->rows))
        us = BASE_MIN(BASE_MAX(us, expected / MOST_SURPRISE), expected * MOST_SURPRISE);
    cost_model_see(m, x, load, us / m->speed);
    cost_model_fit(m, x, us / m->speed);
    if (expected > 0) m->speed += SPEED_GAIN * (us / expected - 1) * m->speed;
    m->speed = BASE_MIN(BASE_MAX(m->speed, 1 / MOST_SPEED), MOST_SPEED);
    m->n++;
    fill_table(m);
    const double now = log(BASE_MAX(tokens_us(m, USUAL_TOKENS, 0), 1));
    m->usual += (m->n == 1 ? 1 : USUAL_GAIN) * (now - m->usual);
}

/* ---- predictions ---- */

/* No cost is negative: a weight below 0 is noise. */
double cost_model_predict(const cost_model *m, const cost_load *load) {
    double x[COST_FEATURES], us = 0;
    if (m->n == 0) return 0;
    cost_load_features(load, x);
    for (int i = 0; i < COST_KNOTS; i++) us += m->table[i] * x[i];
    for (int i = ROW_SLOTS; i < COST_FEATURES; i++) us += BASE_MAX(m->weights[i], 0) * x[i];
    return m->speed * us;
}

void cost_model_coefficients(const cost_model *m, double knots[COST_KNOTS], double *row_slot, double *slot) {
    const double speed = m->n > 0 ? m->speed : 0;
    for (int k = 0; k < COST_KNOTS; k++) knots[k] = speed * m->table[k];
    *row_slot = speed * BASE_MAX(m->weights[ROW_SLOTS], 0) / ROW_SLOTS_UNIT;
    *slot = speed * BASE_MAX(m->weights[SLOTS], 0) / SLOTS_UNIT;
}

bool cost_model_knows(const cost_model *m, int32_t rows) {
    place p = cost_model_place_of(rows);
    return (p.share >= 1 || m->seen[p.below]) && (p.share <= 0 || m->seen[p.below + 1]);
}

int32_t cost_model_overhead(const cost_model *m, const cost_load *load, double slots, int32_t most, double us) {
    if (most <= 0) return 0;
    if (m->n == 0) return BASE_MIN(most, FIRST_ROOM);
    int32_t low = BASE_MIN(most, LEAST_ROOM), high = most; /* `low` rows always join */
    while (low < high) {
        int32_t mid = high - (high - low) / 2;
        cost_load joined = *load;
        joined.rows += mid;
        joined.row_slots += mid * (slots + mid * 0.5);
        joined.slots += slots + mid;
        if (cost_model_predict(m, &joined) <= us) low = mid;
        else high = mid - 1;
    }
    BASE_ASSERT(low > 0 && low <= most);
    return low;
}

uint64_t cost_model_tokens_us(const cost_model *m, int32_t n, int64_t slots) {
    return (uint64_t)tokens_us(m, n, slots);
}

uint64_t cost_model_usual_us(const cost_model *m, int32_t n, int64_t slots) {
    return (uint64_t)(tokens_us(m, n, slots) / BASE_MAX(tokens_us(m, USUAL_TOKENS, 0), 1) * exp(m->usual));
}
