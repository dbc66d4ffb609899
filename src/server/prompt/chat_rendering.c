/* SPDX-License-Identifier: Apache-2.0 */
/* chat_rendering.c: see chat_rendering.h. */
#include "server/prompt/chat_rendering.h"

#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "structured/chat_input.h"
#include "structured/chat_truncation.h"

#define MAX_MERGED_BYTES ((size_t)128 << 20) /* more is no input of a template, either (TEMPLATE_MAX_INPUT_BYTES) */

bool chat_rendering_applies(const server_request *x) {
    return rp_model_template(x->model->model) && x->gen->n_messages > 0 && !x->gen->has_markup;
}

bool chat_rendering_has_tools(const server_request *x) {
    return chat_rendering_applies(x) && rp_template_uses(rp_model_template(x->model->model), "tools");
}

/* ---- The template's input ---- */

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
    const char *text =
        rc || !m.text.data ? "" : generation_own(gen, base_buffer_take(&m.text), p); /* which the messages point into */
    if (rc || !text) server_fail_memory(p);
    else {
        for (size_t i = 0; i < gen->n_parts; i++) {
            server_part *part = &gen->parts[i];
            BASE_ASSERT(part->message < cap);
            part->begin += m.offset[part->message];
            part->end += m.offset[part->message];
            part->message = m.to[part->message];
        }
        chat_merged_move(&m, gen->calls, gen->n_calls, gen->results, gen->n_results, gen->reasonings,
                         gen->n_reasonings);
        for (int k = 0; k < SERVER_N_MARKS; k++)
            if (gen->marked[k].n_messages > 0) gen->marked[k].n_messages = m.to[gen->marked[k].n_messages - 1] + 1;
        BASE_ASSERT(m.n_messages > 0 && m.n_messages <= cap);
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

rp_template_input *chat_rendering_input(const server_request *x) {
    const chat_input in = input_of(x, x->gen->rendered_style, x->gen->rendered_first);
    rp_template_input *values = NULL;
    return chat_input_values(&in, &values, NULL, NULL) ? NULL : values;
}

/* false: the client has left, the server ends, or the deadline has passed. */
static bool rendering_goes_on(void *user) {
    server_request *x = user;
    pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return !gone &&
           (x->gen->deadline_ms <= 0 || base_clock_us() - x->arrived_us < (uint64_t)x->gen->deadline_ms * 1000);
}

/* A template that takes too many steps or too much memory is the fault of the model's file, not of the client. */
static int rendering_fail(server_request *x, int rc, const rp_error *err) {
    BASE_ASSERT(rc != RP_OK);
    if (rc == RP_ERR_CANCELLED) {
        pthread_mutex_lock(&x->lock);
        const bool gone = x->gone;
        pthread_mutex_unlock(&x->lock);
        if (gone) return server_fail(&x->problem, SERVER_CANCELLED, NULL, "the client disconnected");
        return server_fail(&x->problem, SERVER_DEADLINE, "deadline_ms",
                           "the deadline of %d ms passed while the chat template was rendered",
                           (int)x->gen->deadline_ms);
    }
    if (rc == RP_ERR_LIMIT && err->where[0])
        return server_fail(&x->problem, SERVER_INTERNAL, NULL,
                           "%s: the model needs another chat template, or a shorter conversation", err->message);
    return server_fail_library(&x->problem, err);
}

/* Renders the messages from `first` on. */
static int render(server_request *x, chat_style style, size_t first, rp_template_failure *failure, rp_error *err) {
    generation *gen = x->gen;
    BASE_ASSERT(first < gen->n_messages);
    const chat_input in = input_of(x, style, first);
    rp_template_input *values = NULL;
    rp_template_text *text = NULL;
    gen->rendered_style = style;
    gen->rendered_first = first;
    uint32_t *sources = base_realloc(gen->rendered_sources, BASE_MAX(gen->n_messages, 1) * sizeof(*sources));
    if (sources) gen->rendered_sources = sources;
    if (!sources || chat_input_values(&in, &values, sources, err))
        return server_fail_memory(&x->problem), RP_ERR_MEMORY;
    rp_template_options options = rp_template_options_defaults();
    options.steps_left = &gen->steps_left;
    options.on_look = rendering_goes_on;
    options.user = x;
    options.failure = failure;
    const int rc = rp_model_render_input(x->model->model, values, &options, &text, err);
    rp_template_input_free(values);
    rp_template_text_free(gen->rendered);
    gen->rendered = text;
    return rc;
}

/* Another form of the conversation for a template that has failed. false: there is none, or a problem. */
static bool adapt(server_request *x, chat_style *style, bool *merged, rp_template_failure why) {
    chat_input in = input_of(x, *style, 0);
    const chat_retry retry = chat_input_adapt(&in, *merged, why);
    *style = in.style;
    if (retry != CHAT_MERGE) return retry == CHAT_AGAIN;
    BASE_ASSERT(!*merged); /* once */
    *merged = true;
    return merge_messages(x->gen, &x->problem) == SERVER_FINE;
}

/* Where reasoning and messages are in the text. */
static int read_rendered(server_request *x) {
    generation *gen = x->gen;
    BASE_ASSERT(gen->rendered && !gen->rendered_turns);
    const chat_input in = input_of(x, gen->rendered_style, gen->rendered_first);
    gen->form.reasoning_open = chat_input_opens_reasoning(&in, gen->rendered);
    gen->rendered_turns = base_calloc(gen->n_messages, sizeof(*gen->rendered_turns));
    if (!gen->rendered_turns) return server_fail_memory(&x->problem);
    gen->n_rendered_turns = chat_input_turns(&in, gen->rendered, gen->rendered_sources, gen->rendered_turns, NULL);
    BASE_ASSERT(gen->n_rendered_turns <= gen->n_messages);
    return SERVER_FINE;
}

/* How many runs end with the content of the last message; 0: it has none. */
static size_t runs_to_last(const generation *gen) {
    BASE_ASSERT(gen->n_messages > 0 && gen->rendered);
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
    BASE_ASSERT(text->runs[n_runs - 1].end <= text->n);
    text->n_runs = n_runs;
    text->n = text->runs[n_runs - 1].end;
    text->bytes[text->n] = '\0';
}

/* ---- Truncation ---- */

/* The tokens of a rendering. */
typedef struct rendering_size {
    size_t n_tokens;
    size_t *ends;            /* [n_messages] up to the end of each message; of one that is no turn: of the turn before
                                it */
    rp_rendered_turn *turns; /* [n_messages] */
    size_t *of, *turn_ends;  /* [n_messages] the message and the tokens of each turn */
} rendering_size;

static void rendering_size_free(rendering_size *s) {
    base_free(s->ends);
    base_free(s->turns);
    base_free(s->of);
    base_free(s->turn_ends);
}

static int rendering_size_new(server_request *x, rendering_size *s) {
    const size_t n = x->gen->n_messages;
    *s = (rendering_size){.ends = base_calloc(n, sizeof(*s->ends)),
                          .turns = base_calloc(n, sizeof(*s->turns)),
                          .of = base_calloc(n, sizeof(*s->of)),
                          .turn_ends = base_calloc(n, sizeof(*s->turn_ends))};
    return s->ends && s->turns && s->of && s->turn_ends ? SERVER_FINE : server_fail_memory(&x->problem);
}

static int rendering_count(server_request *x, rendering_size *s) {
    const generation *gen = x->gen;
    const chat_input in = input_of(x, gen->rendered_style, gen->rendered_first);
    const size_t n_turns = chat_input_turns(&in, gen->rendered, gen->rendered_sources, s->turns, s->of);
    rp_error err;
    if (rp_count_rendered(x->model->model, gen->rendered, s->turns, n_turns, s->turn_ends, &s->n_tokens, &err))
        return server_fail_library(&x->problem, &err);
    BASE_ASSERT(n_turns <= gen->n_messages);
    for (size_t i = 0, k = 0, end = 0; i < gen->n_messages; i++) {
        if (k < n_turns && s->of[k] == i) end = s->turn_ends[k++];
        s->ends[i] = end;
    }
    return SERVER_FINE;
}

/* Renders the conversation without its oldest turns, if it is too long. They are chosen by the sizes of all turns: one
 * more rendering is enough, unless the template writes the rest in another way than before. Without a later message of
 * the user, the engine refuses the prompt. */
static int truncate_oldest(server_request *x, chat_style style) {
    const generation *gen = x->gen;
    rp_engine_info info = {.struct_size = sizeof(info)};
    rendering_size size;
    int kind = rendering_size_new(x, &size);
    rp_engine_describe(x->model->engine, &info);
    const int32_t answer = gen->max_tokens >= 0 ? gen->max_tokens : x->server->options.default_max_tokens;
    const size_t n_leading = chat_count_leading_systems(gen->messages, gen->n_messages);
    while (!kind && !(kind = rendering_count(x, &size))) {
        const int64_t excess = chat_excess((int64_t)size.n_tokens, info.n_ctx, answer);
        const size_t first = BASE_MAX(gen->rendered_first, n_leading);
        const size_t kept =
            excess > 0 ? chat_first_kept(gen->messages, gen->n_messages, size.ends, first, excess, info.n_ctx) : 0;
        rp_error err;
        if (kept == 0) break;
        BASE_ASSERT(kept > gen->rendered_first); /* so that this ends */
        const int rc = render(x, style, kept, NULL, &err);
        kind = x->problem.kind ? (int)x->problem.kind : rc ? rendering_fail(x, rc, &err)
                                                           : SERVER_FINE;
    }
    rendering_size_free(&size);
    return kind;
}

int chat_rendering_make(server_request *x) {
    BASE_ASSERT(work_queue_is_worker()); /* an I/O thread would keep its other connections waiting */
    chat_style style = {0};
    bool merged = false;
    rp_error err, first;
    rp_template_failure why = RP_TEMPLATE_FAILED;
    const char *name;
    json_t *item;
    if (x->problem.kind || x->gen->rendered) return (int)x->problem.kind;
    json_object_foreach((json_t *)x->gen->template_kwargs, name, item) {
        if (chat_input_is_of_model(name))
            generation_ignore(x->gen, &x->problem, "chat_template_kwargs.%s: the model's own is used", name);
    }
    x->gen->steps_left = RP_TEMPLATE_MAX_STEPS;
    int rc = render(x, style, 0, &why, &err);
    first = err;
    while (rc == RP_ERR_INVALID && !x->problem.kind && adapt(x, &style, &merged, why))
        rc = render(x, style, 0, &why, &err);
    if (!rc && x->gen->continues_last && x->gen->n_messages > 1 && runs_to_last(x->gen) == 0) {
        generation *gen = x->gen; /* the last message has no content to continue: a new answer is the same */
        gen->n_messages--;
        gen->continues_last = false;
        while (gen->n_parts > 0 && gen->parts[gen->n_parts - 1].message >= gen->n_messages) gen->n_parts--;
        rc = render(x, style, 0, NULL, &err);
    }
    if (x->problem.kind) return (int)x->problem.kind;
    if (rc) return rendering_fail(x, rc, rc == RP_ERR_INVALID ? &first : &err);
    if (x->gen->truncates && truncate_oldest(x, style)) return (int)x->problem.kind;
    if (x->gen->continues_last) cut_after_last(x->gen);
    return read_rendered(x);
}
