/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c: `reprise serve`: an engine with an HTTP server.
 *
 * Owns the command's options, signals, and the order of startup and shutdown. HTTP belongs to the server
 * (reprise_server.h). SIGTERM and Ctrl-C start an orderly shutdown; a second one exits at once. SIGHUP reloads schemas
 * (serve_reload.h).
 */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise_tools.h"
#include "reprise_server.h"
#include "serve_models.h"
#include "serve_notify.h"
#include "serve_otlp.h"
#include "serve_reload.h"

#define LOG_STOP_MS 500 /* how long shutdown waits for the reader of standard error to take the last lines */
#define OTHER_DESCRIPTORS 1024 /* for models, stores and threads */

typedef struct serve_options {
    const char *chat_format, *host, *unix_path, *api_keys, *cors, *name, *schema_dir, *kv_keep, *kv_method, *otlp, *split_documents, *cluster_listen, *cluster_secret,
        *cluster_name;
    cli_list models, schemas, host_names, aliases, loras;
    cli_engine_args engine;
    int32_t port, max_tokens, connections, address_connections, sequences, queue, log, reuse;
    int32_t head_timeout, body_timeout, idle_timeout, keep_alive, drain, audit;
    float max_divergence, otlp_sample;
    uint64_t body, reply_buffers, scaffold_ram;
    bool hash_key, no_tcp, no_page, stable_system, strict, audit_raise;
    cli_config config;
} serve_options;

static const char *const log_names[] = {"requests", "off", NULL};
static const char *const reuse_names[] = {"on", "modular", NULL};
#define REUSE_MODULAR 1

#define AT(field) offsetof(serve_options, field)
#define TIMEOUT(option, at, text) \
    {.name = option, .kind = CLI_INT, .value = "MS", .offset = AT(at), .min = 1, .max = 86400000, .help = text}
