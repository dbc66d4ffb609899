/* SPDX-License-Identifier: Apache-2.0 */
/* auto_modules.c: see auto_modules.h. */
#include "engine/reuse/auto_modules.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/vocabulary.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/token_chunks.h"
#include "model/model.h"
#include "store/index/span_tree.h"

/* ---- planning ---- */

/* Does the job's kind of request allow runs? */
static bool may_use_runs(const rp_job *c) {
    const rp_request *o = &c->request->options;
    return c->prefix.shares && c->plan->n_cached == 0 && !c->exact && model_is_movable(c->engine->model) &&
           model_capabilities(c->engine->model).modules && !model_is_encoder(c->engine->model) && !c->wants.adapter &&
           !c->wants.exclusive && c->wants.most_answer == 0 && c->wants.n_late == 0 && o->shifted_reuse < 0 &&
           o->pooling == RP_POOLING_OFF && c->n_resumed == 0 && !c->wants.all_logits && c->n_runs == 1;
}

/* The text that the prompt begins with: its first chunk, after the header of a message. */
static void name_beginning(rp_job *c) {
    job_auto *a = &c->automatic;
    base_hash h;
    const bool has_header = a->n > 1 && a->ends[0] <= TOKEN_CHUNK_HEADER;
    const int32_t n = a->n > 0 ? a->ends[has_header] : c->n_prompt;
    base_hash_init(&h, "reprise auto beginning 1");
    base_hash_bytes(&h, c->tokens, (size_t)n * sizeof(*c->tokens));
    base_hash_final(&h, &a->begins);
}

int auto_modules_plan(rp_job *c, rp_error *err) {
    job_auto *a = &c->automatic;
    if (!a->asked || !may_use_runs(c)) return RP_OK;
    const uint8_t *classes = vocabulary_classes(c->engine);
    a->ends = classes ? base_alloc((size_t)c->n_prompt * sizeof(*a->ends)) : NULL;
    a->misses = base_calloc((size_t)c->n_prompt, sizeof(*a->misses));
    if (!a->ends || !a->misses)
        return base_fail_memory(err, (size_t)c->n_prompt * sizeof(*a->ends), "the chunks of a prompt");
    a->n = token_chunks_cut(c->tokens, c->n_prompt, classes, a->ends);
    BASE_ASSERT(a->n <= c->n_prompt);
    name_beginning(c);
    return RP_OK;
}

void job_auto_close(job_auto *a) {
    base_free(a->ends);
    base_free(a->misses);
    *a = (job_auto){0};
}

/* ---- modules ---- */

bool auto_module_text(const rp_job *c, int32_t begin, int32_t end, module_text *out) {
    BASE_ASSERT(begin > 0 && begin < end && end <= c->n_prompt); /* the first token is in each module besides */
    out->n = end - begin + 1;
    out->tokens = base_alloc((size_t)out->n * sizeof(*out->tokens));
    out->positions = base_alloc((size_t)out->n * sizeof(*out->positions));
    if (!out->tokens || !out->positions) return false;
    out->tokens[0] = c->tokens[0];
    memcpy(out->tokens + 1, c->tokens + begin, (size_t)(end - begin) * sizeof(*out->tokens));
    for (int32_t i = 0; i < out->n; i++) out->positions[i] = i;
    return true;
}

void module_text_free(module_text *m) {
    base_free(m->tokens);
    base_free(m->positions);
    *m = (module_text){0};
}

int32_t module_cached_tokens(const rp_job *c, const module_text *m) {
    const span_root root = {.salt = c->salt, .key = job_text_root(c->engine, &c->salt, c->format)};
    return (int32_t)span_tree_peek(c->engine->tree, &root, m->tokens, m->positions, (size_t)m->n, NULL, NULL, NULL);
}

/* The path of a module that the cache has, or of its first tokens: returns the number of the chunk's tokens in it, 0 or
   at least AUTO_LEAST. */
static int32_t module_find(const rp_job *c, int32_t begin, int32_t end, span_path *out) {
    const span_root root = {.salt = c->salt, .key = job_text_root(c->engine, &c->salt, c->format)};
    module_text m = {0};
    *out = (span_path){0};
    const bool found =
        auto_module_text(c, begin, end, &m) && module_cached_tokens(c, &m) > AUTO_LEAST &&
        span_tree_match(c->engine->tree, &root, m.tokens, m.positions, (size_t)m.n, out, NULL) == RP_OK &&
        out->n_tokens > AUTO_LEAST && moved_kv_can_move(out);
    module_text_free(&m);
    if (!found) span_path_release(out);
    return found ? (int32_t)out->n_tokens - 1 : 0;
}

