/* SPDX-License-Identifier: Apache-2.0 */
/* cache_world.c: see cache_world.h. */
#include "cache_world.h"
#include "reprise_store.h"
#include "reprise_pml.h"
#include "experiments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL REPRISE_SOURCE_DIR "/models/reprise-mini.gguf"

static const char schema[] =
    "<schema name='cities'><system>You are a guide.</system><user><module name='plan'>Plan a trip to this city. <union>"
    "<module name='miami'>Welcome to Miami. For surf, go to the beach.</module>"
    "<module name='lisbon'>Lisbon is best seen on foot.</module></union></module></user></schema>";
static const char tiny_schema[] =
    "<schema name='cities'>Once <module name='plan'>the river<union><module name='miami'> of the city</module>"
    "<module name='lisbon'> seven hills</module></union></module></schema>";
static const char *const prompts[CACHE_WORLD_REQUESTS] = {
    "<prompt schema='cities'><plan><miami/></plan>Where to?</prompt>",
    "<prompt schema='cities'><plan><lisbon/></plan>And then?</prompt>", NULL};

static void die(const char *what, const rp_error *err) {
    fprintf(stderr, "cache_world: %s: %s\n", what, err->message);
    abort();
}

static rp_request request_of(int i) {
    rp_request q = rp_request_defaults();
    q.prompt = prompts[i] ? rp_prompt_pml(prompts[i]) : rp_prompt_text("the hills of the river");
    q.max_tokens = 3;
    q.ignore_eos = true;
    return q;
}

rp_engine *cache_world_engine(const cache_world *w, const char *dir, const char *key_file, rp_error *err) {
    rp_engine *e = NULL;
    const char *text = w->is_tiny ? tiny_schema : schema;
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = 256;
    o.store_dir = dir;
    o.store_key_file = key_file;
    o.store_write = RP_STORE_WRITE_THROUGH;
    if (rp_engine_new(&e, w->model, &o, err)) return NULL;
    if (rp_schema_parse(e, text, strlen(text), "cities", NULL, NULL, NULL, err)) die("schema", err);
    return e;
}

void cache_world_open(cache_world *w, bool is_tiny) {
    rp_error err = {0};
    tiny_model_shape shape = tiny_model_defaults();
    *w = (cache_world){.is_tiny = is_tiny};
    if (is_tiny) w->model = tiny_model_open(&shape, "chatml");
    else if (rp_model_open(&w->model, MODEL, NULL, &err)) die("model", &err);
    rp_engine *e = cache_world_engine(w, NULL, NULL, &err);
    if (!e) die("engine", &err);
    for (int i = 0; i < CACHE_WORLD_REQUESTS; i++) {
        rp_request q = request_of(i);
        q.experiment = &experiment_no_prefix;
        oracle_run_make(&w->cold[i], e, &q);
        if (w->cold[i].rc) die("cold run", &w->cold[i].err);
    }
    rp_engine_free(e);
}

void cache_world_close(cache_world *w) {
    for (int i = 0; i < CACHE_WORLD_REQUESTS; i++) oracle_run_free(&w->cold[i]);
    rp_model_close(w->model);
}

static int32_t tokens_from_disk(const rp_result *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++) n += strcmp(r->plan[i].tier, "disk") == 0 ? r->plan[i].n_tokens : 0;
    return n;
}

bool cache_world_ask(const cache_world *w, rp_engine *e, int32_t *cached, int32_t *from_disk) {
    bool same = true;
    if (cached) *cached = 0;
    if (from_disk) *from_disk = 0;
    for (int i = 0; i < CACHE_WORLD_REQUESTS; i++) {
        rp_request q = request_of(i);
        oracle_run run = {0};
        oracle_run_make(&run, e, &q);
        if (run.rc) die("request", &run.err);
        same &= oracle_run_same(&run, &w->cold[i]);
        if (cached) *cached += run.result->cached_tokens;
        if (from_disk) *from_disk += tokens_from_disk(run.result);
        oracle_run_free(&run);
    }
    return same;
}

void cache_world_fill(const cache_world *w, const char *dir, const char *key_file) {
    rp_error err = {0};
    rp_engine *e = cache_world_engine(w, dir, key_file, &err);
    if (!e) die("store", &err);
    if (!cache_world_ask(w, e, NULL, NULL)) die("answers", &err);
    rp_engine_free(e);
}

rp_store *cache_world_cache(const char *dir, const char *key_file, bool read_only) {
    rp_store *c = NULL;
    rp_error err = {0};
    rp_store_options o = {.struct_size = sizeof(o), .key_file = key_file, .read_only = read_only, .create = !read_only};
    if (rp_store_open(&c, dir, &o, &err)) die("cache", &err);
    return c;
}

void cache_world_bundle(const char *dir, char *out) {
    rp_store *c = cache_world_cache(dir, NULL, true);
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_error err = {0};
    snprintf(out, STORE_FOLDER_BYTES + 16, "%s.rpb", dir);
    if (rp_store_export(c, "cities", out, NULL, NULL, &s, &err)) die("bundle", &err);
    rp_store_close(c);
}

rp_store_listing *cache_world_list(rp_store *c) {
    rp_store_listing *l = NULL;
    rp_error err = {0};
    if (rp_store_list(c, NULL, NULL, &l, &err)) die("list", &err);
    return l;
}

bool cache_world_same(const rp_store_listing *a, const rp_store_listing *b) {
    if (a->n_entries != b->n_entries) return false;
    for (size_t i = 0; i < a->n_entries; i++) {
        const rp_store_entry *x = &a->entries[i], *y = &b->entries[i];
        if (strcmp(x->key, y->key) != 0 || strcmp(x->model, y->model) != 0 || strcmp(x->label, y->label) != 0 ||
            x->kind != y->kind || x->n_tokens != y->n_tokens || x->bytes != y->bytes || x->cost_us != y->cost_us ||
            x->pinned != y->pinned || x->expires != y->expires)
            return false;
    }
    return true;
}

void cache_world_path(const char *dir, const rp_store_entry *e, char *out) {
    snprintf(out, STORE_FOLDER_BYTES + 80, "%s/%.1s/%s.rps", dir, e->key, e->key);
}
