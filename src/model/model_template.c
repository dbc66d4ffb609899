/* SPDX-License-Identifier: Apache-2.0 */
/* model_template.c: see model_template.h. */
#include "model/model_template.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "template/template.h"

/* ---- The file's template ---- */

void model_template_tokens(const rp_model *m, const char *out[8], size_t *n) {
    const tokenizer *t = m->tokenizer;
    const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const int32_t ids[] = {tokenizer_bos(t), tokenizer_eos(t), tokenizer_unk(t), tokenizer_pad(t)};
    *n = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        size_t n_bytes;
        const char *text = tokenizer_bytes(t, ids[i], true, &n_bytes);
        if (!text) continue;
        out[2 * *n] = names[i];
        out[2 * (*n)++ + 1] = text;
    }
}

/* Conversations of contents '?', of the user or a tool, and answers '!'. System messages are refused by some
   templates. */
#define PROBE_USER "{\"role\": \"user\", \"content\": \"?\"}"
#define PROBE_ANSWER "{\"role\": \"assistant\", \"content\": \"!\"}"
#define PROBE_CALL \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"000000000\", \"type\": \"function\", " \
    "\"function\": " \
    "{\"name\": \"f\", \"arguments\": {}}}]}"
#define PROBE_RESULT "{\"role\": \"tool\", \"name\": \"f\", \"tool_call_id\": \"000000000\", \"content\": \"?\"}"
#define PROBE(messages, opens) \
    "{\"messages\": [" messages "], \"tools\": null, \"documents\": null, \"add_generation_prompt\": " opens "}"

#define MAX_PROBE_STEPS ((uint64_t)1 << 22) /* of messages of one character: 40 ms; published templates take 1,000 */

static rp_template_text *probe(const rp_model *m, const char *json) {
    rp_template_text *text = NULL;
    const char *items[8];
    template_tokens tokens = {.items = items};
    rp_template_input *in = NULL;
    model_template_tokens(m, items, &tokens.n);
    uint64_t steps_left = MAX_PROBE_STEPS;
    rp_template_options options = rp_template_options_defaults();
    rp_error err;
    options.steps_left = &steps_left;
    int rc = template_input_read(&in, json, strlen(json), &err);
    if (!rc) rc = template_render(m->template, in, &tokens, &options, &text, &err);
    rp_template_input_free(in);
    if (rc == RP_ERR_LIMIT) base_log(BASE_LOG_WARN, "%s: chat template: %s", gguf_name(m->file), err.message);
    return rc ? NULL : text;
}

/* May a text be cut at byte n? After a control token or a line end; never within a control token. */
static bool may_cut(const rp_model *m, const char *text, size_t length, size_t n) {
    BASE_DCHECK(n <= length);
    bool may = n > 0 && text[n - 1] == '\n';
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const int32_t id = tokenizer_control_at(m->tokenizer, text + i, length - i);
        if (id < 0) continue;
        tokenizer_bytes(m->tokenizer, id, true, &bytes);
        if (i + bytes > n) return false;
        may |= i + bytes == n;
        i += BASE_MAX(bytes, 1) - 1;
    }
    return may;
}

/* How much of a generation prompt the template also writes before an answer of an earlier turn, whose text begins at
 * `earlier`. All of it, if they have nothing in common. */
static size_t common_opening(const rp_model *m, const char *prompt, const char *earlier) {
    const size_t length = strlen(prompt);
    size_t n = 0;
    while (n < length && prompt[n] == earlier[n]) n++;
    while (n > 0 && n < length && !may_cut(m, prompt, length, n)) n--;
    return n > 0 ? n : length;
}

static int keep_opening(rp_model *m, int i, const char *text, size_t n, rp_error *err) {
    BASE_ASSERT(i < MODEL_N_OPENINGS && !m->template_answers[i]);
    m->template_answers[i] = base_alloc(n + 1);
    if (!m->template_answers[i]) return base_fail_memory(err, n + 1, "a generation prompt");
    memcpy(m->template_answers[i], text, n);
    m->template_answers[i][n] = '\0';
    return RP_OK;
}

/* What the template writes after a user's message, and only with add_generation_prompt; if it always writes it:
   everything after the message. */
static int find_generation_prompt(rp_model *m, rp_error *err) {
    rp_template_text *with = probe(m, PROBE(PROBE_USER, "true")), *without = probe(m, PROBE(PROBE_USER, "false")),
                     *history = probe(m, PROBE(PROBE_USER ", " PROBE_ANSWER ", " PROBE_USER, "false"));
    size_t at = 0;
    if (with && without && with->n > without->n && memcmp(with->bytes, without->bytes, without->n) == 0)
        at = without->n;
    else if (with && strchr(with->bytes, '?')) at = (size_t)(strrchr(with->bytes, '?') + 1 - with->bytes);
    int rc = RP_OK;
    if (at > 0 && at < with->n) {
        const bool is_same = history && history->n > at && memcmp(history->bytes, with->bytes, at) == 0;
        rc = keep_opening(m, 0, with->bytes + at,
                          is_same ? common_opening(m, with->bytes + at, history->bytes + at) : with->n - at, err);
    }
    rp_template_text_free(with);
    rp_template_text_free(without);
    rp_template_text_free(history);
    return rc;
}

