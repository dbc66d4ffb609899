/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_world.c: see schedule_world.h. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, strdup */
#include "schedule_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "draft_head_file.h"
#include "must.h"
#include "recurrent_model.h"
#include "reprise_pml.h"
#include "test_device.h"

#define TEXT_LIMIT ((size_t)1 << 20)
#define ALONE_BUDGET ((uint64_t)256 << 20)
#define MOST_TOKENS 40
#define SMALL_CTX 256 /* of some worlds: long answers reach its end */
#define TRIES 40      /* at prompts, because some exceed the context */

static int32_t below(schedule_world *w, int32_t n) { return (int32_t)tiny_random_below(&w->r, (uint64_t)n); }
static bool chance(schedule_world *w, int32_t one_in) { return below(w, one_in) == 0; }

/* ---- models ---------------------------------------------------------------------------------------------------- */

/* Of the library's own vocabularies a word is about two tokens, of the golden models' six. */
static const struct {
    const char *golden; /* NULL: a made-up llama */
    int32_t shape;      /* of those: oracle_shape */
    kernel_type type;
    bool is_recurrent;
    int32_t draft;  /* of a recurrent one: number of the model that drafts for it */
    bool has_head;  /* a draft head is added to it */
    bool is_latent; /* its attention is latent */
} kinds[SCHEDULE_MODELS] = {
    {.shape = 1, .type = KERNEL_F32},
    {.shape = 1, .type = KERNEL_Q8_0},
    {.golden = "gemma3"},
    {.golden = "gpt-oss"},
    {.golden = "mpt"},
    {.golden = "gpt2"},
    {.golden = "falcon-40b"},
    {.golden = "qwen2moe"},
    {.shape = 4, .type = KERNEL_F32},
    {.golden = "mistral"},
    {.shape = 1, .type = KERNEL_F32, .is_recurrent = true, .draft = 0},
    {.golden = "lfm2", .is_recurrent = true, .draft = 7},
    {.golden = "granitehybrid", .is_recurrent = true, .draft = 7},
    {.golden = "qwen35", .is_recurrent = true, .draft = 7},
    {.golden = "falcon-h1", .is_recurrent = true, .draft = 7},
    {.golden = "mamba2", .is_recurrent = true, .draft = 9},
    {.golden = "qwen35", .is_recurrent = true, .draft = 7, .has_head = true},
    {.golden = "glm4moe", .has_head = true},
    {.golden = "deepseek3", .has_head = true, .is_latent = true},
};

/* The recurrent ones and those with draft heads, the last nine, take turns as one. */
static uint64_t model_of(uint64_t seed) {
    const uint64_t n = SCHEDULE_MODELS - 8, i = seed % n;
    return i < n - 1 ? i : i + seed / n % 9;
}

static void open_files(schedule_model *m, const char *path, const char *chat) {
    rp_error err = {0};
    rp_model_options options = {.struct_size = sizeof(options), .chat_format = chat};
    rp_model_info info = {.struct_size = sizeof(info)};
    must(rp_model_open(&m->model, path, &options, &err), &err);
    must(gguf_open(&m->file, path, &err), &err);
    must(tokenizer_new(&m->tokenizer, m->file, &err), &err);
    rp_model_describe(m->model, &info);
    m->is_movable = info.movable;
    m->has_windows = info.window > 0;
    m->n_vocab = info.n_vocab;
    m->composes = info.states_compose;
    m->n_ctx = info.movable ? SCHEDULE_CTX : info.n_ctx_train;
}

static void open_made_up(schedule_model *m, int32_t i, kernel_type type) {
    const char *chat;
    rp_error err = {0};
    char path[] = "/tmp/reprise-schedules-XXXXXX";
    tiny_model_shape shape = oracle_shape(i, &chat);
    int fd = mkstemp(path);
    if (fd < 0 || close(fd)) abort();
    shape.weight_type = shape.embd_type = type;
    must(tiny_model_write(path, &shape, &err), &err);
    m->name = type == KERNEL_F32 ? "llama, F32" : "llama, Q8_0";
    m->shorter = 1;
    open_files(m, path, chat);
    unlink(path); /* it stays mapped */
}

