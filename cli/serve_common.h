/* SPDX-License-Identifier: Apache-2.0 */
/* serve_common.h: what `reprise serve` and `reprise route` have in common: options of the HTTP server, signals, and the
   order of their output. */
#ifndef CLI_SERVE_COMMON_H
#define CLI_SERVE_COMMON_H

#include "common/options.h"
#include "reprise_server.h"
#include "serve_otlp.h"

typedef struct serve_common {
    const char *schema_dir, *host, *unix_path, *api_keys, *cors, *name, *otlp, *split_documents;
    cli_list host_names, aliases;
    int32_t port, max_tokens, connections, address_connections, log, reuse, agent_noise, auto_reuse;
    int32_t head_timeout, body_timeout, idle_timeout, keep_alive, drain, shutdown_delay;
    float otlp_sample;
    uint64_t body, request_ram, reply_buffers;
    bool no_tcp, no_page, strict;
    cli_config config;
} serve_common;

/* clang-format off */
#define SERVE_COMMON_DEFAULTS \
    {.port = 8080, .max_tokens = 1024, .connections = 1024, .reply_buffers = (uint64_t)64 << 20, \
     .head_timeout = 10000, \
     .body_timeout = 60000, .idle_timeout = 75000, .keep_alive = 15000, .drain = 30000, .otlp_sample = 1}
/* clang-format on */

/* The program's memory: few arenas, freed memory is returned to the system. Before any thread. */
void serve_common_set_memory(void);
/* Divides --ram, if it is set: *ram receives what is left for the engines. A usage error if nothing would be. */
int serve_common_share_ram(serve_common *c, uint64_t *ram);

extern const char *const serve_log_names[],
    *const serve_reuse_names[], *const serve_noise_names[], *const serve_auto_names[]; /* end with NULL */

/* Rows of a command's table; `field` is the serve_common in its struct. */
/* clang-format off */
#define SERVE_LISTEN_ROWS(type, field) \
    {.name = "schema-dir", .kind = CLI_TEXT, .value = "DIR", .offset = offsetof(type, field.schema_dir), \
     .help = "folder that keeps the schemas sent over HTTP; they are loaded again at the next start"}, \
    {.name = "host", .kind = CLI_TEXT, .value = "NAME", .offset = offsetof(type, field.host), \
     .help = "address to listen on; non-loopback addresses require --api-keys (127.0.0.1)"}, \
    {.name = "host-name", .kind = CLI_LIST, .value = "NAME", .offset = offsetof(type, field.host_names), \
     .help = "accept requests with this Host name, besides localhost and the listening address; may be repeated"}, \
    {.name = "port", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.port), .min = 0, .max = 65535, \
     .help = "port to listen on; 0: any free port (8080)"}, \
    {.name = "unix", .kind = CLI_TEXT, .value = "PATH", .offset = offsetof(type, field.unix_path), \
     .help = "listen on this Unix socket as well"}, \
    {.name = "no-tcp", .kind = CLI_FLAG, .offset = offsetof(type, field.no_tcp), \
     .help = "with --unix: do not listen on TCP"}, \
    {.name = "api-keys", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.api_keys), \
     .help = "file of API keys: a line for each with hash, tenant and rights; without it every client is the operator"}
#define SERVE_API_ROWS(type, field) \
    {.name = "cors", .kind = CLI_TEXT, .value = "ORIGIN", .offset = offsetof(type, field.cors), \
        .help = "CORS: allow web pages of this origin; '*': all"}, \
    {.name = "no-page", .kind = CLI_FLAG, .offset = offsetof(type, field.no_page), \
     .help = "disable the web page at /"}, \
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = offsetof(type, field.name), \
     .help = "name of a single model in the API (the name in the model file)"}, \
    {.name = "alias", .kind = CLI_LIST, .value = "NAME[=MODEL]", .offset = offsetof(type, field.aliases), \
     .help = "another name of a model in the API, of the first one by default; may be repeated"}
#define SERVE_PROMPT_ROWS(type, field) \
    {.name = "agent-noise", .kind = CLI_CHOICE, .value = "move|all|keep", .offset = offsetof(type, field.agent_noise), \
     .choices = serve_noise_names, \
     .help = "text that differs between requests: move: of known agents (dates, working directories, git status) " \
             "after the constant text, so that " \
             "it hits the prefix cache; all: any line of a system message with a date or an id, too; keep: change " \
             "nothing (move)"}, \
    {.name = "reuse", .kind = CLI_CHOICE, .value = "on|modular", .offset = offsetof(type, field.reuse), \
     .choices = serve_reuse_names, \
     .help = "reuse of requests without the field reuse: on: modules that they name, and the longest cached prefix; " \
             "modular: documents, tool " \
             "definitions and system blocks of conversations are modules, too (on)"}, \
    {.name = "auto-reuse", .kind = CLI_CHOICE, .value = "off|ask|on", .offset = offsetof(type, field.auto_reuse), \
     .choices = serve_auto_names, \
     .help = "reuse text that was computed before at other places of prompts, approximately (automatic modules): " \
             "off: never; ask: for requests " \
             "with reuse auto; on: for those without the field reuse, too (off)"}, \
    {.name = "split-documents", .kind = CLI_TEXT, .value = "REGEX", .offset = offsetof(type, field.split_documents), \
     .help = "with reuse modular: the texts between matches of this regular expression in a message are documents " \
             "of their own"}, \
    {.name = "strict", .kind = CLI_FLAG, .offset = offsetof(type, field.strict), \
     .help = "reject requests with unknown fields, unknown model names or unsupported tools; without it " \
             "reprise.warnings of the answer names them"}, \
    {.name = "max-tokens", .letter = 'n', .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.max_tokens), \
     .min = 1, .max = INT32_MAX, \
     .help = "maximum number of tokens to generate for a request that sets no limit (1024)"}
