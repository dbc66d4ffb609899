/* SPDX-License-Identifier: Apache-2.0 */
/* sampling_args.c: see sampling_args.h. Owns nothing. One thread. */
#include "sampling_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"

/* The entries of --logit-bias; a growing array. */
typedef struct bias_list {
    rp_logit_bias *items;
    int32_t n;
} bias_list;

#define OPEN_REAL NAN
#define OPEN_INT INT32_MIN

cli_sampling_args cli_sampling_defaults(void) {
    cli_sampling_args args = {.values = rp_sampling_defaults()};
    rp_sampling *s = &args.values;
    s->temperature = s->top_p = s->min_p = s->repeat_penalty = OPEN_REAL;
    s->top_k = s->repeat_last = OPEN_INT;
    return args;
}

void cli_sampling_settle(cli_sampling_args *args, const rp_model *model) {
    rp_sampling *s = &args->values, otherwise = rp_sampling_defaults();
    rp_model_sampling(model, &otherwise);
    if (isnan(s->temperature)) s->temperature = otherwise.temperature;
    if (isnan(s->top_p)) s->top_p = otherwise.top_p;
    if (isnan(s->min_p)) s->min_p = otherwise.min_p;
    if (isnan(s->repeat_penalty)) s->repeat_penalty = otherwise.repeat_penalty;
    if (s->top_k == OPEN_INT) s->top_k = otherwise.top_k;
    if (s->repeat_last == OPEN_INT) s->repeat_last = otherwise.repeat_last;
}

int cli_sampling_check(const cli_sampling_args *args) {
    const cli_list *stops = &args->stops;
    if (stops->n > RP_MAX_STOPS)
        return cli_fail(CLI_WRONG_USE, "--stop is given %zu times: give it at most %d times", stops->n, RP_MAX_STOPS);
    for (size_t i = 0; i < stops->n; i++) {
        size_t n = strlen(stops->items[i]);
        if (n == 0) return cli_fail(CLI_WRONG_USE, "--stop '' is empty: give at least one character, or leave it out");
        if (n > RP_MAX_STOP_BYTES)
            return cli_fail(CLI_WRONG_USE, "--stop '%.20s...' has %zu bytes: give at most %d", stops->items[i], n,
                            RP_MAX_STOP_BYTES);
    }
    return CLI_OK;
}

static void bias_list_push(bias_list *l, int32_t token, float bias) {
    l->items = cli_realloc(l->items, ((size_t)l->n + 1) * sizeof *l->items);
    l->items[l->n++] = (rp_logit_bias){token, bias};
}

/* Digits only. A number too large for an id gives INT64_MAX. */
static bool parse_id(const char *text, size_t n, int64_t *id) {
    *id = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *id = *id > INT32_MAX ? INT64_MAX : 10 * *id + (text[i] - '0');
    }
    return true;
}

/* All tokens with this text: a vocabulary may have both a piece and a byte for it. */
static bool push_text(bias_list *l, const rp_model *model, int32_t n_vocab, const char *text, size_t n, float bias) {
    int32_t before = l->n;
    for (int32_t id = 0; id < n_vocab; id++) {
        size_t n_bytes = 0;
        const char *bytes = rp_token_bytes(model, id, true, &n_bytes);
        if (bytes != NULL && n_bytes == n && memcmp(bytes, text, n) == 0) bias_list_push(l, id, bias);
    }
    return l->n > before;
}

/* TOKEN=B; the token's text may contain '=', too. */
static int push_entry(bias_list *l, const rp_model *model, const char *entry) {
    const char *equals = strrchr(entry, '=');
    char *end = NULL;
    float bias = equals != NULL ? strtof(equals + 1, &end) : 0;
    if (equals == NULL || equals == entry || end == equals + 1 || *end != '\0')
        return cli_fail(CLI_WRONG_USE, "--logit-bias '%s': give TOKEN=B, such as 15=-5 or ' word'=-inf", entry);
    size_t n = (size_t)(equals - entry);
    int64_t id = 0;
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    if (parse_id(entry, n, &id)) {
        if (id >= info.n_vocab)
            return cli_fail(CLI_WRONG_USE, "--logit-bias '%s': give an id from 0 to %d", entry, (int)info.n_vocab - 1);
        bias_list_push(l, (int32_t)id, bias);
        return CLI_OK;
    }
    if (push_text(l, model, info.n_vocab, entry, n, bias)) return CLI_OK;
    return cli_fail(
        CLI_WRONG_USE,
        "--logit-bias '%s': the model has no token '%.*s': see 'reprise tokenize'; many word tokens begin with a space",
        entry, (int)n, entry);
}

int cli_sampling_bias(const cli_sampling_args *args, const rp_model *model, rp_logit_bias **bias, int32_t *n) {
    bias_list list = {0};
    int status = CLI_OK;
    for (size_t i = 0; i < args->bias.n && status == CLI_OK; i++)
        status = push_entry(&list, model, args->bias.items[i]);
    *bias = list.items;
    *n = list.n;
    return status;
}

void cli_sampling_apply(const cli_sampling_args *args, const rp_logit_bias *bias, int32_t n_bias, rp_request *request) {
    request->sampling = args->values;
    request->sampling.bias = bias;
    request->sampling.n_bias = n_bias;
    request->stops = args->stops.items;
    request->n_stops = (int32_t)args->stops.n;
    request->n_logprobs = args->logprobs;
}
