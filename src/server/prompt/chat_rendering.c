/* SPDX-License-Identifier: Apache-2.0 */
/* chat_rendering.c: see chat_rendering.h. */
#include "server/prompt/chat_rendering.h"

#include <string.h>

#include "base/file.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "structured/chat_input.h"

#define MAX_MERGED_BYTES ((size_t)128 << 20) /* more is no input of a template, either (TEMPLATE_MAX_INPUT_BYTES) */

bool chat_rendering_applies(const server_request *x) {
    return rp_model_template(x->model->model) && x->gen->n_messages > 0 && !x->gen->has_markup;
}

bool chat_rendering_has_tools(const server_request *x) {
    return chat_rendering_applies(x) && rp_template_uses(rp_model_template(x->model->model), "tools");
}

/* ---- The template's input ---- */

static size_t count_leading_systems(const generation *gen) {
    size_t n = 0;
    while (n < gen->n_messages && gen->messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

/* The conversation from message `first` on, besides the leading system messages. */
static chat_input input_of(const server_request *x, chat_style style, size_t first) {
    const generation *gen = x->gen;
    return (chat_input){.t = rp_model_template(x->model->model),
                        .form = &gen->form,
                        .messages = gen->messages,
                        .n_messages = gen->n_messages,
                        .calls = gen->calls,
                        .n_calls = gen->n_calls,
                        .results = gen->results,
                        .n_results = gen->n_results,
                        .reasonings = gen->reasonings,
                        .n_reasonings = gen->n_reasonings,
                        .variables = gen->template_kwargs,
                        .reasoning_effort = gen->reasoning_effort,
                        .continues_last = gen->continues_last,
                        .first = first,
                        .style = style};
}

static void report_names_of_model(server_request *x) {
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)x->gen->template_kwargs, name, item) {
        if (chat_input_is_of_model(name)) generation_ignore(x->gen, &x->problem, "chat_template_kwargs.%s: the model's own is used", name);
    }
}

size_t chat_rendering_dropped(const generation *gen) {
    size_t n = 0;
    for (size_t i = 0; i < gen->n_messages && gen->rendered; i++) n += gen->rendered_sources[i] == 0;
    return n;
}

/* ---- Merging ---- */

/* Merges the messages, and moves with them what the request has at their places. */
static int merge_messages(generation *gen, server_problem *p) {
    chat_merged m;
    const size_t cap = gen->n_messages;
    int rc = chat_merge(&m, gen->messages, gen->n_messages, MAX_MERGED_BYTES);
    const char *text = rc || !m.text.data ? "" : generation_own(gen, base_buffer_take(&m.text), p); /* which the messages point into */
    if (rc || !text) server_fail_memory(p);
    else {
        for (size_t i = 0; i < gen->n_parts; i++) {
            server_part *part = &gen->parts[i];
            part->begin += m.offset[part->message];
            part->end += m.offset[part->message];
            part->message = m.to[part->message];
        }
        chat_merged_move(&m, gen->calls, gen->n_calls, gen->results, gen->n_results, gen->reasonings, gen->n_reasonings);
        for (int k = 0; k < SERVER_N_MARKS; k++)
            if (gen->marked[k].n_messages > 0) gen->marked[k].n_messages = m.to[gen->marked[k].n_messages - 1] + 1;
        base_free(gen->messages);
        gen->messages = m.messages;
        gen->n_messages = m.n_messages;
        gen->cap_messages = cap;
        m.messages = NULL;
    }
    chat_merged_free(&m);
    return (int)p->kind;
}

/* ---- Rendering ---- */

char *chat_rendering_input(const server_request *x) {
    const chat_input in = input_of(x, x->gen->rendered_style, x->gen->rendered_first);
    json_t *input = chat_input_json(&in);
    char *json = input ? base_json_text(input, JSON_COMPACT) : NULL;
    json_decref(input);
    return json;
}

/* false: the client has left, the server ends, or the deadline has passed. */
static bool rendering_goes_on(void *user) {
    server_request *x = user;
    pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return !gone && (x->gen->deadline_ms <= 0 || base_clock_us() - x->arrived_us < (uint64_t)x->gen->deadline_ms * 1000);
}

