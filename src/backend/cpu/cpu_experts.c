/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.c: mixtures of experts on the CPU.
 *
 *   scores [row][expert] -> choices: the best few of each row, with weights
 *   slots: one for each (expert, row) that chose it, sorted by expert, then by row:
 *
 *     expert 0: row 3, row 7 | expert 2: row 0, row 3, row 5 | ...
 *
 *   rows gathered into slots -> gate, up -> act -> down, each expert over its slots, all in one loop of tasks
 *   each row adds its slots' outputs in ascending order of experts
 *
 * Therefore a row's result does not depend on the other rows that chose the same expert.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

#define ROWS_PER_TASK 4

typedef struct choice {
    int32_t expert;
    int32_t slot;
    float weight;
} choice;

struct cpu_experts {
    int32_t n_used;                             /* of each row */
    choice *choices;                            /* [max_rows][n_used], in ascending order of experts */
    int32_t *first_slot;                        /* [n_experts + 1] */
    int32_t *slot_rows;                         /* [max_rows * n_used] */
    float *slot_weights;                        /* [max_rows * n_used] */
    backend_buffer *gathered, *gate, *up, *out; /* [max_rows * n_used][...] */
    cpu_linear_part *parts;                     /* [2 * n_experts] */
    float *routing;                             /* [3 * n_experts]: of one row: see route_corrected */
};

/* ---- choosing ---- */

/* Selects the n_used best by score, the first of equal ones. Sorted by expert, ascending. */
static void cpu_experts_choose(const float *scores, int32_t n_experts, choice *out, int32_t n_used) {
    int32_t n = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        int32_t i = n;
        if (n < n_used) n++;
        else if (!(scores[e] > scores[out[n_used - 1].expert])) continue;
        else i = n_used - 1;
        for (; i > 0 && scores[e] > scores[out[i - 1].expert]; i--) out[i] = out[i - 1];
        out[i] = (choice){.expert = e};
    }
    BASE_DCHECK(n == n_used);            /* at most n_experts are used */
    for (int32_t i = 1; i < n_used; i++) /* few: sorted by insertion */
        for (int32_t k = i; k > 0 && out[k - 1].expert > out[k].expert; k--) {
            choice swap = out[k];
            out[k] = out[k - 1];
            out[k - 1] = swap;
        }
}

/* The softmax over all experts, or over the chosen ones if their weights sum to 1. */
static void weigh_softmax(const model_hparams *hp, const float *scores, choice *choices) {
    const bool sum_1 = hp->experts_sum_1;
    double max = scores[0], sum = 0.0;
    for (int32_t e = 1; e < hp->n_experts; e++) max = BASE_MAX(max, (double)scores[e]);
    for (int32_t e = 0; e < hp->n_experts && !sum_1; e++) sum += exp(scores[e] - max);
    for (int32_t i = 0; i < hp->n_experts_used && sum_1; i++) sum += exp(scores[choices[i].expert] - max);
    for (int32_t i = 0; i < hp->n_experts_used; i++)
        choices[i].weight = (float)(exp(scores[choices[i].expert] - max) / sum * hp->experts_scale);
}

/* probabilities[e] = the sigmoid of e's score, or the softmax of all */
static void find_probabilities(const model_hparams *hp, const float *scores, float *probabilities) {
    double max = scores[0], sum = 0.0;
    for (int32_t e = 1; e < hp->n_experts; e++) max = BASE_MAX(max, (double)scores[e]);
    for (int32_t e = 0; e < hp->n_experts; e++) sum += exp(scores[e] - max);
    for (int32_t e = 0; e < hp->n_experts; e++) {
        const double x = scores[e];
        probabilities[e] = (float)(hp->experts_sigmoid ? 1 / (1 + exp(-x)) : exp(x - max) / sum);
    }
}

/* The sum of a group's two best. */
static float group_value(const float *values, int32_t n) {
    float best = values[0], second = -INFINITY;
    for (int32_t i = 1; i < n; i++) {
        second = BASE_MAX(second, BASE_MIN(best, values[i]));
        best = BASE_MAX(best, values[i]);
    }
    return n > 1 ? best + second : best;
}

/* Leaves the n_expert_groups_used best groups, the first of equal ones: the values of others become minus infinity. */
static void drop_groups(const model_hparams *hp, float *values, float *group_values) {
    const int32_t n = hp->n_expert_groups, size = hp->n_experts / n;
    BASE_DCHECK(n > hp->n_expert_groups_used && n * size == hp->n_experts);
    for (int32_t g = 0; g < n; g++) group_values[g] = group_value(values + g * size, size);
    for (int32_t g = 0; g < n; g++) {
        int32_t better = 0;
        for (int32_t k = 0; k < n; k++)
            better += group_values[k] > group_values[g] || (group_values[k] == group_values[g] && k < g);
        for (int32_t i = 0; i < size && better >= hp->n_expert_groups_used; i++) values[g * size + i] = -INFINITY;
    }
}

