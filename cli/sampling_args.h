/* sampling_args.h: the options that say how an answer's tokens are drawn, where it stops, and what is told of them. */
#ifndef CLI_SAMPLING_ARGS_H
#define CLI_SAMPLING_ARGS_H

#include "options.h"
#include "reprise.h"

typedef struct cli_sampling_args {
    rp_sampling values; /* all but the bias */
    cli_list bias, stops;
    int32_t logprobs;
} cli_sampling_args;

/* Their rows in a command's table. field: the cli_sampling_args in the command's struct `type`. */
#define CLI_SAMPLING_ROWS(type, field) \
    {.name = "temp", .kind = CLI_REAL, .value = "T", .offset = offsetof(type, field.values.temperature), .min = 0, .max = 100, \
     .help = "temperature; 0 always takes the likeliest token, and then the filters from --top-k to --min-p do nothing (0)"}, \
    {.name = "top-k", .kind = CLI_INT, .value = "K", .offset = offsetof(type, field.values.top_k), .min = 0, .max = INT32_MAX, \
     .help = "draw from the K likeliest tokens; 0: off (0)"}, \
    {.name = "typical", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.typical), .min = 0, .max = 1, \
     .help = "draw from tokens as surprising as is usual here, up to a share of P; 1: off (1)"}, \
    {.name = "top-p", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.top_p), .min = 0, .max = 1, \
     .help = "draw from the likeliest tokens, up to a share of P; 1: off (1)"}, \
    {.name = "min-p", .kind = CLI_REAL, .value = "P", .offset = offsetof(type, field.values.min_p), .min = 0, .max = 1, \
     .help = "draw from tokens at least P times as likely as the likeliest; 0: off (0)"}, \
    {.name = "repeat-penalty", .kind = CLI_REAL, .value = "R", .offset = offsetof(type, field.values.repeat_penalty), .min = 0.01, \
     .max = 100, .help = "above 1: tokens that were there become less likely; 1: off (1)"}, \
    {.name = "presence-penalty", .kind = CLI_REAL, .value = "A", .offset = offsetof(type, field.values.presence_penalty), \
     .min = -100, .max = 100, .help = "taken off the logit of a token that was there; 0: off (0)"}, \
    {.name = "frequency-penalty", .kind = CLI_REAL, .value = "A", .offset = offsetof(type, field.values.frequency_penalty), \
     .min = -100, .max = 100, .help = "taken off the logit of a token for each time it was there; 0: off (0)"}, \
    {.name = "repeat-last", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.values.repeat_last), .min = -1, \
     .max = INT32_MAX, .help = "tokens of prompt and answer that the penalties look back on; 0: none, -1: all (64)"}, \
    {.name = "logit-bias", .kind = CLI_LIST, .value = "TOKEN=B", .offset = offsetof(type, field.bias), \
     .help = "add B, from -1000 to 1000 or -inf, to the logit of a token, given by its id or its text; may be given several times"}, \
    {.name = "seed", .kind = CLI_U64, .value = "N", .offset = offsetof(type, field.values.seed), \
     .help = "seed for --temp above 0; the same seed gives the same answer (0)"}, \
    {.name = "stop", .kind = CLI_LIST, .value = "STRING", .offset = offsetof(type, field.stops), \
     .help = "end the answer where this text comes, without it; may be given up to 64 times"}, \
    {.name = "logprobs", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.logprobs), .min = 0, .max = RP_MAX_LOGPROBS, \
     .help = "with --json: each token's log-probability and those of the N likeliest; 0: none (0)"}

cli_sampling_args cli_sampling_defaults(void);

/* What can be said of the stop strings before a model is opened. Returns an exit status. */
int cli_sampling_check(const cli_sampling_args *args);

/* The entries of --logit-bias, and how many. *bias: freed by the caller; NULL for none. Returns an exit status. */
int cli_sampling_bias(const cli_sampling_args *args, const rp_model *model, rp_logit_bias **bias, int32_t *n);

/* Fills in a request. bias and the strings of args are borrowed. */
void cli_sampling_apply(const cli_sampling_args *args, const rp_logit_bias *bias, int32_t n_bias, rp_request *request);

#endif
