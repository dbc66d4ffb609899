/* SPDX-License-Identifier: Apache-2.0 */
/* template.c: see template.h: a template's life. Owns the templates. Any thread may render one. */
#include "template/template.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "template/template_internal.h"

#define SOURCE_MEMORY_BYTES ((size_t)256 << 20)

/* ---- Parsing ---- */

/* A copy with "\n" for all line ends; *n: its length. */
static char *copy_source(template *t, const char *source, size_t *n) {
    char *copy = arena_alloc(&t->memory, *n + 1);
    size_t k = 0;
    for (size_t i = 0; copy && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n') continue;
        copy[k++] = source[i] == '\r' ? '\n' : source[i];
    }
    *n = k;
    return copy;
}

static int check_source(const char *source, size_t n, const char *name, rp_error *err) {
    if (n > TEMPLATE_MAX_SOURCE_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "%s: a chat template of %zu bytes: at most %zu are supported", name, n,
                         TEMPLATE_MAX_SOURCE_BYTES);
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length((const unsigned char *)source + i, n - i);
        if (length < 1 || source[i] == '\0')
            return base_fail_at(err, RP_ERR_SYNTAX, name, i, "byte %zu of the chat template is not UTF-8 text", i);
        i += (size_t)length;
    }
    return RP_OK;
}

int rp_template_new(rp_template **out, const char *source, size_t n, const char *name, rp_error *err) {
    token_stream tokens = {0};
    if (!out || (!source && n > 0) || !name)
        return base_fail(err, RP_ERR_INVALID, "rp_template_new: out, source and name are needed");
    *out = NULL;
    int rc = check_source(source, n, name, err);
    if (rc) return rc;
    template *t = base_calloc(1, sizeof(*t));
    if (!t) return base_fail_memory(err, sizeof(*t), "a chat template");
    t->memory.limit = SOURCE_MEMORY_BYTES;
    t->name = base_strdup(name);
    const char *copy = copy_source(t, source, &n);
    if (!t->name || !copy) rc = base_fail_memory(err, n, "a chat template");
    if (!rc) rc = template_tokenize(&t->memory, copy, n, t->name, &tokens, err);
    if (!rc) rc = template_parse_tokens(t, &tokens, err);
    BASE_ASSERT(rc || t->body);
    if (rc) rp_template_free(t);
    else *out = t;
    return rc;
}

void rp_template_free(rp_template *t) {
    if (!t) return;
    arena_free(&t->memory);
    base_free(t->name);
    base_free(t);
}

bool rp_template_uses(const rp_template *t, const char *variable) {
    return name_find(&t->names, variable) != NULL;
}

/* ---- Rendering ---- */

void rp_template_options_init(rp_template_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_template_options){.has_time = false}, sizeof(rp_template_options));
}

static int copy_out(const builder *b, rp_template_text **out, rp_error *err) {
    BASE_ASSERT(b->n_runs == 0 ? b->n == 0 : b->runs[b->n_runs - 1].end == b->n);
    rp_template_text *text = base_calloc(1, sizeof(*text));
    if (!text) return base_fail_memory(err, sizeof(*text), "a rendered prompt");
    *text = (rp_template_text){.bytes = base_alloc(b->n + 1),
                               .runs = base_alloc((b->n_runs + 1) * sizeof(*text->runs)),
                               .n = b->n,
                               .n_runs = b->n_runs};
    if (!text->bytes || !text->runs) {
        rp_template_text_free(text);
        return base_fail_memory(err, b->n, "a rendered prompt");
    }
    if (b->n > 0) memcpy(text->bytes, b->bytes, b->n);
    text->bytes[b->n] = '\0';
    if (b->n_runs > 0) memcpy(text->runs, b->runs, b->n_runs * sizeof(*text->runs));
    *out = text;
    return RP_OK;
}

static int state_report(const state *s, bool in_template, rp_error *err) {
    BASE_ASSERT(s->failed && s->code != RP_OK);
    char where[RP_ERROR_WHERE_BYTES];
    snprintf(where, sizeof(where), "%.200s:%u", s->t->name, s->line);
    return in_template ? base_fail_at(err, (rp_code)s->code, where, 0, "%s", s->message)
                       : base_fail(err, (rp_code)s->code, "%s", s->message);
}

/* The variables of the input, and those tokens that it has not. */
static void set_variables(state *s, const rp_template_input *in, const template_tokens *const tokens[2]) {
    s->variables = dict_clone(s, template_input_variables(in));
    for (int k = 0; k < 2 && s->variables; k++)
        for (size_t i = 0; tokens[k] && i < tokens[k]->n && !s->failed; i++)
            if (!dict_find_text(s, s->variables, tokens[k]->items[2 * i]))
                dict_set(s, s->variables, value_text(s, tokens[k]->items[2 * i]),
                         value_text(s, tokens[k]->items[2 * i + 1]));
}

