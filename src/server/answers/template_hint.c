/* SPDX-License-Identifier: Apache-2.0 */
/* template_hint.c: see template_hint.h. */
#include "server/answers/template_hint.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise_chat.h"
#include "reprise_tools.h"
#include "server/answers/generate.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/chat_rendering.h"

#define SHOWN_BYTES 64

/* An earlier turn, or its text: not the last message, which is new. */
bool template_hint_is_due(const server_request *x) {
    const generation *gen = x->gen;
    const rp_mismatch *d = &x->answers->choices[0].result->mismatch;
    const rp_template *t = rp_model_template(x->model->model);
    bool is_answered = false;
    size_t n = 0;
    if (!gen->rendered || gen->continues_last || d->token < 0 ||
        BASE_MAX(gen->rendered->n, x->body_bytes) > SERVER_MAX_CHECKED_BYTES)
        return false;
    for (size_t i = 0; i < gen->n_messages && n <= SERVER_MAX_CHECKED_BYTES; n += gen->messages[i++].n)
        is_answered |= i + 1 < gen->n_messages && gen->messages[i].role == RP_ROLE_ASSISTANT;
    if (n > SERVER_MAX_CHECKED_BYTES) return false;
    return is_answered || rp_template_uses(t, "strftime_now");
}

/* Bytes that the mismatch's tokens have in common. */
static size_t common_bytes(const rp_mismatch *d) {
    size_t n = 0;
    while (d->prompt[n] && d->prompt[n] == d->cached[n]) n++;
    return n;
}

/* Is `byte` of the prompt the first byte that differs? */
static bool differs_at(const rp_template_text *text, const rp_mismatch *d, size_t byte) {
    const size_t same = common_bytes(d);
    if (byte < same || byte > text->n) return false;
    return strncmp(text->bytes + byte - same, d->prompt, BASE_MIN(strlen(d->prompt), text->n - byte + same)) == 0;
}

/* Is this change the reason of the mismatch? `shift`: bytes of the prompt before the template's text. */
static bool is_reason(const server_request *x, const rp_template_change *c, const rp_mismatch *d, size_t shift) {
    const rp_template_text *text = x->gen->rendered;
    const char cached = d->cached[common_bytes(d)];
    if (!c->by_time) return differs_at(text, d, c->byte + shift) && cached && cached == c->before[c->byte - c->from];
    for (size_t byte = c->byte; byte < c->end; byte++)
        if (differs_at(text, d, byte + shift)) return true;
    return false;
}

/* Whole characters of up to SHOWN_BYTES bytes, or `most`. */
static json_t *hint_text(const char *text, size_t most) {
    size_t n = strlen(text), cut = BASE_MIN(n, BASE_MIN(most, (size_t)SHOWN_BYTES));
    while (cut < n && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) cut--;
    return base_json_string(text, cut);
}

static json_t *hint_of(const server_request *x, const rp_template_change *c, const rp_mismatch *d) {
    const size_t most = c->by_time ? c->end - c->byte : SIZE_MAX;
    const char *now = (c->by_time ? c->before : c->after) + (c->byte - c->from),
               *cached = d->cached + (c->by_time ? 0 : common_bytes(d));
    return json_pack("{s:s, s:s, s:o, s:o, s:i, s:b, s:s}", "what", "template", "message",
                     d->message[0] ? d->message : d->module, "text", hint_text(now, most), "cached",
                     hint_text(cached, SIZE_MAX), "line", (int)(c->line_after > 0 ? c->line_after : c->line_before),
                     "at_mismatch", 1, "do", rp_template_advice(rp_model_template(x->model->model), c));
}

void template_hint_find(server_request *x) {
    const rp_mismatch *d = &x->answers->choices[0].result->mismatch;
    rp_template_check_options options = rp_template_check_options_defaults();
    rp_template_report *report = NULL;
    options.last_turn = true;
    options.max_steps = SERVER_MAX_CHECKED_STEPS;
    BASE_ASSERT(work_queue_is_worker() && !x->gen->template_hint);
    if (!template_hint_is_due(x)) return;
    rp_template_input *in = chat_rendering_input(x);
    const rp_model *m = x->model->model;
    if (in && !rp_template_check_input(rp_model_template(m), m, in, &options, &report, NULL) &&
        report->n_bytes <= x->gen->rendered->n)
        for (size_t i = 0; i < report->n_changes && !x->gen->template_hint; i++)
            if (is_reason(x, &report->changes[i], d, x->gen->rendered->n - report->n_bytes))
                x->gen->template_hint = hint_of(x, &report->changes[i], d);
    rp_template_report_free(report);
    rp_template_input_free(in);
}
