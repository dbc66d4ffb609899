/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: a request from submission to result, with progress on a terminal and Ctrl-C, for `run` and `chat`. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <stdatomic.h>

#include "common/console.h"
#include "reprise_chat.h"

/* The program's thread waits in cli_answer_run, draws the progress and gets the text. Zero-initialise. */
typedef struct cli_answer {
    rp_on_text on_text; /* called on the program's thread; NULL: none. Returns false to cancel the request */
    void *user;
    const rp_chat *chat; /* borrowed: the request has no prompt, but this one's; NULL: it has one */
    cli_progress bar;
    _Atomic uint64_t modules_done, modules_total; /* prefill of missing modules; set on the engine's thread */
} cli_answer;

/* For rp_request.on_progress: may be called on any thread. */
void cli_answer_on_progress(cli_answer *a, uint64_t done, uint64_t total);

/* Runs a request and draws the progress of a prefill that takes long. The first Ctrl-C (cli_interrupted) cancels it.
 * Returns RP_OK or an error of rp_engine_submit, rp_chat_submit or rp_job_result. request->stream is set by this
 * function. */
int cli_answer_run(cli_answer *a, rp_engine *engine, rp_request *request, rp_result **out, rp_error *err);

#endif
