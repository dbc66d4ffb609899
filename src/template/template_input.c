/* SPDX-License-Identifier: Apache-2.0 */
/* template_input.c: the variables of a rendering as values: a builder, which JSON (template_json.c) and conversations
 * (structured/chat_input.c) use.
 *
 *   open[0]  the variables      "messages": open[1]
 *   open[1]  a list, MESSAGES   its dicts:  open[2]
 *   open[2]  a dict, MESSAGE    "role": the one text that may be trusted
 *   ...                         anything else: OTHER
 *
 * An input is changed by one thread until it is complete, and immutable then: any number of threads may render it.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "template/template_internal.h"
#include "reprise_chat.h"

/* ---- Life ---- */

int rp_template_input_new(rp_template_input **out, rp_error *err) {
    static const rp_template_options plain = {.struct_size = sizeof(plain)};
    if (!out) return base_fail(err, RP_ERR_INVALID, "rp_template_input_new: out is needed");
    rp_template_input *in = *out = base_calloc(1, sizeof(*in));
    if (!in) return base_fail_memory(err, sizeof(*in), "the input of a chat template");
    in->s = (state){.memory = {.limit = TEMPLATE_MAX_MEMORY_BYTES}, .options = &plain, .max_steps = TEMPLATE_MAX_STEPS};
    in->next_string = TEMPLATE_FIRST_STRING;
    in->open[0] = (input_open){.of = value_dict(&in->s), .place = INPUT_VARIABLES};
    in->depth = 1;
    if (!in->s.failed) return RP_OK;
    rp_template_input_free(in);
    *out = NULL;
    return base_fail_memory(err, sizeof(dict), "the input of a chat template");
}

void rp_template_input_free(rp_template_input *in) {
    if (!in) return;
    arena_free(&in->s.memory);
    base_free(in);
}

const dict *template_input_variables(const rp_template_input *in) {
    BASE_ASSERT(!in->s.failed && in->depth == 1 && in->open[0].of.type == VALUE_DICT);
    return in->open[0].of.as.d;
}

/* ---- Values, in the order in which they are written ---- */

/* A mistake of the caller, which an embedder may be. */
static void fail_use(rp_template_input *in, const char *what) { state_fail(&in->s, INPUT_ERROR, "%s", what); }

void template_input_add(rp_template_input *in, value v) {
    input_open *top = &in->open[in->depth - 1];
    if (in->s.failed) return;
    BASE_ASSERT(in->depth >= 1 && (top->of.type == VALUE_LIST || top->of.type == VALUE_DICT));
    if (top->of.type == VALUE_LIST) list_add(&in->s, top->of.as.l, v);
    else if (!top->key) fail_use(in, "a value of a dict needs a key before it");
    else dict_set(&in->s, top->of.as.d, value_string(top->key), v);
    top->key = NULL;
}

static bool input_count_bytes(rp_template_input *in, size_t n) {
    BASE_ASSERT(in->n_bytes <= TEMPLATE_MAX_INPUT_BYTES);
    if (n < TEMPLATE_MAX_INPUT_BYTES - in->n_bytes)
        in->n_bytes += n + 1; /* the one: so that empty texts are limited, too */
    else if (!in->s.failed) {
        state_fail(&in->s, INPUT_ERROR, "a conversation of more than %zu bytes", TEMPLATE_MAX_INPUT_BYTES);
        in->s.code = RP_ERR_LIMIT;
    }
    return !in->s.failed;
}

/* Names that chat templates give to senders of messages. They are part of control tokens in some ("<|" + role +
   "|>"). */
static bool is_role(const string *text) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer",
                                        "function", "ipython", "model", "tool_response"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(roles); i++)
        if (string_is(text, roles[i])) return true;
    return false;
}

/* The origin of the next text, and its number. No name makes a text trusted: whoever wrote the input may have chosen
   it. */
static uint32_t input_origin(rp_template_input *in, const char *bytes, size_t n, uint32_t *number) {
    const input_open *top = &in->open[in->depth - 1];
    const bool trusted = top->place == INPUT_MESSAGE && top->key && string_is(top->key, "role") &&
                         is_role(&(string){.bytes = bytes, .n = n});
    BASE_ASSERT(in->next_string >= TEMPLATE_FIRST_STRING &&
                in->next_string < UINT32_MAX); /* input_count_bytes: a byte each at least */
    *number = in->next_string++;
    return trusted ? (uint32_t)TEMPLATE_TRUSTED : *number;
}

uint32_t template_input_copy(rp_template_input *in, const char *bytes, size_t n) {
    BASE_ASSERT(bytes || n == 0);
    uint32_t number = 0;
    if (!state_step(&in->s, 0) || !input_count_bytes(in, n)) return 0;
    const uint32_t origin = input_origin(in, bytes, n, &number);
    template_input_add(in, value_string(string_new(&in->s, bytes, n, origin)));
    return number;
}

