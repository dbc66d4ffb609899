/* SPDX-License-Identifier: Apache-2.0 */
/* engine_metrics.c: see engine_metrics.h. Figures of each loaded model are taken at once, while it has a user; then
 * each family is written for all of them. Owns nothing. */
#include "server/admin/engine_metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise_cluster.h"
#include "reprise_device.h"
#include "server/admin/audit_http.h"
#include "reprise_store.h"

#define LABEL_BYTES (SERVER_MODEL_NAME_BYTES + 16)

/* Of a loaded model. */
typedef struct model_figures {
    char label[LABEL_BYTES]; /* `model="NAME",`; "": the only model */
    char name[SERVER_MODEL_NAME_BYTES];
    uint64_t blocks;   /* of RP_NAME_TOKENS tokens, that the KV cache holds */
    double blocks_use; /* share of the KV cache that running requests hold: what is cached can be evicted */
    uint64_t running, waiting, background, audit_waiting;
    rp_store_stats store;
    rp_device_usage device;
    uint64_t is_lost; /* the device: 0 or 1 */
    rp_scaffold_stats scaffolds;
    rp_audit *audit; /* NULL: no memory for it */
} model_figures;

typedef struct engine_figures {
    model_figures *models; /* [n] */
    audit_metrics *audits; /* [n] */
    size_t n;
    bool has_labels;
} engine_figures;