static size_t control_in(const rp_model *m, const char *bytes, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (tokenizer_control_at(m->tokenizer, bytes + i, end - i) >= 0) return i;
    return SIZE_MAX;
}

/* Without a generation prompt after the result of a call: the control tokens that end the result
   ("[/TOOL_RESULTS]"). */
static int find_opening_after_result(rp_model *m, rp_error *err) {
    rp_template_text *text =
        m->template_answers[0] ? probe(m, PROBE(PROBE_USER ", " PROBE_CALL ", " PROBE_RESULT, "true")) : NULL;
    const char *last = text ? strrchr(text->bytes, '?') : NULL;
    const size_t at = last ? control_in(m, text->bytes, (size_t)(last - text->bytes), text->n) : SIZE_MAX;
    const bool is_known = at == SIZE_MAX || strstr(last, m->template_answers[0]);
    const int rc = is_known ? RP_OK : keep_opening(m, 1, text->bytes + at, text->n - at, err);
    rp_template_text_free(text);
    return rc;
}

int model_read_template(rp_model *m, rp_error *err) {
    rp_error why = {0};
    if (!m->chat_template) return RP_OK;
    const int rc = rp_template_new(&m->template, m->chat_template, strlen(m->chat_template), "chat template", &why);
    if (rc == RP_ERR_MEMORY) return base_fail(err, rc, "%s", why.message);
    if (rc) {
        base_log(BASE_LOG_WARN, "%s: %s: using chat format '%s' instead", gguf_name(m->file), why.message,
                 chat_format_name(m->chat));
        return RP_OK;
    }
    const int found = find_generation_prompt(m, err);
    return found ? found : find_opening_after_result(m, err);
}

void model_free_template(rp_model *m) {
    rp_template_free(m->template);
    for (int i = 0; i < MODEL_N_OPENINGS; i++) base_free(m->template_answers[i]);
}

/* ---- Rendered text ---- */

/* The first run that ends after byte `from`. */
static size_t first_run(const rp_template_text *text, size_t from) {
    size_t low = 0, high = text->n_runs;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (text->runs[middle].end <= from) low = middle + 1;
        else high = middle;
    }
    BASE_ASSERT(low == text->n_runs || text->runs[low].end > from);
    return low;
}

int model_check_rendered(const rp_template_text *text, rp_error *err) {
    size_t end = 0;
    for (size_t i = 0; i < text->n_runs; i++) {
        if (text->runs[i].end <= end || text->runs[i].end > text->n)
            return base_fail(err, RP_ERR_INVALID,
                             "run %zu of a rendered text ends at byte %zu: runs rise, and end with the text", i,
                             text->runs[i].end);
        end = text->runs[i].end;
    }
    if (!text->bytes || end != text->n)
        return base_fail(err, RP_ERR_INVALID, "a rendered text of %zu bytes has runs for %zu", text->n, end);
    return RP_OK;
}

tokenizer_range *model_trusted_ranges(const rp_template_text *text, size_t from, size_t to, size_t *n) {
    BASE_ASSERT(from <= to && to <= text->n);
    const size_t start = first_run(text, from);
    tokenizer_range *all = base_alloc((text->n_runs - start + 1) * sizeof(*all));
    size_t first = from;
    *n = 0;
    for (size_t i = start; all && i < text->n_runs && first < to; first = text->runs[i++].end) {
        const size_t end = BASE_MIN(text->runs[i].end, to);
        if (text->runs[i].origin != RP_TEMPLATE_TRUSTED || first >= end) continue;
        if (*n > 0 && all[*n - 1].end == first - from) all[*n - 1].end = end - from;
        else all[(*n)++] = (tokenizer_range){first - from, end - from};
    }
    BASE_ASSERT(*n <= text->n_runs - start);
    return all;
}

/* Is the text before `at` a special token, or nothing? */
static bool after_special(const token_list *tokens, const tokenizer *t) {
    size_t n = 0;
    if (tokens->n == 0) return true;
    const char *hidden = tokenizer_bytes(t, tokens->ids[tokens->n - 1], false, &n);
    return hidden && n == 0;
}

static bool lacks_bos(const rp_model *m, const rp_template_text *text) {
    const int32_t bos = tokenizer_adds_bos(m->tokenizer) ? tokenizer_bos(m->tokenizer) : -1;
    const size_t n = text->n_runs > 0 && text->runs[0].origin == RP_TEMPLATE_TRUSTED ? text->runs[0].end : 0;
    return bos >= 0 && tokenizer_control_at(m->tokenizer, text->bytes, n) != bos;
}

