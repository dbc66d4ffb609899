/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_route.c: `reprise route`: a router in front of servers of a cluster (docs/cluster.md).
 *
 * Owns the command's options and the thread that waits for SIGHUP. The router itself belongs to the server
 * (reprise_server.h), what it has in common with `reprise serve` to serve_common.h.
 */
#define _POSIX_C_SOURCE 200809L /* sigwait */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#ifdef __GLIBC__
#endif

#include "common/command.h"
#include "common/console.h"
#include "common/loader.h"
#include "serve_common.h"
#include "serve_reload.h"

typedef struct route_options {
    cli_engine_args engine;
    const char *kv_keep;
    const char *model, *nodes_file, *nodes_dns, *secret, *policy, *admission;
    cli_list nodes, schemas;
    serve_common common;
    int32_t max_queue;
    int32_t node_timeout;
    uint64_t index_ram;
    float ttft_goal, itl_goal;
} route_options;

#define AT(field) offsetof(route_options, field)
static const cli_option options[] = {
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF) of the nodes: its vocabulary, template and metadata are read, not its weights",
    },
    {
        .name = "node",
        .kind = CLI_LIST,
        .value = "[NAME=]URL",
        .offset = AT(nodes),
        .help = "a node's cluster port, http://HOST:PORT (reprise serve --cluster-listen); may be repeated",
    },
    {
        .name = "nodes",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(nodes_file),
        .help = "file with a node as for --node in each line, comments after '#'; it is read again when it changes and "
                "on SIGHUP",
    },
    {
        .name = "nodes-dns",
        .kind = CLI_TEXT,
        .value = "NAME:PORT",
        .offset = AT(nodes_dns),
        .help = "a node at each address of this DNS name, which is looked up every 10 seconds",
    },
    {
        .name = "cluster-secret",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(secret),
        .required = true,
        .help = "file of the cluster's secret, 32 bytes or 64 hexadecimal digits, which others may not read",
    },
    {
        .name = "policy",
        .kind = CLI_TEXT,
        .value = "NAME",
        .offset = AT(policy),
        .help = "choice of a node: cost, the least predicted time to first token; for comparison prefix-cost, "
                "longest-match, session, least-loaded, "
                "round-robin, random (cost)",
    },
    {
        .name = "admission",
        .kind = CLI_TEXT,
        .value = "NAME",
        .offset = AT(admission),
        .help = "when a request that will miss a goal gets status 429: predicted, by the load at the end of its "
                "prefill; at-arrival; "
                "after-prefill; off "
                "(predicted)",
    },
    {
        .name = "ttft-goal",
        .kind = CLI_REAL,
        .value = "MS",
        .offset = AT(ttft_goal),
        .min = 0,
        .max = 86400000,
        .help = "goal for the time to first token; 0: none (0)",
    },
    {
        .name = "itl-goal",
        .kind = CLI_REAL,
        .value = "MS",
        .offset = AT(itl_goal),
        .min = 0,
        .max = 86400000,
        .help = "goal for the inter-token latency; 0: none (0)",
    },
    {
        .name = "max-queue",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(max_queue),
        .min = 1,
        .max = 65536,
        .help = "maximum number of requests that wait for a node; further ones get status 429 with Retry-After (4096)",
    },
    {
        .name = "node-timeout",
        .kind = CLI_INT,
        .value = "MS",
        .offset = AT(node_timeout),
        .min = 0,
        .max = 86400000,
        .help = "a request whose node gives no sign of life of it for so long moves to another node, or ends with "
                "status 502; at least 100; 0: never "
                "(60000)",
    },
    {
        .name = "index-ram",
        .kind = CLI_BYTES,
        .value = "BYTES",
        .offset = AT(index_ram),
        .min = 1 << 20,
        .max = (double)((uint64_t)1 << 40),
        .help = "memory of the index of names, 48 bytes each; nodes share it equally, and names beyond that are "
                "ignored (512M)",
    },
    {
        .name = "schema",
        .kind = CLI_LIST,
        .value = "FILE",
        .offset = AT(schemas),
        .help = "schema file (PML) that the nodes have, too, with their own --schema; may be repeated",
    },
    {.name = "kv-f16-layers",
     .kind = CLI_TEXT,
     .value = "LIST",
     .offset = AT(engine.kv_f16_layers),
     .help = "of the nodes: " CLI_KV_F16_HELP},
    {.name = "module-states",
     .kind = CLI_CHOICE,
     .value = "exact|last|composed",
     .offset = AT(engine.module_states),
     .choices = cli_module_states_names,
     .help = "of the nodes: " CLI_MODULE_STATES_HELP},
    {.name = "keep",
     .kind = CLI_TEXT,
     .value = "SHARE|auto",
     .offset = AT(engine.keep),
     .help = "of the nodes: " CLI_KEEP_HELP},
    {.name = "keep-method",
     .kind = CLI_TEXT,
     .value = "METHOD",
     .offset = AT(engine.keep_method),
     .help = "of the nodes: " CLI_KEEP_METHOD_HELP},
    {
        .name = "kv-keep",
        .kind = CLI_TEXT,
        .value = "N|SHARE",
        .offset = AT(kv_keep),
        .help = "of the nodes: KV reduction of requests without the field kv_keep (all)",
    },
    SERVE_LISTEN_ROWS(route_options, common),
    SERVE_API_ROWS(route_options, common),
    SERVE_PROMPT_ROWS(route_options, common),
    SERVE_LIMIT_ROWS(route_options, common),
    {.name = NULL},
};
#undef AT