/* A template that takes too many steps or too much memory is the fault of the model's file, not of the client. */
static int rendering_fail(server_request *x, int rc, const rp_error *err) {
    if (rc == RP_ERR_CANCELLED) {
        pthread_mutex_lock(&x->lock);
        const bool gone = x->gone;
        pthread_mutex_unlock(&x->lock);
        if (gone) return server_fail(&x->problem, SERVER_CANCELLED, NULL, "the client disconnected");
        return server_fail(&x->problem, SERVER_DEADLINE, "deadline_ms", "the deadline of %d ms passed while the chat template was rendered",
                           (int)x->gen->deadline_ms);
    }
    if (rc == RP_ERR_LIMIT && err->where[0])
        return server_fail(&x->problem, SERVER_INTERNAL, NULL, "%s: the model needs another chat template, or a shorter conversation", err->message);
    return server_fail_library(&x->problem, err);
}

/* Renders the messages from `first` on. */
static int render(server_request *x, chat_style style, size_t first, rp_error *err) {
    generation *gen = x->gen;
    const chat_input in = input_of(x, style, first);
    gen->rendered_style = style;
    gen->rendered_first = first;
    uint32_t *sources = base_realloc(gen->rendered_sources, BASE_MAX(gen->n_messages, 1) * sizeof(*sources));
    if (sources) gen->rendered_sources = sources;
    json_t *input = sources ? chat_input_json(&in) : NULL;
    if (input) chat_input_sources(&in, input, sources);
    char *json = input ? base_json_text(input, JSON_COMPACT) : NULL;
    json_decref(input);
    if (!json) return server_fail_memory(&x->problem), RP_ERR_MEMORY;
    rp_template_text *text = NULL;
    rp_template_options options = rp_template_options_defaults();
    options.steps_left = &gen->steps_left;
    options.on_look = rendering_goes_on;
    options.user = x;
    const int rc = rp_model_render(x->model->model, json, strlen(json), &options, &text, err);
    base_free(json);
    rp_template_text_free(gen->rendered);
    gen->rendered = text;
    return rc;
}

/* What the template seems to want, from the text of its error. false: nothing that can be given. */
static bool adapt(server_request *x, chat_style *style, bool *merged, const rp_error *err) {
    chat_input in = input_of(x, *style, 0);
    if (chat_input_adapt(&in, err)) {
        *style = in.style;
        return true;
    }
    if (*merged || x->gen->n_messages < 2) return false;
    *merged = true;
    return merge_messages(x->gen, &x->problem) == SERVER_FINE;
}

/* Where reasoning and messages are in the text. */
static int read_rendered(server_request *x) {
    generation *gen = x->gen;
    const chat_input in = input_of(x, gen->rendered_style, gen->rendered_first);
    gen->form.reasoning_open = chat_input_opens_reasoning(&in, gen->rendered);
    gen->rendered_turns = base_calloc(gen->n_messages, sizeof(*gen->rendered_turns));
    if (!gen->rendered_turns) return server_fail_memory(&x->problem);
    gen->n_rendered_turns = chat_input_turns(&in, gen->rendered, gen->rendered_sources, gen->rendered_turns);
    return SERVER_FINE;
}

/* How many runs end with the content of the last message; 0: it has none. */
static size_t runs_to_last(const generation *gen) {
    const uint32_t source = gen->rendered_sources[gen->n_messages - 1];
    size_t n_runs = gen->rendered->n_runs;
    while (n_runs > 0 && gen->rendered->runs[n_runs - 1].origin != source) n_runs--;
    return n_runs;
}

/* The answer continues the last message: what the template writes after its content is cut off. */
static void cut_after_last(generation *gen) {
    rp_template_text *text = gen->rendered;
    const size_t n_runs = runs_to_last(gen);
    if (n_runs == 0) return; /* an empty message alone */
    text->n_runs = n_runs;
    text->n = text->runs[n_runs - 1].end;
    text->bytes[text->n] = '\0';
}

