/* SPDX-License-Identifier: Apache-2.0 */
/* model_path.h: from the value of -m to the path of a file. One thread. */
#ifndef CLI_MODEL_PATH_H
#define CLI_MODEL_PATH_H

/* given: a path of a file; "hf:OWNER/REPO[:QUANT]" (hub.h), which may be downloaded; or a name that `reprise models`
 * lists (model_list.h). What is none of these is taken as a path, for the error of opening it. *path: freed by the
 * caller. Returns an exit status. */
int model_path_find(const char *given, char **path);

#endif
