/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_linear.c: linear layers and mixtures of experts. Few rows and many rows have a shader each, with the same
 * order of sums (shaders/linear.glsl).
 *
 * Products with quantized weights are of int8, unless the engine chose f32; weights of floats have products of f32.
 * Codes of many rows are made once for all products of an operation; shaders of few rows make their own.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"

#define FEW_ROWS 8 /* of linear_few; more rows are linear_many's */
#define FEW_OUTPUTS 8
#define MANY_OUTPUTS 64
#define MANY_ROWS 32 /* of linear_many; of its variants in int8: as many as outputs */

/* Rows of a workgroup: one, up to 8, or a tile. */
typedef enum group_kind { ONE_ROW,
                          FEW,
                          MANY } group_kind;

static group_kind kind_of(uint32_t rows) { return rows == 1 ? ONE_ROW : rows <= FEW_ROWS ? FEW
                                                                                         : MANY; }

static bool is_int8(const vulkan_backend *b, kernel_type type) { return b->is_int8 && kernel_type_quantized(type); }

static uint32_t rows_of_group(const vulkan_backend *b, kernel_type type, group_kind kind) {
    if (kind != MANY) return kind == ONE_ROW ? 1 : FEW_ROWS;
    return is_int8(b, type) ? MANY_OUTPUTS : MANY_ROWS;
}

static vulkan_shader shader_of(const vulkan_backend *b, kernel_type type, group_kind kind) {
    const bool one = kind == ONE_ROW, few = kind == FEW;
    const vulkan_products by = vulkan_products_of(b->device);
    const bool has_dot = by >= VULKAN_BY_DOTS && b->device->description.has_dot;
    if (!is_int8(b, type)) return one ? VULKAN_LINEAR_ONE : few ? VULKAN_LINEAR_FEW
                                                                : VULKAN_LINEAR_MANY;
    if (one) return has_dot ? VULKAN_DOT_ONE : VULKAN_INT8_ONE;
    if (few) return has_dot ? VULKAN_DOT_FEW : VULKAN_INT8_FEW;
    if (by == VULKAN_BY_MATRICES) return VULKAN_MATRIX_MANY;
    return has_dot ? VULKAN_DOT_MANY : VULKAN_INT8_MANY;
}

/* ---- codes ---- */

static uint64_t codes_bytes(uint64_t rows, uint64_t n_in) { return BASE_DIV_UP(n_in, 32) * rows * VULKAN_PIECE_BYTES; }

/* Memory for codes. What recorded commands read stays until the next step. */
static int grow_codes(vulkan_backend *b, uint64_t bytes, rp_error *err) {
    if (b->codes.bytes >= bytes) return RP_OK;
    vulkan_retire(b, &b->codes);
    return vulkan_take(b, VULKAN_ON_DEVICE, bytes, "activations in int8", &b->codes, err);
}

int vulkan_linear_open(vulkan_backend *b, rp_error *err) {
    uint64_t bytes = 0;
    if (b->max_rows <= FEW_ROWS) return RP_OK;
    for (int32_t i = 0; i < b->net->n_matrices; i++) { /* of experts, each row is as many rows as it has of them */
        const model_weight *w = b->net->matrices[i];
        const int32_t per_row = w->n_slices > 1 ? BASE_MAX(b->net->hp.n_experts_used, 1) : 1;
        if (w->data && is_int8(b, w->type))
            bytes = BASE_MAX(bytes, codes_bytes((uint64_t)b->max_rows * (uint64_t)per_row, (uint64_t)w->n_in));
    }
    return bytes ? grow_codes(b, bytes, err) : RP_OK;
}

/* Rounds what products with these arguments read. Returns the address of the codes; 0: the step has failed. */
static uint64_t round_rows(vulkan_backend *b, const vulkan_linear_args *a, uint32_t runs) {
    rp_error err = {0};
    const int rc = grow_codes(b, codes_bytes(a->rows, (uint64_t)a->n_in * runs), &err);
    if (rc) {
        vulkan_step_fail(b, rc, &err);
        return 0;
    }
    const vulkan_codes_args args = {.src = a->src,
                                    .dst = b->codes.address,
                                    .n_in = a->n_in,
                                    .rows = a->rows,
                                    .src_width = a->src_width,
                                    .src_first = a->src_first,
                                    .run_src = a->run_src};
    vulkan_dispatch(b, VULKAN_CODES, 0, &args, sizeof(args), (uint32_t[]){BASE_DIV_UP(a->n_in, 512), a->rows, runs});
    return args.dst;
}