uint32_t template_input_borrow(rp_template_input *in, const char *bytes, size_t n) {
    uint32_t number = 0;
    if (n == 0) return template_input_copy(in, "", 0);
    if (!state_step(&in->s, n / STEP_COPIED) || !input_count_bytes(in, n)) return 0;
    string *text = state_alloc(&in->s, sizeof(*text));
    template_run *run = text ? state_alloc(&in->s, sizeof(*run)) : NULL;
    if (!run) return 0;
    const uint32_t origin = input_origin(in, bytes, n, &number);
    *run = (template_run){.end = n, .offset = origin == TEMPLATE_TRUSTED ? TEMPLATE_NO_OFFSET : 0, .origin = origin};
    *text = (string){.bytes = bytes, .n = n, .runs = run, .n_runs = 1};
    template_input_add(in, value_string(text));
    return number;
}

/* Texts that nobody has checked yet. */
static bool check_utf8(rp_template_input *in, const char *text, size_t n) {
    const unsigned char *bytes = (const unsigned char *)text;
    if (!state_step(&in->s, n / STEP_SCANNED)) return false;
    for (size_t i = 0; i < n && !in->s.failed;) {
        const int length = base_utf8_length(bytes + i, n - i);
        if (length < 1) state_fail(&in->s, INPUT_ERROR, "byte %zu of a text or key is not UTF-8", i);
        else i += (size_t)length;
    }
    return !in->s.failed;
}

void rp_template_input_key(rp_template_input *in, const char *name) {
    input_open *top = &in->open[in->depth - 1];
    const size_t n = strlen(name);
    if (!input_count_bytes(in, n) || !check_utf8(in, name, n)) return;
    if (top->of.type != VALUE_DICT || top->key) fail_use(in, "a key is given in a dict, once before each value");
    else top->key = string_new(&in->s, name, n, TEMPLATE_UNTRUSTED);
}

uint32_t rp_template_input_text(rp_template_input *in, const char *text, size_t n) {
    return n >= TEMPLATE_MAX_INPUT_BYTES || check_utf8(in, text, n) ? template_input_copy(in, text, n) : 0;
}

static input_place place_within(const input_open *outer, bool is_list) {
    BASE_ASSERT(outer->of.type == VALUE_LIST || outer->of.type == VALUE_DICT);
    if (is_list)
        return outer->place == INPUT_VARIABLES && outer->key && string_is(outer->key, "messages") ? INPUT_MESSAGES
                                                                                                  : INPUT_OTHER;
    return outer->place == INPUT_MESSAGES ? INPUT_MESSAGE : INPUT_OTHER;
}

static void input_begin(rp_template_input *in, bool is_list, size_t cap) {
    BASE_ASSERT(in->depth >= 1 && in->depth <= TEMPLATE_MAX_DEPTH);
    state *s = &in->s;
    if (!state_step(s, 0)) return;
    if (in->depth == TEMPLATE_MAX_DEPTH) {
        state_fail(s, INPUT_ERROR, "values are nested deeper than %d", TEMPLATE_MAX_DEPTH);
        s->code = RP_ERR_LIMIT;
        return;
    }
    const value v = is_list ? value_list(s, LIST_LIST, cap) : value_dict(s);
    const input_place place = place_within(&in->open[in->depth - 1], is_list);
    template_input_add(in, v);
    if (!s->failed) in->open[in->depth++] = (input_open){.of = v, .place = place};
}

void rp_template_input_begin_dict(rp_template_input *in) { input_begin(in, false, 0); }
void rp_template_input_begin_list(rp_template_input *in) { input_begin(in, true, 0); }
void template_input_begin_list(rp_template_input *in, size_t n) { input_begin(in, true, n); }

void rp_template_input_end(rp_template_input *in) {
    BASE_ASSERT(in->depth >= 1);
    if (in->s.failed) return;
    if (in->depth == 1) fail_use(in, "an end needs a list or a dict that was begun");
    else if (in->open[in->depth - 1].key) fail_use(in, "a key needs a value after it");
    else in->depth--;
}

/* ---- Its use ---- */

int template_input_check(const rp_template_input *in, rp_error *err) {
    if (in->s.failed) return base_fail(err, (rp_code)in->s.code, "%s", in->s.message);
    if (in->depth > 1) return base_fail(err, RP_ERR_INVALID, "input: a list or a dict was begun, but not ended");
    if (in->open[0].key) return base_fail(err, RP_ERR_INVALID, "input: a key needs a value after it");
    return RP_OK;
}
