/* SPDX-License-Identifier: Apache-2.0 */
/* serve_reload.h: SIGHUP: the files of --schema are read again while the server runs. Their modules keep the states that they had, as far as
 * they are what they were; a file that cannot be read leaves its schema as it is.
 *
 * serve_reload_block goes before any thread is made. The log gets a line "reloaded 2 of 3 schemas" each time.
 */
#ifndef CLI_SERVE_RELOAD_H
#define CLI_SERVE_RELOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/options.h"
#include "reprise.h"

typedef struct serve_reload {
    rp_engine *engine;
    const cli_list *schemas;
    pthread_t thread;
    bool started;
    atomic_bool ends;
} serve_reload;

/* Keeps SIGHUP from ending the program; it waits until somebody takes it. */
void serve_reload_block(void);
/* Borrows engine and schemas until serve_reload_stop. Returns an exit status. */
int serve_reload_start(serve_reload *r, rp_engine *engine, const cli_list *schemas);
/* Also of one that was not started. */
void serve_reload_stop(serve_reload *r);

#endif
