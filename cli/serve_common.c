/* SPDX-License-Identifier: Apache-2.0 */
/* serve_common.c: see serve_common.h. SIGTERM and Ctrl-C start an orderly shutdown; a second one exits at once. */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include "serve_common.h"

#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise.h"
#include "serve_notify.h"
#include "serve_reload.h"

#define LOG_STOP_MS 500        /* how long shutdown waits for the reader of standard error to take the last lines */
#define OTHER_DESCRIPTORS 1024 /* for models, stores and threads */
/* Of a connection (of a router with one to a node: five in all), a read and a write of the store, and files of keys. */
#define LEAST_FREE_DESCRIPTORS 12
#define REUSE_MODULAR 1

const char *const serve_log_names[] = {"requests", "off", NULL};
const char *const serve_reuse_names[] = {"on", "modular", NULL};
const char *const serve_noise_names[] = {
    [RP_AGENT_NOISE_MOVE] = "move", [RP_AGENT_NOISE_ALL] = "all", [RP_AGENT_NOISE_KEEP] = "keep", NULL};
const char *const serve_auto_names[] = {"off", "ask", "on", NULL}; /* in the order of rp_auto_reuse */

/* ---- signals ---- */

static rp_server *signalled; /* the server that a signal stops */

static void on_signal(int number) {
    (void)number;
    rp_server_stop(signalled);
}

static void catch_signals(rp_server *server) {
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, ignore = {.sa_handler = SIG_IGN};
    signalled = server;
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* ---- options ---- */

static void on_log(void *user, const char *line) {
    (void)user;
    rp_log_line(line);
}

int serve_common_check(const serve_common *c) {
    if (c->otlp == NULL && c->otlp_sample != 1)
        return cli_fail(CLI_WRONG_USE, "--otlp-sample: needs --otlp URL, the collector");
    return CLI_OK;
}

rp_server_options serve_common_options(const serve_common *c) {
    rp_server_options s = rp_server_options_defaults();
    s.host = c->host;
    s.port = c->no_tcp ? RP_SERVER_NO_PORT : c->port;
    s.unix_path = c->unix_path;
    s.inherit_sockets = true;
    s.api_keys = c->api_keys;
    s.schema_dir = c->schema_dir;
    s.cors_origin = c->cors;
    s.host_names = c->host_names.items;
    s.n_host_names = (int32_t)c->host_names.n;
    s.no_page = c->no_page;
    s.aliases = c->aliases.items;
    s.n_aliases = (int32_t)c->aliases.n;
    s.agent_noise = (rp_agent_noise)c->agent_noise;
    s.modular = c->reuse == REUSE_MODULAR;
    s.auto_reuse = (rp_auto_reuse)c->auto_reuse;
    s.strict = c->strict;
    s.split_documents = c->split_documents;
    s.default_max_tokens = c->max_tokens;
    s.max_connections = c->connections;
    s.max_connections_per_address = c->address_connections;
    s.max_body_bytes = c->body;
    s.request_ram_bytes = c->request_ram;
    s.reply_buffer_bytes = c->reply_buffers;
    s.head_timeout_ms = c->head_timeout;
    s.body_timeout_ms = c->body_timeout;
    s.idle_timeout_ms = c->idle_timeout;
    s.keep_alive_ms = c->keep_alive;
    s.drain_timeout_ms = c->drain;
    s.shutdown_delay_ms = c->shutdown_delay;
    s.on_log = c->log == 0 ? on_log : NULL;
    return s;
}

/* ---- memory ---- */

#define ARENAS \
    2 /* each keeps memory that threads have freed: large requests would leave some in each of a dozen arenas */
#define KEPT_BYTES \
    (16 << 20) /* beyond that, freed memory goes back to the system; below it, requests find pages that are there */

void serve_common_set_memory(void) {
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, ARENAS);
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES / 8); /* growing buffers are moved by the page, and leave no holes */
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
#endif
}

