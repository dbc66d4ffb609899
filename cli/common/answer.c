/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c: a request from submission to result.
 *
 * The engine computes on its own thread; this one reads the answer's stream, so everything that is printed is printed
 * by one thread. Owns the stream and the job of the request.
 */
#include "common/answer.h"

#define LOOK_MS 50              /* between two looks at Ctrl-C and at the progress, while no text arrives */
#define PROGRESS_AFTER_MS 250.0 /* a shorter prefill shows no bar */

void cli_answer_on_progress(cli_answer *a, uint64_t done, uint64_t total) {
    atomic_store(&a->modules_total, total);
    atomic_store(&a->modules_done, done);
}

static void answer_draw_progress(cli_answer *a, rp_job *job) {
    rp_job_status status = {.struct_size = sizeof(status)};
    uint64_t done = atomic_load(&a->modules_done), total = atomic_load(&a->modules_total);
    rp_job_get_status(job, &status);
    if (status.state != RP_JOB_PREFILL) return;
    if (done < total) {
        cli_progress_draw(&a->bar, "prefilling modules", "tokens", done, total);
        return;
    }
    int32_t computed = status.computed_tokens - status.cached_tokens,
            fresh = status.prompt_tokens - status.cached_tokens;
    if (computed >= 0 && computed < fresh)
        cli_progress_draw(&a->bar, "prefilling", "tokens", (uint64_t)computed, (uint64_t)fresh);
}

/* Reads the answer to its end. */
static void answer_read(cli_answer *a, rp_stream *stream, rp_job *job) {
    const rp_stream_event *events = NULL;
    double began_ms = cli_now_ms();
    for (bool ended = false; !ended;) {
        int32_t n = rp_stream_read(stream, LOOK_MS, &events);
        if (cli_interrupted()) rp_job_cancel(job);
        if (n == 0 && cli_now_ms() - began_ms > PROGRESS_AFTER_MS) answer_draw_progress(a, job);
        for (int32_t i = 0; i < n; i++) {
            cli_progress_clear(&a->bar);
            if (events[i].n_bytes > 0 && a->on_text != NULL && !a->on_text(a->user, events[i].text, events[i].n_bytes))
                rp_job_cancel(job);
            ended |= events[i].ended;
        }
    }
}

int cli_answer_run(cli_answer *a, rp_engine *engine, rp_request *request, rp_result **out, rp_error *err) {
    rp_stream *stream = NULL;
    rp_job *job = NULL;
    int rc = rp_stream_new(&stream, err);
    request->stream = stream;
    if (rc == RP_OK)
        rc = a->chat != NULL ? rp_chat_submit(a->chat, engine, request, &job, err)
                             : rp_engine_submit(engine, request, &job, err);
    if (rc == RP_OK) {
        answer_read(a, stream, job);
        rc = rp_job_result(job, out, err);
    }
    cli_progress_clear(&a->bar);
    rp_job_free(job);
    rp_stream_free(stream);
    return rc;
}
