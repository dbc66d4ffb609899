/* SPDX-License-Identifier: Apache-2.0 */
/* serve_models.h: the models of `reprise serve`: opens one with its engine when the server asks for it, within --ram.
 *
 * With several models, each has a KV cache of its own (--kv-ram), the store's folder has a folder for each (DIR/NAME)
 * with an equal share of --disk, and a model is loaded only if --ram holds it beside the loaded ones: else the server
 * unloads another one first. The folder of repacked weights is shared.
 */
#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H

#include "common/loader.h"
#include "reprise_server.h"
#include "reprise_test.h"

typedef struct serve_models serve_models;

typedef struct serve_models_options {
    const cli_list *models;      /* [NAME=]FILE */
    const char *name;            /* of a single model without NAME; NULL: from its file */
    const char *chat_format;     /* NULL: from the model's file */
    const cli_list *schemas;     /* files, for each model */
    const rp_mock_options *mock; /* all models are mocks (reprise_test.h); NULL: none is */
    rp_engine_options engine;    /* of each model; its ram_bytes and store_budget_bytes are for all together */
    const char *draft_model;     /* of a single model: a file or a name; NULL: none */
} serve_models_options;

/* Checks the names. With several models, also opens all files and closes them again, so that errors are found at the
 * start. Borrows what the options point to until serve_models_free. Returns an exit status. */
int serve_models_new(serve_models **out, const serve_models_options *options);
/* Loads the first model, with progress bars, and lets the server accept requests; the server unloads all models in
 * rp_server_free. Returns an exit status. */
int serve_models_ready(serve_models *s, rp_server *server);
/* Calls `visit` for each engine that is loaded; none is unloaded meanwhile. Any thread. */
void serve_models_visit(serve_models *s, void (*visit)(void *user, rp_engine *engine), void *user);
/* After rp_server_free. */
void serve_models_free(serve_models *s);

#endif
