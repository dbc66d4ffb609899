/* SPDX-License-Identifier: Apache-2.0 */
/* model_list.h: the models on this machine: those of `reprise pull`, of the hub's cache, of llama.cpp, Ollama and LM
 * Studio. Files are found where the other programs keep them, and read there; nothing is written or copied.
 *
 *   where       names                                   found in
 *   reprise     FILE.gguf                               $XDG_DATA_HOME/reprise/models
 *   hub         hf:OWNER/REPO:QUANT, or :FILE           $HF_HUB_CACHE, $HF_HOME/hub:
 *         models--OWNER--REPO/snapshots/COMMIT/FILE
 *   llama.cpp   llama.cpp:OWNER/REPO:TAG, or :FILE      $LLAMA_CACHE: FILE, and manifest=OWNER=REPO=TAG.json
 *   ollama      ollama:NAME:TAG                         $OLLAMA_MODELS: manifests/HOST/NAMESPACE/NAME/TAG ->
 *         blobs/sha256-DIGEST
 *   lmstudio    lmstudio:OWNER/REPO/FILE                ~/.lmstudio/models, ~/.cache/lm-studio/models
 *
 * Of a split model the first file is listed, if all are there. Folders are visited within limits of depth and of their
 * number of names. One thread.
 */
#ifndef CLI_MODEL_LIST_H
#define CLI_MODEL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_LIST_MAX 4096
#define MODEL_PATH_BYTES 4096

typedef struct model_entry {
    char *name, *path;
    const char *where;
    uint64_t bytes; /* of all files */
    int32_t n_files;
} model_entry;

typedef struct model_list {
    model_entry *items;
    size_t n, capacity;
    size_t n_left; /* names in folders that may still be looked at */
    char *places;  /* the folders that were looked at, for messages: "a, b"; NULL: none */
} model_list;

/* All of them, by name. */
model_list model_list_find(void);
/* Those of one repository in the hub's cache: entries' names are paths in the repository. The newest revision is
   first. */
model_list model_list_of_repo(const char *owner, const char *repo);
void model_list_free(model_list *l);

/* The model with this name, with or without what is before ':' or the last '/'; of Ollama's also without ":latest".
 * NULL: none;
 * *n: how many have it. */
const model_entry *model_list_choose(const model_list *l, const char *name, size_t *n);

/* The folder below a variable's, or the home folder; false: neither is an absolute path, or it is too long. variable:
   may be NULL. */
bool model_folder(char out[MODEL_PATH_BYTES], const char *variable, const char *below, const char *below_home);
/* The hub's cache, by HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME. */
bool model_hub_folder(char out[MODEL_PATH_BYTES]);
/* The folder where `reprise pull` puts models. */
bool model_own_folder(char out[MODEL_PATH_BYTES]);

#endif