/* ---- choosing runs ---- */

/* The names of roots after runs, and what is hashed so far. */
typedef struct run_names {
    base_hash h;
    int32_t done;
} run_names;

/* The root after the run [first, end) of the chunk that begins at `begin`. */
static base_key run_names_next(run_names *n, const rp_job *c, int32_t begin, int32_t first, int32_t end) {
    base_key key;
    BASE_ASSERT(n->done <= first && begin < first && first < end); /* runs rise */
    base_hash_bytes(&n->h, c->tokens + n->done, (size_t)(end - n->done) * sizeof(*c->tokens));
    n->done = end;
    base_hash_u64(&n->h, (uint64_t)begin);
    base_hash_u64(&n->h, (uint64_t)first);
    base_hash_u64(&n->h, (uint64_t)end);
    base_hash h = n->h;
    base_hash_final(&h, &key);
    return key;
}

/* Adds the run of a chunk, from token `first` of the prompt on. */
static bool push_run(rp_job *c, span_path *path, int32_t begin, int32_t first, int32_t end, int32_t at,
                     const base_key *key) {
    BASE_ASSERT(first >= at && first - begin >= AUTO_LINK && path->n_tokens == (size_t)(1 + end - begin));
    moved_run *r = moved_kv_push(&c->moved, path);
    if (!r) {
        span_path_release(path);
        return false;
    }
    r->from = 1 + first - begin;
    r->n = end - first;
    r->first = first;
    r->pos = c->positions[first];
    r->shift = r->pos - r->from;
    r->n_recomputed = BASE_MAX(first - BASE_MAX(begin, at), 0);
    r->has_key = true;
    r->key = *key;
    return true;
}

static void choose_runs(rp_job *c) {
    const job_auto *a = &c->automatic;
    const int32_t most = job_most_found(c);
    int32_t at = c->prefix.n_found, removed = 0; /* at: all tokens before it are found, or were passed by */
    bool follows = true;                         /* the path is complete up to `at` */
    run_names names;
    names.done = 0;
    base_hash_init(&names.h, "reprise auto 1");
    base_hash_key(&names.h, &c->scopes[0].root);
    base_hash_u64(&names.h, (uint64_t)c->positions[0]);
    for (int32_t i = 0; i < a->n && a->ends[i] <= most; i++) {
        const int32_t begin = i > 0 ? a->ends[i - 1] : 0, first = BASE_MAX(begin + AUTO_LINK, at);
        span_path path;
        a->misses[i] = a->ends[i] > at;
        if (begin == 0 || a->ends[i] - begin < AUTO_LEAST || a->ends[i] - first < AUTO_LEAST_REUSED) continue;
        const int32_t end = begin + module_find(c, begin, a->ends[i], &path);
        if (end - first < AUTO_LEAST_REUSED) {
            span_path_release(&path);
            continue;
        }
        const base_key key = run_names_next(&names, c, begin, first, end);
        if (!push_run(c, &path, begin, first, end, at, &key)) return;
        removed += end - first;
        a->misses[i] = end < a->ends[i];
        follows = follows && first == at;
        const int32_t found = follows ? moved_kv_follow(c, removed, most) : 0;
        if (found < 0) follows = false;
        at = end + BASE_MAX(found, 0);
    }
}

void auto_modules_find(rp_job *c) {
    job_auto *a = &c->automatic;
    if (a->n == 0 || !may_use_runs(c)) return;
    BASE_ASSERT(c->moved.n_runs == 0); /* no shifted_reuse besides */
    memset(a->misses, 0, (size_t)a->n * sizeof(*a->misses));
    if (!a->allowed) return;
    choose_runs(c);
    if (c->moved.n_runs == 0) return;
    if (moved_kv_settle(c))
        BASE_TRACE(ENGINE, "job %llu: %d automatic modules, %d tokens", (unsigned long long)c->request->number,
                   c->moved.n_runs, c->moved.n);
}
