/* SPDX-License-Identifier: Apache-2.0 */
/* serve_reload.c: see serve_reload.h. One thread, which waits for SIGHUP. */
#define _POSIX_C_SOURCE 200809L /* sigwait */

#include "serve_reload.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise.h"
#include "reprise_pml.h"

static sigset_t serve_reload_hangup(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    return set;
}

void serve_reload_block(void) {
    sigset_t set = serve_reload_hangup();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Uses the log's queue: a reader of standard error that has stopped must not block this thread. */
CLI_PRINTF(1, 2)
static void reload_log(const char *format, ...) {
    char line[sizeof(((rp_error *)NULL)->message) + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    rp_log_line(line);
}

static void serve_reload_reload(void *user, rp_engine *engine) {
    const serve_reload *r = user;
    size_t n = 0;
    for (size_t i = 0; i < r->schemas->n; i++) {
        rp_error err;
        if (rp_schema_load(engine, r->schemas->items[i], NULL, NULL, &err) == RP_OK) n++;
        else reload_log("reprise: %s", err.message);
    }
    reload_log("reloaded %zu of %zu schemas", n, r->schemas->n);
}

static void *serve_reload_run(void *user) {
    serve_reload *r = user;
    sigset_t set = serve_reload_hangup();
    int number;
    while (sigwait(&set, &number) == 0 && !atomic_load(&r->ends)) serve_models_visit(r->models, serve_reload_reload, r);
    return NULL;
}

int serve_reload_start(serve_reload *r, serve_models *models, const cli_list *schemas) {
    r->models = models;
    r->schemas = schemas;
    r->started = pthread_create(&r->thread, NULL, serve_reload_run, r) == 0;
    return r->started ? CLI_OK : cli_fail(CLI_FAILED, "cannot start a thread: end other programs and try again");
}

void serve_reload_stop(serve_reload *r) {
    if (!r->started) return;
    atomic_store(&r->ends, true);
    pthread_kill(r->thread, SIGHUP);
    pthread_join(r->thread, NULL);
    r->started = false;
}
