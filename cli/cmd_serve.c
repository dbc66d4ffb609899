/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_serve.c: `reprise serve`: an engine with an HTTP server.
 *
 * Owns the command's options and the order of startup and shutdown. HTTP belongs to the server (reprise_server.h),
 * signals and the server's options to serve_common.h. SIGHUP reloads schemas (serve_reload.h).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise.h"
#include "reprise_test.h"
#include "reprise_server.h"
#include "serve_common.h"
#include "serve_models.h"
#include "serve_reload.h"

typedef struct serve_options {
    const char *chat_format, *kv_keep, *kv_method, *cluster_listen, *cluster_secret, *cluster_name, *pool, *kv_events,
        *kv_events_name, *kv_events_tenant;
    cli_list models, schemas, loras;
    cli_engine_args engine;
    serve_common common;
    int32_t sequences, queue, audit, shifted_reuse;
    float max_divergence;
    uint64_t scaffold_ram, pool_write;
    bool hash_key, audit_raise, mock;
    float mock_speed, mock_step;
} serve_options;

#define MOCK_SPEED 2000 /* tokens/s */

#define AT(field) offsetof(serve_options, field)
static const cli_option options[] = {
    {.name = "model",
     .letter = 'm',
     .kind = CLI_LIST,
     .value = "[NAME=]FILE",
     .offset = AT(models),
     .help = "model file (GGUF), hf:OWNER/REPO[:QUANT], or a name of 'reprise models'; required. Several, each as "
             "NAME=FILE: requests choose by the field model; a model is loaded when it is needed, and "
             "the least recently used one unloaded when --ram is full"},
    {.name = "schema",
     .kind = CLI_LIST,
     .value = "FILE",
     .offset = AT(schemas),
     .help = "schema file (PML), shared by all tenants; may be repeated"},
    SERVE_LISTEN_ROWS(serve_options, common),
    {.name = "cluster-listen",
     .kind = CLI_TEXT,
     .value = "ADDRESS",
     .offset = AT(cluster_listen),
     .help = "node of a cluster: listen for its routers (reprise route) on ADDRESS:PORT or unix:PATH; each request "
             "there needs a signature with the "
             "secret"},
    {.name = "cluster-secret",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(cluster_secret),
     .help = "with --cluster-listen or --pool: file of the cluster's secret, 32 bytes or 64 hexadecimal digits, which "
             "others may not read"},
    {.name = "cluster-name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(cluster_name),
     .help = "with --cluster-listen: name of this node (the address of --cluster-listen)"},
    {.name = "pool",
     .kind = CLI_TEXT,
     .value = "ADDRESS",
     .offset = AT(pool),
     .help = "pool of KV that several servers share: dir:/FOLDER, redis://HOST, rediss://HOST, s3://BUCKET/PREFIX, or "
             "https://HOST/PATH/. KV of queued requests is pulled from it where that is quicker than computing it, and "
             "pushed to it in the background, encrypted"},
    {.name = "pool-write",
     .kind = CLI_BYTES,
     .value = "BYTES",
     .offset = AT(pool_write),
     .help = "with --pool: bytes of KV that are pushed to it in a second at most (0: no limit)"},
    {.name = "kv-events",
     .kind = CLI_TEXT,
     .value = "ENDPOINT",
     .offset = AT(kv_events),
     .help = "publish KV events in vLLM's form, for gateways of Kubernetes, on tcp://ADDRESS:PORT or ipc://PATH "
             "(ZeroMQ): every subscriber receives the "
             "token ids of cached text; for trusted networks"},
    {.name = "kv-events-name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(kv_events_name),
     .help = "with --kv-events: name of this node in their topic kv@NAME@MODEL (--cluster-name, or the first address)"},
    {.name = "kv-events-tenant",
     .kind = CLI_TEXT,
     .value = "TENANT",
     .offset = AT(kv_events_tenant),
     .help = "with --kv-events and --api-keys: tenant of the gateway's key; only its text is published"},
    {.name = "hash-key",
     .kind = CLI_FLAG,
     .offset = AT(hash_key),
     .help = "read an API key from standard input, print its hash for --api-keys, and exit"},
    SERVE_API_ROWS(serve_options, common),
    {.name = "lora",
     .kind = CLI_LIST,
     .value = "NAME[@MODEL]=FILE",
     .offset = AT(loras),
     .help = "LoRA adapter (GGUF) of a model, of the first one by default: requests for the model NAME use it; may be "
             "repeated"},
    SERVE_PROMPT_ROWS(serve_options, common),
    {.name = "shifted-reuse",
     .kind = CLI_INT,
     .value = "K",
     .offset = AT(shifted_reuse),
     .min = -1,
     .max = INT32_MAX,
     .help = "of requests without the field shifted_reuse: after an edit inside a cached prompt, reuse the suffix at "
             "its new positions and recompute "
             "its first K tokens; approximate, and reported; -1: off (-1)"},
    {.name = "kv-keep",
     .kind = CLI_TEXT,
     .value = "N|SHARE",
     .offset = AT(kv_keep),
     .help = "KV reduction of requests without the field kv_keep: when the prompt is complete, keep N slots of its KV "
             "in the mean of all heads, or "
             "a share (12.5%), for its answer (all)"},
    {.name = "kv-method",
     .kind = CLI_TEXT,
     .value = "M",
     .offset = AT(kv_method),
     .help = "with --kv-keep: which slots, for requests without the field kv_method: " CLI_KV_METHODS " (snapkv)"},
    {.name = "sequences",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(sequences),
     .min = 1,
     .max = 256,
     .help = "maximum number of requests in a batch (16)"},
    {.name = "queue",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(queue),
     .min = 1,
     .max = 65536,
     .help = "maximum queue depth; further requests get status 503 with Retry-After (256)"},
    SERVE_LIMIT_ROWS(serve_options, common),
    CLI_DRAFT_ROW(serve_options, engine),
    CLI_ENGINE_ROWS(serve_options, engine, 't'),
    CLI_STORE_ROWS(serve_options, engine),
    {.name = "scaffold-ram",
     .kind = CLI_BYTES,
     .value = "BYTES",
     .offset = AT(scaffold_ram),
     .help = "memory limit of learned scaffolds (quality scaffold), which are prefilled in the background (a quarter "
             "of the KV cache)"},
    {.name = "audit",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(audit),
     .min = 0,
     .max = INT32_MAX,
     .help = "quality audit: when idle, recompute one in N requests with modules, or with KV below 16 bits, by a full "
             "prefill and record the divergence; 0: off (0)"},
    {.name = "max-divergence",
     .kind = CLI_REAL,
     .value = "NATS",
     .offset = AT(max_divergence),
     .min = 0,
     .max = 1000,
     .help = "with --audit: log schemas with a mean divergence from exact, and KV formats with one from f16, above "
             "this; 0: off (0)"},
    {.name = "audit-raise",
     .kind = CLI_FLAG,
     .offset = AT(audit_raise),
     .help = "with --max-divergence: raise the quality of these schemas step by step (full KV of modules with keep, "
             "link:8, blend:15, exact), and replace these KV formats by f16"},
    {.name = "mock",
     .kind = CLI_FLAG,
     .offset = AT(mock),
     .help = "test servers and routers without a model's arithmetic: answers are words without a meaning, and take the "
             "time of --mock-speed; only the "
             "vocabulary, the chat template and the context length of the model file are used"},
    {.name = "mock-speed",
     .kind = CLI_REAL,
     .value = "TOKENS/S",
     .offset = AT(mock_speed),
     .min = 0,
     .max = 1e9,
     .help = "with --mock: prefill speed; 0: as fast as possible (2000)"},
    {.name = "mock-step",
     .kind = CLI_REAL,
     .value = "MS",
     .offset = AT(mock_step),
     .min = 0,
     .max = 10000,
     .help = "with --mock: time of a step besides its tokens, and so about the inter-token latency (the time of 20 "
             "tokens' prefill)"},
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = NULL},
};
#undef AT

