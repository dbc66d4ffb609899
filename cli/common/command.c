/* command.c: see command.h. */
#include "common/command.h"

const cli_command *const *cli_commands;
