/* sampling_args.c: see sampling_args.h. Owns nothing. One thread. */
#include "sampling_args.h"

#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "console.h"

/* The entries of --logit-bias, growing. */
typedef struct bias_list {
    rp_logit_bias *items;
    int32_t n;
} bias_list;

cli_sampling_args cli_sampling_defaults(void) { return (cli_sampling_args){.values = rp_sampling_defaults()}; }

static void push(bias_list *l, int32_t token, float bias) {
    l->items = cli_realloc(l->items, ((size_t)l->n + 1) * sizeof *l->items);
    l->items[l->n++] = (rp_logit_bias){token, bias};
}

/* A token by its id: digits alone. */
static bool push_id(bias_list *l, const char *text, size_t n, float bias) {
    int64_t id = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (id <= INT32_MAX) id = 10 * id + (text[i] - '0');
    }
    push(l, id <= INT32_MAX ? (int32_t)id : INT32_MAX, bias);
    return true;
}

/* All tokens with this text: a vocabulary may have one as a piece and as a byte. */
static bool push_text(bias_list *l, const rp_model *model, const char *text, size_t n, float bias) {
    rp_model_info info;
    int32_t before = l->n;
    rp_model_describe(model, &info);
    for (int32_t id = 0; id < info.n_vocab; id++) {
        size_t n_bytes = 0;
        const char *bytes = rp_token_bytes(model, id, true, &n_bytes);
        if (bytes != NULL && n_bytes == n && memcmp(bytes, text, n) == 0) push(l, id, bias);
    }
    return l->n > before;
}

/* TOKEN=B; the text of a token may hold '=' too. */
static int push_entry(bias_list *l, const rp_model *model, const char *entry) {
    const char *equals = strrchr(entry, '=');
    char *end = NULL;
    float bias = equals != NULL ? strtof(equals + 1, &end) : 0;
    if (equals == NULL || equals == entry || end == equals + 1 || *end != '\0')
        return cli_fail(CLI_WRONG_USE, "--logit-bias '%s': give TOKEN=B, such as 15=-5 or ' word'=-inf", entry);
    size_t n = (size_t)(equals - entry);
    if (push_id(l, entry, n, bias) || push_text(l, model, entry, n, bias)) return CLI_OK;
    return cli_fail(CLI_WRONG_USE,
                    "--logit-bias '%s': no token of this model is '%.*s': see 'reprise tokenize'; a word often begins with a space",
                    entry, (int)n, entry);
}

int cli_sampling_bias(const cli_sampling_args *args, const rp_model *model, rp_logit_bias **bias, int32_t *n) {
    bias_list list = {0};
    int status = CLI_OK;
    for (size_t i = 0; i < args->bias.n && status == CLI_OK; i++) status = push_entry(&list, model, args->bias.items[i]);
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
