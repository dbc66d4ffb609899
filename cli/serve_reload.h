/* SPDX-License-Identifier: Apache-2.0 */
/* serve_reload.h: on SIGHUP, reloads the files of --schema into the engines of all loaded models while the server runs.
 * Unchanged modules keep their KV; a file that cannot be read leaves its schema unchanged.
 *
 * Call serve_reload_block before any thread is created. Each reload logs a line "reloaded 2 of 3 schemas".
 */
#ifndef CLI_SERVE_RELOAD_H
#define CLI_SERVE_RELOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/options.h"
#include "serve_models.h"

typedef struct serve_reload {
    serve_models *models;
    const cli_list *schemas;
    pthread_t thread;
    bool started;
    atomic_bool ends;
} serve_reload;

/* Blocks SIGHUP, so that it does not end the program; it stays pending until the reload thread takes it. */
void serve_reload_block(void);
/* Borrows models and schemas until serve_reload_stop. Returns an exit status. */
int serve_reload_start(serve_reload *r, serve_models *models, const cli_list *schemas);
/* Also valid on one that was not started. */
void serve_reload_stop(serve_reload *r);

#endif