/* Selects experts by their probabilities plus a correction, and weighs them by the probabilities alone. */
static void route_corrected(const cpu_backend *b, const model_layer *l, const float *scores, choice *choices) {
    const model_hparams *hp = &b->net->hp;
    const float *correction = l->router_correction.data;
    float *probabilities = b->experts->routing, *values = probabilities + hp->n_experts;
    double sum = 0;
    find_probabilities(hp, scores, probabilities);
    for (int32_t e = 0; e < hp->n_experts; e++) values[e] = probabilities[e] + (correction ? correction[e] : 0);
    if (hp->n_expert_groups > 0) drop_groups(hp, values, values + hp->n_experts);
    cpu_experts_choose(values, hp->n_experts, choices, hp->n_experts_used);
    for (int32_t i = 0; i < hp->n_experts_used; i++) sum += (double)probabilities[choices[i].expert];
    const double factor = hp->experts_scale / (hp->experts_sum_1 ? BASE_MAX(sum, 1e-20) : 1.0);
    for (int32_t i = 0; i < hp->n_experts_used; i++)
        choices[i].weight = (float)((double)probabilities[choices[i].expert] * factor);
}

static void route(const cpu_backend *b, const model_layer *l, const float *scores, choice *choices) {
    const model_hparams *hp = &b->net->hp;
    const float *scales = l->expert_scales.data;
    if (hp->experts_sigmoid || hp->n_expert_groups > 0 || l->router_correction.data) {
        route_corrected(b, l, scores, choices);
    } else {
        cpu_experts_choose(scores, hp->n_experts, choices, hp->n_experts_used);
        weigh_softmax(hp, scores, choices);
    }
    for (int32_t i = 0; i < hp->n_experts_used && scales; i++) choices[i].weight *= scales[choices[i].expert];
}

/* Counting sort: counts each expert's slots, sums the counts to end offsets, and fills slots from the last row back,
 * which turns the end offsets into start offsets. */
static void assign_slots(cpu_experts *x, int32_t n_experts, int32_t rows) {
    int32_t n = rows * x->n_used;
    memset(x->first_slot, 0, sizeof(*x->first_slot) * (size_t)n_experts);
    for (int32_t i = 0; i < n; i++) x->first_slot[x->choices[i].expert]++;
    for (int32_t e = 1; e < n_experts; e++) x->first_slot[e] += x->first_slot[e - 1];
    for (int32_t i = n - 1; i >= 0; i--) {
        x->choices[i].slot = --x->first_slot[x->choices[i].expert];
        x->slot_rows[x->choices[i].slot] = i / x->n_used;
        x->slot_weights[x->choices[i].slot] = x->choices[i].weight;
    }
    x->first_slot[n_experts] = n;
    BASE_ASSERT(x->first_slot[0] == 0);
}

/* ---- computing ---- */

typedef struct mix_job {
    cpu_backend *b;
    const cpu_experts *x;
    const backend_buffer *src;
    backend_buffer *dst;
} mix_job;

static void gather_slots(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    mix_job *j = arg;
    for (int64_t s = begin; s < end; s++) {
        float *dst = cpu_row_at(j->x->gathered, s);
        memcpy(dst, cpu_row_of(j->src, j->x->slot_rows[s]), sizeof(float) * (size_t)j->src->width);
        if (j->b->net->hp.experts_read_weighed) j->b->kernels.scale(dst, j->x->slot_weights[s], j->src->width);
    }
}

static void cpu_experts_sum_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    mix_job *j = arg;
    for (int64_t r = begin; r < end; r++) {
        float *y = cpu_row_at(j->dst, r);
        memset(y, 0, sizeof(float) * (size_t)j->dst->width);
        for (int32_t i = 0; i < j->x->n_used; i++) {
            const choice *c = &j->x->choices[r * j->x->n_used + i];
            const float weight = j->b->net->hp.experts_read_weighed ? 1.0f : c->weight;
            j->b->kernels.add(y, cpu_row_of(j->x->out, c->slot), weight, y, j->dst->width);
        }
    }
}

