/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h: work for the engine's thread from other threads: done between two steps, first in, first out.
 */
#ifndef ENGINE_COMMANDS_H
#define ENGINE_COMMANDS_H

#include <stdbool.h>

#include "reprise.h"

/* Of threads that wait for them. */
typedef struct engine_commands {
    struct engine_command *queued; /* guarded by the engine's lock */
    struct engine_command *open;   /* begun and not completed; the engine's thread */
} engine_commands;

/* Runs fn(e, arg) on the engine's thread and waits for it. Any other thread. RP_ERR_MEMORY, RP_ERR_UNSUPPORTED
   (plans_only). */
typedef void (*engine_command_fn)(rp_engine *e, void *arg);
int engine_do(rp_engine *e, engine_command_fn fn, void *arg, rp_error *err);
/* The same for a command that completes after fn: waits until is_over returns true; it is called after fn and after
   each event of the disk. */
typedef bool (*engine_command_is_over)(rp_engine *e, void *arg);
int engine_do_until(rp_engine *e, engine_command_fn fn, engine_command_is_over is_over, void *arg, rp_error *err);
/* Engine's thread: runs the commands that are queued. */
void engine_run_commands(rp_engine *e);
void engine_end_commands(rp_engine *e); /* Engine's thread: completes those that are over. */

#endif
