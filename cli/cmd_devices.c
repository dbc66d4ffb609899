/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_devices.c: `reprise devices`: what an engine can compute on (reprise_device.h), as a table or as JSON; after the
 * table, the GPUs of Linux that this user has no access to, which no driver lists. Owns the command's options. One
 * thread. */
#define _POSIX_C_SOURCE 200809L /* access */

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/text.h"
#include "reprise_device.h"

typedef struct devices_options {
    bool json;
} devices_options;

static const cli_option options[] = {
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = offsetof(devices_options, json),
     .help = "print one line of JSON per device"},
    {.name = NULL},
};

static int devices_main(int argc, char **argv);

const cli_command cli_command_devices = {
    .name = "devices",
    .summary = "list the devices that models can be computed on",
    .synopsis = "[--json]",
    .notes = "--device NAME of run, chat, serve and bench chooses one. 'auto' takes the processor: GPUs are used by\n"
             "name until they have been measured.\n",
    .options = options,
    .main = devices_main,
};

#define MAX_DEVICES 32

static void print_safe(const char *text) { cli_print_safe(stdout, text, strlen(text)); }

static void print_device(const rp_device *d) {
    char size[CACHE_TEXT_BYTES];
    printf("%-10s ", d->name);
    print_safe(d->description[0] ? d->description : "-");
    printf("\n    kind     %s\n", d->kind);
    if (d->memory_bytes) printf("    memory   %s\n", cache_bytes_text(d->memory_bytes, size));
    if (d->driver[0]) {
        printf("    driver   ");
        print_safe(d->driver);
        putchar('\n');
    }
    printf("    used     %s", d->is_automatic ? "by auto" : d->is_usable ? "by name alone"
                                                                         : "no");
    if (d->reason[0]) {
        fputs(": ", stdout);
        print_safe(d->reason);
    }
    putchar('\n');
}

static void print_inaccessible(void) {
    glob_t nodes;
    if (glob("/dev/dri/renderD*", 0, NULL, &nodes) != 0) return;
    for (size_t i = 0; i < nodes.gl_pathc; i++)
        if (access(nodes.gl_pathv[i], R_OK | W_OK) != 0)
            printf("This user cannot open %s: its GPU is not listed above. Add the user to the file's group "
                   "(usually render).\n",
                   nodes.gl_pathv[i]);
    globfree(&nodes);
}

static int print_json(const rp_device *d) {
    json_t *o = json_object();
    cli_json_set(o, "name", cli_json_text(d->name));
    cli_json_set(o, "description", cli_json_text(d->description));
    cli_json_set(o, "kind", cli_json_text(d->kind));
    cli_json_set(o, "driver", cli_json_text(d->driver));
    cli_json_set(o, "memory_bytes", json_integer((json_int_t)d->memory_bytes));
    cli_json_set(o, "usable", json_boolean(d->is_usable));
    cli_json_set(o, "automatic", json_boolean(d->is_automatic));
    cli_json_set(o, "reason", cli_json_text(d->reason));
    return cli_json_print(o);
}

static int devices_main(int argc, char **argv) {
    devices_options o = {0};
    rp_device all[MAX_DEVICES];
    rp_error err;
    size_t n;
    const cli_parsed parsed = cli_options_parse(&cli_command_devices, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (rp_devices(all, MAX_DEVICES, &n, &err) != RP_OK) return cli_fail(CLI_FAILED, "%s", err.message);
    int status = CLI_OK;
    for (size_t i = 0; i < n && i < MAX_DEVICES && status == CLI_OK; i++)
        if (o.json) status = print_json(&all[i]);
        else print_device(&all[i]);
    if (!o.json) print_inaccessible();
    return status == CLI_OK ? cli_finish_output() : status;
}
