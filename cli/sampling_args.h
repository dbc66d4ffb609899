/* SPDX-License-Identifier: Apache-2.0 */
/* sampling_args.h: options of sampling, stop strings and log-probabilities. */
#ifndef CLI_SAMPLING_ARGS_H
#define CLI_SAMPLING_ARGS_H

#include "common/options.h"
#include "reprise.h"

typedef struct cli_sampling_args {
    rp_sampling values; /* all except the logit bias */
    cli_list bias, stops;
    int32_t logprobs;
} cli_sampling_args;

/* Their rows in a command's table. field: the cli_sampling_args in the command's struct `type`. */
/* clang-format off */
#define CLI_SAMPLING_ROWS(type, field) \
    {.name = "temp", .kind = CLI_REAL, .value = "T", .offset = offsetof(type, field.values.temperature), .min = 0, \
     .max = 100, \
     .help = "sampling temperature; 0: greedy decoding, without the filters from --top-k to --min-p (the model " \
             "file's advice, or 0)"}, \
    {.name = "top-k", .kind = CLI_INT, .value = "K", .offset = offsetof(type, field.values.top_k), .min = 0, \
     .max = INT32_MAX, \
     .help = "sample from the K most likely tokens; 0: off (the file's advice, or 0)"}, \
    {.name = "typical", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.typical), .min = 0, \
     .max = 1, \
     .help = "locally typical sampling: keep typical tokens up to cumulative probability P; 1: off (1)"}, \
    {.name = "top-p", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.top_p), .min = 0, \
     .max = 1, \
     .help = "nucleus sampling: keep the most likely tokens up to cumulative probability P; 1: off (the file's " \
             "advice, or 1)"}, \
    {.name = "min-p", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.min_p), .min = 0, \
     .max = 1, \
     .help = "keep tokens at least P times as likely as the most likely one; 0: off (the file's advice, or 0)"}, \
    {.name = "repeat-penalty", .kind = CLI_REAL, .value = "R", .offset = offsetof(type, field.values.repeat_penalty), \
     .min = 0.01, \
     .max = 100, .help = "repetition penalty: above 1, tokens already in the context become less likely; 1: off " \
                         "(the file's advice, or 1)"}, \
    {.name = "presence-penalty", .kind = CLI_REAL, .value = "A", \
     .offset = offsetof(type, field.values.presence_penalty), \
     .min = -100, .max = 100, \
     .help = "presence penalty, subtracted from the logit of each token already in the context; 0: off (0)"}, \
    {.name = "frequency-penalty", .kind = CLI_REAL, .value = "A", \
     .offset = offsetof(type, field.values.frequency_penalty), \
     .min = -100, .max = 100, \
     .help = "frequency penalty, subtracted from a token's logit for each occurrence in the context; 0: off (0)"}, \
    {.name = "repeat-last", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.values.repeat_last), \
     .min = -1, \
     .max = INT32_MAX, .help = "number of last tokens that the penalties consider; 0: none, -1: the whole context " \
                               "(the file's advice, or 64)"}, \
    {.name = "logit-bias", .kind = CLI_LIST, .value = "TOKEN=B", .offset = offsetof(type, field.bias), \
     .help = "add B (-1000 to 1000, or -inf) to the logit of a token, given by id or text; may be repeated"}, \
    {.name = "seed", .kind = CLI_U64, .value = "N", .offset = offsetof(type, field.values.seed), \
     .help = "random seed for --temp above 0; equal seeds give equal answers (0)"}, \
    {.name = "stop", .kind = CLI_LIST, .value = "STRING", .offset = offsetof(type, field.stops), \
     .help = "stop string: end the answer before this text; may be given up to 64 times"}
/* clang-format on */

/* The row of log-probabilities, for commands that print them. */
#define CLI_LOGPROBS_ROW(type, field) \
    { .name = "logprobs", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.logprobs), .min = 0, \
      .max = RP_MAX_LOGPROBS, \
      .help = "with --json: log-probabilities of each token and of the N most likely ones; 0: none (0)" }

/* What a model's file can advise is open until cli_sampling_settle. */
cli_sampling_args cli_sampling_defaults(void);
/* Sets what no option gave: from the advice of the model's file, or else as rp_sampling_defaults. */
void cli_sampling_settle(cli_sampling_args *args, const rp_model *model);

/* Checks the stop strings as far as possible without a model. Returns an exit status. */
int cli_sampling_check(const cli_sampling_args *args);

/* The entries of --logit-bias and their number. *bias: freed by the caller; NULL for none. Returns an exit status. */
int cli_sampling_bias(const cli_sampling_args *args, const rp_model *model, rp_logit_bias **bias, int32_t *n);

/* Fills in a request, after cli_sampling_settle. bias and the strings of args are borrowed. */
void cli_sampling_apply(const cli_sampling_args *args, const rp_logit_bias *bias, int32_t n_bias, rp_request *request);

#endif
