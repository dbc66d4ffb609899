/* SPDX-License-Identifier: Apache-2.0 */
/* bench_nodes.c: many nodes in one process that compute nothing, for measurements of routers (tests/lab/costs.py): the
 * real span stream, from the library's journal, and an answer of one token to every request.
 *
 *   bench_nodes MODEL.gguf SECRET_FILE NODES NAMES CHANGES PROMPT_FILE
 *
 * Each node holds NAMES random names, and the names of the prompt in the file, the first half of the nodes all, the
 * others a random part from its beginning; each changes CHANGES names a second. Lines "node NAME URL", then "ready";
 * ends when standard input does. One thread, which polls.
 */
#define _GNU_SOURCE /* accept4, memmem */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "cluster/journal.h"
#include "cluster/signature.h"
#include "reprise_cluster.h"

#define MAX_NODES 1000
#define MAX_CONNECTIONS 4096
#define CONTEXT 131072
#define ROUNDS 9 /* of which the least is taken */
#define IDENTITY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const char answer[] =
    "{\"id\":\"cmpl-0\",\"object\":\"text_completion\",\"created\":1,\"model\":\"fake\","
    "\"choices\":[{\"text\":\" x\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\"}],"
    "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}";

typedef struct fake_node {
    int listener;
    uint64_t epoch;
    cluster_journal *journal;
    rp_name *names; /* [n_names], random */
    size_t next_change;
} fake_node;

typedef struct connection {
    int fd, node;
    base_buffer in, out;
    size_t sent;
    cluster_journal_reader *reader; /* NULL: not a stream */
    uint64_t next_us;
} connection;

static uint8_t secret[RP_CLUSTER_KEY_BYTES];
static fake_node nodes[MAX_NODES];
static int n_nodes;
static connection *connections[MAX_CONNECTIONS];
static int n_connections;