#define LEAST_REQUEST_RAM ((uint64_t)64 << 20) /* with --ram: for bodies of 16 MiB, the default of --max-body */
#define MOST_REQUEST_RAM ((uint64_t)1 << 30)

int serve_common_share_ram(serve_common *c, uint64_t *ram) {
    if (*ram == 0) return CLI_OK;
    uint64_t share = *ram / 8;
    if (share < LEAST_REQUEST_RAM) share = LEAST_REQUEST_RAM < *ram / 2 ? LEAST_REQUEST_RAM : *ram / 2;
    if (share > MOST_REQUEST_RAM) share = MOST_REQUEST_RAM;
    if (c->request_ram == 0) c->request_ram = share;
    if (c->request_ram >= *ram)
        return cli_fail(CLI_WRONG_USE, "--request-ram is part of --ram: give it less than --ram");
    *ram -= c->request_ram;
    return CLI_OK;
}

/* ---- a run ---- */

/* Programs that start a server parse these lines. */
static int serve_print(const char *line, const char *what) {
    printf(line, what);
    return cli_finish_output();
}

/* A connection takes three descriptors (docs/decisions/0021-http-gate.md): more than most soft limits allow for
 * --connections. Connections above the hard limit wait in the backlog. Of a router: one more to a node, and one to a
 * node that it had before. */
static void raise_descriptors(const serve_common *c, bool routes) {
    struct rlimit limit;
    rlim_t wanted = (routes ? 5 : 3) * (rlim_t)c->connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* A server that can open no connection would accept and reset each one. Counted after all else is open. */
static int check_descriptors(void) {
    struct rlimit limit;
    int n_free = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return CLI_OK;
    for (int fd = 0; (rlim_t)fd < limit.rlim_cur && n_free < LEAST_FREE_DESCRIPTORS; fd++)
        n_free += fcntl(fd, F_GETFD) < 0 && errno == EBADF;
    if (n_free == LEAST_FREE_DESCRIPTORS) return CLI_OK;
    return cli_fail(CLI_FAILED,
                    "too few file descriptors: %d are left of %llu, and connections need %d: raise the limit (ulimit "
                    "-n) to %llu or more",
                    n_free, (unsigned long long)limit.rlim_cur, LEAST_FREE_DESCRIPTORS,
                    (unsigned long long)limit.rlim_cur + (unsigned long long)(LEAST_FREE_DESCRIPTORS - n_free));
}

int serve_common_serve(rp_server *server) {
    int status = check_descriptors();
    if (status == CLI_OK) status = serve_print("ready%s\n", "");
    if (status != CLI_OK) return status;
    serve_notify("READY=1");
    rp_server_run(server);
    serve_notify("STOPPING=1");
    return CLI_OK;
}

int serve_common_run(const serve_common *c, const rp_server_options *options, int (*run)(void *user, rp_server *server),
                     void *user) {
    rp_server_options s = *options;
    rp_server *server = NULL;
    serve_otlp *otlp = NULL;
    rp_error err;
    raise_descriptors(c, options->router != NULL);
    (void)rp_log_start(); /* on failure, lines are written synchronously */
    serve_reload_block();
    if (c->otlp != NULL) {
        int started = serve_otlp_start(&otlp, c->otlp, c->otlp_sample);
        if (started != CLI_OK) return started;
        s.user = otlp;
        s.on_request = serve_otlp_add;
        s.on_metrics = serve_otlp_metrics;
    }
    int rc = rp_server_new(&server, &s, &err);
    if (rc != RP_OK) {
        serve_otlp_stop(otlp);
        return cli_fail_library_as(rc == RP_ERR_INVALID ? CLI_WRONG_USE : CLI_FAILED, &err);
    }
    catch_signals(server);
    int status = CLI_OK;
    for (int i = 0; rp_server_address(server, i) != NULL && status == CLI_OK; i++)
        status = serve_print("listening on %s\n", rp_server_address(server, i));
    if (status == CLI_OK) status = run(user, server);
    rp_server_free(server);
    serve_otlp_stop(otlp);
    rp_log_stop(LOG_STOP_MS);
    return status;
}