int model_complete_rendered(const rp_model *m, rp_template_text *text, rp_error *err) {
    size_t n = 0;
    if (!lacks_bos(m, text)) return RP_OK;
    const char *bos = tokenizer_bytes(m->tokenizer, tokenizer_bos(m->tokenizer), true, &n);
    char *bytes = base_realloc(text->bytes, n + text->n + 1);
    if (bytes) text->bytes = bytes;
    rp_template_run *runs = base_realloc(text->runs, (text->n_runs + 1) * sizeof(*runs));
    if (runs) text->runs = runs;
    if (!bytes || !runs) return base_fail_memory(err, n + text->n, "a rendered prompt");
    memmove(bytes + n, bytes, text->n + 1);
    memcpy(bytes, bos, n);
    for (size_t i = 0; i < text->n_runs; i++) runs[i].end += n;
    text->n += n;
    if (text->n_runs > 0 && runs[0].origin == RP_TEMPLATE_TRUSTED) return RP_OK;
    memmove(runs + 1, runs, text->n_runs++ * sizeof(*runs));
    runs[0] = (rp_template_run){.end = n, .offset = SIZE_MAX, .origin = RP_TEMPLATE_TRUSTED};
    return RP_OK;
}

int model_append_rendered(const rp_model *m, const rp_template_text *text, size_t from, size_t to, token_list *out,
                          rp_error *err) {
    size_t n = 0;
    if (from == 0 && lacks_bos(m, text) && token_list_push(out, tokenizer_bos(m->tokenizer)))
        return base_fail_memory(err, sizeof(int32_t), "tokens");
    if (from >= to) return RP_OK;
    tokenizer_range *trusted = model_trusted_ranges(text, from, to, &n);
    if (!trusted) return base_fail_memory(err, text->n_runs * sizeof(*trusted), "a rendered prompt");
    const bool continues = from > 0 && !after_special(out, m->tokenizer);
    const tokenizer_options options = {
        .space_prefix = true, .continues = continues, .trusted = trusted, .n_trusted = n};
    const int rc = tokenizer_encode(m->tokenizer, text->bytes + from, to - from, options, out, err);
    base_free(trusted);
    return rc;
}

/* Calls `at` for each trusted range after `from`, until it returns something else than SIZE_MAX. */
static size_t search_trusted(const rp_model *m, const rp_template_text *text, size_t from,
                             size_t (*at)(const rp_model *m, const char *bytes, size_t begin, size_t end)) {
    size_t begin = from, found = SIZE_MAX;
    for (size_t i = first_run(text, from); i < text->n_runs && found == SIZE_MAX;) {
        size_t end = text->runs[i].end;
        const bool trusted = text->runs[i++].origin == RP_TEMPLATE_TRUSTED;
        while (trusted && i < text->n_runs && text->runs[i].origin == RP_TEMPLATE_TRUSTED) end = text->runs[i++].end;
        if (trusted) found = at(m, text->bytes, begin, end);
        begin = end;
    }
    return found;
}

/* The opening at a byte; NULL: there is none. */
static const char *opening_at(const rp_model *m, const char *bytes, size_t n) {
    for (int i = 0; i < MODEL_N_OPENINGS && m->template_answers[i]; i++) {
        const size_t length = strlen(m->template_answers[i]);
        if (length <= n && memcmp(bytes, m->template_answers[i], length) == 0) return m->template_answers[i];
    }
    return NULL;
}

static size_t opening_in(const rp_model *m, const char *bytes, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (opening_at(m, bytes + i, end - i)) return i;
    return SIZE_MAX;
}

size_t model_find_answer(const rp_model *m, const rp_template_text *text, size_t from, const char **opening) {
    const size_t at = m->template_answers[0] ? search_trusted(m, text, from, opening_in) : SIZE_MAX;
    const char *found = at != SIZE_MAX ? opening_at(m, text->bytes + at, text->n - at) : NULL;
    if (opening) *opening = found;
    BASE_ASSERT(!found || at >= from);
    return found ? at + strlen(found) : SIZE_MAX;
}

static size_t turn_end_in(const rp_model *m, const char *bytes, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (tokenizer_is_end(m->tokenizer, tokenizer_control_at(m->tokenizer, bytes + i, end - i))) return i;
    return SIZE_MAX;
}

size_t model_find_turn_end(const rp_model *m, const rp_template_text *text, size_t from) {
    return search_trusted(m, text, from, turn_end_in);
}

size_t model_find_control(const rp_model *m, const rp_template_text *text, size_t from) {
    return search_trusted(m, text, from, control_in);
}