static const cli_option options[] = {
    {.name = "model", .letter = 'm', .kind = CLI_LIST, .value = "[NAME=]FILE", .offset = AT(models),
     .help = "model file (GGUF); required. Several, each as NAME=FILE: requests choose by the field model; a model is loaded when it is needed, and "
             "the least recently used one unloaded when --ram is full"},
    {.name = "schema", .kind = CLI_LIST, .value = "FILE", .offset = AT(schemas),
     .help = "schema file (PML), shared by all tenants; may be repeated"},
    {.name = "schema-dir", .kind = CLI_TEXT, .value = "DIR", .offset = AT(schema_dir),
     .help = "folder that keeps the schemas sent over HTTP; they are loaded again at the next start"},
    {.name = "host", .kind = CLI_TEXT, .value = "NAME", .offset = AT(host),
     .help = "address to listen on; non-loopback addresses require --api-keys (127.0.0.1)"},
    {.name = "host-name", .kind = CLI_LIST, .value = "NAME", .offset = AT(host_names),
     .help = "accept requests with this Host name, besides localhost and the listening address; may be repeated"},
    {.name = "port", .kind = CLI_INT, .value = "N", .offset = AT(port), .min = 0, .max = 65535,
     .help = "port to listen on; 0: any free port (8080)"},
    {.name = "unix", .kind = CLI_TEXT, .value = "PATH", .offset = AT(unix_path), .help = "listen on this Unix socket as well"},
    {.name = "no-tcp", .kind = CLI_FLAG, .offset = AT(no_tcp), .help = "with --unix: do not listen on TCP"},
    {.name = "api-keys", .kind = CLI_TEXT, .value = "FILE", .offset = AT(api_keys),
     .help = "file of API keys: a line for each with hash, tenant and rights; without it every client is the operator"},
    {.name = "cluster-listen", .kind = CLI_TEXT, .value = "ADDRESS", .offset = AT(cluster_listen),
     .help = "node of a cluster: listen for its routers (reprise route) on ADDRESS:PORT or unix:PATH; each request there needs a signature with the "
             "secret"},
    {.name = "cluster-secret", .kind = CLI_TEXT, .value = "FILE", .offset = AT(cluster_secret),
     .help = "with --cluster-listen: file of the cluster's secret, 32 bytes or 64 hexadecimal digits, which others may not read"},
    {.name = "cluster-name", .kind = CLI_TEXT, .value = "NAME", .offset = AT(cluster_name),
     .help = "with --cluster-listen: name of this node (the address of --cluster-listen)"},
    {.name = "hash-key", .kind = CLI_FLAG, .offset = AT(hash_key),
     .help = "read an API key from standard input, print its hash for --api-keys, and exit"},
    {.name = "cors", .kind = CLI_TEXT, .value = "ORIGIN", .offset = AT(cors), .help = "CORS: allow web pages of this origin; '*': all"},
    {.name = "no-page", .kind = CLI_FLAG, .offset = AT(no_page), .help = "disable the web page at /"},
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = AT(name),
     .help = "name of a single model in the API (the name in the model file)"},
    {.name = "alias", .kind = CLI_LIST, .value = "NAME[=MODEL]", .offset = AT(aliases),
     .help = "another name of a model in the API, of the first one by default; may be repeated"},
    {.name = "lora", .kind = CLI_LIST, .value = "NAME[@MODEL]=FILE", .offset = AT(loras),
     .help = "LoRA adapter (GGUF) of a model, of the first one by default: requests for the model NAME use it; may be repeated"},
    {.name = "stable-system", .kind = CLI_FLAG, .offset = AT(stable_system),
     .help = "move volatile lines of system messages (dates, ids) to their end, so that the other lines hit the prefix cache"},
    {.name = "reuse", .kind = CLI_CHOICE, .value = "on|modular", .offset = AT(reuse), .choices = reuse_names,
     .help = "reuse of requests without the field reuse: on: modules that they name, and the longest cached prefix; modular: documents, tool "
             "definitions and system blocks of conversations are modules, too (on)"},
    {.name = "split-documents", .kind = CLI_TEXT, .value = "REGEX", .offset = AT(split_documents),
     .help = "with reuse modular: the texts between matches of this regular expression in a message are documents of their own"},
    {.name = "strict", .kind = CLI_FLAG, .offset = AT(strict),
     .help = "reject requests with unknown fields, unknown model names or unsupported tools; without it reprise.warnings of the answer names them"},
    {.name = "max-tokens", .letter = 'n', .kind = CLI_INT, .value = "N", .offset = AT(max_tokens), .min = 1, .max = INT32_MAX,
     .help = "maximum number of tokens to generate for a request that sets no limit (1024)"},
    {.name = "kv-keep", .kind = CLI_TEXT, .value = "N|SHARE", .offset = AT(kv_keep),
     .help = "KV reduction of requests without the field kv_keep: when the prompt is complete, keep N slots of its KV in the mean of all heads, or "
             "a share (12.5%), for its answer (all)"},
    {.name = "kv-method", .kind = CLI_TEXT, .value = "M", .offset = AT(kv_method),
     .help = "with --kv-keep: which slots, for requests without the field kv_method: " CLI_KV_METHODS " (snapkv)"},
    {.name = "sequences", .kind = CLI_INT, .value = "N", .offset = AT(sequences), .min = 1, .max = 256,
     .help = "maximum number of requests in a batch (16)"},
    {.name = "queue", .kind = CLI_INT, .value = "N", .offset = AT(queue), .min = 1, .max = 65536,
     .help = "maximum queue depth; further requests get status 503 with Retry-After (256)"},
    {.name = "connections", .kind = CLI_INT, .value = "N", .offset = AT(connections), .min = 1, .max = 65536,
     .help = "maximum number of connections; beyond it the oldest idle one is closed, or a new one gets status 503 (1024)"},
    {.name = "connections-per-address", .kind = CLI_INT, .value = "N", .offset = AT(address_connections), .min = 0, .max = 65536,
     .help = "maximum number of connections of one address; 0: a quarter of --connections, and no limit for loopback addresses (0)"},
    {.name = "reply-buffers", .kind = CLI_BYTES, .value = "BYTES", .offset = AT(reply_buffers),
     .help = "memory limit for replies that clients have not read yet; beyond it generation pauses (64M)"},
    {.name = "max-body", .kind = CLI_BYTES, .value = "BYTES", .offset = AT(body), .help = "maximum size of a request body (16M)"},
    TIMEOUT("head-timeout", head_timeout, "timeout for the headers of a request (10000)"),
    TIMEOUT("body-timeout", body_timeout, "timeout for the body of a request (60000)"),
    TIMEOUT("idle-timeout", idle_timeout, "timeout for idle connections and for clients that stop reading (75000)"),
    {.name = "keep-alive", .kind = CLI_INT, .value = "MS", .offset = AT(keep_alive), .min = 0, .max = 86400000,
     .help = "interval of SSE keep-alive comments in idle streams; 0: none (15000)"},
    TIMEOUT("drain", drain, "drain timeout for running requests and store writes after SIGTERM (30000)"),
    {.name = "log", .kind = CLI_CHOICE, .value = "requests|off", .offset = AT(log), .choices = log_names,
     .help = "requests: log each request as a line of JSON on standard error; off: do not (requests). Level of other "
             "messages: REPRISE_LOG=off, error, warn, info or debug"},
    {.name = "otlp", .kind = CLI_TEXT, .value = "URL", .offset = AT(otlp),
     .help = "send a trace of each request to this OpenTelemetry collector (OTLP/HTTP, JSON), such as http://127.0.0.1:4318"},
    {.name = "otlp-sample", .kind = CLI_REAL, .value = "RATIO", .offset = AT(otlp_sample), .min = 0, .max = 1,
     .help = "with --otlp: the share of traces to send, of requests without a traceparent, whose sampled flag decides otherwise (1)"},
    {.name = "config", .kind = CLI_CONFIG, .value = "FILE", .offset = AT(config),
     .help = "read options from this file: lines 'name = value' with the names of these options, comments after '#'; the command line overrides it"},
    CLI_ENGINE_ROWS(serve_options, engine, 't'),
    CLI_STORE_ROWS(serve_options, engine),
    {.name = "scaffold-ram", .kind = CLI_BYTES, .value = "BYTES", .offset = AT(scaffold_ram),
     .help = "memory limit of learned scaffolds (quality scaffold), which are prefilled in the background (a quarter of the KV cache)"},
    {.name = "audit", .kind = CLI_INT, .value = "N", .offset = AT(audit), .min = 0, .max = INT32_MAX,
     .help = "quality audit: when idle, recompute one in N requests with modules, or with KV below 16 bits, by a full prefill and record the divergence; 0: off (0)"},
    {.name = "max-divergence", .kind = CLI_REAL, .value = "NATS", .offset = AT(max_divergence), .min = 0, .max = 1000,
     .help = "with --audit: log schemas with a mean divergence from exact, and KV formats with one from f16, above this; 0: off (0)"},
    {.name = "audit-raise", .kind = CLI_FLAG, .offset = AT(audit_raise),
     .help = "with --max-divergence: raise the quality of these schemas step by step (full KV of modules with keep, link:8, blend:15, exact), and replace these KV formats by f16"},
    {.name = "chat-format", .kind = CLI_TEXT, .value = "NAME", .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = NULL},
};
#undef TIMEOUT
#undef AT