/* The input's own list of messages stays as it is. */
static void apply_edit(state *s, const template_edit *edit) {
    BASE_ASSERT(s->failed || s->variables);
    const value *messages = dict_find_text(s, s->variables, "messages");
    if (messages && messages->type == VALUE_LIST && messages->as.l->n > edit->n_messages) {
        const value first = value_list(s, LIST_LIST, 0);
        if (s->failed) return;
        *first.as.l = *messages->as.l;
        first.as.l->n = edit->n_messages;
        dict_set(s, s->variables, value_text(s, "messages"), first);
    }
    if (edit->sets_generation)
        dict_set(s, s->variables, value_text(s, "add_generation_prompt"), value_bool(edit->generation));
}

static int copy_lines(const state *s, template_edit *edit, rp_error *err) {
    BASE_ASSERT(s->n_lines <= s->cap_lines);
    edit->lines = base_alloc((s->n_lines + 1) * sizeof(*edit->lines));
    if (!edit->lines) return base_fail_memory(err, s->n_lines * sizeof(*edit->lines), "lines of a chat template");
    if (s->n_lines > 0) memcpy(edit->lines, s->lines, s->n_lines * sizeof(*edit->lines));
    edit->n_lines = s->n_lines;
    return RP_OK;
}

static rp_template_failure failure_of(const state *s) {
    BASE_ASSERT(!s->failed || s->code != RP_OK);
    if (!s->failed) return RP_TEMPLATE_RENDERED;
    if (s->code == RP_ERR_INVALID && s->failed_as == TEMPLATE_ERROR) return RP_TEMPLATE_REFUSED;
    return s->code == RP_ERR_INVALID && s->failed_as == TYPE_ERROR ? RP_TEMPLATE_WRONG_TYPE : RP_TEMPLATE_FAILED;
}

/* A rendering has the steps and the bytes of its input, too: a limit means the same however often an input is
   rendered. */
int template_render_edited(const rp_template *t, const rp_template_input *in, const template_tokens *tokens,
                           const rp_template_options *options, template_edit *edit, rp_template_text **out,
                           rp_error *err) {
    rp_template_options o = rp_template_options_defaults();
    builder text = {0};
    if (!t || !in || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_template_render: template, input and out are needed");
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_template_options", err);
    if (rc) return rc;
    if (o.failure) *o.failure = RP_TEMPLATE_FAILED;
    if ((rc = template_input_check(in, err))) return rc;
    state s = {.t = t,
               .memory = {.total = in->s.memory.total, .limit = TEMPLATE_MAX_MEMORY_BYTES},
               .options = &o,
               .steps = in->s.steps};
    s.max_steps = o.steps_left ? BASE_MIN(*o.steps_left, TEMPLATE_MAX_STEPS) : TEMPLATE_MAX_STEPS;
    const bool begins = state_look(&s);
    if (begins) {
        set_variables(&s, in, (const template_tokens *const[]){&(template_tokens){o.trusted, o.n_trusted}, tokens});
        if (edit) apply_edit(&s, edit);
        if (edit) s.watched = &text;
        template_evaluate(&s, t->body, &text);
    }
    rc = s.failed ? state_report(&s, begins, err) : copy_out(&text, out, err);
    if (!rc && edit && (rc = copy_lines(&s, edit, err))) {
        rp_template_text_free(*out);
        *out = NULL;
    }
    if (o.failure) *o.failure = rc && !s.failed ? RP_TEMPLATE_FAILED : failure_of(&s);
    if (o.steps_left) *o.steps_left -= BASE_MIN(s.steps, *o.steps_left);
    arena_free(&s.memory);
    return rc;
}

int template_render(const rp_template *t, const rp_template_input *in, const template_tokens *tokens,
                    const rp_template_options *options, rp_template_text **out, rp_error *err) {
    return template_render_edited(t, in, tokens, options, NULL, out, err);
}

int rp_template_render_input(const rp_template *t, const rp_template_input *in, const rp_template_options *options,
                             rp_template_text **out, rp_error *err) {
    return template_render(t, in, NULL, options, out, err);
}

int rp_template_render(const rp_template *t, const char *json, size_t n, const rp_template_options *options,
                       rp_template_text **out, rp_error *err) {
    rp_template_input *in = NULL;
    if (!t || !out || (!json && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_template_render: template, json and out are needed");
    *out = NULL;
    int rc = template_input_read(&in, json, n, err);
    if (!rc) rc = template_render(t, in, NULL, options, out, err);
    rp_template_input_free(in);
    return rc;
}

void rp_template_text_free(rp_template_text *text) {
    if (!text) return;
    base_free(text->bytes);
    base_free(text->runs);
    base_free(text);
}