/* Adds a part for each expert that has slots. */
static int32_t cpu_backend_add_parts(cpu_backend *b, int32_t n_parts, const model_weight *matrix,
                                     const model_weight *bias, backend_buffer *dst) {
    cpu_experts *x = b->experts;
    const model_weight *w = cpu_packed(b, matrix);
    BASE_ASSERT(w->n_slices == b->net->hp.n_experts); /* x->parts has room for two of each */
    for (int32_t e = 0; e < w->n_slices; e++) {
        int32_t n = x->first_slot[e + 1] - x->first_slot[e];
        if (n == 0) continue;
        x->parts[n_parts++] = (cpu_linear_part){.weight = model_weight_slice(w, e),
                                                .bias = model_weight_slice(bias, e).data,
                                                .first_row = x->first_slot[e],
                                                .n_rows = n,
                                                .dst = dst};
    }
    return n_parts;
}

void cpu_mix_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores,
                     int32_t rows, backend_buffer *dst) {
    cpu_backend *b = (cpu_backend *)self;
    cpu_experts *x = b->experts;
    const model_network *net = b->net;
    const model_ffn *ffn = &net->layers[layer].experts;
    mix_job j = {b, x, src, dst};
    BASE_ASSERT(rows * x->n_used <= x->gathered->rows && scores->width == net->hp.n_experts);
    for (int32_t r = 0; r < rows; r++) {
        route(b, &net->layers[layer], cpu_row_of(scores, r), x->choices + (int64_t)r * x->n_used);
    }
    assign_slots(x, net->hp.n_experts, rows);
    int32_t n_slots = rows * x->n_used;
    base_threads_for(b->threads, gather_slots, &j, n_slots, ROWS_PER_TASK);
    int32_t n = cpu_backend_add_parts(b, 0, &ffn->up, &ffn->up_bias, x->up);
    if (ffn->gate.data) n = cpu_backend_add_parts(b, n, &ffn->gate, &ffn->gate_bias, x->gate);
    cpu_linear(b, x->gathered, n_slots, x->parts, n);
    backend_buffer *mixed = ffn->gate.data ? x->gate : x->up;
    cpu_act(self, net->hp.act, mixed, ffn->gate.data ? x->up : NULL, n_slots);
    n = cpu_backend_add_parts(b, 0, &ffn->down, &ffn->down_bias, x->out);
    cpu_linear(b, mixed, n_slots, x->parts, n);
    base_threads_for(b->threads, cpu_experts_sum_rows, &j, rows, ROWS_PER_TASK);
}

/* ---- opening ---- */

static int cpu_backend_open_parts(cpu_backend *b, cpu_experts *x, int32_t max_rows, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    int32_t slots = max_rows * x->n_used;
    int rc;
    x->choices = base_calloc((size_t)slots, sizeof(*x->choices));
    x->first_slot = base_calloc((size_t)hp->n_experts + 1, sizeof(*x->first_slot));
    x->slot_rows = base_calloc((size_t)slots, sizeof(*x->slot_rows));
    x->slot_weights = base_calloc((size_t)slots, sizeof(*x->slot_weights));
    x->parts = base_calloc(2 * (size_t)hp->n_experts, sizeof(*x->parts));
    x->routing = base_calloc(3 * (size_t)hp->n_experts, sizeof(*x->routing));
    if (!x->choices || !x->first_slot || !x->slot_rows || !x->slot_weights || !x->parts || !x->routing)
        return base_fail_memory(err, (uint64_t)slots * sizeof(*x->choices), "experts");
    if ((rc = cpu_buffer_new(&b->base, slots, hp->n_embd, &x->gathered, err)) ||
        (rc = cpu_buffer_new(&b->base, slots, hp->n_ff_expert, &x->gate, err)) ||
        (rc = cpu_buffer_new(&b->base, slots, hp->n_ff_expert, &x->up, err)))
        return rc;
    return cpu_buffer_new(&b->base, slots, hp->n_embd, &x->out, err);
}

int cpu_experts_open(cpu_backend *b, int32_t max_rows, rp_error *err) {
    if (b->net->hp.n_experts == 0) return RP_OK;
    b->experts = base_calloc(1, sizeof(*b->experts));
    if (!b->experts) return base_fail_memory(err, sizeof(*b->experts), "experts");
    b->experts->n_used = b->net->hp.n_experts_used;
    return cpu_backend_open_parts(b, b->experts, max_rows, err);
}

void cpu_experts_free(cpu_backend *b) {
    cpu_experts *x = b->experts;
    if (!x) return;
    base_free(x->choices);
    base_free(x->first_slot);
    base_free(x->slot_rows);
    base_free(x->slot_weights);
    base_free(x->parts);
    base_free(x->routing);
    cpu_buffer_free(&b->base, x->gathered);
    cpu_buffer_free(&b->base, x->gate);
    cpu_buffer_free(&b->base, x->up);
    cpu_buffer_free(&b->base, x->out);
    base_free(x);
}