static int serve_serve_main(int argc, char **argv);

const cli_command cli_command_serve = {
    .name = "serve",
    .summary = "serve the APIs of OpenAI, Anthropic, Gemini, Ollama and llama.cpp over HTTP",
    .synopsis = "-m [NAME=]MODEL... [--store DIR] [OPTIONS]",
    .notes = "SIGTERM and Ctrl-C let running requests finish; a second signal ends the program at once. SIGHUP reloads "
             "the --schema files.\n"
             "exit status: 0 ended by a signal, 1 failure, 2 usage error\n",
    .options = options,
    .main = serve_serve_main,
};

/* ---- startup and shutdown ---- */

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
    rp_server_options s = serve_common_options(&o->common);
    s.shifted_reuse = o->shifted_reuse;
    s.cluster_listen = o->cluster_listen;
    s.cluster_secret = o->cluster_secret;
    s.cluster_name = o->cluster_name;
    s.pool = o->pool;
    s.pool_write_bytes = o->pool_write;
    s.kv_events = o->kv_events;
    s.kv_events_name = o->kv_events_name;
    s.kv_events_tenant = o->kv_events_tenant;
    s.adapters = o->loras.items;
    s.n_adapters = (int32_t)o->loras.n;
    return s;
}

#define MOCK_STEP_TOKENS 20   /* a step takes the time of so many tokens' prefill besides its own */
#define MOCK_ROW_SLOTS 100000 /* a context of so many tokens doubles the time of a token */