static int serve_serve_main(int argc, char **argv);

const cli_command cli_command_serve = {
    .name = "serve",
    .summary = "serve the APIs of OpenAI, Anthropic, Gemini, Ollama and llama.cpp over HTTP",
    .synopsis = "-m [NAME=]MODEL... [--store DIR] [OPTIONS]",
    .notes = "SIGTERM and Ctrl-C let running requests finish; a second signal ends the program at once. SIGHUP reloads the --schema files.\n"
             "exit status: 0 ended by a signal, 1 failure, 2 usage error\n",
    .options = options,
    .main = serve_serve_main,
};

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

/* ---- startup and shutdown ---- */

static void on_log(void *user, const char *line) {
    (void)user;
    rp_log_line(line);
}

/* The server that counts the engine's steps; NULL if none runs, because the engine outlives it. */
static struct {
    pthread_mutex_t lock;
    rp_server *server;
} counted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void count_steps(rp_server *server) {
    pthread_mutex_lock(&counted.lock);
    counted.server = server;
    pthread_mutex_unlock(&counted.lock);
}

static void serve_on_step(void *user, const rp_step *step) {
    (void)user;
    pthread_mutex_lock(&counted.lock);
    if (counted.server != NULL) rp_server_count_step(counted.server, step);
    pthread_mutex_unlock(&counted.lock);
}

