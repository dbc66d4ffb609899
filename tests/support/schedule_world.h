/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_world.h: a model, a schema and random requests over it, with the result of each request alone: the expected
 * results of schedule tests.
 *
 * Requests share text: plain texts that are equal, have a common prefix, or continue an earlier prompt and its answer
 * (exact to the token: the answer is forced); prompts of modules, also with other turns after them. They cover every
 * reuse mode, sampling, stops and lengths.
 *
 * For tests: a failing setup ends the program. Not thread-safe while it is made; immutable afterwards.
 */
#ifndef SUPPORT_SCHEDULE_WORLD_H
#define SUPPORT_SCHEDULE_WORLD_H

#include "golden.h"
#include "oracle_run.h"
#include "random_pml.h"
#include "reprise_test.h"

#define SCHEDULE_CALLS 12 /* of a world, at most */
#define SCHEDULE_CTX 2048 /* positions, where the model has as many */

/* The models under test: one of each kind with failure modes of its own. */
typedef struct schedule_model {
    const char *name;
    rp_model *model;
    gguf_file *file; /* borrowed by `tokenizer` */
    tokenizer *tokenizer;
    int32_t n_ctx, n_vocab;
    int32_t shorter; /* divisor for the number of words in texts */
    bool is_movable, has_windows;
    bool is_recurrent, composes; /* some of its layers have states, which may be composed */
    bool is_latent;              /* its KV is of floats */
    rp_model *draft;             /* what may draft for it: itself, or another model of its vocabulary */
} schedule_model;

#define SCHEDULE_MODELS 19
void schedule_models_open(schedule_model models[SCHEDULE_MODELS]);
void schedule_models_close(schedule_model models[SCHEDULE_MODELS]);

/* A request and its result in an engine of its own: one thread, no cache hit, no drafts. */
typedef struct schedule_call {
    rp_request request;               /* borrows from here */
    char *text, *prompt;              /* one of them */
    rp_request_experiment experiment; /* with forced */
    int32_t *forced;
    char stop[4];
    const char *stops[1];
    oracle_run alone;
    oracle_run reduced; /* the same after all modules of its prompt were reduced; empty in worlds that keep all */
} schedule_call;

typedef struct schedule_world {
    uint64_t seed; /* makes it again */
    const schedule_model *model;
    tiny_random r;
    random_pml pml;
    schedule_call calls[SCHEDULE_CALLS];
    int32_t n_calls;
    int prefill_rc;                 /* expected of rp_schema_prefill: a module may be longer than the context */
    uint64_t small_budget;          /* each job alone fits in it, with little to spare, in chunks of up to */
    rp_kv_format format;            /* of all engines */
    char f16_layers[16];            /* likewise: rp_engine_options.kv_f16_layers; empty: none */
    const char *keep, *keep_method; /* likewise: rp_engine_options.keep_share; NULL: all */
    rp_module_states module_states; /* likewise */
    int32_t most_chunk;
    int32_t n_ctx; /* the model's, or small */
} schedule_world;

void schedule_world_make(schedule_world *w, const schedule_model *models, uint64_t seed);
void schedule_world_free(schedule_world *w);

/* Options that every engine of a world has. */
rp_engine_options schedule_world_options(const schedule_world *w);
/* With the world's schema. */
rp_engine *schedule_world_engine(const schedule_world *w, const rp_engine_options *options);
/* Loads the schema for a tenant; NULL: for all. */
void schedule_world_load(const schedule_world *w, rp_engine *engine, const char *tenant);

#endif
