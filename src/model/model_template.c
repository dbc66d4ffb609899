/* SPDX-License-Identifier: Apache-2.0 */
/* model_template.c: see model_template.h. */
#include "model/model_template.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "template/template.h"

/* ---- The file's template ---- */

/* A conversation whose rendering ends with the generation prompt; system messages are refused by some templates. */
#define PROBE "{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}], \"tools\": null, \"documents\": null, \"bos_token\": \"\", \"eos_token\": \"\", " \
              "\"add_generation_prompt\": "

static rp_template_text *probe(const rp_model *m, const char *json) {
    rp_template_text *text = NULL;
    return rp_template_render(m->template, json, strlen(json), NULL, &text, NULL) ? NULL : text;
}

/* What the template writes after a user's message, and only with add_generation_prompt; if it always writes it: everything after the message. */
static int find_generation_prompt(rp_model *m, rp_error *err) {
    rp_template_text *with = probe(m, PROBE "true}"), *without = probe(m, PROBE "false}");
    const char *answer = NULL;
    if (with && without && with->n > without->n && memcmp(with->bytes, without->bytes, without->n) == 0) answer = with->bytes + without->n;
    else if (with && strchr(with->bytes, '?')) answer = strrchr(with->bytes, '?') + 1;
    if (answer && answer[0]) m->template_answer = base_strdup(answer);
    const bool failed = answer && answer[0] && !m->template_answer;
    rp_template_text_free(with);
    rp_template_text_free(without);
    return failed ? base_fail_memory(err, strlen(PROBE), "a generation prompt") : RP_OK;
}

int model_read_template(rp_model *m, rp_error *err) {
    gguf_string source;
    rp_error why = {0};
    if (!gguf_get_string(m->file, "tokenizer.chat_template", &source)) return RP_OK;
    const int rc = rp_template_new(&m->template, source.bytes, (size_t)source.n, "chat template", &why);
    if (rc == RP_ERR_MEMORY) return base_fail(err, rc, "%s", why.message);
    if (rc) {
        base_log(BASE_LOG_WARN, "%s: %s: using chat format '%s' instead", gguf_name(m->file), why.message, chat_format_name(m->chat));
        return RP_OK;
    }
    return find_generation_prompt(m, err);
}

void model_free_template(rp_model *m) {
    rp_template_free(m->template);
    base_free(m->template_answer);
}

/* ---- Rendered text ---- */

int model_check_rendered(const rp_template_text *text, rp_error *err) {
    size_t end = 0;
    for (size_t i = 0; i < text->n_runs; i++) {
        if (text->runs[i].end <= end || text->runs[i].end > text->n)
            return base_fail(err, RP_ERR_INVALID, "run %zu of a rendered text ends at byte %zu: runs rise, and end with the text", i, text->runs[i].end);
        end = text->runs[i].end;
    }
    if (!text->bytes || end != text->n) return base_fail(err, RP_ERR_INVALID, "a rendered text of %zu bytes has runs for %zu", text->n, end);
    return RP_OK;
}

/* The trusted bytes of [from, to), relative to `from`; adjacent runs are one range. */
static tokenizer_range *trusted_ranges(const rp_template_text *text, size_t from, size_t to, size_t *n) {
    tokenizer_range *all = base_alloc((text->n_runs + 1) * sizeof(*all));
    size_t begin = 0;
    *n = 0;
    for (size_t i = 0; all && i < text->n_runs && begin < to; begin = text->runs[i++].end) {
        const size_t first = BASE_MAX(begin, from), end = BASE_MIN(text->runs[i].end, to);
        if (text->runs[i].origin != RP_TEMPLATE_TRUSTED || first >= end) continue;
        if (*n > 0 && all[*n - 1].end == first - from) all[*n - 1].end = end - from;
        else all[(*n)++] = (tokenizer_range){first - from, end - from};
    }
    return all;
}

int model_append_rendered(const rp_model *m, const rp_template_text *text, size_t from, size_t to, token_list *out, rp_error *err) {
    size_t n = 0;
    if (from >= to) return RP_OK;
    tokenizer_range *trusted = trusted_ranges(text, from, to, &n);
    if (!trusted) return base_fail_memory(err, text->n_runs * sizeof(*trusted), "a rendered prompt");
    const int rc = tokenizer_encode(m->tokenizer, text->bytes + from, to - from, (tokenizer_options){.space_prefix = true, .trusted = trusted, .n_trusted = n}, out, err);
    base_free(trusted);
    return rc;
}

/* Calls `at` for each trusted range after `from`, until it returns something else than SIZE_MAX. */
static size_t search_trusted(const rp_model *m, const rp_template_text *text, size_t from,
                             size_t (*at)(const rp_model *m, const char *bytes, size_t begin, size_t end)) {
    size_t begin = 0, found = SIZE_MAX;
    for (size_t i = 0; i < text->n_runs && found == SIZE_MAX;) {
        size_t end = text->runs[i].end;
        const bool trusted = text->runs[i++].origin == RP_TEMPLATE_TRUSTED;
        while (trusted && i < text->n_runs && text->runs[i].origin == RP_TEMPLATE_TRUSTED) end = text->runs[i++].end;
        if (trusted && end > from) found = at(m, text->bytes, BASE_MAX(begin, from), end);
        begin = end;
    }
    return found;
}

static size_t answer_in(const rp_model *m, const char *bytes, size_t begin, size_t end) {
    const size_t n = strlen(m->template_answer);
    for (size_t i = begin; i + n <= end; i++)
        if (memcmp(bytes + i, m->template_answer, n) == 0) return i + n;
    return SIZE_MAX;
}

size_t model_find_answer(const rp_model *m, const rp_template_text *text, size_t from) {
    return m->template_answer ? search_trusted(m, text, from, answer_in) : SIZE_MAX;
}

static size_t turn_end_in(const rp_model *m, const char *bytes, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (tokenizer_is_end(m->tokenizer, tokenizer_control_at(m->tokenizer, bytes + i, end - i))) return i;
    return SIZE_MAX;
}

size_t model_find_turn_end(const rp_model *m, const rp_template_text *text, size_t from) { return search_trusted(m, text, from, turn_end_in); }