static rp_server_options server_options(const serve_options *o) {
    rp_server_options s = rp_server_options_defaults();
    s.host = o->host;
    s.port = o->no_tcp ? RP_SERVER_NO_PORT : o->port;
    s.unix_path = o->unix_path;
    s.inherit_sockets = true;
    s.api_keys = o->api_keys;
    s.cluster_listen = o->cluster_listen;
    s.cluster_secret = o->cluster_secret;
    s.cluster_name = o->cluster_name;
    s.schema_dir = o->schema_dir;
    s.cors_origin = o->cors;
    s.host_names = o->host_names.items;
    s.n_host_names = (int32_t)o->host_names.n;
    s.no_page = o->no_page;
    s.aliases = o->aliases.items;
    s.n_aliases = (int32_t)o->aliases.n;
    s.adapters = o->loras.items;
    s.n_adapters = (int32_t)o->loras.n;
    s.stable_system = o->stable_system;
    s.modular = o->reuse == REUSE_MODULAR;
    s.strict = o->strict;
    s.split_documents = o->split_documents;
    s.default_max_tokens = o->max_tokens;
    s.max_connections = o->connections;
    s.max_connections_per_address = o->address_connections;
    s.max_body_bytes = o->body;
    s.reply_buffer_bytes = o->reply_buffers;
    s.head_timeout_ms = o->head_timeout;
    s.body_timeout_ms = o->body_timeout;
    s.idle_timeout_ms = o->idle_timeout;
    s.keep_alive_ms = o->keep_alive;
    s.drain_timeout_ms = o->drain;
    s.on_log = o->log == 0 ? on_log : NULL;
    return s;
}

static serve_models_options models_options(const serve_options *o) {
    rp_engine_options engine = cli_engine_options(&o->engine);
    engine.max_sequences = o->sequences;
    engine.max_queue = o->queue;
    engine.on_step = serve_on_step;
    engine.scaffold_bytes = o->scaffold_ram;
    engine.kv_keep = o->kv_keep;
    engine.kv_method = o->kv_method;
    engine.audit_every = o->audit;
    engine.max_divergence = o->max_divergence;
    engine.audit_raises = o->audit_raise;
    return (serve_models_options){&o->models, o->name, o->chat_format, &o->schemas, engine};
}

/* Programs that start a server parse these lines. */
static int serve_print(const char *line, const char *what) {
    printf(line, what);
    return cli_finish_output();
}

static int serve_serve(rp_server *server, serve_models *models, const serve_options *o) {
    int status = CLI_OK;
    for (int i = 0; rp_server_address(server, i) != NULL && status == CLI_OK; i++)
        status = serve_print("listening on %s\n", rp_server_address(server, i));
    if (status == CLI_OK) status = serve_models_ready(models, server);
    if (status != CLI_OK) return status;
    serve_reload reload = {0};
    status = serve_reload_start(&reload, models, &o->schemas);
    if (status == CLI_OK) status = serve_print("ready%s\n", "");
    if (status == CLI_OK) {
        serve_notify("READY=1");
        rp_server_run(server);
        serve_notify("STOPPING=1");
    }
    serve_reload_stop(&reload);
    return status;
}

