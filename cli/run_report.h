/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.h: output of `reprise run`. */
#ifndef CLI_RUN_REPORT_H
#define CLI_RUN_REPORT_H

#include <stdio.h>

#include "reprise_chat.h"

/* One JSON object on one line of standard output. prompt: name of the input; model: vocabulary of the tokens;
 * load_ms: time to open model and engine; answer: the parts of the text, NULL: it has none. Returns an exit status. */
int run_report_json(const char *prompt, const rp_model *model, rp_engine *engine, double load_ms,
                    const rp_result *result, const rp_chat_answer *answer);

/* One line: tokens, TTFT, speed, and the time for modules. */
void run_report_summary(FILE *to, const rp_result *result);

/* Report for people: the source of each part of the prompt, the mismatch with the cached prefix, and times. */
void run_report_explain(FILE *to, const rp_result *result);

#endif