static void need(bool fine, const char *what) {
    if (fine) return;
    fprintf(stderr, "bench_nodes: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

/* ---- what nodes hold ---- */

static double processor_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static rp_plan_names *names_of(const char *model, const char *prompt_file) {
    rp_error err = {0};
    rp_model *m = NULL;
    rp_engine *e = NULL;
    rp_plan_names *names = NULL;
    base_buffer text = {0};
    rp_model_options mo = rp_model_options_defaults();
    mo.vocabulary_only = true;
    need(rp_model_open(&m, model, &mo, &err) == RP_OK, err.message);
    rp_engine_options o = rp_engine_options_defaults();
    const rp_cluster_options cluster = {
        .struct_size = sizeof(cluster), .key = secret, .plans_only = true, .identity = IDENTITY};
    o.cluster = &cluster;
    o.n_ctx = CONTEXT;
    need(rp_engine_new(&e, m, &o, &err) == RP_OK, err.message);
    need(base_file_read(prompt_file, (size_t)64 << 20, &text, &err) == RP_OK, err.message);
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_text(text.data);
    r.max_tokens = 1;
    double tokenize_ms = INFINITY, plan_ms = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        int32_t *ids = NULL;
        size_t n_ids = 0;
        const double start = processor_ms();
        need(rp_tokenize(m, text.data, text.len, false, true, &ids, &n_ids, &err) == RP_OK, err.message);
        const double middle = processor_ms();
        rp_plan_names_free(names);
        need(rp_plan_names_of(e, &r, &names, &err) == RP_OK, err.message);
        tokenize_ms = fmin(tokenize_ms, middle - start);
        plan_ms = fmin(plan_ms, processor_ms() - middle);
        rp_free(ids);
    }
    printf("prompt %d tokens %d names, %.3f ms tokenizing, %.3f ms planning\n", names->prompt_tokens, names->n_items,
           tokenize_ms, plan_ms);
    base_buffer_free(&text);
    rp_engine_free(e); /* names are the caller's own */
    rp_model_close(m);
    return names;
}

static void hold(fake_node *n, const rp_name *names, size_t n_names, uint32_t tiers) {
    for (size_t i = 0; i < n_names; i++) {
        const rp_span_change change = {names[i], tiers};
        cluster_journal_change(n->journal, &change, 1);
    }
}

static cluster_load load_of(int i, uint64_t now_us) {
    cluster_load l = {.sent_us = now_us, .engine.struct_size = sizeof(rp_engine_load)};
    l.engine.running = i % 4;
    l.engine.queued_tokens = 100 * (i % 7);
    l.engine.drain_us = (uint64_t)(1000 * (i % 11));
    l.engine.kv_bytes_per_token = 131072;
    l.engine.free_bytes = (uint64_t)1 << 34;
    l.engine.max_running = 64;
    l.engine.chunk_tokens = 512;
    l.engine.read_byte_us = 0.001;
    for (int k = 0; k < RP_COST_KNOTS; k++) l.engine.knot_us[k] = 1000.0 + 50.0 * (1 << k);
    l.engine.row_slot_us = 0.001;
    l.engine.slot_us = 0.01;
    return l;
}

static void make_node(int i, size_t n_names, const rp_plan_names *prompt) {
    fake_node *n = &nodes[i];
    cluster_hello hello = {
        .kv_format = "f16", .weights = "f16", .n_ctx = CONTEXT, .max_sequences = 64, .max_queue = 256};
    rp_error err = {0};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    randombytes_buf(&n->epoch, sizeof(n->epoch));
    hello.epoch = n->epoch;
    hello.kv_budget_bytes = (uint64_t)1 << 35;
    snprintf(hello.identity, sizeof(hello.identity), IDENTITY);
    snprintf(hello.node, sizeof(hello.node), "fake-%d", i);
    snprintf(hello.model, sizeof(hello.model), "fake");
    need(cluster_journal_new(&n->journal, secret, &hello, &err) == RP_OK, err.message);
    n->names = base_calloc(BASE_MAX(n_names, (size_t)1), sizeof(*n->names));
    need(n->names != NULL, "memory");
    randombytes_buf(n->names, n_names * sizeof(*n->names));
    hold(n, n->names, n_names, RP_TIER_RAM);
    const size_t share = i < n_nodes / 2 ? (size_t)prompt->n_items : randombytes_uniform((uint32_t)prompt->n_items + 1);
    for (size_t k = 0; k < share; k++) hold(n, &prompt->items[k].name, 1, RP_TIER_RAM);
    const cluster_load load = load_of(i, base_clock_us());
    cluster_journal_set_load(n->journal, &load);
    n->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    need(n->listener >= 0 && bind(n->listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
             listen(n->listener, 64) == 0 && getsockname(n->listener, (struct sockaddr *)&at, &length) == 0,
         "socket");
    printf("node fake-%d http://127.0.0.1:%d\n", i, ntohs(at.sin_port));
}

/* Names of every node leave and come, as many as are due. */
static void change_names(size_t n_names, size_t changes) {
    for (int i = 0; i < n_nodes && n_names > 0; i++) {
        for (size_t k = 0; k < changes; k++) {
            rp_name *name = &nodes[i].names[nodes[i].next_change++ % n_names];
            hold(&nodes[i], name, 1, 0);
            randombytes_buf(name, sizeof(*name));
            hold(&nodes[i], name, 1, RP_TIER_RAM);
        }
    }
}

/* ---- connections ---- */

static void close_connection(int k) {
    connection *c = connections[k];
    if (c->reader) cluster_journal_close(c->reader);
    close(c->fd);
    base_buffer_free(&c->in);
    base_buffer_free(&c->out);
    base_free(c);
    connections[k] = connections[--n_connections];
}

static void accept_all(int node) {
    for (int fd; (fd = accept4(nodes[node].listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        connection *c = base_calloc(1, sizeof(*c));
        const int one = 1;
        need(c && n_connections < MAX_CONNECTIONS, "too many connections");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *c = (connection){
            .fd = fd, .node = node, .in = BASE_BUFFER((size_t)64 << 20), .out = BASE_BUFFER((size_t)64 << 20)};
        connections[n_connections++] = c;
    }
}

/* The value of a field of the head, NUL-terminated in out; false: there is none. */
static bool field_of(const char *head, const char *name, char *out, size_t size) {
    const char *at = strcasestr(head, name);
    if (!at) return false;
    at += strlen(name);
    const size_t n = strcspn(at, "\r\n");
    if (n >= size) return false;
    memcpy(out, at, n);
    out[n] = '\0';
    return true;
}

static bool begin_stream(connection *c, const char *head) {
    char signature[CLUSTER_SIGNATURE_BYTES];
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    unsigned long long epoch = 0, after = 0;
    rp_error err;
    if (!field_of(head, "\r\n" CLUSTER_SIGNATURE_HEADER ": ", signature, sizeof(signature))) return false;
    if (!cluster_signature_parse(signature, nonce)) return false;
    if (sscanf(head, "GET /v1/cluster/stream?epoch=%llx&after=%llu", &epoch, &after) != 2) return false;
    if (cluster_journal_open(nodes[c->node].journal, nonce, epoch, after, &c->reader, &err)) return false;
    return !base_buffer_append_str(&c->out, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                                            "Transfer-Encoding: chunked\r\n\r\n");
}

/* It has no schemas: tagged, as a node says it. */
static bool answer_schemas(connection *c, const char *head) {
    static const char list[] = "{\"object\":\"list\",\"digest\":0,\"data\":[]}";
    char signature[CLUSTER_SIGNATURE_BYTES], tag[CLUSTER_REPLY_TAG_BYTES];
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    if (!field_of(head, "\r\n" CLUSTER_SIGNATURE_HEADER ": ", signature, sizeof(signature))) return false;
    if (!cluster_signature_parse(signature, nonce)) return false;
    cluster_reply_tag(tag, secret, nonce, list, sizeof(list) - 1);
    return !base_buffer_printf(&c->out,
                               "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s\n%s",
                               sizeof(list) - 1 + sizeof(tag), list, tag);
}

static bool answer_request(connection *c) {
    return !base_buffer_printf(&c->out,
                               "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                               sizeof(answer) - 1, answer);
}

/* One request whose head and body are there. false: close the connection. */
static bool take_request(connection *c) {
    char length[24] = "0";
    const char *end = c->in.data ? memmem(c->in.data, c->in.len, "\r\n\r\n", 4) : NULL;
    if (!end || c->reader) return true;
    const size_t n_head = (size_t)(end - c->in.data) + 4;
    char *head = base_calloc(n_head + 1, 1);
    need(head != NULL, "memory");
    memcpy(head, c->in.data, n_head);
    field_of(head, "\r\ncontent-length: ", length, sizeof(length));
    const size_t whole = n_head + (size_t)strtoull(length, NULL, 10);
    bool fine = true;
    if (c->in.len >= whole) {
        if (strncmp(head, "GET /v1/cluster/stream", 22) == 0) fine = begin_stream(c, head);
        else if (strncmp(head, "GET /v1/cluster/schemas", 23) == 0) fine = answer_schemas(c, head);
        else fine = answer_request(c);
        memmove(c->in.data, c->in.data + whole, c->in.len - whole);
        base_buffer_truncate(&c->in, c->in.len - whole);
    }
    base_free(head);
    return fine;
}

static bool receive(connection *c) {
    static char bytes[262144];
    ssize_t n;
    while ((n = recv(c->fd, bytes, sizeof(bytes), 0)) > 0)
        if (base_buffer_append(&c->in, bytes, (size_t)n) || !take_request(c)) return false;
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool pump(connection *c, uint64_t now_us) {
    if (c->reader && c->out.len == 0 && (now_us >= c->next_us || cluster_journal_is_ready(c->reader, now_us))) {
        base_buffer frames = BASE_BUFFER((size_t)16 << 20);
        need(cluster_journal_read(c->reader, now_us, (size_t)256 << 10, &frames, &c->next_us) == RP_OK, "memory");
        if (frames.len > 0) {
            need(!base_buffer_printf(&c->out, "%zx\r\n", frames.len) &&
                     !base_buffer_append(&c->out, frames.data, frames.len) && !base_buffer_append(&c->out, "\r\n", 2),
                 "memory");
        }
        base_buffer_free(&frames);
    }
    while (c->sent < c->out.len) {
        const ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        c->sent += (size_t)n;
    }
    c->sent = 0;
    base_buffer_clear(&c->out);
    return true;
}

/* ---- the loop ---- */

static struct pollfd polled[1 + MAX_NODES + MAX_CONNECTIONS];

static void turn(uint64_t wake_us) {
    const uint64_t start = base_clock_us();
    int n = 0;
    polled[n++] = (struct pollfd){.fd = 0, .events = POLLIN};
    for (int i = 0; i < n_nodes; i++) polled[n++] = (struct pollfd){.fd = nodes[i].listener, .events = POLLIN};
    for (int k = 0; k < n_connections; k++) {
        const connection *c = connections[k];
        polled[n++] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (c->out.len > c->sent ? POLLOUT : 0))};
        if (c->reader && c->next_us < wake_us) wake_us = c->next_us;
    }
    const int known = n_connections;
    poll(polled, (nfds_t)n, wake_us > start ? (int)((wake_us - start + 999) / 1000) : 0);
    for (int k = known - 1; k >= 0; k--) { /* backwards: closing moves the last one here */
        if ((polled[1 + n_nodes + k].revents && !receive(connections[k])) || !pump(connections[k], base_clock_us()))
            close_connection(k);
    }
    for (int i = 0; i < n_nodes; i++)
        if (polled[1 + i].revents) accept_all(i);
}

int main(int argc, char **argv) {
    rp_error err = {0};
    if (argc != 7) {
        fprintf(stderr, "usage: bench_nodes MODEL.gguf SECRET_FILE NODES NAMES CHANGES PROMPT_FILE\n");
        return 2;
    }
    need(sodium_init() >= 0, "sodium");
    need(cluster_secret_read(secret, argv[2], &err) == RP_OK, err.message);
    n_nodes = atoi(argv[3]);
    need(n_nodes > 0 && n_nodes <= MAX_NODES, "NODES");
    const size_t n_names = (size_t)strtoull(argv[4], NULL, 10), changes = (size_t)strtoull(argv[5], NULL, 10);
    rp_plan_names *prompt = names_of(argv[1], argv[6]);
    for (int i = 0; i < n_nodes; i++) make_node(i, n_names, prompt);
    printf("ready\n");
    fflush(stdout);
    uint64_t due = base_clock_us();
    while (!(polled[0].revents & (POLLIN | POLLHUP))) {
        const uint64_t now = base_clock_us();
        if (changes > 0 && now >= due) {
            change_names(n_names, BASE_MAX(changes / 10, (size_t)1));
            due = now + 100000;
        }
        turn(changes > 0 ? due : now + 1000000);
    }
    while (n_connections > 0) close_connection(0);
    for (int i = 0; i < n_nodes; i++) {
        cluster_journal_free(nodes[i].journal);
        base_free(nodes[i].names);
        close(nodes[i].listener);
    }
    rp_plan_names_free(prompt);
    return 0;
}
