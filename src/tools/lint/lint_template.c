/* SPDX-License-Identifier: Apache-2.0 */
/* lint_template.c: whether the model's chat template changes text of earlier turns, or prints the date: finding
 * `unstable`. Renders a few conversations, with what makes templates do so: reasoning in its three forms, calls of
 * tools. Owns nothing. One thread. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "tools/lint/lint_internal.h"
#include "template/template.h"
#include "reprise_chat.h"

#define TEXT_BYTES 48 /* shown */

#define PROBE(...) \
    "{\"tools\": null, \"documents\": null, \"add_generation_prompt\": false, \"messages\": [" __VA_ARGS__ "]}"
#define TOOLS \
    "{\"documents\": null, \"add_generation_prompt\": false, \"tools\": [{\"type\": \"function\", \"function\": " \
    "{\"name\": \"look\", " \
    "\"description\": \"Looks.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"at\": {\"type\": " \
    "\"string\", \"description\": " \
    "\"What.\"}}, \"required\": [\"at\"]}}}], \"messages\": ["
#define SYSTEM "{\"role\": \"system\", \"content\": \"Be brief.\"},"
#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ANSWER(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define REASONED(name, text) "{\"role\": \"assistant\", \"content\": \"" text "\", \"" name "\": \"Let me think.\"}"
#define REASONING(name) \
    PROBE(USER("Hello!") "," REASONED(name, "Hello.") "," USER("And now?") "," REASONED(name, \
                                                                                        "Goodbye.") "," USER("Why?"))
#define CALL \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"call00001\", \"type\": \"function\", " \
    "\"function\": {\"name\": " \
    "\"look\", \"arguments\": {\"at\": \"sea\"}}}]}"
#define RESULT "{\"role\": \"tool\", \"name\": \"look\", \"tool_call_id\": \"call00001\", \"content\": \"Blue.\"}"

static const char *const probes[] = {
    PROBE(USER("Hello!") "," ANSWER("Hello.") "," USER("And now?") "," ANSWER("Goodbye.") "," USER("Why?")),
    PROBE(SYSTEM USER("Hello!") "," ANSWER("Hello.") "," USER("And now?") "," ANSWER("Goodbye.") "," USER("Why?")),
    REASONING("reasoning_content"),
    REASONING("thinking"),
    PROBE(USER("Hello!") "," ANSWER("<think>\\nLet me think.\\n</think>\\n\\nHello.") "," USER("And now?") "," ANSWER(
        "Goodbye.") "," USER("Why?")),
    TOOLS USER("Which colour?") "," CALL "," RESULT "," ANSWER("It is blue.") "," USER("Why?") "]}",
};

/* Findings so far, by what makes them the same. */
typedef struct known_changes {
    rp_template_change items[32];
    size_t n;
} known_changes;

static bool is_known(known_changes *k, const rp_template_change *c) {
    for (size_t i = 0; i < k->n; i++)
        if (k->items[i].by_time == c->by_time && k->items[i].line_before == c->line_before &&
            k->items[i].line_after == c->line_after)
            return true;
    if (k->n < BASE_ARRAY_LEN(k->items)) k->items[k->n++] = *c;
    return false;
}

/* The word or tag in which the texts differ. */
static size_t word_start(const char *text, size_t at) {
    while (at > 0 && ((text[at - 1] | 32) >= 'a' && (text[at - 1] | 32) <= 'z')) at--;
    return at > 0 && strchr("<[|", text[at - 1]) ? at - 1 : at;
}

/* The text from the change on, in one line. */
static const char *shown(const char *excerpt, const rp_template_change *c, char out[TEXT_BYTES * 2 + 8]) {
    const char *text = excerpt + word_start(excerpt, c->byte - c->from);
    const size_t most = c->by_time ? BASE_MIN((size_t)TEXT_BYTES, c->end - c->byte) : TEXT_BYTES;
    size_t n = 0, k = 0;
    out[k++] = '\'';
    for (; text[n] && n < most; n++) {
        if (text[n] == '\n') out[k++] = '\\';
        out[k++] = text[n] == '\n' ? 'n' : text[n];
    }
    while (text[n] && k > 1 && ((unsigned char)text[n] & 0xc0) == 0x80) n--, k--; /* whole characters */
    const bool is_cut = text[n] && !c->by_time;
    memcpy(out + k, is_cut ? "...'" : "'", is_cut ? 5 : 2);
    return out;
}

static int add_unstable(lint *x, const rp_template *t, const rp_template_change *c) {
    char before[TEXT_BYTES * 2 + 8], after[TEXT_BYTES * 2 + 8], place[32] = "";
    const int32_t line = c->line_before > 0 ? c->line_before : c->line_after;
    const lint_place at = {"chat template", BASE_MAX(line, 1), 1, LINT_OF_TEMPLATE};
    const char *advice = rp_template_advice(t, c);
    shown(c->before, c, before);
    shown(c->after, c, after);
    if (c->by_time)
        return lint_add_at(x, RP_LINT_UNSTABLE_TEMPLATE, &at, -1,
                           "the template prints the date or the time, here %s: when it changes, all text after it "
                           "misses the prefix cache: %s",
                           before, advice);
    if (c->line_after > 0 && c->line_after != line) snprintf(place, sizeof(place), " (line %d)", (int)c->line_after);
    return lint_add_at(x, RP_LINT_UNSTABLE_TEMPLATE, &at, -1,
                       "the template writes %s in message %d%s while the conversation has %d message%s, and %s%s once "
                       "it has %d: the prefix cache "
                       "misses from there on: %s",
                       before, (int)c->message + 1, c->opens_answer ? ", the answer to come," : "", (int)c->n_before,
                       c->n_before == 1 ? "" : "s", after, place, (int)c->n_after, advice);
}

#define MAX_CHECK_STEPS ((uint64_t)1 << 24) /* of a probe's renderings: 0.2 s */

int lint_check_template(lint *x, const rp_model *model) {
    known_changes known = {.n = 0};
    rp_template_check_options options = rp_template_check_options_defaults();
    int rc = RP_OK;
    if (!model->template) return RP_OK;
    options.max_steps = MAX_CHECK_STEPS;
    for (size_t i = 0; i < BASE_ARRAY_LEN(probes) && !rc; i++) {
        rp_template_report *report = NULL;
        rc = rp_template_check(model->template, model, probes[i], strlen(probes[i]), &options, &report, x->err);
        for (size_t k = 0; !rc && k < report->n_changes; k++)
            if (!is_known(&known, &report->changes[k])) rc = add_unstable(x, model->template, &report->changes[k]);
        rp_template_report_free(report);
    }
    return rc;
}