static int route_main(int argc, char **argv);

const cli_command cli_command_route = {
    .name = "route",
    .summary = "send requests to the node of a cluster that will answer first",
    .synopsis = "-m MODEL --cluster-secret FILE --node URL... [OPTIONS]",
    .notes = "Options of prompts (--agent-noise, --reuse, --split-documents, --max-tokens) should be those of the "
             "nodes, so that plans are exact.\n"
             "SIGTERM and Ctrl-C let running requests finish; a second signal ends the program at once. SIGHUP reads "
             "the nodes and the\n"
             "--schema files again.\n"
             "exit status: 0 ended by a signal, 1 failure, 2 usage error\n",
    .options = options,
    .main = route_main,
};

/* ---- SIGHUP ---- */

typedef struct route_hangup {
    rp_server *server;
    pthread_t thread;
    bool started;
    atomic_bool ends;
} route_hangup;

static void *wait_for_hangups(void *user) {
    route_hangup *h = user;
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    while (sigwait(&set, &number) == 0 && !atomic_load(&h->ends)) rp_server_reload_nodes(h->server);
    return NULL;
}

static int hangup_start(route_hangup *h) {
    h->started = pthread_create(&h->thread, NULL, wait_for_hangups, h) == 0;
    return h->started ? CLI_OK : cli_fail(CLI_FAILED, "cannot start a thread: end other programs and try again");
}

static void hangup_stop(route_hangup *h) {
    if (!h->started) return;
    atomic_store(&h->ends, true);
    pthread_kill(h->thread, SIGHUP);
    pthread_join(h->thread, NULL);
}

/* ---- a run ---- */

typedef struct route_run {
    const route_options *options;
    cli_loaded loaded;
} route_run;

static int run_router(void *user, rp_server *server) {
    const route_run *run = user;
    rp_engine_options engine = cli_engine_options(&run->options->engine);
    engine.kv_keep = run->options->kv_keep;
    route_hangup hangup = {.server = server};
    rp_error err;
    if (rp_server_ready_router(server, run->loaded.model, &engine, &err) != RP_OK) return cli_fail_library(&err);
    int status = hangup_start(&hangup);
    if (status == CLI_OK) status = serve_common_serve(server);
    hangup_stop(&hangup);
    return status;
}

static int route_parsed(const route_options *o) {
    rp_router_options router = rp_router_options_defaults();
    route_run run = {.options = o};
    int status = serve_common_check(&o->common);
    serve_common_set_memory();
    if (status == CLI_OK && o->nodes.n == 0 && o->nodes_file == NULL && o->nodes_dns == NULL)
        status = cli_fail(CLI_WRONG_USE,
                          "'reprise route' needs nodes: give --node URL, --nodes FILE or --nodes-dns NAME:PORT");
    if (status == CLI_OK) status = cli_load_vocabulary(&run.loaded, o->model);
    if (status != CLI_OK) return status;
    router.nodes = o->nodes.items;
    router.n_nodes = (int32_t)o->nodes.n;
    router.nodes_file = o->nodes_file;
    router.nodes_dns = o->nodes_dns;
    router.secret_file = o->secret;
    router.schemas = o->schemas.items;
    router.n_schemas = (int32_t)o->schemas.n;
    router.policy = o->policy;
    router.admission = o->admission;
    router.ttft_goal_ms = (double)o->ttft_goal;
    router.itl_goal_ms = (double)o->itl_goal;
    router.max_queue = o->max_queue;
    router.node_timeout_ms = o->node_timeout;
    router.index_bytes = o->index_ram;
    rp_server_options server = serve_common_options(&o->common);
    server.router = &router;
    status = serve_common_run(&o->common, &server, run_router, &run);
    cli_loaded_free(&run.loaded);
    return status;
}

static int route_main(int argc, char **argv) {
    route_options o = {
        .common = SERVE_COMMON_DEFAULTS, .max_queue = 4096, .node_timeout = 60000, .index_ram = (uint64_t)512 << 20};
    cli_parsed parsed = cli_options_parse(&cli_command_route, argc, argv, &o);
    int status = CLI_WRONG_USE;
    if (parsed == CLI_PARSED_HELP) status = cli_finish_output();
    else if (parsed == CLI_PARSED) status = route_parsed(&o);
    cli_config_free(&o.common.config);
    return status;
}
