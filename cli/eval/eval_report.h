/* SPDX-License-Identifier: Apache-2.0 */
/* eval_report.h: results of an evaluation, as a table for people, Markdown, CSV or JSON. */
#ifndef CLI_EVAL_REPORT_H
#define CLI_EVAL_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "eval/eval_score.h"
#include "eval/eval_setting.h"

typedef enum eval_format { EVAL_TABLE,
                           EVAL_MARKDOWN,
                           EVAL_CSV,
                           EVAL_JSON } eval_format;

/* One task under one setting. */
typedef struct eval_row {
    const char *task, *setting, *metric;
    const eval_setting *of; /* the setting; borrowed */
    size_t items;
    bool perplexity; /* the score is a perplexity; otherwise a share */
    eval_mean score;
    eval_mean agreement;                     /* share of first answer tokens (perplexity: all tokens) equal to the most
                                                likely of `exact` */
    eval_mean kl;                            /* nats from the distribution of `exact`, at the same positions */
    double ttft_ms;                          /* median; all modules cached */
    double cached_share;                     /* of the prompt's tokens */
    double kv_bytes;                         /* KV that was reused, mean of a prompt */
    double kept_share;                       /* of the prompt's slots, those that its answer was given (kv-keep), mean;
                                                1: all */
    double recomputed_tokens, probed_tokens; /* rp_quality_report, means of a prompt; */
    double focused, quality_ms;              /* share of prompts with an uncertain prediction (focus); mean cost of the
                                                quality */
} eval_row;

typedef struct eval_report {
    const char *model; /* file */
    const char *fingerprint;
    int resamples;
    uint64_t seed;
    const eval_row *rows;
    size_t n_rows;
} eval_report;

/* Failed writes are reported when the file is flushed or closed. */
void eval_report_write(const eval_report *r, eval_format format, FILE *to);
/* Scores and divergences against TTFT, as SVG (eval_plot.c). */
void eval_plot_write(const eval_report *r, FILE *to);
/* Scores of reduced KV and KV formats against bytes, as SVG (eval_plot_kv.c). */
void eval_plot_kv_write(const eval_report *r, FILE *to);

#endif
