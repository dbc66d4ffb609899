/* SPDX-License-Identifier: Apache-2.0 */
/* template.c: see template.h: a template's life. Owns the templates. Any thread may render one. */
#include "template/template.h"

#include <stdio.h>
#include <string.h>

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
        return base_fail(err, RP_ERR_LIMIT, "%s: a chat template of %zu bytes: at most %zu are supported", name, n, TEMPLATE_MAX_SOURCE_BYTES);
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length((const unsigned char *)source + i, n - i);
        if (length < 1 || source[i] == '\0') return base_fail_at(err, RP_ERR_SYNTAX, name, i, "byte %zu of the chat template is not UTF-8 text", i);
        i += (size_t)length;
    }
    return RP_OK;
}

int rp_template_new(rp_template **out, const char *source, size_t n, const char *name, rp_error *err) {
    token_stream tokens = {0};
    if (!out || (!source && n > 0) || !name) return base_fail(err, RP_ERR_INVALID, "rp_template_new: out, source and name are needed");
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
    rp_template_text *text = base_calloc(1, sizeof(*text));
    if (!text) return base_fail_memory(err, sizeof(*text), "a rendered prompt");
    *text = (rp_template_text){
        .bytes = base_alloc(b->n + 1), .runs = base_alloc((b->n_runs + 1) * sizeof(*text->runs)), .n = b->n, .n_runs = b->n_runs};
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
    char where[RP_ERROR_WHERE_BYTES];
    snprintf(where, sizeof(where), "%.200s:%u", s->t->name, s->line);
    return in_template ? base_fail_at(err, (rp_code)s->code, where, 0, "%s", s->message) : base_fail(err, (rp_code)s->code, "%s", s->message);
}

static void add_tokens(state *s, const template_tokens *tokens) {
    for (size_t i = 0; i < tokens->n && !s->failed; i++)
        if (!dict_find_text(s, s->variables, tokens->items[2 * i]))
            dict_set(s, s->variables, value_text(s, tokens->items[2 * i]), value_text(s, tokens->items[2 * i + 1]));
}

static void apply_edit(state *s, const template_edit *edit) {
    const value *messages = dict_find_text(s, s->variables, "messages");
    if (messages && messages->type == VALUE_LIST && messages->as.l->n > edit->n_messages) messages->as.l->n = edit->n_messages;
    if (edit->sets_generation) dict_set(s, s->variables, value_text(s, "add_generation_prompt"), value_bool(edit->generation));
}

static int copy_lines(const state *s, template_edit *edit, rp_error *err) {
    edit->lines = base_alloc((s->n_lines + 1) * sizeof(*edit->lines));
    if (!edit->lines) return base_fail_memory(err, s->n_lines * sizeof(*edit->lines), "lines of a chat template");
    if (s->n_lines > 0) memcpy(edit->lines, s->lines, s->n_lines * sizeof(*edit->lines));
    edit->n_lines = s->n_lines;
    return RP_OK;
}

int template_render_edited(const rp_template *t, const char *json, size_t n, const template_tokens *tokens, const rp_template_options *options,
                           template_edit *edit, rp_template_text **out, rp_error *err) {
    rp_template_options o = rp_template_options_defaults();
    state s = {.t = t, .memory = {.limit = TEMPLATE_MAX_MEMORY_BYTES}, .options = &o};
    builder text = {0};
    if (!t || !out || (!json && n > 0)) return base_fail(err, RP_ERR_INVALID, "rp_template_render: template, json and out are needed");
    *out = NULL;
    int rc = options ? base_sized_read(&o, sizeof(o), options, "rp_template_options", err) : RP_OK;
    if (rc) return rc;
    if (n > TEMPLATE_MAX_INPUT_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "a conversation of %zu bytes: at most %zu are supported", n, TEMPLATE_MAX_INPUT_BYTES);
    s.max_steps = o.steps_left ? BASE_MIN(*o.steps_left, TEMPLATE_MAX_STEPS) : TEMPLATE_MAX_STEPS;
    if (!state_look(&s)) return state_report(&s, false, err);
    s.variables = json_read(&s, json, n);
    bool in_template = s.variables != NULL;
    if (in_template) add_tokens(&s, &(template_tokens){o.trusted, o.n_trusted});
    if (in_template) add_tokens(&s, tokens);
    if (in_template && edit) {
        apply_edit(&s, edit);
        s.watched = &text;
    }
    if (in_template) template_evaluate(&s, t->body, &text);
    rc = s.failed ? state_report(&s, in_template, err) : copy_out(&text, out, err);
    if (!rc && edit && (rc = copy_lines(&s, edit, err))) {
        rp_template_text_free(*out);
        *out = NULL;
    }
    if (o.steps_left) *o.steps_left -= BASE_MIN(s.steps, *o.steps_left);
    arena_free(&s.memory);
    return rc;
}

int template_render(const rp_template *t, const char *json, size_t n, const char *const *tokens, size_t n_tokens, const rp_template_options *options,
                    rp_template_text **out, rp_error *err) {
    return template_render_edited(t, json, n, &(template_tokens){tokens, n_tokens}, options, NULL, out, err);
}

int rp_template_render(const rp_template *t, const char *json, size_t n, const rp_template_options *options, rp_template_text **out, rp_error *err) {
    return template_render(t, json, n, NULL, 0, options, out, err);
}

void rp_template_text_free(rp_template_text *text) {
    if (!text) return;
    base_free(text->bytes);
    base_free(text->runs);
    base_free(text);
}
