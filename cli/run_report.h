/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.h: how `reprise run` shows a result. */
#ifndef CLI_RUN_REPORT_H
#define CLI_RUN_REPORT_H

#include <stdio.h>

#include "reprise.h"

/* One JSON object on one line of standard output. prompt: name of the input; model: vocabulary of the tokens; load_ms: time to open model and
 * engine. Returns an exit status. */
int run_report_json(const char *prompt, const rp_model *model, rp_engine *engine, double load_ms, const rp_result *result);

/* One line: tokens, first token, speed, and what modules took. */
void run_report_summary(FILE *to, const rp_result *result);

/* How each part of the prompt was got, where it left what was read before, and times, for people. */
void run_report_explain(FILE *to, const rp_result *result);

#endif