void schedule_models_open(schedule_model models[SCHEDULE_MODELS]) {
    golden *g = golden_open();
    for (int32_t i = 0; i < SCHEDULE_MODELS; i++) {
        schedule_model *m = &models[i];
        *m = (schedule_model){.name = kinds[i].golden, .shorter = 3};
        char path[64];
        if (kinds[i].has_head) draft_head_file_write(golden_find(g, m->name)->path, i % 2, path);
        if (m->name) open_files(m, kinds[i].has_head ? path : golden_find(g, m->name)->path, NULL);
        else open_made_up(m, kinds[i].shape, kinds[i].type);
        if (kinds[i].has_head) unlink(path); /* it stays mapped */
        m->is_latent = kinds[i].is_latent;
        m->draft = kinds[i].is_recurrent ? models[kinds[i].draft].model : m->model;
        if (!kinds[i].is_recurrent) continue;
        m->is_recurrent = true;
        if (kinds[i].golden) continue;
        m->name = "llama, recurrent";
        recurrent_model_make(m->model);
    }
    golden_close(g);
}

void schedule_models_close(schedule_model models[SCHEDULE_MODELS]) {
    for (int32_t i = 0; i < SCHEDULE_MODELS; i++) {
        tokenizer_free(models[i].tokenizer);
        gguf_close(models[i].file);
        rp_model_close(models[i].model);
    }
}

/* ---- engines --------------------------------------------------------------------------------------------------- */

rp_engine_options schedule_world_options(const schedule_world *w) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = w->n_ctx;
    o.kv_budget_bytes = ALONE_BUDGET;
    o.chunk_tokens = w->most_chunk;
    o.kv_format = w->format;
    if (w->f16_layers[0]) o.kv_f16_layers = w->f16_layers;
    o.keep_share = w->keep;
    o.keep_method = w->keep_method;
    o.module_states = w->module_states;
    return o;
}

void schedule_world_load(const schedule_world *w, rp_engine *engine, const char *tenant) {
    rp_schema_options o = {.struct_size = sizeof(o), .tenant = tenant};
    rp_error err = {0};
    must(rp_schema_parse(engine, w->pml.schema.data, w->pml.schema.len, "schema", NULL, &o, NULL, &err), &err);
}

rp_engine *schedule_world_engine(const schedule_world *w, const rp_engine_options *options) {
    rp_engine *engine;
    rp_error err = {0};
    must(rp_engine_new(&engine, w->model->model, options, &err), &err);
    schedule_world_load(w, engine, NULL);
    return engine;
}

static rp_request_experiment without_prefix(const schedule_call *c) {
    rp_request_experiment x = c->experiment;
    x.no_prefix = true;
    return x;
}

static void run_alone(const schedule_world *w, const schedule_call *c, uint64_t budget, oracle_run *run) {
    const rp_request_experiment experiment = without_prefix(c);
    rp_engine_options o = schedule_world_options(w);
    rp_request request = c->request;
    o.kv_budget_bytes = budget;
    rp_engine *engine = schedule_world_engine(w, &o);
    request.experiment = &experiment;
    oracle_run_make(run, engine, &request);
    rp_engine_free(engine);
}

