/* SPDX-License-Identifier: Apache-2.0 */
/* template_check.c: where a template changes text that it wrote before: it renders a conversation up to some message,
 * and more of it, and compares.
 *
 *   messages        1 2        ...<assistant>\n              opens the answer (add_generation_prompt)
 *   messages        1 2 3      ...<assistant>\n<think>...    must begin with the line above
 *   messages        1 2 3 4    ...<assistant>\nBlue.<user>   must begin with the line above: here it does not
 *   all, another day           ...26 Nov 2026...
 *
 * Owns nothing between calls. Any thread.
 */
#define _GNU_SOURCE /* tm_gmtoff */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "model/model_template.h"
#include "reprise_tools.h"
#include "template/template.h"
#include "template/template_internal.h"
#include "reprise_chat.h"

#define SHOWN_BEFORE 32 /* bytes */
#define SHOWN_BYTES 96
#define MOST_RENDERINGS 10 /* that take all steps of one; others take a fraction */
#define MOST_TIME_BYTES 64 /* a text by time is that long; if there are several, they are not one */

/* Their first and last letters and digits differ in each form of a date, so that one of them differs from any third: 13
 * February 2021 04:05:06, 28 November 1997 13:47:59. */
static const int64_t other_times[] = {1613189106, 880724879};

/* How a part of the conversation is rendered. */
typedef struct beginning {
    size_t n; /* messages */
    bool sets_generation, generation;
} beginning;

typedef struct rendering {
    beginning of;
    template_text *text; /* NULL: refused */
    written_line *lines; /* [n_lines] */
    size_t n_lines;
} rendering;

typedef struct check {
    const template *t;
    const rp_template_input *in;
    const template_tokens *tokens;
    rp_template_options options; /* a fixed time */
    uint64_t steps_left;         /* for all renderings */
    const list *messages;
    size_t *ends;      /* [n_messages] bytes of the rendering up to each message; SIZE_MAX: refused */
    bool needs_places; /* ends are set */
    size_t cap_changes;
    rp_template_report *report;
    rp_error *err;
} check;

void rp_template_check_options_init(rp_template_check_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_template_check_options){.last_turn = false},
                    sizeof(rp_template_check_options));
}

void rp_template_report_free(rp_template_report *report) {
    if (!report) return;
    for (size_t i = 0; i < report->n_changes; i++) {
        base_free((char *)report->changes[i].before);
        base_free((char *)report->changes[i].after);
    }
    base_free(report->changes);
    base_free(report);
}

/* Variables of known families with which the template keeps its text, in the order of preference. */
static const struct {
    const char *variable, *advice;
    bool by_time;
} remedies[] = {
    {"date_string", "set date_string in chat_template_kwargs to a fixed text", true},
    {"preserve_thinking",
     "set preserve_thinking in chat_template_kwargs to true, and send the reasoning of earlier answers back", false},
    {"clear_thinking",
     "set clear_thinking in chat_template_kwargs to false, and send the reasoning of earlier answers back", false},
    {"truncate_history_thinking",
     "set truncate_history_thinking in chat_template_kwargs to false, and send the reasoning of earlier answers back",
     false},
    {"enable_thinking",
     "expect the answer to be prefilled again without its reasoning, or set enable_thinking to false", false},
};

const char *rp_template_advice(const rp_template *t, const rp_template_change *change) {
    for (size_t i = 0; i < sizeof(remedies) / sizeof(*remedies); i++)
        if (remedies[i].by_time == change->by_time && rp_template_uses(t, remedies[i].variable))
            return remedies[i].advice;
    return change->by_time
               ? "give the model a template without the date, and write the date in the last message"
               : "expect the text from there on to be prefilled again, or give the model a template that keeps it";
}

/* ---- Renderings ---- */