/* ---- products ---- */

/* runs: slices of the weight, each with its columns (run_src, run_dst); 1: one for all rows, or tiles.
 * groups: of rows. codes: of the same rows, made by an earlier product of the operation, or 0; then they are made here
 * if need be. first: of the operation. */
static void record(vulkan_backend *b, vulkan_linear_args a, kernel_type type, group_kind kind, uint32_t groups,
                   uint32_t runs, bool first, uint64_t *codes) {
    const bool reads_codes = kind == MANY && is_int8(b, type);
    const uint32_t grid[3] = {BASE_DIV_UP(a.n_out, kind == MANY ? MANY_OUTPUTS : FEW_OUTPUTS), groups, runs};
    if (reads_codes && *codes == 0) {
        *codes = round_rows(b, &a, runs);
        first = true;
    }
    if (reads_codes) a.src = *codes;
    (first ? vulkan_dispatch : vulkan_dispatch_beside)(b, shader_of(b, type, kind), type, &a, sizeof(a), grid);
}

/* The rows in their order. */
static void record_rows(vulkan_backend *b, const vulkan_linear_args *a, kernel_type type, uint32_t runs, bool first,
                        uint64_t *codes) {
    const group_kind kind = kind_of(a->rows);
    record(b, *a, type, kind, BASE_DIV_UP(a->rows, rows_of_group(b, type, kind)), runs, first, codes);
}

void vulkan_product(vulkan_backend *b, const vulkan_linear_args *a, kernel_type type) {
    uint64_t codes = 0;
    record_rows(b, a, type, 1, true, &codes);
}

static vulkan_linear_args args_of(vulkan_backend *b, const backend_buffer *src, int32_t rows, const model_weight *w,
                                  const model_weight *bias, const backend_buffer *dst) {
    BASE_ASSERT(rows <= src->rows && rows <= dst->rows && w->n_in <= src->width && w->n_out <= dst->width);
    BASE_ASSERT(!bias || !bias->data || bias->type == KERNEL_F32);
    return (vulkan_linear_args){.src = src->memory.address,
                                .dst = dst->memory.address,
                                .weights = vulkan_weight(b, w),
                                .bias = vulkan_weight(b, bias),
                                .n_in = (uint32_t)w->n_in,
                                .n_out = (uint32_t)w->n_out,
                                .rows = (uint32_t)rows,
                                .row_bytes = (uint32_t)kernel_row_bytes(w->type, w->n_in),
                                .src_width = (uint32_t)src->width,
                                .dst_width = (uint32_t)dst->width};
}

void vulkan_linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n,
                   const model_weight *const *weights, const model_weight *const *biases, backend_buffer *const *dst) {
    vulkan_backend *b = vulkan(self);
    uint64_t codes = 0;
    for (int32_t i = 0; i < n; i++) {
        BASE_ASSERT(weights[i]->n_in == src->width);
        const vulkan_linear_args a = args_of(b, src, rows, weights[i], biases ? biases[i] : NULL, dst[i]);
        record_rows(b, &a, weights[i]->type, 1, i == 0, &codes);
    }
}

void vulkan_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                        const model_weight *weight, backend_buffer *dst, backend_columns to) {
    const int64_t last = weight->n_slices - 1;
    uint64_t codes = 0;
    vulkan_linear_args a = args_of(vulkan(self), src, rows, weight, NULL, dst);
    BASE_ASSERT(from.first + last * from.step + weight->n_in <= src->width);
    BASE_ASSERT(to.first + last * to.step + weight->n_out <= dst->width);
    a.slice_bytes = (uint64_t)a.row_bytes * a.n_out;
    a.src_first = (uint32_t)from.first;
    a.dst_first = (uint32_t)to.first;
    a.run_src = (uint32_t)from.step;
    a.run_dst = (uint32_t)to.step;
    record_rows(vulkan(self), &a, weight->type, (uint32_t)weight->n_slices, true, &codes);
}