/* A request of modules after another that had them reduced. */
static void run_reduced(const schedule_world *w, const schedule_call *c, oracle_run *run) {
    const rp_request_experiment experiment = without_prefix(c);
    rp_engine_options o = schedule_world_options(w);
    rp_engine *engine = schedule_world_engine(w, &o);
    rp_request request = c->request;
    request.reuse = RP_REUSE_ON;
    request.experiment = &experiment;
    oracle_run_make(run, engine, &request);
    oracle_run_free(run);
    rp_engine_drain(engine, -1);
    request.reuse = c->request.reuse;
    oracle_run_make(run, engine, &request);
    rp_engine_free(engine);
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

static void put(base_buffer *b, const char *text) {
    if (base_buffer_append_str(b, text)) abort();
}

static char *take(base_buffer *b) {
    put(b, "");
    return b->data ? base_buffer_take(b) : calloc(1, 1);
}

static void put_words(schedule_world *w, base_buffer *b, int32_t n) {
    static const char *const words[] = {"the", "river", "of", "Lisbon", "is", "42",
                                        "seven", "hills,", "na\xc3\xafve", "and", "x", "surf."};
    for (int32_t i = 0; i < n; i++) {
        put(b, words[below(w, (int32_t)BASE_ARRAY_LEN(words))]);
        put(b, chance(w, 15) ? "\n" : " ");
    }
}

/* Few words, or enough for several blocks and now and then for several spans; where there are windows, for them to
   forget some. */
static int32_t some_words(schedule_world *w) {
    int32_t n = 1 + below(w, chance(w, 4) ? 160 : chance(w, 2) ? 60
                                                               : 12);
    if (w->model->has_windows && chance(w, 2)) n += 200;
    return 1 + n / (w->model->is_movable ? w->model->shorter : 3 * w->model->shorter);
}

static char *new_text(schedule_world *w) {
    base_buffer b = BASE_BUFFER(TEXT_LIMIT);
    if (!chance(w, 20)) put_words(w, &b, some_words(w));
    return take(&b);
}

/* Begins like another text. */
static char *text_like(schedule_world *w, const char *text) {
    base_buffer b = BASE_BUFFER(TEXT_LIMIT);
    size_t n = (size_t)below(w, (int32_t)strlen(text) + 1);
    while (n > 0 && text[n - 1] != ' ') n--;
    if (base_buffer_append(&b, text, n)) abort();
    put_words(w, &b, some_words(w));
    return take(&b);
}

/* Another turn, or more text, after a prompt. */
/* The same except for words somewhere before its last third. */
static char *edited_text(schedule_world *w, const char *text) {
    base_buffer b = BASE_BUFFER(1 << 16);
    int32_t length = (int32_t)strlen(text), begin = below(w, length / 2 + 1), end = begin + below(w, length / 6 + 1);
    while (begin > 0 && text[begin] != ' ') begin--;
    while (text[end] && text[end] != ' ') end++;
    if (base_buffer_append(&b, text, (size_t)begin)) abort();
    put_words(w, &b, below(w, 6));
    put(&b, text + end);
    return take(&b);
}

static char *prompt_like(schedule_world *w, const char *prompt) {
    base_buffer b = BASE_BUFFER(TEXT_LIMIT);
    bool turn = chance(w, 2);
    if (base_buffer_append(&b, prompt, strlen(prompt) - strlen("</prompt>"))) abort();
    if (turn) {
        put(&b, "<assistant>");
        put_words(w, &b, 1 + below(w, 20) / w->model->shorter);
        put(&b, "</assistant><user>");
    }
    put_words(w, &b, some_words(w));
    put(&b, turn ? "</user></prompt>" : "</prompt>");
    return take(&b);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static int32_t *tokens_of(const schedule_world *w, const char *text, size_t *n) {
    int32_t *tokens;
    rp_error err = {0};
    must(rp_tokenize(w->model->model, text, strlen(text), false, true, &tokens, n, &err), &err);
    return tokens;
}

/* The answer is the continuation in `longer`: a prefill of that hits both. False: the text ends within a token of
   it. */
static bool force_rest(const schedule_world *w, schedule_call *c, const char *longer) {
    size_t n, n_longer;
    int32_t *tokens = tokens_of(w, c->text, &n), *all = tokens_of(w, longer, &n_longer);
    bool fits = n > 0 && n < n_longer && memcmp(tokens, all, n * sizeof(*all)) == 0;
    if (fits) {
        size_t most = BASE_MIN(n_longer - n, (size_t)MOST_TOKENS);
        c->forced = calloc(most, sizeof(*c->forced));
        memcpy(c->forced, all + n, most * sizeof(*c->forced));
        c->experiment.n_forced = (int32_t)most;
    }
    rp_free(tokens);
    rp_free(all);
    return fits;
}

static void force_any(schedule_world *w, schedule_call *c) {
    int32_t n = 1 + below(w, 12);
    c->forced = calloc((size_t)n, sizeof(*c->forced));
    for (int32_t i = 0; i < n; i++) c->forced[i] = below(w, w->model->n_vocab);
    c->experiment.n_forced = n;
}

static void random_sampling(schedule_world *w, rp_sampling *s) {
    *s = rp_sampling_defaults();
    if (chance(w, 2)) return;
    s->temperature = 0.3f + 0.4f * (float)below(w, 3);
    s->seed = tiny_random_u64(&w->r);
    if (chance(w, 2)) s->top_k = 1 + below(w, 40);
    if (chance(w, 3)) s->top_p = 0.9f;
    if (chance(w, 3)) s->repeat_penalty = 1.2f;
}

static rp_quality random_quality(schedule_world *w) {
    if (chance(w, 4)) return (rp_quality){chance(w, 2) ? RP_QUALITY_EXACT : RP_QUALITY_REUSE, 0};
    if (chance(w, 3)) return (rp_quality){chance(w, 2) ? RP_QUALITY_FOCUS : RP_QUALITY_BLEND, 1 + below(w, 40)};
    return (rp_quality){RP_QUALITY_LINK, 1 + below(w, 12)};
}

/* KV that is reduced for the answer: also to a slot or two, and to all of it. */
static void random_reduction(schedule_world *w, rp_request *q) {
    static const char *const shares[] = {"12.5%", "50%", "3", "40", "100%"};
    static const char *const methods[] = {NULL, "snapkv", "sinks", "quest"};
    q->kv_keep = shares[below(w, (int32_t)BASE_ARRAY_LEN(shares))];
    q->kv_method = methods[below(w, (int32_t)BASE_ARRAY_LEN(methods))];
}

static rp_request random_request(schedule_world *w) {
    rp_request q = rp_request_defaults();
    q.max_tokens = chance(w, 12) ? 0 : 1 + below(w, chance(w, 3) ? MOST_TOKENS : 12);
    q.reuse = chance(w, 4) ? RP_REUSE_EXACT : chance(w, 3) ? RP_REUSE_OFF
                                                           : RP_REUSE_ON;
    if (q.reuse != RP_REUSE_EXACT && chance(w, 3)) q.quality = random_quality(w);
    q.ignore_eos = !chance(w, 3);
    q.n_logprobs = chance(w, 6) ? 3 : 0;
    random_sampling(w, &q.sampling);
    if (chance(w, 3) && !w->model->is_recurrent) random_reduction(w, &q);
    q.context_shift = w->n_ctx < w->model->n_ctx && chance(w, 2) && !w->model->is_recurrent;
    if (q.context_shift && chance(w, 2)) q.max_tokens = below(w, 2 * SMALL_CTX);
    return q;
}

/* An earlier call of the same kind; NULL. */
static const schedule_call *some_call(schedule_world *w, bool has_text) {
    for (int32_t tries = 0; w->n_calls > 0 && tries < 8; tries++) {
        const schedule_call *c = &w->calls[below(w, w->n_calls)];
        if ((c->text != NULL) == has_text) return c;
    }
    return NULL;
}

static void choose_text(schedule_world *w, schedule_call *c) {
    const schedule_call *other = some_call(w, true);
    int32_t kind = other ? below(w, 7) : 0;
    if (kind == 0) c->text = new_text(w);
    else if (kind == 1) c->text = strdup(other->text);
    else if (kind == 2) c->text = edited_text(w, other->text);
    else c->text = text_like(w, other->text);
    if (kind < 5 || !other) return;
    char *beginning = c->text, *longer = strdup(other->text); /* c's answer leads on to the other's prompt */
    size_t n = (size_t)below(w, (int32_t)strlen(longer) + 1);
    while (n > 0 && longer[n] != ' ') n--;
    c->text = calloc(n + 1, 1);
    memcpy(c->text, longer, n);
    if (force_rest(w, c, longer)) free(beginning);
    else {
        free(c->text);
        c->text = beginning;
    }
    free(longer);
}

static void choose_prompt(schedule_world *w, schedule_call *c) {
    const schedule_call *other = some_call(w, false);
    int32_t kind = other ? below(w, 4) : 0;
    if (kind == 1) c->prompt = strdup(other->prompt);
    else if (kind > 1) c->prompt = prompt_like(w, other->prompt);
    else {
        random_pml_prompt(&w->pml, w->model->tokenizer);
        c->prompt = strdup(w->pml.prompt.data);
    }
}

static void free_call(schedule_call *c) {
    free(c->text);
    free(c->prompt);
    free(c->forced);
    oracle_run_free(&c->alone);
    oracle_run_free(&c->reduced);
    *c = (schedule_call){0};
}

/* One, two or three characters of the answer end it. */
static bool choose_stop(schedule_world *w, schedule_call *c) {
    const char *text = c->alone.result->text;
    size_t n = strlen(text), at = n ? (size_t)below(w, (int32_t)n) : 0, len = 0;
    while (len < 1 + (size_t)below(w, 3) && at + len < n && text[at + len] > 0) len++;
    if (len == 0) return false;
    memcpy(c->stop, text + at, len);
    c->stops[0] = c->stop;
    c->request.stops = c->stops;
    c->request.n_stops = 1;
    return true;
}

/* Adds a random request; false if it does not fit the model. */
static bool add_call(schedule_world *w) {
    schedule_call *c = &w->calls[w->n_calls];
    *c = (schedule_call){.request = random_request(w)};
    if (chance(w, 2)) choose_text(w, c);
    else choose_prompt(w, c);
    c->request.prompt = c->prompt ? rp_prompt_pml(c->prompt) : rp_prompt_text(c->text);
    if (!c->forced && chance(w, 10)) force_any(w, c);
    c->experiment.struct_size = sizeof(c->experiment);
    c->experiment.forced = c->forced;
    c->request.experiment = &c->experiment;
    run_alone(w, c, ALONE_BUDGET, &c->alone);
    if (c->alone.rc) {
        free_call(c);
        return false;
    }
    if (!c->forced && chance(w, 4) && choose_stop(w, c)) {
        oracle_run_free(&c->alone);
        run_alone(w, c, ALONE_BUDGET, &c->alone);
        must(c->alone.rc, &c->alone.err);
    }
    if (w->keep && c->prompt) run_reduced(w, c, &c->reduced);
    w->n_calls++;
    return true;
}

/* ---- worlds ---------------------------------------------------------------------------------------------------- */

static bool all_fit(const schedule_world *w, uint64_t budget) {
    bool fit = true;
    for (int32_t i = 0; i < w->n_calls && fit; i++) {
        oracle_run run;
        run_alone(w, &w->calls[i], budget, &run);
        fit = oracle_run_same(&run, &w->calls[i].alone);
        oracle_run_free(&run);
    }
    return fit;
}

static void find_small_budget(schedule_world *w) {
    for (int32_t i = 0; i < w->n_calls; i++)
        w->small_budget = BASE_MAX(w->small_budget, w->calls[i].alone.result->kv_bytes);
    while (!all_fit(w, w->small_budget)) w->small_budget += w->small_budget / 6;
}

/* One that the model's context holds. */
static void choose_schema(schedule_world *w) {
    rp_engine_options o = schedule_world_options(w);
    rp_engine *engine;
    rp_error err = {0};
    must(rp_engine_new(&engine, w->model->model, &o, &err), &err);
    do random_pml_schema(&w->pml);
    while (rp_schema_parse(engine, w->pml.schema.data, w->pml.schema.len, "schema", NULL, NULL, NULL, &err));
    rp_engine_free(engine);
}

static int encode_alone(const schedule_world *w) {
    rp_engine_options o = schedule_world_options(w);
    rp_engine *engine = schedule_world_engine(w, &o);
    int rc = rp_schema_prefill(engine, NULL, "s", NULL, NULL, NULL);
    rp_engine_free(engine);
    return rc;
}

/* A few layers, or those with windows, or all: in every second world whose format is below 16 bits. */
static void choose_f16_layers(schedule_world *w) {
    rp_model_info info = {.struct_size = sizeof(info)};
    if (w->format == RP_KV_F16 || w->format == RP_KV_F32 || !chance(w, 2)) return;
    rp_model_describe(w->model->model, &info);
    const int32_t first = below(w, info.n_layers), last = first + below(w, info.n_layers - first);
    if (w->model->has_windows && chance(w, 2)) snprintf(w->f16_layers, sizeof(w->f16_layers), "windows");
    else snprintf(w->f16_layers, sizeof(w->f16_layers), "%d-%d", (int)first, (int)last);
}

/* In every second world, where the device can. Requests that it refuses are not added. */
static void choose_keep(schedule_world *w) {
    static const char *const shares[] = {"50%", "25%", "12.5%", "auto"};
    static const char *const methods[] = {NULL, "kvzip", "kvzip+", "expected", "compactor"};
    if (!chance(w, 2) || w->model->is_recurrent || w->model->is_latent || !test_device_has_studies()) return;
    w->pml.longer = true; /* short modules are not reduced */
    w->keep = shares[below(w, (int32_t)BASE_ARRAY_LEN(shares))];
    w->keep_method = methods[below(w, (int32_t)BASE_ARRAY_LEN(methods))];
}

/* Modules as text, or reused. */
static void choose_module_states(schedule_world *w) {
    if (w->model->is_recurrent) w->module_states = (rp_module_states)below(w, w->model->composes ? 3 : 2);
}

void schedule_world_make(schedule_world *w, const schedule_model *models, uint64_t seed) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_F32, RP_KV_INT8, RP_KV_INT8,
                                           RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    *w = (schedule_world){.seed = seed, .model = &models[model_of(seed)], .r = {seed}};
    random_pml_init(&w->pml, &w->r);
    w->pml.dial = true;
    w->pml.formats = !w->model->is_latent; /* latent KV is f16 or f32 */
    w->format = formats[below(w, w->model->is_latent ? 2 : (int32_t)BASE_ARRAY_LEN(formats))];
    choose_f16_layers(w);
    choose_keep(w);
    choose_module_states(w);
    w->n_ctx = !w->keep && w->model->is_movable && chance(w, 3) ? SMALL_CTX : w->model->n_ctx;
    w->most_chunk = chance(w, w->model->has_windows ? 4 : 2) ? 512 : 1 << below(w, 6); /* raises the minimum budget */
    w->pml.shorter = w->model->shorter;
    if (!w->model->is_movable) w->pml.layout = RANDOM_PML_FIXED;
    int32_t wanted = 4 + below(w, SCHEDULE_CALLS - 3);
    while (w->n_calls < 2) {
        choose_schema(w);
        for (int32_t tries = 0; tries < TRIES && w->n_calls < wanted; tries++) add_call(w);
        if (w->n_calls < 2) /* too long a schema, or not loadable: begin again */
            while (w->n_calls > 0) free_call(&w->calls[--w->n_calls]);
    }
    w->prefill_rc = encode_alone(w);
    find_small_budget(w);
}

void schedule_world_free(schedule_world *w) {
    for (int32_t i = 0; i < w->n_calls; i++) free_call(&w->calls[i]);
    random_pml_free(&w->pml);
}
