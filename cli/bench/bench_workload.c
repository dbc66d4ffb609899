/* SPDX-License-Identifier: Apache-2.0 */
/* bench_workload.c: requests and their arrivals: see bench_serve.h. Owns conversations and arrival times. One thread.
 *
 * Every request is a streamed chat completion of OpenAI's API. Each run has a salt, so that it cannot hit the cache of
 * an earlier run: cache_salt carries it, and the first message starts with it as words, for servers that ignore that
 * field.
 *
 *   random      a message of new words
 *   chat        a system prompt shared by all; conversations that grow by a message and the answer to it
 *   retrieval   some documents of a fixed set, in some order, and then a question of new words
 *   trace       the input of a file's requests, at the file's timestamps
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_serve.h"
#include "common/command.h"
#include "common/json_out.h"

#define SALT_WORDS 4
#define MAX_PICK 256

/* Streams of random numbers. */
enum { ARRIVALS,
       LENGTHS,
       CHOICES,
       TEXTS,
       BEGINNING,
       DOCUMENTS };

typedef struct bench_conversation {
    json_t *messages;
    int32_t turns; /* that were answered */
    bool is_busy;
} bench_conversation;

struct bench_workload {
    const bench_serve_options *options;
    const bench_words *words;
    const bench_requests *requests;
    uint64_t arrivals, lengths, choices, texts; /* generator states */
    uint64_t salt;
    double due_ms;
    int64_t n_asked; /* without warm-up */
    bench_conversation **conversations;
    size_t n_conversations, cap_conversations;
};

/* ---- texts ---- */

/* Without the space before the first word, which some vocabularies lack. Takes ownership of the text. */
static json_t *as_json(bench_text *t) {
    const char *bytes = t->bytes != NULL ? t->bytes : "";
    json_t *text = cli_json_text(bytes + (*bytes == ' '));
    free(t->bytes);
    return text;
}

static json_t *bench_workload_message(const char *role, json_t *content) {
    json_t *m = json_object();
    cli_json_set(m, "role", cli_json_text(role));
    cli_json_set(m, "content", content);
    return m;
}

static void add_salt(const bench_workload *w, bench_text *t) {
    if (w->options->salt[0] != '\0') bench_text_add_block(t, w->words, w->salt, SALT_WORDS);
}

/* The salt and the text shared by all requests. */
static json_t *system_message(const bench_workload *w) {
    uint64_t state = bench_random_stream(w->options->seed, BEGINNING);
    bench_text t = {0};
    add_salt(w, &t);
    bench_text_add_random(&t, w->words, w->options->shared_tokens, &state);
    return bench_workload_message("system", as_json(&t));
}

static json_t *new_words(bench_workload *w) {
    bench_text t = {0};
    bench_text_add_random(&t, w->words, bench_random_around(&w->lengths, w->options->prompt_tokens), &w->texts);
    return as_json(&t);
}

/* ---- random, trace ---- */

static json_t *random_messages(bench_workload *w) {
    json_t *messages = json_array();
    cli_json_append(messages, system_message(w));
    cli_json_append(messages, bench_workload_message("user", new_words(w)));
    return messages;
}

static json_t *trace_messages(const bench_workload *w, const bench_request *q) {
    json_t *messages = json_array();
    bench_text all = {0}, input = bench_request_text(w->requests, q, w->words, w->options->scale);
    add_salt(w, &all);
    if (all.bytes != NULL) cli_json_append(messages, bench_workload_message("system", as_json(&all)));
    cli_json_append(messages, bench_workload_message("user", as_json(&input)));
    return messages;
}

/* ---- retrieval ---- */

static json_t *bench_workload_part(json_t *text) {
    json_t *p = json_object();
    cli_json_set(p, "type", cli_json_text("text"));
    cli_json_set(p, "text", text);
    return p;
}

/* A number always gives the same text; an empty line ends it. */
static json_t *bench_workload_document(const bench_workload *w, uint32_t number) {
    bench_text t = {0};
    bench_text_add_block(&t, w->words, bench_random_stream(w->options->seed, DOCUMENTS + (uint64_t)number),
                         w->options->document_tokens);
    size_t skip = t.bytes[0] == ' ';
    char *text = cli_alloc(t.n_bytes + 3);
    memcpy(text, t.bytes + skip, t.n_bytes - skip);
    memcpy(text + t.n_bytes - skip, "\n\n", 3);
    json_t *json = cli_json_text(text);
    free(text);
    free(t.bytes);
    return json;
}