/* RP_OK with text NULL: the template refuses these messages. RP_ERR_LIMIT: it takes too many steps. */
static int check_render(check *c, beginning of, const rp_template_options *options, rendering *out) {
    BASE_ASSERT(of.n <= c->messages->n);
    template_edit edit = {.n_messages = of.n, .sets_generation = of.sets_generation, .generation = of.generation};
    rp_template_options own = *options;
    const uint64_t most = BASE_MIN(c->steps_left, TEMPLATE_MAX_STEPS), before = c->steps_left;
    rp_error err;
    own.steps_left = &c->steps_left;
    *out = (rendering){.of = of};
    const int rc = template_render_edited(c->t, c->in, c->tokens, &own, &edit, &out->text, &err);
    const bool is_endless = rc == RP_ERR_LIMIT && before - c->steps_left >= most;
    if (rc == RP_ERR_MEMORY || is_endless) return base_fail_at(c->err, (rp_code)rc, err.where, 0, "%s", err.message);
    out->lines = edit.lines;
    out->n_lines = edit.n_lines;
    return RP_OK;
}

static void rendering_free(rendering *r) {
    rp_template_text_free(r->text);
    base_free(r->lines);
    *r = (rendering){.text = NULL};
}

/* The line of the template that wrote the byte; 0: the text is shorter. */
static int32_t line_at(const rendering *r, size_t byte) {
    for (size_t i = 0; i < r->n_lines; i++)
        if (byte < r->lines[i].end) return (int32_t)r->lines[i].line;
    return 0;
}

/* ---- Changes ---- */