/* ---- mixtures: each row and each of its experts is a row of products ---- */

/* Few rows are computed one by one. Of more, several are likely to have an expert in common: they are sorted by their
 * experts, so that a tile of them reads its weights once. A row's bits are the same (linear.glsl). */
#define SHARED_ROWS 16 /* of an expert, on the average: from here on tiles are of many rows */

typedef struct mixture {
    group_kind kind;
    uint32_t rows, n_tiles;
    uint64_t tiles, order, places; /* order, places: 0: rows are not sorted */
} mixture;

static mixture sort_rows(vulkan_backend *b, const model_ffn *ffn, uint32_t n) {
    const uint32_t n_experts = (uint32_t)b->net->hp.n_experts;
    const kernel_type types[] = {ffn->up.type, ffn->down.type, ffn->gate.data ? ffn->gate.type : ffn->up.type};
    const group_kind kind = 2 * n < n_experts             ? ONE_ROW
                            : n < SHARED_ROWS * n_experts ? FEW
                                                          : MANY;
    uint32_t most = UINT32_MAX;
    if (kind == ONE_ROW)
        return (mixture){.kind = kind, .rows = n, .n_tiles = n, .tiles = b->mix.experts->memory.address};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++) most = BASE_MIN(most, rows_of_group(b, types[i], kind));
    const vulkan_sort_args a = {.experts = b->mix.experts->memory.address,
                                .order = b->mix.order->memory.address,
                                .places = b->mix.places->memory.address,
                                .tiles = b->mix.tiles->memory.address,
                                .rows = n,
                                .n_experts = n_experts,
                                .most = most,
                                .n_tiles = n / most + BASE_MIN(n, n_experts)};
    BASE_ASSERT(a.n_tiles <= (uint32_t)b->mix.tiles->rows);
    vulkan_dispatch(b, VULKAN_SORT_ROWS, 0, &a, sizeof(a), (uint32_t[]){1, 1, 1});
    return (mixture){
        .kind = kind, .rows = n, .n_tiles = a.n_tiles, .tiles = a.tiles, .order = a.order, .places = a.places};
}

static void linear_tiles(vulkan_backend *b, const mixture *m, const backend_buffer *src, const model_weight *w,
                         const model_weight *bias, backend_buffer *dst, bool first, uint64_t *codes) {
    vulkan_linear_args a = args_of(b, src, (int32_t)m->rows, w, bias, dst);
    a.tiles = m->tiles;
    a.slice_bytes = (uint64_t)a.row_bytes * a.n_out;
    record(b, a, w->type, m->kind, m->n_tiles, 1, first, codes);
}

static void route(vulkan_backend *b, const model_layer *l, const backend_buffer *scores, int32_t rows) {
    const model_hparams *hp = &b->net->hp;
    const bool corrected = hp->experts_sigmoid || hp->n_expert_groups > 0 || l->router_correction.data;
    const vulkan_route_args a = {.scores = scores->memory.address,
                                 .values = b->mix.values->memory.address,
                                 .correction = vulkan_weight(b, &l->router_correction),
                                 .scales = vulkan_weight(b, &l->expert_scales),
                                 .experts = b->mix.experts->memory.address,
                                 .weights = b->mix.weights->memory.address,
                                 .rows = (uint32_t)rows,
                                 .n_experts = (uint32_t)hp->n_experts,
                                 .n_used = (uint32_t)hp->n_experts_used,
                                 .n_groups = (uint32_t)hp->n_expert_groups,
                                 .n_groups_used = (uint32_t)hp->n_expert_groups_used,
                                 .sums_to_1 = hp->experts_sum_1,
                                 .sigmoid = hp->experts_sigmoid,
                                 .corrected = corrected,
                                 .factor = hp->experts_scale};
    vulkan_dispatch(b, VULKAN_ROUTE, 0, &a, sizeof(a), (uint32_t[]){BASE_DIV_UP((uint32_t)rows, 32), 1, 1});
}

