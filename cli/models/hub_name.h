/* SPDX-License-Identifier: Apache-2.0 */
/* hub_name.h: names of a hub's models, "hf:OWNER/REPO[:QUANT]", and the choice of a file among those of a repository.
 * Whatever comes from a hub or a cache is checked here before it becomes part of a path or a URL. No state. One
 * thread. */
#ifndef CLI_HUB_NAME_H
#define CLI_HUB_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUB_PREFIX "hf:"
#define HUB_QUANT_BYTES 256

typedef struct hub_name {
    char owner[97], repo[97];
    char quant[HUB_QUANT_BYTES]; /* a quantization, or a file's path; "": the default */
} hub_name;

/* Begins the text as such names do? */
bool hub_is_name(const char *text);
/* Returns an exit status: CLI_WRONG_USE if the text is no such name. */
int hub_name_read(hub_name *out, const char *text);
/* Letters, digits, '.', '_' and '-', not at its start and no "..": an owner or a repository. */
bool hub_is_word(const char *text, size_t n);

/* A path below a repository's folder that leads nowhere else, for the file system and for a URL: at most 8 segments of
 * at most 255 bytes, none of them "." or "..", no control characters and no backslashes. */
bool hub_is_path(const char *path);
/* Is it a GGUF file that a model is opened by: no projector, no importance matrix, of a split model the first file? */
bool hub_is_model(const char *path);
/* Does the quantization occur in the path between two separators, in any case of letters? */
bool hub_has_quant(const char *path, const char *quant);
/* The last quantization in a file's name, such as Q4_K_M; false: there is none. */
bool hub_quant_of(const char *path, char out[HUB_QUANT_BYTES]);

/* The index of the model that is meant: the path `quant`, or the first one with this quantization; without one ("")
 * Q4_K_M, then Q8_0, then the first. -1: there is none. is_preferred, which may be NULL: it is what quant asks for, or
 * the first of the defaults. */
int32_t hub_choose(const char *const *paths, size_t n, const char *quant, bool *is_preferred);

#endif