/* Different numbers below n, in random order. Small ones are more frequent: the popularity of number i falls with 1 /
 * (i + 1). */
static void bench_workload_choose(bench_workload *w, uint32_t *out, int32_t k, int32_t n) {
    for (int32_t i = 0; i < k;) {
        double u = bench_random_real(&w->choices);
        uint32_t number = (uint32_t)(pow((double)n + 1, u) - 1);
        bool is_new = number < (uint32_t)n;
        for (int32_t j = 0; j < i && is_new; j++) is_new = out[j] != number;
        if (is_new) out[i++] = number;
    }
}

static json_t *bench_workload_joined(json_t *parts) {
    size_t i, n = 0;
    json_t *p;
    json_array_foreach(parts, i, p) n += json_string_length(json_object_get(p, "text"));
    char *text = cli_alloc(n + 1);
    n = 0;
    json_array_foreach(parts, i, p) {
        const json_t *s = json_object_get(p, "text");
        memcpy(text + n, json_string_value(s), json_string_length(s));
        n += json_string_length(s);
    }
    json_t *json = cli_json_text(text);
    free(text);
    json_decref(parts);
    return json;
}

/* Both forms of the request have the same text. */
static json_t *retrieval_messages(bench_workload *w) {
    const bench_serve_options *o = w->options;
    uint32_t numbers[MAX_PICK];
    json_t *messages = json_array(), *parts = json_array();
    bench_workload_choose(w, numbers, o->pick, o->documents);
    for (int32_t i = 0; i < o->pick; i++)
        cli_json_append(parts, bench_workload_part(bench_workload_document(w, numbers[i])));
    cli_json_append(parts, bench_workload_part(new_words(w)));
    cli_json_append(messages, system_message(w));
    cli_json_append(messages, bench_workload_message(
                                  "user", o->reuse == BENCH_REUSE_PREFIX ? bench_workload_joined(parts) : parts));
    return messages;
}

/* ---- chat ---- */

static bench_conversation *begin_conversation(bench_workload *w) {
    bench_conversation *c = cli_alloc(sizeof *c);
    c->messages = json_array();
    cli_json_append(c->messages, system_message(w));
    if (w->n_conversations == w->cap_conversations) {
        w->cap_conversations = 2 * w->cap_conversations + 16;
        w->conversations = cli_realloc(w->conversations, w->cap_conversations * sizeof(bench_conversation *));
    }
    return w->conversations[w->n_conversations++] = c;
}

static void end_conversation(bench_workload *w, bench_conversation *c) {
    size_t i = 0;
    while (w->conversations[i] != c) i++;
    w->conversations[i] = w->conversations[--w->n_conversations];
    json_decref(c->messages);
    free(c);
}

/* An idle conversation; a new one below the limit, or if all wait for their answers: an arrival never waits for another
 * request. */
static bench_conversation *find_conversation(bench_workload *w) {
    size_t n = w->n_conversations, start = n > 0 ? bench_random_below(&w->choices, (uint32_t)n) : 0;
    for (size_t i = 0; i < n && n >= (size_t)w->options->conversations; i++)
        if (!w->conversations[(start + i) % n]->is_busy) return w->conversations[(start + i) % n];
    return begin_conversation(w);
}

static json_t *chat_messages(bench_workload *w, bench_ask *ask) {
    bench_conversation *c = ask->conversation = find_conversation(w);
    c->is_busy = true;
    cli_json_append(c->messages, bench_workload_message("user", new_words(w)));
    return json_incref(c->messages);
}

void bench_workload_answered(bench_workload *w, bench_conversation *c, const char *text) {
    c->is_busy = false;
    if (text != NULL) cli_json_append(c->messages, bench_workload_message("assistant", cli_json_text(text)));
    if (text == NULL || ++c->turns >= w->options->turns) end_conversation(w, c);
}

/* ---- requests ---- */