/* The last message has no content to continue: a new answer is the same. */
static void leave_out_last(generation *gen) {
    gen->n_messages--;
    gen->continues_last = false;
    while (gen->n_parts > 0 && gen->parts[gen->n_parts - 1].message >= gen->n_messages) gen->n_parts--;
}

static int count_rendered(server_request *x, size_t *n) {
    int32_t *tokens = NULL;
    rp_error err;
    if (rp_tokenize_rendered(x->model->model, x->gen->rendered, &tokens, n, &err)) return server_fail_library(&x->problem, &err);
    rp_free(tokens);
    return SERVER_FINE;
}

#define PIECES 4 /* of the context: whole ones are dropped, so that the next turns hit the prefix cache; the answer gets one at most */

/* Renders the conversation from message `first` on, and counts its tokens. */
static int render_and_count(server_request *x, chat_style style, size_t first, size_t *n) {
    rp_error err;
    const int rc = render(x, style, first, &err);
    if (x->problem.kind) return (int)x->problem.kind;
    return rc ? rendering_fail(x, rc, &err) : count_rendered(x, n);
}

/* Leaves out the oldest turns: the conversation goes on with the first message of the user, of users[n], with which it has `most` tokens; at
 * least with the last one. */
static int drop_turns(server_request *x, chat_style style, const size_t *users, size_t n_users, int64_t most) {
    size_t low = 0, high = n_users - 1, n = 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (render_and_count(x, style, users[middle], &n)) return (int)x->problem.kind;
        if ((int64_t)n <= most) high = middle;
        else low = middle + 1;
    }
    return render_and_count(x, style, users[low], &n);
}

static int truncate_oldest(server_request *x, chat_style style) {
    const generation *gen = x->gen;
    rp_engine_info info = {.struct_size = sizeof(info)};
    size_t n = 0, n_users = 0;
    rp_engine_describe(x->model->engine, &info);
    const int32_t wanted = gen->max_tokens >= 0 ? gen->max_tokens : x->server->options.default_max_tokens;
    const int64_t answer = BASE_MIN(BASE_MAX(wanted, 1), info.n_ctx / PIECES), piece = BASE_MAX(info.n_ctx / PIECES, 1);
    if (count_rendered(x, &n)) return (int)x->problem.kind;
    const int64_t excess = (int64_t)n - (info.n_ctx - answer);
    size_t *users = excess > 0 ? base_calloc(gen->n_messages, sizeof(*users)) : NULL;
    if (excess <= 0) return SERVER_FINE;
    if (!users) return server_fail_memory(&x->problem);
    for (size_t i = count_leading_systems(gen) + 1; i < gen->n_messages; i++)
        if (gen->messages[i].role == RP_ROLE_USER) users[n_users++] = i;
    /* without a later message of the user the engine refuses the prompt */
    int kind = n_users > 0 ? drop_turns(x, style, users, n_users, (int64_t)n - (excess + piece - 1) / piece * piece) : SERVER_FINE;
    base_free(users);
    return kind;
}

int chat_rendering_make(server_request *x) {
    chat_style style = {0};
    bool merged = false;
    rp_error err, first;
    if (x->problem.kind || x->gen->rendered) return (int)x->problem.kind;
    report_names_of_model(x);
    x->gen->steps_left = RP_TEMPLATE_MAX_STEPS;
    int rc = render(x, style, 0, &err);
    first = err;
    while (rc == RP_ERR_INVALID && !x->problem.kind && adapt(x, &style, &merged, &err)) rc = render(x, style, 0, &err);
    if (!rc && x->gen->continues_last && x->gen->n_messages > 1 && runs_to_last(x->gen) == 0) {
        leave_out_last(x->gen);
        rc = render(x, style, 0, &err);
    }
    if (x->problem.kind) return (int)x->problem.kind;
    if (rc) return rendering_fail(x, rc, rc == RP_ERR_INVALID ? &first : &err);
    if (x->gen->truncates && truncate_oldest(x, style)) return (int)x->problem.kind;
    if (x->gen->continues_last) cut_after_last(x->gen);
    return read_rendered(x);
}
