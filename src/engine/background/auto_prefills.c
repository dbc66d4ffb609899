/* SPDX-License-Identifier: Apache-2.0 */
/* auto_prefills.c: see auto_prefills.h. */
#include "engine/background/auto_prefills.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/background/background.h"
#include "engine/background/chunk_index.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/observer.h"
#include "engine/core/vocabulary.h"
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/token_chunks.h"

static base_key name_chunk(const rp_job *c, int32_t begin, int32_t end) {
    base_key key;
    base_hash h;
    base_hash_init(&h, "reprise chunk 1");
    base_hash_key(&h, &c->scopes[0].root);
    base_hash_u64(&h, (uint64_t)c->tokens[0]);
    base_hash_bytes(&h, c->tokens + begin, (size_t)(end - begin) * sizeof(*c->tokens));
    base_hash_final(&h, &key);
    return key;
}

/* A background_done_fn. */
static void module_done(rp_engine *e, void *user, int rc, const background_result *result) {
    (void)user, (void)rc, (void)result;
    BASE_ASSERT(e->auto_prefills->n_tasks > 0);
    e->auto_prefills->n_tasks--;
}

static void module_submit(rp_job *c, int32_t begin, int32_t end) {
    rp_engine *e = c->engine;
    module_text m = {0};
    if (e->auto_prefills->n_tasks >= AUTO_TASKS || !auto_module_text(c, begin, end, &m) ||
        module_cached_tokens(c, &m) == m.n) {
        module_text_free(&m);
        return;
    }
    background_task task = {
        .salt = c->salt, .format = c->format, .tokens = m.tokens, .positions = m.positions, .n = m.n, .keeps = true};
    task.done = module_done;
    if (background_submit(e, &task)) background_task_free(&task);
    else e->auto_prefills->n_tasks++;
}

/* Counts a computation of the text. Returns whether it recurs, and submits it then. */
static bool count_text(rp_job *c, int32_t begin, int32_t end) {
    if (end - begin < AUTO_LEAST) return false;
    const base_key key = name_chunk(c, begin, end);
    if (chunk_index_count(c->engine->auto_prefills->index, &key) < AUTO_USES) return false;
    module_submit(c, begin, end);
    return true;
}

/* The job's tokens are those of the whole prompt again. The last line of a message is often another one where the text
 * recurs: a question after a document. */
static void chunks_learn(rp_job *c, int rc) {
    const job_auto *a = &c->automatic;
    auto_prefills *p = c->engine->auto_prefills;
    if (rc || a->n == 0 || c->request->options.adds_nothing) return;
    if (!p->index && !(p->index = chunk_index_new())) return;
    BASE_ASSERT(c->moved.n == 0 && a->ends[a->n - 1] <= c->n_prompt);
    const uint8_t *classes = c->engine->vocabulary->classes;
    for (int32_t i = 1; i < a->n; i++) {
        const int32_t begin = a->ends[i - 1], end = a->ends[i];
        if (!a->misses[i] || count_text(c, begin, end)) continue;
        const bool ends_message = end < c->n_prompt && classes[c->tokens[end]] == TOKEN_CLASS_CONTROL;
        if (!ends_message) continue;
        int32_t last = end - 1; /* the end of the last line before the last one; `begin` if there is one line */
        while (last > begin && classes[c->tokens[last - 1]] != TOKEN_CLASS_LINE_END) last--;
        count_text(c, begin, last);
    }
}

const job_observer auto_prefills_observer = {.ended = chunks_learn};

void auto_prefills_free(rp_engine *e) { chunk_index_free(e->auto_prefills->index); }
