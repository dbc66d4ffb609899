/* fuzz_requests.c: any bytes as the body of a request, in every dialect: it is refused with one line, or what is asked for is within its
 * limits. The first byte chooses the dialect. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "server/dialects.h"
#include "server/openai.h"
#include "server/pml_dialect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const server_ask_parser parsers[] = {openai_parse_chat,       openai_parse_text, pml_parse_prompt, llamacpp_parse_completion,
                                            llamacpp_parse_messages, anthropic_parse,   anthropic_parse_count, gemini_parse};

static void check(bool ok) {
    if (!ok) abort();
}

static void check_problem(const server_problem *p) {
    json_t *(*const say[])(const server_problem *) = {server_problem_openai, server_problem_anthropic, server_problem_gemini,
                                                      server_problem_llamacpp};
    check(p->message[0] && !strchr(p->message, '\n'));
    check(server_problem_status(p->kind) >= 400);
    for (size_t i = 0; i < BASE_ARRAY_LEN(say); i++) {
        json_t *said = say[i](p);
        check(said != NULL); /* whatever the request wrote into it is UTF-8 */
        json_decref(said);
    }
}

static void check_ask(const server_ask *a) {
    const rp_sampling *s = &a->sampling;
    check((a->n_messages > 0) + (a->n_texts > 0) + (a->pml != NULL) == 1);
    check(a->n >= 1 && a->n <= SERVER_MAX_CHOICES && a->n_texts <= SERVER_MAX_CHOICES);
    check(a->max_tokens == -1 || a->max_tokens >= 1);
    check(s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    check(a->n_stops >= 0 && a->n_stops <= RP_MAX_STOPS && a->n_logprobs >= -1 && a->n_logprobs <= RP_MAX_LOGPROBS);
    for (int32_t i = 0; i < a->n_stops; i++) check(a->stops[i][0] != '\0');
    for (int32_t i = 0; i < a->n_bias; i++)
        check(a->bias[i].token >= 0 && (fabsf(a->bias[i].bias) <= 1000 || a->bias[i].bias == -INFINITY));
    for (size_t i = 0; i < a->n_messages; i++)
        check((unsigned)a->messages[i].role < RP_N_ROLES && strlen(a->messages[i].text) == a->messages[i].n);
    check(a->n_marked <= a->n_messages);
    for (size_t i = 0; i < a->n_parts; i++) {
        const server_part *part = &a->parts[i];
        check(part->message < a->n_messages && part->begin <= part->end && part->end <= a->messages[part->message].n);
        check(i == 0 || a->parts[i - 1].message < part->message ||
              (a->parts[i - 1].message == part->message && a->parts[i - 1].end <= part->begin));
        check(a->has_markup || part->kind < SERVER_PART_PML);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    server_problem p = {0};
    server_ask ask = {0};
    if (n == 0) return 0;
    json_t *root = server_json_parse((const char *)data + 1, n - 1, &p);
    if (root) server_ask_parse(&ask, root, parsers[data[0] % BASE_ARRAY_LEN(parsers)], &p);
    json_decref(root);
    if (p.kind) check_problem(&p);
    else check_ask(&ask);
    server_ask_free(&ask);
    return 0;
}
