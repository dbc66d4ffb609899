/* engine.c: making an engine, its schemas, and the plain parts of the public interface. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "engine/engine_internal.h"
#include "model/model_quantize.h"

#define DEFAULT_BUDGET_BYTES ((uint64_t)2 << 30)
#define DEFAULT_CHUNK_TOKENS 256
#define MAX_CHUNK_TOKENS 4096
#define MAX_CTX (1 << 30) /* sums and differences of two positions fit */

/* ---- models ---- */

rp_model_options rp_model_options_defaults(void) { return (rp_model_options){.chat_format = NULL}; }

int rp_model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err) {
    if (!out || !path) return base_fail(err, RP_ERR_INVALID, "rp_model_open: out and path are needed");
    return model_open(out, path, options, err);
}

void rp_model_close(rp_model *model) { model_close(model); }

static int check_threads(int32_t n, rp_error *err) {
    if (n >= 0 && n <= BASE_THREADS_MAX) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "%d threads: expected 1 to %d, or 0 for one a processor", n, BASE_THREADS_MAX);
}

rp_quantize_options rp_quantize_options_defaults(void) { return (rp_quantize_options){.n_threads = 0}; }

int rp_model_quantize(const char *in, const char *out, const char *type, const rp_quantize_options *options, rp_error *err) {
    rp_quantize_options o = options ? *options : rp_quantize_options_defaults();
    if (!in || !out || !type) return base_fail(err, RP_ERR_INVALID, "rp_model_quantize: in, out and type are needed");
    int rc = check_threads(o.n_threads, err);
    if (rc) return rc;
    if (o.n_threads == 0) o.n_threads = base_cpu_count();
    return model_quantize(in, out, type, &o, err);
}

/* The type of most bytes of weights. */
static kernel_type main_type(const rp_model *m, uint64_t *bytes, uint64_t *parameters) {
    uint64_t by_type[KERNEL_TYPE_END] = {0};
    kernel_type best = KERNEL_F32;
    *bytes = *parameters = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        by_type[t->type] += t->bytes;
        if (by_type[t->type] > by_type[best]) best = t->type;
        *bytes += t->bytes;
        *parameters += (uint64_t)t->dims[0] * (uint64_t)t->dims[1] * (uint64_t)t->dims[2] * (uint64_t)t->dims[3];
    }
    return best;
}

static int32_t count_windows(const rp_model *m) {
    int32_t n = 0;
    for (int32_t l = 0; l < m->hp.n_layers; l++) n += m->layers[l].window > 0;
    return n;
}

static const char *name_positions(const rp_model *m) {
    if (!model_is_movable(m)) return "learned";
    return m->alibi_slopes ? "ALiBi" : m->hp.rot_dim > 0 ? "rotary" : "none";
}

void rp_model_describe(const rp_model *m, rp_model_info *out) {
    kv_shape f16 = model_state_shape(m, KV_F16);
    *out = (rp_model_info){
        .name = m->name,
        .architecture = m->arch->name,
        .chat_format = chat_format_name(m->chat),
        .chat_format_guessed = m->chat_guessed,
        .n_layers = m->hp.n_layers,
        .n_heads = m->hp.n_heads,
        .n_kv_heads = m->hp.n_kv_heads,
        .head_dim = m->hp.key_dim,
        .n_embd = m->hp.n_embd,
        .n_ff = m->hp.n_ff,
        .n_vocab = m->hp.n_vocab,
        .n_ctx_train = m->hp.n_ctx_train,
        .positions = name_positions(m),
        .movable = model_is_movable(m),
        .window = m->hp.window,
        .n_window_layers = count_windows(m),
        .n_experts = m->hp.n_experts,
        .n_experts_used = m->hp.n_experts_used,
        .state_bytes_per_token = kv_shape_token_bytes(&f16),
        .fingerprint = m->fingerprint_hex,
    };
    out->weights = kernel_type_name(main_type(m, &out->weight_bytes, &out->parameters));
}

const char *rp_chat_format_name(int i) {
    const chat_format *f = i >= 0 ? chat_format_at(i) : NULL;
    return f ? chat_format_name(f) : NULL;
}

int rp_tokenize(const rp_model *m, const char *text, size_t n, bool parse_special, bool add_bos, int32_t **tokens, size_t *n_tokens,
                rp_error *err) {
    token_list list = {0};
    int rc = RP_OK;
    *tokens = NULL;
    *n_tokens = 0;
    if (add_bos && tokenizer_adds_bos(m->tokenizer) && tokenizer_bos(m->tokenizer) >= 0)
        rc = token_list_push(&list, tokenizer_bos(m->tokenizer));
    if (rc) rc = base_fail_memory(err, sizeof(int32_t), "tokens");
    else
        rc = tokenizer_encode(m->tokenizer, text, n, (tokenizer_options){.parse_special = parse_special, .space_prefix = true}, &list,
                              err);
    if (rc) {
        token_list_free(&list);
        return rc;
    }
    *tokens = list.ids;
    *n_tokens = list.n;
    return RP_OK;
}