static size_t common_beginning(const template_text *a, const template_text *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

static size_t common_ending(const template_text *a, const template_text *b, size_t most) {
    BASE_ASSERT(most <= a->n && most <= b->n);
    size_t n = 0;
    while (n < most && a->bytes[a->n - 1 - n] == b->bytes[b->n - 1 - n]) n++;
    return n;
}

static size_t character_start(const template_text *t, size_t at) {
    BASE_ASSERT(at <= t->n);
    while (at > 0 && at < t->n && ((unsigned char)t->bytes[at] & 0xc0) == 0x80) at--;
    return at;
}

static char *excerpt(const template_text *t, size_t from) {
    BASE_ASSERT(from <= t->n);
    const size_t end = from + SHOWN_BYTES < t->n ? character_start(t, from + SHOWN_BYTES) : t->n;
    char *text = base_alloc(end - from + 1);
    if (!text) return NULL;
    memcpy(text, t->bytes + from, end - from);
    text[end - from] = '\0';
    return text;
}

/* Adds the change from a to b; x has the fields that its kind sets. */
static int add_change(check *c, const rendering *a, const rendering *b, rp_template_change x) {
    BASE_ASSERT(a->text && b->text);
    rp_template_report *r = c->report;
    if (r->n_changes == RP_TEMPLATE_MAX_CHANGES) {
        r->n_left_out++;
        return RP_OK;
    }
    if (base_grow((void **)&r->changes, &c->cap_changes, r->n_changes + 1, RP_TEMPLATE_MAX_CHANGES,
                  sizeof(*r->changes)))
        return base_fail_memory(c->err, sizeof(*r->changes), "a chat template's changes");
    x.n_before = (int32_t)a->of.n;
    x.n_after = (int32_t)b->of.n;
    x.opens_answer = !x.by_time && a->of.generation;
    BASE_ASSERT(a->of.n <= c->messages->n);
    x.message = c->needs_places ? 0 : -1; /* the one after the last beginning that ends before the byte */
    for (size_t i = 0; i < a->of.n && c->needs_places; i++)
        if (c->ends[i] <= x.byte) x.message = (int32_t)i + 1;
    x.line_before = line_at(a, x.byte);
    x.line_after = line_at(b, x.byte);
    x.text_line = 1;
    for (size_t i = 0; i < x.byte; i++) x.text_line += a->text->bytes[i] == '\n';
    x.from = character_start(a->text, x.byte < SHOWN_BEFORE ? 0 : x.byte - SHOWN_BEFORE);
    x.before = excerpt(a->text, x.from);
    x.after = excerpt(b->text, x.from);
    r->changes[r->n_changes++] = x;
    return x.before && x.after ? RP_OK : base_fail_memory(c->err, SHOWN_BYTES, "a chat template's changes");
}

/* Bytes of a text that longer ones must have, too: all of a prompt; otherwise up to the last text of the input, since
 * what the template writes after the last message ("</s>") is in no prompt. */
static size_t kept_bytes(const rendering *r) {
    BASE_ASSERT(r->text);
    const template_text *t = r->text;
    size_t n_runs = t->n_runs;
    if (r->of.generation) return t->n;
    while (n_runs > 0 && t->runs[n_runs - 1].origin == TEMPLATE_TRUSTED) n_runs--;
    return n_runs > 0 ? t->runs[n_runs - 1].end : 0;
}

/* b must begin with a. */
static int check_beginning(check *c, const rendering *a, const rendering *b) {
    const rp_template_report *r = c->report;
    const rp_template_change *last = r->n_changes > 0 ? &r->changes[r->n_changes - 1] : NULL;
    if (!a->text || !b->text) return RP_OK;
    const size_t byte = common_beginning(a->text, b->text);
    if (byte >= kept_bytes(a) || (last && last->byte == byte && (size_t)last->n_after == b->of.n)) return RP_OK;
    return add_change(c, a, b, (rp_template_change){.byte = byte, .end = byte + 1});
}

/* The rendering now, and those at other times. */
static int check_times(check *c, const rendering *now) {
    rendering first = {.text = NULL};
    rp_template_options at = c->options;
    rp_template_change x = {.by_time = true, .byte = SIZE_MAX};
    int rc = RP_OK;
    if (!now->text || !rp_template_uses(c->t, "strftime_now")) return RP_OK;
    for (size_t i = 0; i < sizeof(other_times) / sizeof(*other_times) && !rc; i++) {
        rendering other;
        at.time = other_times[i];
        rc = check_render(c, now->of, &at, &other);
        if (rc || !other.text) continue;
        const size_t byte = common_beginning(now->text, other.text), shorter = BASE_MIN(now->text->n, other.text->n);
        const bool differs = byte < shorter || now->text->n != other.text->n;
        if (differs) x.end = BASE_MAX(x.end, now->text->n - common_ending(now->text, other.text, shorter - byte));
        if (differs && byte < x.byte) {
            x.byte = byte;
            rendering_free(&first);
            first = other;
        } else rendering_free(&other);
    }
    x.end = BASE_MIN(BASE_MAX(x.end, x.byte + 1), x.byte + MOST_TIME_BYTES);
    if (!rc && first.text) rc = add_change(c, now, &first, x);
    rendering_free(&first);
    return rc;
}

/* ---- A conversation ---- */

static bool is_answer(const check *c, size_t i) {
    BASE_ASSERT(i < c->messages->n);
    const value message = c->messages->items[i];
    for (size_t k = 0; message.type == VALUE_DICT && k < message.as.d->n; k++) {
        const dict_entry *e = &message.as.d->entries[k];
        if (string_is(e->key.as.s, "role")) return e->item.type == VALUE_STRING && string_is(e->item.as.s, "assistant");
    }
    return false;
}

/* The generation prompt before answer i must be the beginning of the answer, once it is there. */
static int check_opening(check *c, size_t i, const rendering *answered) {
    BASE_ASSERT(i > 0 && i < c->messages->n);
    rendering opened;
    int rc = check_render(c, (beginning){i, true, true}, &c->options, &opened);
    if (!rc) rc = check_beginning(c, &opened, answered);
    rendering_free(&opened);
    return rc;
}

static int check_all(check *c) {
    const size_t n = c->messages->n;
    rendering last = {.text = NULL}, next;
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = check_render(c, (beginning){i + 1, true, false}, &c->options, &next);
        c->ends[i] = next.text ? next.text->n : SIZE_MAX;
        if (rc || !next.text) continue;
        c->report->n_rendered++;
        rc = check_beginning(c, &last, &next);
        if (!rc && i > 0 && is_answer(c, i)) rc = check_opening(c, i, &next);
        rendering_free(&last);
        last = next;
    }
    c->report->n_bytes = last.of.n == n && last.text ? last.text->n : 0;
    if (!rc) rc = check_times(c, &last);
    rendering_free(&last);
    return rc;
}

