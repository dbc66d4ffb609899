/* SPDX-License-Identifier: Apache-2.0 */
/* model_pool.h: the models of a server, by name. A request that needs a model that is not loaded waits for it without a
 * thread; a model is unloaded when another one needs its memory.
 *
 *   UNLOADED --a request needs it--> LOADING --> LOADED --another one needs memory--> LEAVING --no users--> UNLOADED
 *
 * A request is a user of its model from before its handler until the request is freed, so that what a handler reads of
 * a model stays valid. The loader's thread loads and unloads one model at a time, in the order of the first requests
 * that wait. It unloads idle models first, and among those the least recently used one. While a model is LEAVING, new
 * requests for it wait: they are served after the model that takes its place.
 *
 * Each of several models has SERVER_MAX_TURNS workers at most at a time, and a single one not all: requests that take
 * long to read and to render (a chat template of a foreign file) leave workers to others. What waits for a turn needs
 * no thread.
 *
 * With one model nothing is ever unloaded, and no name is looked up before the handler.
 */
#ifndef SERVER_MODEL_POOL_H
#define SERVER_MODEL_POOL_H

#include "base/buffer.h"
#include "reprise_server.h"
#include "reprise_store.h"
#include "server/http/server_request.h"
#include "server/models/model_convention.h"
#include "server/models/schema_folder.h"
#include "server/models/schema_registry.h"

#define SERVER_MAX_ALIASES 64
#define SERVER_MAX_ADAPTERS 64

/* A LoRA adapter, under a name of its own. */
typedef struct server_adapter {
    char name[SERVER_MODEL_NAME_BYTES];
    const char *path;    /* of its file; the server's */
    int32_t model;       /* index of its model */
    rp_adapter *adapter; /* for users of the model; NULL: it is not loaded */
} server_adapter;

typedef enum model_state { MODEL_UNLOADED,
                           MODEL_LOADING,
                           MODEL_LOADED,
                           MODEL_LEAVING } model_state;

typedef struct server_model {
    char name[SERVER_MODEL_NAME_BYTES];
    schema_registry *registry;   /* uploaded schemas, also while the model is not loaded */
    schema_folder *folder;       /* NULL: uploaded schemas live as long as the process */
    pthread_mutex_t schema_lock; /* one PUT or DELETE at a time, so that engine, registry and folder agree; above the
                                    registry's lock */

    /* For users of the model, and in callbacks of the pool. */
    rp_model_info info; /* its texts are the pool's; as of the last load */
    rp_model *model;    /* NULL, like the following ones: not loaded */
    rp_engine *engine;
    rp_store *store; /* attached to the engine; for handlers of /v1/cache */
    model_convention convention;

    /* Under the pool's lock. */
    model_state state;
    int n_users;
    uint64_t used_us;             /* the last time that it got or lost a user */
    uint64_t wanted_us;           /* since when the first of these waits */
    server_request *first, *last; /* requests that wait for it, by server_request.next_waiting */
    int64_t n_waiting;
    int n_turns; /* workers that handle its requests */
    server_request *first_turn,
        *last_turn;                       /* requests, users of it, that wait for a turn, by
                                             server_request.next_waiting */
    uint64_t n_loads, n_unloads, load_us; /* load_us: of all loads */
} server_model;

typedef struct model_pool model_pool;

/* Copies names and infos. Loads the first model on the calling thread and starts the loader if there are several.
 * RP_ERR_INVALID (names), RP_ERR_MEMORY, RP_ERR_IO, or an error of models->load. */
int model_pool_new(model_pool **out, rp_server *server, const rp_server_models *models, rp_error *err);
/* A pool of one loaded model, which is borrowed. */
int model_pool_new_single(model_pool **out, rp_server *server, rp_model *model, rp_engine *engine, rp_error *err);
/* After all requests are freed. Unloads the models. */
void model_pool_free(model_pool *p);
/* Requests that wait are queued with a problem, and no model is loaded any more. */
void model_pool_stop(model_pool *p);

/* The model with that name or alias, or whose adapter has it; "default" for the first; Ollama's suffix ":latest" is no
 * part of a name. NULL: none. */
server_model *model_pool_find(model_pool *p, const char *name);
int32_t model_pool_count(const model_pool *p);
/* The adapter with that name; NULL: the name is a model's, or unknown. */
server_adapter *model_pool_adapter(model_pool *p, const char *name);
/* The i-th adapter of a model; NULL past the end. */
server_adapter *model_pool_adapter_of(model_pool *p, const server_model *m, int32_t i);
/* The i-th name in the order of lists, models before aliases before adapters, and its model; NULL past the end. */
const char *model_pool_name(model_pool *p, int32_t i, server_model **model);
/* Records that a name is unknown, with those that are known. */
int model_pool_fail(model_pool *p, server_problem *problem, const char *name);

/* Worker: makes the request a user of the model that its route needs, and takes a turn of it (x->turn). false: the
 * request waits for it, or was replied to. */
bool model_pool_enter(server_request *x);
/* The worker has handled a request of the model: the next one that waits for a turn is queued. */
void model_pool_end_turn(model_pool *p, server_model *m);
/* The request keeps the name of its model, and uses nothing else of it any more. Its owner. */
void model_pool_part(server_request *x);
/* Replaces the engine of the only model: waits for its users, unloads it and loads it again, with its schemas. Requests
 * that come meanwhile wait. On an error they fail, and later ones wait for the next call. One thread at a time. Errors
 * of load. */
int model_pool_reload(model_pool *p, rp_error *err);
/* The request no longer uses its model; any thread. */
void model_pool_leave(server_request *x);

/* The name that answers give as their model: the adapter's, else the model's. */
const char *server_request_model(const server_request *x);

/* Loads the uploaded schemas of a model that is being loaded: those of an earlier time in this process, else those of
 * the folder. A schema that cannot be loaded is logged, and kept (schemas_restore.c). */
int schemas_restore(rp_server *s, server_model *m, rp_error *err);

/* Calls `visit` for each loaded model, which stays loaded meanwhile, until it returns nonzero, which is returned. Any
   thread. */
int model_pool_visit(model_pool *p, int (*visit)(server_model *m, void *user), void *user);
/* Calls `look` under the pool's lock, so that info and counters of the model do not change meanwhile. */
void model_pool_look(model_pool *p, server_model *m, void (*look)(server_model *m, void *user), void *user);

#endif
