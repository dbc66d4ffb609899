/* SPDX-License-Identifier: Apache-2.0 */
/* command.c: see command.h. */
#include "common/command.h"

const cli_command *const *cli_commands;