#define AT(field) offsetof(model_figures, field) /* of a uint64_t */
static const struct {
    const char *name, *type, *help;
    size_t at;
} families[] = {
    {"requests_running", "gauge", "Requests running in the engine.", AT(running)},
    {"requests_waiting", "gauge", "Requests waiting in the engine's queue.", AT(waiting)},
    {"store_spans", "gauge", "Spans in the store's RAM tier.", AT(store.spans)},
    {"store_bytes", "gauge", "KV bytes of spans in the store's RAM tier.", AT(store.bytes)},
    {"store_used_bytes", "gauge", "KV cache in use in RAM: spans of the store and KV of running requests, in bytes.",
     AT(store.used_bytes)},
    {"store_budget_bytes", "gauge", "Limit of the KV cache in RAM, in bytes.", AT(store.budget_bytes)},
    {"store_hits_total", "counter", "Store lookups that hit.", AT(store.hits)},
    {"store_misses_total", "counter", "Store lookups that missed.", AT(store.misses)},
    {"store_inserts_total", "counter", "Spans inserted into the store.", AT(store.inserts)},
    {"store_evictions_total", "counter", "Spans evicted from RAM and disk.", AT(store.evictions)},
    {"store_expired_total", "counter", "Spans removed because their time to live expired.", AT(store.expired)},
    {"store_disk_spans", "gauge", "Records in the store's disk tier.", AT(store.disk_spans)},
    {"store_disk_bytes", "gauge", "Size of the store's disk tier in bytes.", AT(store.disk_bytes)},
    {"store_disk_budget_bytes", "gauge", "Limit of the store's disk tier, in bytes.", AT(store.disk_budget_bytes)},
    {"store_disk_reads_total", "counter", "Records read from the disk tier.", AT(store.disk_reads)},
    {"store_disk_read_bytes_total", "counter", "Bytes read from the disk tier.", AT(store.disk_read_bytes)},
    {"store_disk_writes_total", "counter", "Records written to the disk tier.", AT(store.disk_writes)},
    {"store_disk_write_bytes_total", "counter", "Bytes written to the disk tier.", AT(store.disk_write_bytes)},
    {"store_disk_evictions_total", "counter", "Records evicted from the disk tier.", AT(store.disk_evictions)},
    {"store_disk_unwritten_total", "counter",
     "Spans not written to disk: no space, an I/O error, or evicted from RAM before the write.",
     AT(store.disk_unwritten)},
    {"store_disk_skipped_total", "counter",
     "Spans of text used once not written because the disk tier has no free space.", AT(store.disk_skipped)},
    {"store_disk_late_total", "counter",
     "Spans of text whose write did not begin in time on a slow disk: they are written when nothing else is due.",
     AT(store.disk_late)},
    {"store_disk_waiting_spans", "gauge", "Spans that wait to be written to disk.", AT(store.disk_waiting)},
    {"store_disk_waiting_bytes", "gauge", "KV bytes that wait to be written to disk.", AT(store.disk_waiting_bytes)},
    {"store_disk_once_bytes", "gauge",
     "KV bytes of text used once that wait to be written to disk, at the lowest priority.", AT(store.disk_once_bytes)},
    {"store_disk_faults_total", "counter", "Disk records that failed to load.", AT(store.disk_faults)},
    {"store_host_spans", "gauge", "Spans in RAM that a GPU evicted from its memory.", AT(store.host_spans)},
    {"store_host_bytes", "gauge", "KV bytes in RAM that a GPU evicted from its memory.", AT(store.host_bytes)},
    {"store_host_budget_bytes", "gauge", "Limit of the KV in RAM that a GPU evicts, in bytes.",
     AT(store.host_budget_bytes)},
    {"store_host_hits_total", "counter", "Store lookups of a GPU that hit in RAM.", AT(store.host_hits)},
    {"store_host_in_place_total", "counter", "Store lookups of a GPU that hit in RAM and are read there, over the bus.",
     AT(store.host_in_place)},
    {"store_host_reads_total", "counter", "Spans copied from RAM to a GPU's memory.", AT(store.host_reads)},
    {"store_host_writes_total", "counter", "Spans copied from a GPU's memory to RAM at their eviction.",
     AT(store.host_writes)},
    {"store_host_evictions_total", "counter", "Spans of a GPU evicted from RAM.", AT(store.host_evictions)},
    {"pool_looks_total", "counter", "Requests for which the pool was asked what it has.", AT(store.pool_looks)},
    {"pool_reads_total", "counter", "Spans pulled from the pool.", AT(store.pool_reads)},
    {"pool_read_bytes_total", "counter", "Bytes of spans pulled from the pool.", AT(store.pool_read_bytes)},
    {"pool_faults_total", "counter", "Spans that could not be pulled from the pool: late, gone, or not valid.",
     AT(store.pool_faults)},
    {"pool_writes_total", "counter", "Spans pushed to the pool.", AT(store.pool_writes)},
    {"pool_write_bytes_total", "counter", "Bytes pushed to the pool.", AT(store.pool_write_bytes)},
    {"pool_present_total", "counter", "Spans that were not pushed because the pool had them.",
     AT(store.pool_present)},
    {"pool_unwritten_total", "counter", "Spans that could not be pushed to the pool.", AT(store.pool_unwritten)},
    {"pool_pauses_total", "counter", "Times that the pool was not used for a while, after failures.",
     AT(store.pool_pauses)},
    {"device_lost", "gauge", "Loss of the GPU: 1 fails every request until the server is started again, 0 otherwise.",
     AT(is_lost)},
    {"device_layers", "gauge", "Layers of the model that the GPU computes; the processor computes those before them.",
     AT(device.layers)},
    {"device_carried_bytes_total", "counter",
     "Bytes of activations copied to the GPU after the layers that the processor computes.", AT(device.carried_bytes)},
    {"device_limit_bytes", "gauge", "Limit of the GPU's memory in bytes; 0: none.", AT(device.limit_bytes)},
    {"device_weight_bytes", "gauge", "Weights in the GPU's memory, in bytes.", AT(device.weight_bytes)},
    {"device_activation_bytes", "gauge", "Activations in the GPU's memory, in bytes.", AT(device.activation_bytes)},
    {"device_kv_bytes", "gauge", "Memory of the GPU allocated for the KV cache, in bytes.", AT(device.kv_bytes)},
    {"device_scratch_bytes", "gauge", "Other memory of the GPU, in bytes: scratch, tables, staging buffers.",
     AT(device.scratch_bytes)},
    {"device_to_device_bytes_total", "counter", "Bytes copied from RAM to the GPU's memory, weights included.",
     AT(device.to_device_bytes)},
    {"device_to_host_bytes_total", "counter", "Bytes of KV copied from the GPU's memory to RAM.",
     AT(device.to_host_bytes)},
    {"device_in_place_bytes_total", "counter",
     "KV bytes in RAM that the GPU's steps read over the bus: once for each step.", AT(device.in_place_bytes)},
    {"device_submits_total", "counter", "Submissions of steps to the GPU.", AT(device.submits)},
    {"device_submit_us_total", "counter", "Time of the processor in submissions to the GPU, in microseconds.",
     AT(device.submit_us)},
    {"device_step_us_total", "counter", "Time from submissions of steps to their end on the GPU, in microseconds.",
     AT(device.step_us)},
    {"audit_waiting", "gauge", "Sampled requests that wait for the quality audit.", AT(audit_waiting)},
    {"background_tasks", "gauge", "Background tasks queued or running in the engine.", AT(background)},
    {"scaffolds_known", "gauge", "Module combinations tracked for learned scaffolds.", AT(scaffolds.known)},
    {"scaffolds_prefilled", "gauge", "Module combinations with a prefilled learned scaffold.", AT(scaffolds.prefilled)},
    {"scaffolds_pending", "gauge", "Module combinations that wait for the prefill of a learned scaffold.",
     AT(scaffolds.pending)},
    {"scaffold_bytes", "gauge", "KV bytes of learned scaffolds.", AT(scaffolds.bytes)},
    {"scaffold_budget_bytes", "gauge", "Limit for the KV of learned scaffolds, in bytes.", AT(scaffolds.budget_bytes)},
    {"scaffold_hits_total", "counter", "Requests that hit a learned scaffold and are exact.", AT(scaffolds.hits)},
    {"scaffold_misses_total", "counter",
     "Requests of quality scaffold without a learned scaffold, composed from modules.", AT(scaffolds.misses)},
    {"scaffolds_dropped_total", "counter", "Learned scaffolds evicted.", AT(scaffolds.dropped)},
};
#undef AT