static void make_body(const bench_workload *w, bench_ask *ask, json_t *messages, int32_t max_tokens) {
    json_t *o = json_object(), *stream = json_object();
    cli_json_set(stream, "include_usage", json_true());
    cli_json_set(o, "model", cli_json_text(w->options->name));
    cli_json_set(o, "messages", messages);
    cli_json_set(o, "max_tokens", json_integer(max_tokens));
    cli_json_set(o, "temperature", json_integer(0));
    cli_json_set(o, "ignore_eos", json_true());
    cli_json_set(o, "stream", json_true());
    cli_json_set(o, "stream_options", stream);
    if (w->options->salt[0] != '\0') cli_json_set(o, "cache_salt", cli_json_text(w->options->salt));
    if (w->options->reuse == BENCH_REUSE_MODULAR) cli_json_set(o, "reuse", cli_json_text("modular"));
    ask->body = json_dumps(o, JSON_COMPACT);
    if (ask->body == NULL) exit(cli_fail(CLI_FAILED, "out of memory while writing JSON"));
    ask->n_body = strlen(ask->body);
    json_decref(o);
}

static void make_ask(bench_workload *w, bench_ask *ask) {
    const bench_serve_options *o = w->options;
    const bench_request *q =
        o->workload == BENCH_TRACE ? &w->requests->items[(size_t)w->n_asked % w->requests->n] : NULL;
    int32_t n =
        q != NULL ? bench_request_scaled(q->output_tokens, o->scale) : bench_random_around(&w->lengths, o->max_tokens);
    switch ((bench_workload_kind)o->workload) {
    case BENCH_RANDOM: make_body(w, ask, random_messages(w), n); break;
    case BENCH_CHAT: make_body(w, ask, chat_messages(w, ask), n); break;
    case BENCH_RETRIEVAL: make_body(w, ask, retrieval_messages(w), n); break;
    case BENCH_TRACE: make_body(w, ask, trace_messages(w, q), n); break;
    }
}

static double trace_due_ms(const bench_workload *w, int64_t i) {
    const bench_request *all = w->requests->items;
    return (size_t)i < w->requests->n ? (all[i].timestamp_ms - all[0].timestamp_ms) / (double)w->options->speed
                                      : INFINITY;
}

bench_ask bench_workload_next(bench_workload *w) {
    bench_ask ask = {.due_ms = w->due_ms};
    make_ask(w, &ask);
    w->n_asked++;
    if (w->options->workload == BENCH_TRACE) w->due_ms = trace_due_ms(w, w->n_asked);
    else w->due_ms += bench_random_gap_ms(&w->arrivals, (double)w->options->rate);
    return ask;
}

bench_ask bench_workload_warm_up(bench_workload *w) {
    bench_ask ask = {0};
    make_ask(w, &ask);
    return ask;
}

double bench_workload_due_ms(const bench_workload *w) {
    const bench_serve_options *o = w->options;
    bool is_over =
        (o->count > 0 && w->n_asked >= o->count) || (o->seconds > 0 && w->due_ms >= (double)o->seconds * 1e3);
    return is_over ? INFINITY : w->due_ms;
}

/* ---- creation and destruction ---- */

/* A number derived from a salt's text (FNV-1a). */
static uint64_t salt_number(const char *salt) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *salt != '\0'; salt++) h = (h ^ (unsigned char)*salt) * 0x100000001B3u;
    return h;
}

bench_workload *bench_workload_new(const bench_serve_options *o, const bench_words *words,
                                   const bench_requests *requests) {
    bench_workload *w = cli_alloc(sizeof *w);
    *w = (bench_workload){.options = o, .words = words, .requests = requests, .salt = salt_number(o->salt)};
    w->arrivals = bench_random_stream(o->seed, ARRIVALS);
    w->lengths = bench_random_stream(o->seed, LENGTHS);
    w->choices = bench_random_stream(o->seed, CHOICES);
    w->texts = bench_random_stream(o->seed, TEXTS);
    return w;
}

void bench_workload_free(bench_workload *w) {
    if (w == NULL) return;
    while (w->n_conversations > 0) end_conversation(w, w->conversations[w->n_conversations - 1]);
    free(w->conversations);
    free(w);
}
