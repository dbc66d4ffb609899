/* SPDX-License-Identifier: Apache-2.0 */
/* embedding_api.c: embeddings of many texts: a job for each, several at a time. The caller's thread. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "reprise_embedding.h"

/* Jobs of rp_engine_embed: texts [first, next) are under way. */
typedef struct embedding_run {
    rp_engine *engine;
    rp_request request;
    const rp_embedding_input *inputs;
    rp_result **results;
    rp_job **jobs; /* [n] */
    size_t first, next, n;
} embedding_run;

static int embedding_fail_at(size_t i, int rc, const rp_error *found, rp_error *err) {
    if (!err) return rc;
    *err = *found;
    return base_fail_at(err, (rp_code)rc, found->where, found->offset, "text %zu: %.*s", i + 1,
                        RP_ERROR_MESSAGE_BYTES - 64, found->message);
}

static int embedding_submit(embedding_run *run, rp_error *err) {
    BASE_ASSERT(run->next < run->n);
    const rp_embedding_input *in = &run->inputs[run->next];
    rp_request q = run->request;
    int32_t *own = NULL;
    size_t n = in->n_tokens;
    int rc = RP_OK;
    if (in->text)
        rc = rp_tokenize_embedding(run->engine->model, in->text, in->n_bytes, in->second, in->n_second, 0, &own, &n,
                                   err);
    q.prompt = rp_prompt_tokens(in->text ? own : in->tokens, n);
    if (!rc && n == 0) rc = base_fail(err, RP_ERR_INVALID, "the text has no tokens: give one that is not empty");
    if (!rc) rc = rp_engine_submit(run->engine, &q, &run->jobs[run->next], err);
    rp_free(own);
    return rc;
}

static int embedding_collect(embedding_run *run, rp_error *err) {
    BASE_ASSERT(run->first < run->next); /* its job is under way */
    const size_t i = run->first++;
    rp_error found;
    int rc = rp_job_result(run->jobs[i], &run->results[i], &found);
    rp_job_free(run->jobs[i]);
    return rc ? embedding_fail_at(i, rc, &found, err) : RP_OK;
}

/* As many at a time as fill steps; of a full queue, as many as it takes. */
static int embedding_run_all(embedding_run *run, rp_error *err) {
    const size_t most = (size_t)run->engine->max_sequences * 2;
    int rc = RP_OK;
    while (run->first < run->n && !rc) {
        rp_error found = {0};
        if (run->next == run->n || run->next - run->first >= most) {
            rc = embedding_collect(run, err);
            continue;
        }
        const int submitted = embedding_submit(run, &found);
        if (!submitted) run->next++;
        else if (submitted == RP_ERR_BUSY && run->next > run->first) rc = embedding_collect(run, err);
        else rc = embedding_fail_at(run->next, submitted, &found, err);
    }
    BASE_ASSERT(rc || (run->first == run->n && run->next == run->n));
    return rc;
}

int rp_engine_embed(rp_engine *e, const rp_request *request, const rp_embedding_input *inputs, size_t n,
                    rp_result **results, rp_error *err) {
    if (!e || (n > 0 && (!inputs || !results)))
        return base_fail(err, RP_ERR_INVALID, "rp_engine_embed: engine, inputs and results are needed");
    rp_request o = rp_request_defaults();
    int rc = base_sized_read(&o, sizeof(o), request, "rp_request", err);
    if (rc || n == 0) return rc;
    rp_request plain = rp_request_defaults();
    plain.tenant = o.tenant;
    plain.flow = o.flow;
    plain.reuse = o.reuse;
    plain.priority = o.priority;
    plain.deadline_ms = o.deadline_ms;
    plain.pooling = o.pooling == RP_POOLING_OFF ? RP_POOLING_MODEL : o.pooling;
    plain.raw_embedding = o.raw_embedding;
    embedding_run run = {.engine = e, .request = plain, .inputs = inputs, .results = results, .n = n};
    memset(results, 0, n * sizeof(*results));
    if (!(run.jobs = base_calloc(n, sizeof(*run.jobs)))) return base_fail_memory(err, n * sizeof(*run.jobs), "jobs");
    rc = rp_engine_prepare(e, NULL, NULL, err); /* before any clock starts */
    if (!rc) rc = embedding_run_all(&run, err);
    for (size_t i = run.first; i < run.next; i++) rp_job_free(run.jobs[i]);
    for (size_t i = 0; i < n && rc; i++) {
        rp_result_free(results[i]);
        results[i] = NULL;
    }
    base_free(run.jobs);
    return rc;
}