static void take_blocks(model_figures *f, rp_engine *engine) {
    rp_engine_load load = {.struct_size = sizeof(load)};
    const double budget = (double)f->store.budget_bytes;
    if (rp_engine_get_load(engine, &load) || budget <= 0 || load.kv_bytes_per_token == 0) return;
    f->blocks = f->store.budget_bytes / (load.kv_bytes_per_token * RP_NAME_TOKENS);
    f->blocks_use = BASE_MAX(1 - BASE_MIN((double)load.free_bytes / budget, 1), 0);
}

static int take_figures(server_model *m, void *user) {
    engine_figures *all = user;
    model_figures *f = &all->models[all->n];
    rp_engine_info e = {.struct_size = sizeof(e)};
    f->store.struct_size = sizeof(f->store);
    f->scaffolds.struct_size = sizeof(f->scaffolds);
    f->device.struct_size = sizeof(f->device);
    rp_engine_store_stats(m->engine, &f->store);
    rp_engine_device_usage(m->engine, &f->device);
    f->is_lost = f->device.is_lost;
    rp_engine_scaffold_stats(m->engine, &f->scaffolds);
    rp_engine_describe(m->engine, &e);
    f->running = (uint64_t)BASE_MAX(e.running, 0);
    f->waiting = (uint64_t)BASE_MAX(e.waiting, 0);
    f->background = (uint64_t)BASE_MAX(e.background, 0);
    snprintf(f->name, sizeof(f->name), "%s", m->name);
    take_blocks(f, m->engine);
    if (all->has_labels) snprintf(f->label, sizeof(f->label), "model=\"%s\",", m->name);
    if (rp_engine_audit(m->engine, &f->audit, NULL)) f->audit = NULL;
    f->audit_waiting = f->audit ? f->audit->waiting : 0;
    all->audits[all->n++] = (audit_metrics){f->label, f->audit};
    return 0;
}

/* `{model="NAME"}`, or "": the label without its comma. */
static int append_sample(base_buffer *b, const char *name, const model_figures *f, double value, int digits) {
    const int n = (int)strlen(f->label) - (f->label[0] != '\0');
    return base_buffer_printf(b, "reprise_%s%s%.*s%s %.*f\n", name, n > 0 ? "{" : "", n, f->label, n > 0 ? "}" : "",
                              digits, value);
}

