/* SPDX-License-Identifier: Apache-2.0 */
/* model_quantize.c: rp_model_quantize: copies a GGUF file with quantized matrices.
 *
 *   plan      for each tensor: the type it gets and where its rows are
 *   metadata  copied, except general.file_type and the keys of split files
 *   rows      on demand while saving: read, dequantized to floats, quantized, by all threads
 *
 * Memory: one piece of a tensor (gguf_writer.c) and two rows per thread. Threads: the caller's and a pool.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "reprise_tools.h"

#define ROWS_PER_TASK 4
#define QUANTIZATION_VERSION 2 /* GGML's number of the block layouts */

/* A supported type; the fallback if rows are not whole blocks; general.file_type of llama.cpp ("mostly" this type). */
typedef struct target {
    kernel_type type, otherwise;
    uint32_t file_type;
} target;

static const target targets[] = {
    {KERNEL_Q8_0, KERNEL_F16, 7},
    {KERNEL_Q4_0, KERNEL_F16, 2},
    {KERNEL_Q4_K, KERNEL_Q5_0, 14},
    {KERNEL_Q6_K, KERNEL_Q8_0, 18},
};

struct job;

typedef struct plan {
    struct job *job;
    const gguf_tensor *from;
    char *name;
    kernel_type to;
    bool is_fallback;
} plan;

typedef struct job {
    gguf_file *in;
    gguf_writer *out;
    base_threads *threads;
    const target *target;
    const rp_quantize_options *options;
    plan *plans;    /* [n_tensors] */
    float *rows;    /* [threads][widest] */
    int64_t widest; /* elements of a row */
    rp_quantize_step step;
    bool cancelled;
} job;

/* ---- plan -------------------------------------------------------------------------------------------------------- */

static int find_target(const target **out, const char *type, rp_error *err) {
    char list[64] = "";
    for (size_t i = 0; i < BASE_ARRAY_LEN(targets); i++) {
        const char *name = kernel_type_name(targets[i].type);
        *out = &targets[i];
        if (strcmp(name, type) == 0) return RP_OK;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", name);
    }
    return base_fail(err, RP_ERR_NAME, "cannot quantize to '%s': give one of %s", type, list);
}

/* Vectors, norms, biases, positions and routers (small differences select other experts), convolutions, decays and
 * rates of recurrent layers are small and sensitive to rounding. Decays are no ".weight", and have up to two
 * dimensions. */
static bool stays_f32(const gguf_tensor *t, const char *name) {
    static const char *const kept[] = {"norm", ".bias", "position_embd", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv",
                                       "ssm_alpha", "ssm_beta", "ssm_ba", "ssm_dt", "indexer.proj"};
    const char *suffix = strrchr(name, '.');
    if (!suffix || strcmp(suffix, ".weight") != 0) return true;
    for (size_t i = 0; i < BASE_ARRAY_LEN(kept); i++)
        if (strstr(name, kept[i])) return true;
    return (t->dims[0] == 1 || t->dims[1] == 1) && t->dims[2] == 1 && t->dims[3] == 1;
}

static int plan_tensor(job *j, size_t i, rp_error *err) {
    plan *p = &j->plans[i];
    const target *wanted = j->target;
    *p = (plan){.job = j, .from = gguf_tensor_at(j->in, i)};
    p->name = base_strndup(p->from->name.bytes, (size_t)p->from->name.n);
    if (!p->name) return base_fail_memory(err, p->from->name.n, "a name");
    if (strlen(p->name) != p->from->name.n)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(j->in), 0, "the name of tensor %zu contains a zero byte", i);
    if (p->from->type != KERNEL_F32 && p->from->type != KERNEL_F16 && p->from->type != KERNEL_BF16)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(j->in), 0,
                            "tensor '%s' is already %s: quantize a model in F32, F16 or BF16", p->name,
                            kernel_type_name(p->from->type));
    if (stays_f32(p->from, p->name)) p->to = KERNEL_F32;
    else if (p->from->dims[0] % kernel_type_block(wanted->type) == 0) p->to = wanted->type;
    else p->to = p->from->dims[0] % kernel_type_block(wanted->otherwise) == 0 ? wanted->otherwise : KERNEL_F16;
    BASE_ASSERT(p->from->dims[0] % kernel_type_block(p->to) == 0); /* rows are whole blocks */
    p->is_fallback = p->to != KERNEL_F32 && p->to != wanted->type;
    j->widest = BASE_MAX(j->widest, p->from->dims[0]);
    return RP_OK;
}

static int plan_tensors(job *j, rp_error *err) {
    size_t n = gguf_n_tensors(j->in);
    j->plans = base_calloc(n + 1, sizeof *j->plans);
    if (!j->plans) return base_fail_memory(err, n * sizeof *j->plans, "a list of tensors");
    int rc = RP_OK;
    for (size_t i = 0; !rc && i < n; i++) {
        rc = plan_tensor(j, i, err);
        j->step.total_bytes += j->plans[i].from->bytes;
    }
    if (rc) return rc;
    size_t bytes = (size_t)base_threads_count(j->threads) * (size_t)j->widest * sizeof(float);
    j->rows = base_alloc(bytes);
    return j->rows ? RP_OK : base_fail_memory(err, bytes, "rows of weights");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct rows {
    const plan *p;
    int64_t first;
    uint8_t *dst;
} rows;

static void convert_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const rows *r = arg;
    const gguf_tensor *from = r->p->from;
    const int64_t n = from->dims[0], from_bytes = kernel_row_bytes(from->type, n),
                  to_bytes = kernel_row_bytes(r->p->to, n);
    BASE_ASSERT(thread >= 0 && thread < base_threads_count(r->p->job->threads) && n <= r->p->job->widest);
    float *row = r->p->job->rows + thread * r->p->job->widest;
    for (int64_t i = begin; i < end; i++) {
        kernel_dequantize(from->type, (const uint8_t *)from->data + (r->first + i) * from_bytes, row, n);
        kernel_quantize(r->p->to, row, r->dst + i * to_bytes, n);
    }
}