static void gather(vulkan_backend *b, const mixture *m, const backend_buffer *src) {
    vulkan_elements_args a = {.dst = b->mix.gathered->memory.address,
                              .src = src->memory.address,
                              .other = b->mix.weights->memory.address,
                              .order = m->order,
                              .rows = m->rows,
                              .width = (uint32_t)src->width,
                              .x = b->net->hp.experts_read_weighed ? 1.0f : 0.0f,
                              .n = (uint32_t)b->net->hp.n_experts_used};
    vulkan_element_op_record(b, VULKAN_WEIGH_GATHER, &a);
}

/* dst = sums of the experts' outputs, in ascending order of experts */
static void sum_experts(vulkan_backend *b, const mixture *m, int32_t rows, backend_buffer *dst) {
    vulkan_elements_args a = {.dst = dst->memory.address,
                              .src = b->mix.out->memory.address,
                              .other = b->mix.weights->memory.address,
                              .order = m->places,
                              .rows = (uint32_t)rows,
                              .width = (uint32_t)dst->width,
                              .n = (uint32_t)b->net->hp.n_experts_used};
    if (b->net->hp.experts_read_weighed) { /* their weights are in what they read */
        const size_t n = (size_t)rows * a.n;
        const vulkan_part ones = vulkan_arena_take(b, sizeof(float) * n);
        for (size_t i = 0; i < n && ones.host; i++) ((float *)ones.host)[i] = 1.0f;
        a.other = ones.address;
    }
    vulkan_element_op_record(b, VULKAN_SUM_EXPERTS, &a);
}

void vulkan_mix_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores,
                        int32_t rows, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    const model_layer *l = &b->net->layers[layer];
    const model_ffn *ffn = &l->experts;
    const int32_t n = rows * b->net->hp.n_experts_used;
    BASE_ASSERT(n <= b->mix.gathered->rows && scores->width == b->net->hp.n_experts);
    uint64_t codes = 0, mixed_codes = 0;
    route(b, l, scores, rows);
    const mixture m = sort_rows(b, ffn, (uint32_t)n);
    gather(b, &m, src);
    linear_tiles(b, &m, b->mix.gathered, &ffn->up, &ffn->up_bias, b->mix.up, true, &codes);
    if (ffn->gate.data)
        linear_tiles(b, &m, b->mix.gathered, &ffn->gate, &ffn->gate_bias, b->mix.gate, false, &codes);
    backend_buffer *mixed = ffn->gate.data ? b->mix.gate : b->mix.up;
    vulkan_act(self, b->net->hp.act, mixed, ffn->gate.data ? b->mix.up : NULL, n);
    linear_tiles(b, &m, mixed, &ffn->down, &ffn->down_bias, b->mix.out, true, &mixed_codes);
    sum_experts(b, &m, rows, dst);
}

int vulkan_experts_open(vulkan_backend *b, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    const int32_t slots = b->max_rows * hp->n_experts_used;
    if (hp->n_experts == 0) return RP_OK;
    const struct {
        backend_buffer **out;
        int32_t rows, width;
    } buffers[] = {
        {&b->mix.gathered, slots, hp->n_embd},
        {&b->mix.gate, slots, hp->n_ff_expert},
        {&b->mix.up, slots, hp->n_ff_expert},
        {&b->mix.out, slots, hp->n_embd},
        {&b->mix.experts, slots, 3},
        {&b->mix.order, slots, 1},
        {&b->mix.places, slots, 1},
        {&b->mix.tiles, slots / FEW_ROWS + hp->n_experts, 3},
        {&b->mix.weights, slots, 1},
        {&b->mix.values, b->max_rows, 2 * hp->n_experts},
    };
    int rc = RP_OK;
    for (size_t i = 0; i < BASE_ARRAY_LEN(buffers) && !rc; i++)
        rc = vulkan_buffer_create(&b->base, buffers[i].rows, buffers[i].width, buffers[i].out, err);
    return rc;
}

void vulkan_experts_free(vulkan_backend *b) {
    backend_buffer *const buffers[] = {b->mix.gathered, b->mix.gate, b->mix.up, b->mix.out,
                                       b->mix.experts, b->mix.weights, b->mix.values, b->mix.order,
                                       b->mix.places, b->mix.tiles};
    for (size_t i = 0; i < BASE_ARRAY_LEN(buffers); i++) vulkan_buffer_destroy(&b->base, buffers[i]);
}