static int append_help(base_buffer *b, const char *name, const char *type, const char *help) {
    return base_buffer_printf(b, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\n", name, help, name, type);
}

static int append_families(base_buffer *b, const engine_figures *all) {
    int rc = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(families) && !rc; i++) {
        rc = append_help(b, families[i].name, families[i].type, families[i].help);
        for (size_t k = 0; k < all->n && !rc; k++) {
            const model_figures *f = &all->models[k];
            rc = append_sample(b, families[i].name, f,
                               (double)*(const uint64_t *)(const void *)((const char *)f + families[i].at), 0);
        }
    }
    return rc;
}

static int append_lag(base_buffer *b, const engine_figures *all) {
    static const char name[] = "store_disk_lag_seconds";
    int rc = append_help(b, name, "gauge",
                         "Age of the oldest span that waits to be written to disk, except text used once; limited to "
                         "about 6 s for text.");
    for (size_t k = 0; k < all->n && !rc; k++)
        rc = append_sample(b, name, &all->models[k], (double)all->models[k].store.disk_lag_us / 1e6, 6);
    return rc;
}

static int append_degraded(base_buffer *b, const engine_figures *all) {
    int rc = append_help(b, "store_degraded", "gauge", "Degradation of the store's disk tier, by reason: 0 "
                                                       "none, 1 the last write failed, 2 read-only, 3 unusable.");
    for (size_t k = 0; k < all->n && !rc; k++) {
        const rp_store_stats *t = &all->models[k].store;
        bool is = t->disk_state > RP_STORE_WORKS;
        rc = base_buffer_printf(b, "reprise_store_degraded{%sreason=\"%s\"} %d\n", all->models[k].label,
                                is ? t->disk_trouble : "none", is ? (int)t->disk_state - RP_STORE_WORKS : 0);
    }
    return rc;
}

static int append_pool(base_buffer *b, const engine_figures *all) {
    int rc = append_help(b, "pool_degraded", "gauge", "The pool, by the reason of its last failure: 0 none, 1 the "
                                                      "last operation failed, 2 it is not used for a while.");
    for (size_t k = 0; k < all->n && !rc; k++) {
        const rp_store_stats *t = &all->models[k].store;
        const bool is = t->pool_is_paused || t->pool_trouble[0];
        rc = base_buffer_printf(b, "reprise_pool_degraded{%sreason=\"%s\"} %d\n", all->models[k].label,
                                is && t->pool_trouble[0] ? t->pool_trouble : "none", is + t->pool_is_paused);
    }
    return rc;
}

/* ---- vLLM's names, which gateways of Kubernetes read (docs/server.md) ---- */

static double vllm_running(const model_figures *f) { return (double)f->running; }
static double vllm_waiting(const model_figures *f) { return (double)f->waiting; }
static double vllm_use(const model_figures *f) { return f->blocks_use; }

static int append_vllm(base_buffer *b, const engine_figures *all) {
    static const struct {
        const char *name, *help;
        double (*value)(const model_figures *f);
        int digits;
    } gauges[] = {
        {"num_requests_running", "Requests running in the engine.", vllm_running, 0},
        {"num_requests_waiting", "Requests waiting in the engine's queue.", vllm_waiting, 0},
        {"kv_cache_usage_perc", "Share of the KV cache in RAM that running requests hold, from 0 to 1.", vllm_use, 6},
    };
    int rc = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(gauges) && !rc; i++) {
        rc = base_buffer_printf(b, "# HELP vllm:%s %s\n# TYPE vllm:%s gauge\n", gauges[i].name, gauges[i].help,
                                gauges[i].name);
        for (size_t k = 0; k < all->n && !rc; k++)
            rc = base_buffer_printf(b, "vllm:%s{model_name=\"%s\"} %.*f\n", gauges[i].name, all->models[k].name,
                                    gauges[i].digits, gauges[i].value(&all->models[k]));
    }
    if (!rc)
        rc = base_buffer_append_str(b,
                                    "# HELP vllm:cache_config_info Size of the KV cache in RAM, in blocks, as labels.\n"
                                    "# TYPE vllm:cache_config_info gauge\n");
    for (size_t k = 0; k < all->n && !rc; k++)
        rc = base_buffer_printf(
            b, "vllm:cache_config_info{block_size=\"%d\",model_name=\"%s\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n",
            RP_NAME_TOKENS, all->models[k].name, all->models[k].blocks);
    return rc;
}