/* Reports progress before every piece of a tensor. */
static int quantize_report(job *j, const plan *p, int64_t row) {
    if (!j->options->on_step) return RP_OK;
    j->step.tensor = p->name;
    j->step.from = kernel_type_name(p->from->type);
    j->step.to = kernel_type_name(p->to);
    j->step.is_first_row = row == 0;
    j->step.is_fallback = p->is_fallback;
    if (j->options->on_step(j->options->user, &j->step)) return RP_OK;
    j->cancelled = true;
    return RP_ERR_CANCELLED;
}

static int quantize_fill(void *arg, int64_t row, int64_t n_rows, void *dst) {
    plan *p = arg;
    job *j = p->job;
    int rc = quantize_report(j, p, row);
    if (rc) return rc;
    rows r = {p, row, dst};
    base_threads_for(j->threads, convert_rows, &r, n_rows, ROWS_PER_TASK);
    j->step.done_bytes += (uint64_t)(n_rows * kernel_row_bytes(p->from->type, p->from->dims[0]));
    return RP_OK;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static bool is_own_key(const char *key) {
    static const char *const keys[] = {"general.file_type", "general.quantization_version",
                                       "general.alignment", "split.no",
                                       "split.count", "split.tensors.count"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(keys); i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static int copy_metadata(job *j, rp_error *err) {
    for (size_t i = 0; i < gguf_n_metadata(j->in); i++) {
        char key[GGUF_MAX_NAME + 1];
        gguf_string name = gguf_metadata_key(j->in, i);
        gguf_value_type type;
        gguf_bytes raw = gguf_metadata_raw(j->in, i, &type);
        memcpy(key, name.bytes, (size_t)name.n);
        key[name.n] = '\0';
        if (strlen(key) != name.n)
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(j->in), 0,
                                "the name of metadata entry %zu contains a zero byte", i);
        if (!is_own_key(key)) gguf_writer_raw(j->out, key, (uint32_t)type, raw.data, raw.n);
    }
    gguf_writer_u32(j->out, "general.file_type", j->target->file_type);
    gguf_writer_u32(j->out, "general.quantization_version", QUANTIZATION_VERSION);
    return RP_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int write_copy(job *j, const char *out, rp_error *err) {
    uint64_t alignment = 0;
    gguf_get_u64(j->in, "general.alignment", &alignment);
    j->out = gguf_writer_new(3, (uint32_t)alignment);
    if (!j->out) return base_fail_memory(err, 0, "a model file");
    int rc = copy_metadata(j, err);
    if (rc) return rc;
    for (size_t i = 0; i < gguf_n_tensors(j->in); i++) {
        plan *p = &j->plans[i];
        gguf_writer_tensor_fill(j->out, p->name, p->to, p->from->n_dims, p->from->dims, quantize_fill, p);
    }
    rc = gguf_writer_save(j->out, out, err);
    const rp_quantize_step end = {
        .struct_size = (uint32_t)sizeof(end), .done_bytes = j->step.done_bytes, .total_bytes = j->step.total_bytes};
    if (!rc && j->options->on_step) (void)j->options->on_step(j->options->user, &end);
    return rc && j->cancelled ? base_fail(err, RP_ERR_CANCELLED, "cancelled: '%s' was not written", out) : rc;
}

void rp_quantize_options_init(rp_quantize_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_quantize_options){.n_threads = 0}, sizeof(rp_quantize_options));
}

int rp_model_quantize(const char *in, const char *out, const char *type, const rp_quantize_options *options,
                      rp_error *err) {
    rp_quantize_options o = rp_quantize_options_defaults();
    job j = {.options = &o};
    if (!in || !out || !type) return base_fail(err, RP_ERR_INVALID, "rp_model_quantize: in, out and type are needed");
    int rc = base_sized_read(&o, sizeof(o), options, "rp_quantize_options", err);
    if (!rc) rc = base_threads_check(o.n_threads, err);
    if (!rc) rc = find_target(&j.target, type, err);
    if (!rc) rc = gguf_open(&j.in, in, err);
    /* An output path that is an input file: it would be replaced while its weights are read. */
    for (size_t i = 0; !rc && i < gguf_n_parts(j.in); i++)
        if (base_file_same(gguf_part_name(j.in, i), out))
            rc = base_fail(err, RP_ERR_INVALID, "'%s' would overwrite the model itself: give another name", out);
    if (!rc) rc = base_threads_new(&j.threads, o.n_threads > 0 ? o.n_threads : base_cpu_count(), err);
    if (!rc) rc = plan_tensors(&j, err);
    if (!rc) rc = write_copy(&j, out, err);
    for (size_t i = 0; j.plans && i < gguf_n_tensors(j.in); i++) base_free(j.plans[i].name);
    base_free(j.plans);
    base_free(j.rows);
    base_threads_free(j.threads);
    gguf_writer_free(j.out);
    gguf_close(j.in);
    return rc;
}