/* A connection takes three descriptors (docs/decisions/0021-http-gate.md): more than most soft limits allow for
 * --connections. Connections above the hard limit wait in the backlog. */
static void raise_descriptors(const serve_options *o) {
    struct rlimit limit;
    rlim_t wanted = 3 * (rlim_t)o->connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int serve_serve_with(const serve_options *o, serve_models *models) {
    rp_server_options s = server_options(o);
    rp_server *server = NULL;
    serve_otlp *otlp = NULL;
    rp_error err;
    raise_descriptors(o);
    (void)rp_log_start(); /* on failure, lines are written synchronously */
    serve_reload_block();
    if (o->otlp != NULL) {
        int started = serve_otlp_start(&otlp, o->otlp, o->otlp_sample);
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
    count_steps(server);
    int status = serve_serve(server, models, o);
    count_steps(NULL);
    rp_server_free(server);
    serve_otlp_stop(otlp);
    rp_log_stop(LOG_STOP_MS);
    return status;
}

static int hash_key(void) {
    char *text = NULL, hash[RP_SERVER_HASH_DIGITS + 1];
    size_t n = 0;
    rp_error err;
    int status = cli_read("-", &text, &n);
    if (status != CLI_OK) return status;
    text[strcspn(text, "\r\n")] = '\0';
    if (rp_server_hash_key(text, hash, &err) != RP_OK) status = cli_fail_library(&err);
    else {
        printf("%s\n", hash);
        status = cli_finish_output();
    }
    free(text);
    return status;
}

static int serve_parsed(const serve_options *o) {
    if (o->hash_key) return hash_key();
    if (o->models.n == 0) return cli_fail(CLI_WRONG_USE, "'reprise serve' needs -m FILE: see 'reprise serve --help'");
    if (o->otlp == NULL && o->otlp_sample != 1) return cli_fail(CLI_WRONG_USE, "--otlp-sample: needs --otlp URL, the collector");
    if (o->cluster_listen == NULL && (o->cluster_secret != NULL || o->cluster_name != NULL))
        return cli_fail(CLI_WRONG_USE, "--cluster-secret and --cluster-name need --cluster-listen ADDRESS, where routers connect");
    if (o->cluster_listen != NULL && o->cluster_secret == NULL)
        return cli_fail(CLI_WRONG_USE, "--cluster-listen needs --cluster-secret FILE, the secret of the cluster");
    if (o->cluster_listen != NULL && o->models.n > 1)
        return cli_fail(CLI_WRONG_USE, "--cluster-listen is for a single model: start a server for each of the %zu models", o->models.n);
    serve_models_options of_models = models_options(o);
    serve_models *models;
    int status = serve_models_new(&models, &of_models);
    if (status == CLI_OK) status = serve_serve_with(o, models);
    serve_models_free(models);
    return status;
}

static int serve_serve_main(int argc, char **argv) {
    serve_options o = {.port = 8080, .max_tokens = 1024, .sequences = 16, .queue = 256, .connections = 1024, .body = (uint64_t)16 << 20, .reply_buffers = (uint64_t)64 << 20,
                       .head_timeout = 10000, .body_timeout = 60000, .idle_timeout = 75000, .keep_alive = 15000, .drain = 30000, .otlp_sample = 1};
    cli_parsed parsed = cli_options_parse(&cli_command_serve, argc, argv, &o);
    int status = CLI_WRONG_USE;
    if (parsed == CLI_PARSED_HELP) status = cli_finish_output();
    else if (parsed == CLI_PARSED) status = serve_parsed(&o);
    cli_config_free(&o.config);
    return status;
}