#define SERVE_TIMEOUT(option, at, text) \
    {.name = option, .kind = CLI_INT, .value = "MS", .offset = at, .min = 1, .max = 86400000, .help = text}
#define SERVE_LIMIT_ROWS(type, field) \
    {.name = "connections", .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.connections), .min = 1, \
     .max = 65536, \
     .help = "maximum number of connections; beyond it the oldest idle one is closed, or a new one gets status 503 " \
             "(1024)"}, \
    {.name = "connections-per-address", .kind = CLI_INT, .value = "N", \
     .offset = offsetof(type, field.address_connections), .min = 0, .max = 65536, \
     .help = "maximum number of connections of one address; 0: a quarter of --connections, and no limit for " \
             "loopback addresses (0)"}, \
    {.name = "reply-buffers", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.reply_buffers), \
     .help = "memory limit for replies that clients have not read yet; beyond it generation pauses (64M)"}, \
    {.name = "max-body", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.body), \
     .help = "maximum size of a decoded body (16M)"}, \
    {.name = "request-ram", .kind = CLI_BYTES, .value = "BYTES", .offset = offsetof(type, field.request_ram), \
     .help = "memory limit of all requests together, without their KV: bodies, JSON, tokens, replies; half of it " \
             "for one request, else status 413 " \
             "(1G, with --ram an eighth of it; of a router, 192M)"}, \
    SERVE_TIMEOUT("head-timeout", offsetof(type, field.head_timeout), "timeout for the headers of a request (10000)"), \
    SERVE_TIMEOUT("body-timeout", offsetof(type, field.body_timeout), "timeout for the body of a request (60000)"), \
    SERVE_TIMEOUT("idle-timeout", offsetof(type, field.idle_timeout), "timeout for idle connections and for clients " \
                  "that stop reading (75000)"), \
    {.name = "keep-alive", .kind = CLI_INT, .value = "MS", .offset = offsetof(type, field.keep_alive), .min = 0, \
     .max = 86400000, \
     .help = "interval of SSE keep-alive comments in idle streams; 0: none (15000)"}, \
    SERVE_TIMEOUT("drain", offsetof(type, field.drain), "drain timeout for running requests and store writes after " \
                  "SIGTERM (30000)"), \
    {.name = "shutdown-delay", .kind = CLI_INT, .value = "MS", .offset = offsetof(type, field.shutdown_delay), \
     .min = 0, .max = 86400000, \
     .help = "after SIGTERM, keep accepting requests for so long while /readyz gives 503, until a load balancer " \
             "sends no more (0)"}, \
    {.name = "log", .kind = CLI_CHOICE, .value = "requests|off", .offset = offsetof(type, field.log), \
     .choices = serve_log_names, \
     .help = "requests: log each request as a line of JSON on standard error; off: do not (requests). Level of other " \
             "messages: REPRISE_LOG=off, error, warn, info or debug"}, \
    {.name = "otlp", .kind = CLI_TEXT, .value = "URL", .offset = offsetof(type, field.otlp), \
     .help = "send a trace of each request to this OpenTelemetry collector (OTLP/HTTP, JSON), such as " \
             "http://127.0.0.1:4318"}, \
    {.name = "otlp-sample", .kind = CLI_REAL, .value = "RATIO", .offset = offsetof(type, field.otlp_sample), .min = 0, \
     .max = 1, \
     .help = "with --otlp: the share of traces to send, of requests without a traceparent, whose sampled flag " \
             "decides otherwise (1)"}, \
    {.name = "config", .kind = CLI_CONFIG, .value = "FILE", .offset = offsetof(type, field.config), \
     .help = "read options from this file: lines 'name = value' with the names of these options, comments after " \
             "'#'; the command line overrides it"}
/* clang-format on */

/* Checks what the table cannot. Returns an exit status. */
int serve_common_check(const serve_common *c);
/* The server's options; the command adds its own. Strings are borrowed. */
rp_server_options serve_common_options(const serve_common *c);

/* Makes the server, prints where it listens, calls `run` with it, which returns an exit status, and ends it: signals,
 * limits of descriptors, the log and traces are set up before. */
int serve_common_run(const serve_common *c, const rp_server_options *options, int (*run)(void *user, rp_server *server),
                     void *user);
/* Prints "ready", and serves until a signal. Returns an exit status. */
int serve_common_serve(rp_server *server);

#endif
