/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h: models of a hub by name, "hf:OWNER/REPO[:QUANT]", and its cache, which other programs share.
 *
 *   HF_ENDPOINT        URL of the hub: there is no other place that it could come from
 *   HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME  the cache (model_hub_folder)
 *   HF_TOKEN, or the file in HF_TOKEN_PATH, or HF_HOME/token   token, sent to the hub's own host alone
 *   HF_HUB_OFFLINE=1   nothing is asked
 *
 *   GET /api/models/OWNER/REPO?blobs=true -> commit, files with sizes and SHA-256 -> one file, of a split model all
 *   each: GET /OWNER/REPO/resolve/COMMIT/FILE -> blobs/SHA256.part -> blobs/SHA256
 *   all: readable GGUF? -> snapshots/COMMIT/FILE -> ../../blobs/SHA256, refs/main
 *
 * One thread.
 */
#ifndef CLI_HUB_H
#define CLI_HUB_H

#include "models/hub_name.h"
#include "pull/pull_file.h"

/* The path of a model in the cache; only what is not there is downloaded. With a quantization in the name, or where the
 * cache has the default one, the hub is not asked. *path: freed by the caller. Returns an exit status. */
int hub_path(const char *text, char **path);
/* The same, of the hub's current revision. max_size: of a file; 0: none. settings: without key. */
int hub_pull(const char *text, const pull_settings *settings, uint64_t max_size, char **path);

#endif