const char *rp_token_bytes(const rp_model *m, int32_t token, bool special, size_t *n_bytes) {
    return tokenizer_bytes(m->tokenizer, token, special, n_bytes);
}

void rp_free(void *p) { base_free(p); }

/* ---- engines ---- */

rp_engine_options rp_engine_options_defaults(void) {
    return (rp_engine_options){.state_budget_bytes = DEFAULT_BUDGET_BYTES, .chunk_tokens = DEFAULT_CHUNK_TOKENS};
}

static int check_options(const rp_engine_options *o, rp_error *err) {
    int rc = check_threads(o->n_threads, err);
    if (rc) return rc;
    if (o->n_ctx < 0 || o->n_ctx > MAX_CTX) return base_fail(err, RP_ERR_INVALID, "a context of %d positions", o->n_ctx);
    if (o->chunk_tokens < 0 || o->chunk_tokens > MAX_CHUNK_TOKENS)
        return base_fail(err, RP_ERR_INVALID, "chunks of %d tokens: expected 1 to %d", o->chunk_tokens, MAX_CHUNK_TOKENS);
    if (o->state_format != RP_STATE_F16 && o->state_format != RP_STATE_F32)
        return base_fail(err, RP_ERR_INVALID, "unknown state format %d", (int)o->state_format);
    return RP_OK;
}

static int check_context(const rp_engine *e, rp_error *err) {
    const rp_model *m = e->model;
    if (model_is_movable(m) || e->n_ctx <= m->hp.n_ctx_train) return RP_OK;
    return base_fail(err, RP_ERR_CONTEXT, "a context of %d positions: architecture '%s' has learned %d, and no others can be had",
                     e->n_ctx, m->arch->name, m->hp.n_ctx_train);
}

/* What the keys of this engine's spans depend on besides scope and tokens. */
static void make_salt(rp_engine *e, const rp_engine_options *o) {
    const char *tenant = o->tenant ? o->tenant : "";
    base_hash h;
    base_hash_init(&h, "reprise salt 1");
    base_hash_key(&h, &e->model->fingerprint);
    base_hash_u64(&h, (uint64_t)o->state_format);
    base_hash_u64(&h, model_rope_is_long(e->model, e->n_ctx));
    base_hash_bytes(&h, tenant, strlen(tenant));
    base_hash_final(&h, &e->salt);
}

/* The pool's reclaimer: what the request's private store has no use for goes last, it will be wanted again at once. */
static bool reclaim(void *user) {
    rp_engine *e = user;
    return span_store_reclaim(e->store) || (e->private_store && span_store_reclaim(e->private_store));
}

static int open_parts(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    base_cpu_level level;
    kv_format format = o->state_format == RP_STATE_F32 ? KV_F32 : KV_F16;
    kv_shape shape = model_state_shape(e->model, format);
    uint64_t budget = o->state_budget_bytes ? o->state_budget_bytes : DEFAULT_BUDGET_BYTES;
    int32_t threads = o->n_threads ? o->n_threads : base_cpu_count();
    int rc = base_cpu_detect(&level, err);
    if (rc) return rc;
    cpu_backend_options cpu = {
        .format = format, .level = level, .n_ctx = e->n_ctx, .n_threads = threads, .max_rows = e->chunk_tokens};
    if ((rc = cpu_backend_new(&e->backend, e->model, &cpu, err)) ||
        (rc = model_forward_new(&e->forward, e->model, e->backend, e->chunk_tokens, 1, err)) ||
        (rc = kv_pool_new(&e->pool, &shape, budget, e->backend->ops->memory(e->backend), err)) ||
        (rc = span_store_new(&e->store, err)))
        return rc;
    kv_pool_set_reclaim(e->pool, reclaim, e);
    e->rows = base_calloc((size_t)e->chunk_tokens, sizeof(*e->rows));
    e->logits = base_calloc((size_t)e->model->hp.n_vocab, sizeof(float));
    if (!e->rows || !e->logits) return base_fail_memory(err, (uint64_t)e->model->hp.n_vocab * sizeof(float), "an engine");
    make_salt(e, o);
    return RP_OK;
}

int rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err) {
    rp_engine_options o = options ? *options : rp_engine_options_defaults();
    *out = NULL;
    int rc = check_options(&o, err);
    if (rc) return rc;
    rp_engine *e = base_calloc(1, sizeof(*e));
    if (!e) return base_fail_memory(err, sizeof(*e), "an engine");
    e->model = model;
    e->n_ctx = o.n_ctx ? o.n_ctx : model->hp.n_ctx_train;
    e->chunk_tokens = o.chunk_tokens ? o.chunk_tokens : DEFAULT_CHUNK_TOKENS;
    rc = check_context(e, err);
    if (!rc) rc = open_parts(e, &o, err);
    if (rc) {
        rp_engine_free(e);
        return rc;
    }
    *out = e;
    return RP_OK;
}

static void free_schema(rp_schema *s) {
    if (!s) return;
    pml_layout_free(s->layout);
    pml_document_free(s->document);
    base_free(s->name);
    base_free(s);
}

void rp_engine_free(rp_engine *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_schemas; i++) free_schema(e->schemas[i]);
    base_free(e->schemas);
    model_forward_free(e->forward);
    span_store_free(e->store);
    kv_pool_free(e->pool);
    if (e->backend) e->backend->ops->free(e->backend);
    base_free(e->rows);
    base_free(e->logits);
    base_free(e);
}

int rp_engine_prepare(rp_engine *e, rp_on_progress on_progress, void *user, rp_error *err) {
    return e->backend->ops->prepare(e->backend, on_progress, user, err);
}

void rp_engine_memory(const rp_engine *e, rp_memory *out) {
    kv_pool_stats states = kv_pool_get_stats(e->pool);
    *out = (rp_memory){.states = states.slab_bytes, .states_limit = states.budget_bytes};
    e->backend->ops->usage(e->backend, out);
}

void rp_engine_store_stats(const rp_engine *e, rp_store_stats *out) {
    *out = (rp_store_stats){.budget_bytes = kv_pool_get_stats(e->pool).budget_bytes};
    span_store_stats(e->store, out);
}

/* ---- schemas ---- */

const char *rp_schema_name(const rp_schema *schema) { return schema->name; }

static rp_schema **find_slot(const rp_engine *e, const char *name) {
    for (size_t i = 0; i < e->n_schemas; i++)
        if (strcmp(e->schemas[i]->name, name) == 0) return &e->schemas[i];
    return NULL;
}

int engine_find_schema(const rp_engine *e, const char *name, rp_schema **out, rp_error *err) {
    rp_schema **slot = find_slot(e, name);
    if (slot) {
        *out = *slot;
        return RP_OK;
    }
    char list[256] = "";
    for (size_t i = 0; i < e->n_schemas; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s'%s'", i ? ", " : "", e->schemas[i]->name);
    }
    if (e->n_schemas == 0)
        return base_fail(err, RP_ERR_NAME, "no schema '%.100s' is loaded: load its file first (--schema FILE)", name);
    return base_fail(err, RP_ERR_NAME, "no schema '%.100s' is loaded (loaded: %s)", name, list);
}

/* Takes the schema over: replaces one of its name, or adds it. */
static int register_schema(rp_engine *e, rp_schema *s, rp_error *err) {
    rp_schema **slot = find_slot(e, s->name);
    if (slot) {
        free_schema(*slot);
        *slot = s;
        return RP_OK;
    }
    int rc = base_grow((void **)&e->schemas, &e->cap_schemas, e->n_schemas + 1, ENGINE_MAX_SCHEMAS, sizeof(*e->schemas));
    if (rc) return base_fail(err, rc, "no room for schema '%s' beside %zu others", s->name, e->n_schemas);
    e->schemas[e->n_schemas++] = s;
    return RP_OK;
}

int rp_schema_parse(rp_engine *e, const char *pml, size_t n, const char *name, const char *dir, const rp_schema_options *options,
                    rp_schema **out, rp_error *err) {
    if (out) *out = NULL;
    rp_schema *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a schema");
    int rc = pml_schema_parse(&s->document, pml, n, name ? name : "schema", dir, options, err);
    if (!rc) rc = pml_layout_new(&s->layout, s->document, e->model, &e->salt, err);
    if (!rc && !(s->name = base_strdup(s->document->nodes[0].name))) rc = base_fail_memory(err, 64, "a name");
    if (!rc) rc = register_schema(e, s, err);
    if (rc) free_schema(s);
    else if (out) *out = s;
    return rc;
}

int rp_schema_load(rp_engine *e, const char *path, const rp_schema_options *options, rp_schema **out, rp_error *err) {
    base_buffer bytes = {0};
    if (out) *out = NULL;
    int rc = base_file_read(path, PML_MAX_BYTES, &bytes, err);
    if (rc) return rc;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? base_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : base_strdup(".");
    if (!dir) rc = base_fail_memory(err, strlen(path), "a path");
    else rc = rp_schema_parse(e, bytes.data ? bytes.data : "", bytes.len, path, dir, options, out, err);
    base_free(dir);
    base_buffer_free(&bytes);
    return rc;
}
