/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c: the program's commands, in the order of its help. Constants. */
#include "common/command.h"

const cli_command *const cli_all_commands[] = {&cli_command_run, &cli_command_chat, &cli_command_serve,
                                               &cli_command_route, &cli_command_inspect, &cli_command_lint,
                                               &cli_command_eval, &cli_command_bench, &cli_command_cache,
                                               &cli_command_cluster, &cli_command_explain, &cli_command_diff,
                                               &cli_command_split, &cli_command_tokenize, &cli_command_template,
                                               &cli_command_embed, &cli_command_quantize, &cli_command_pull,
                                               &cli_command_models, &cli_command_devices, &cli_command_completion,
                                               NULL};