static int check_last_turn(check *c) {
    BASE_ASSERT(c->messages->n > 0);
    const size_t n = c->messages->n;
    rendering all, answered = {.text = NULL};
    size_t i = n - 1;
    int rc = check_render(c, (beginning){.n = n}, &c->options, &all);
    while (i > 0 && !is_answer(c, i)) i--;
    if (!rc && all.text) {
        c->report->n_rendered = 1;
        c->report->n_bytes = all.text->n;
        if (i > 0) rc = check_opening(c, i, &all);
        if (!rc && i > 0 && i + 1 < n) rc = check_render(c, (beginning){i + 1, true, false}, &c->options, &answered);
        if (!rc) rc = check_beginning(c, &answered, &all);
        if (!rc) rc = check_times(c, &all);
    }
    rendering_free(&answered);
    rendering_free(&all);
    return rc;
}

/* The local time, as rp_template_options.time wants it. */
static int64_t local_time(void) {
    const time_t now = time(NULL);
    struct tm tm = {0};
    localtime_r(&now, &tm);
    return (int64_t)now + tm.tm_gmtoff;
}

/* NULL: there are none. */
static const list *messages_of(const rp_template_input *in) {
    const dict *variables = template_input_variables(in);
    for (size_t i = 0; i < variables->n; i++) {
        const dict_entry *e = &variables->entries[i];
        if (string_is(e->key.as.s, "messages"))
            return e->item.type == VALUE_LIST && e->item.as.l->n > 0 ? e->item.as.l : NULL;
    }
    return NULL;
}

int rp_template_check_input(const rp_template *t, const rp_model *model, const rp_template_input *in,
                            const rp_template_check_options *options, rp_template_report **out, rp_error *err) {
    rp_template_check_options o = rp_template_check_options_defaults();
    const char *items[8];
    template_tokens tokens = {.items = items};
    if (!t || !in || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_template_check: template, input and out are needed");
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_template_check_options", err);
    if (!rc) rc = template_input_check(in, err);
    if (rc) return rc;
    if (model) model_template_tokens(model, items, &tokens.n);
    check c = {
        .t = t, .in = in, .tokens = &tokens, .messages = messages_of(in), .needs_places = !o.last_turn, .err = err};
    c.steps_left = o.max_steps > 0 ? o.max_steps : MOST_RENDERINGS * TEMPLATE_MAX_STEPS;
    c.options = (rp_template_options){
        .struct_size = sizeof(c.options), .has_time = true, .time = o.has_time ? o.time : local_time()};
    if (!c.messages) return base_fail(err, RP_ERR_INVALID, "a conversation without messages: give a list of them");
    c.ends = base_calloc(c.messages->n, sizeof(*c.ends));
    c.report = base_calloc(1, sizeof(*c.report));
    if (!c.ends || !c.report) rc = base_fail_memory(err, c.messages->n * sizeof(*c.ends), "a chat template's changes");
    else {
        *c.report = (rp_template_report){.struct_size = sizeof(*c.report), .n_messages = c.messages->n};
        rc = o.last_turn ? check_last_turn(&c) : check_all(&c);
    }
    base_free(c.ends);
    if (rc) rp_template_report_free(c.report);
    else *out = c.report;
    return rc;
}

int rp_template_check(const rp_template *t, const rp_model *model, const char *json, size_t n,
                      const rp_template_check_options *options, rp_template_report **out, rp_error *err) {
    rp_template_input *in = NULL;
    if (!t || !out || (!json && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_template_check: template, json and out are needed");
    *out = NULL;
    int rc = template_input_read(&in, json, n, err);
    if (!rc) rc = rp_template_check_input(t, model, in, options, out, err);
    rp_template_input_free(in);
    return rc;
}