/* ---- models ---- */

typedef struct model_counts {
    char name[SERVER_MODEL_NAME_BYTES];
    bool is_loaded;
    uint64_t loads, unloads, waiting;
    double load_seconds;
} model_counts;

static void take_counts(server_model *m, void *user) {
    model_counts *c = user;
    BASE_ASSERT(m->n_waiting >= 0);
    snprintf(c->name, sizeof(c->name), "%s", m->name);
    c->is_loaded = m->state == MODEL_LOADED || m->state == MODEL_LEAVING;
    c->loads = m->n_loads;
    c->unloads = m->n_unloads;
    c->waiting = (uint64_t)m->n_waiting;
    c->load_seconds = (double)m->load_us / 1e6;
}

static double count_loaded(const model_counts *c) { return c->is_loaded; }
static double count_loads(const model_counts *c) { return (double)c->loads; }
static double count_unloads(const model_counts *c) { return (double)c->unloads; }
static double count_waiting(const model_counts *c) { return (double)c->waiting; }
static double count_seconds(const model_counts *c) { return c->load_seconds; }

static const struct {
    const char *name, *type, *help;
    double (*value)(const model_counts *c);
    int digits;
} model_families[] = {
    {"model_loaded", "gauge", "1 if the model is loaded, else 0.", count_loaded, 0},
    {"model_loads_total", "counter", "Loads of the model since the start.", count_loads, 0},
    {"model_unloads_total", "counter", "Unloads of the model, to free its memory for another one.", count_unloads, 0},
    {"model_load_seconds_total", "counter", "Time spent on loads of the model, unloads of others for it included.",
     count_seconds, 6},
    {"model_requests_waiting", "gauge", "Requests that wait until the model is loaded.", count_waiting, 0},
};

static int append_models(base_buffer *b, model_pool *p) {
    const int32_t n = model_pool_count(p);
    model_counts *counts = base_calloc((size_t)n, sizeof(*counts));
    server_model *m;
    int rc = counts ? 0 : RP_ERR_MEMORY;
    for (int32_t i = 0; i < n && !rc; i++)
        if (model_pool_name(p, i, &m)) model_pool_look(p, m, take_counts, &counts[i]);
    for (size_t f = 0; f < BASE_ARRAY_LEN(model_families) && !rc; f++) {
        rc = append_help(b, model_families[f].name, model_families[f].type, model_families[f].help);
        for (int32_t i = 0; i < n && !rc; i++)
            rc = base_buffer_printf(b, "reprise_%s{model=\"%s\"} %.*f\n", model_families[f].name, counts[i].name,
                                    model_families[f].digits, model_families[f].value(&counts[i]));
    }
    base_free(counts);
    return rc;
}

int engine_metrics_append(base_buffer *b, model_pool *p) {
    const size_t n = (size_t)model_pool_count(p);
    engine_figures all = {base_calloc(n, sizeof(*all.models)), base_calloc(n, sizeof(*all.audits)), 0, n > 1};
    int rc = all.models && all.audits ? model_pool_visit(p, take_figures, &all) : RP_ERR_MEMORY;
    BASE_ASSERT(all.n <= n); /* a visit each */
    if (!rc) rc = append_models(b, p);
    if (!rc) rc = append_families(b, &all);
    if (!rc) rc = append_lag(b, &all);
    if (!rc) rc = append_degraded(b, &all);
    if (!rc) rc = append_pool(b, &all);
    if (!rc) rc = append_vllm(b, &all);
    if (!rc) rc = audit_append_metrics(b, all.audits, all.n);
    for (size_t i = 0; i < all.n; i++) rp_audit_free(all.models[i].audit);
    base_free(all.models);
    base_free(all.audits);
    return rc;
}