static rp_mock_options mock_options(const serve_options *o) {
    const double row_us = o->mock_speed > 0 ? 1e6 / (double)o->mock_speed : 0;
    return (rp_mock_options){
        .struct_size = sizeof(rp_mock_options),
        .step_us = o->mock_step >= 0 ? (double)o->mock_step * 1e3 : row_us * MOCK_STEP_TOKENS,
        .row_us = row_us,
        .row_slot_us = row_us / MOCK_ROW_SLOTS,
    };
}

/* mock: filled in, where the models are mocks; borrowed by the result. */
static serve_models_options models_options(const serve_options *o, rp_mock_options *mock) {
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
    *mock = mock_options(o);
    return (serve_models_options){&o->models, o->common.name, o->chat_format,
                                  &o->schemas, o->mock ? mock : NULL, engine,
                                  o->engine.draft_model};
}

typedef struct serve_run {
    const serve_options *options;
    serve_models *models;
} serve_run;

static int serve_run_models(void *user, rp_server *server) {
    const serve_run *run = user;
    if (run->options->mock)
        cli_warn(
            "--mock: answers are not a model's: they are words without a meaning, for tests of servers and routers");
    serve_reload reload = {0};
    count_steps(server);
    int status = serve_models_ready(run->models, server);
    if (status == CLI_OK) status = serve_reload_start(&reload, run->models, &run->options->schemas);
    if (status == CLI_OK) status = serve_common_serve(server);
    serve_reload_stop(&reload);
    count_steps(NULL);
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

static int serve_parsed(serve_options *o) {
    if (o->hash_key) return hash_key();
    serve_common_set_memory();
    if (o->models.n == 0) return cli_fail(CLI_WRONG_USE, "'reprise serve' needs -m FILE: see 'reprise serve --help'");
    int status = serve_common_check(&o->common);
    if (status == CLI_OK) status = serve_common_share_ram(&o->common, &o->engine.ram);
    if (status != CLI_OK) return status;
    if (o->cluster_listen == NULL && o->cluster_name != NULL)
        return cli_fail(CLI_WRONG_USE, "--cluster-name needs --cluster-listen ADDRESS, where routers connect");
    if (o->cluster_listen == NULL && o->pool == NULL && o->cluster_secret != NULL)
        return cli_fail(CLI_WRONG_USE, "--cluster-secret needs --cluster-listen ADDRESS, where routers connect, or "
                                       "--pool ADDRESS");
    if (o->pool != NULL && o->cluster_secret == NULL)
        return cli_fail(CLI_WRONG_USE, "--pool needs --cluster-secret FILE: names and encryption keys of its objects "
                                       "are made of it");
    if (o->pool == NULL && o->pool_write > 0) return cli_fail(CLI_WRONG_USE, "--pool-write needs --pool ADDRESS");
    if (o->cluster_listen != NULL && o->cluster_secret == NULL)
        return cli_fail(CLI_WRONG_USE, "--cluster-listen needs --cluster-secret FILE, the secret of the cluster");
    if (o->cluster_listen != NULL && o->models.n > 1)
        return cli_fail(CLI_WRONG_USE,
                        "--cluster-listen is for a single model: start a server for each of the %zu models",
                        o->models.n);
    if (o->kv_events == NULL && (o->kv_events_name != NULL || o->kv_events_tenant != NULL))
        return cli_fail(CLI_WRONG_USE, "--kv-events-name and --kv-events-tenant need --kv-events ENDPOINT");
    if (o->kv_events != NULL && o->models.n > 1)
        return cli_fail(CLI_WRONG_USE, "--kv-events is for a single model: start a server for each of the %zu models",
                        o->models.n);
    if (!o->mock && (o->mock_speed != MOCK_SPEED || o->mock_step >= 0))
        return cli_fail(CLI_WRONG_USE, "--mock-speed and --mock-step: need --mock");
    rp_mock_options mock;
    serve_models_options of_models = models_options(o, &mock);
    serve_models *models;
    status = serve_models_new(&models, &of_models);
    const serve_run run = {o, models};
    const rp_server_options server = server_options(o);
    if (status == CLI_OK) status = serve_common_run(&o->common, &server, serve_run_models, (void *)&run);
    serve_models_free(models);
    return status;
}

static int serve_serve_main(int argc, char **argv) {
    serve_options o = {.common = SERVE_COMMON_DEFAULTS,
                       .sequences = 16,
                       .queue = 256,
                       .mock_speed = MOCK_SPEED,
                       .mock_step = -1,
                       .shifted_reuse = -1};
    cli_parsed parsed = cli_options_parse(&cli_command_serve, argc, argv, &o);
    int status = CLI_WRONG_USE;
    if (parsed == CLI_PARSED_HELP) status = cli_finish_output();
    else if (parsed == CLI_PARSED) status = serve_parsed(&o);
    cli_config_free(&o.common.config);
    return status;
}
