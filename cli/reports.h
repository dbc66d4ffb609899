/* SPDX-License-Identifier: Apache-2.0 */
/* reports.h: reports of a server's last answers, for `reprise explain` and `reprise diff`. */
#ifndef CLI_REPORTS_H
#define CLI_REPORTS_H

#include <jansson.h>
#include <stdbool.h>

#include "common/http_client.h"
#include "common/options.h"

typedef struct reports_args {
    const char *url, *unix_path, *ca_file, *key_file;
    bool json;
} reports_args;

/* Rows of a command's table; `field` is the reports_args in its struct. */
#define REPORTS_ROWS(type, field) \
    {.name = "url", \
     .kind = CLI_TEXT, \
     .value = "URL", \
     .offset = offsetof(type, field.url), \
     .help = "URL of the server (" HTTP_DEFAULT_URL ")"}, \
        {.name = "unix", \
         .kind = CLI_TEXT, \
         .value = "PATH", \
         .offset = offsetof(type, field.unix_path), \
         .help = "Unix socket of the server, instead of a URL"}, \
        {.name = "ca-file", \
         .kind = CLI_TEXT, \
         .value = "FILE", \
         .offset = offsetof(type, field.ca_file), \
         .help = HTTP_CA_FILE_HELP}, \
        {.name = "key-file", \
         .kind = CLI_TEXT, \
         .value = "FILE", \
         .offset = offsetof(type, field.key_file), \
         .help = "file with the API key, if the server requires one; '-': standard input"}, \
    { \
        .name = "json", .kind = CLI_FLAG, .offset = offsetof(type, field.json), .help = "print the server's JSON" \
    }

/* GET of a path: an object, owned by the caller (json_decref). Returns an exit status; an error reply of the server is
 * printed as one line. */
int reports_get(const reports_args *args, const char *path, json_t **out);
/* The report of a request by its id. */
int reports_get_one(const reports_args *args, const char *id, json_t **out);

/* Fields of reports; a missing one is "", 0 or false. */
const char *report_text(const json_t *object, const char *field);
double report_number(const json_t *object, const char *field);
bool report_flag(const json_t *object, const char *field);

/* ---- as text (report_print.c) ---- */

void report_print(const json_t *report);
void report_print_list(const json_t *list);
/* The tokens that B could have reused from A, and the first difference. */
void report_print_diff(const json_t *a, const json_t *b);

#endif
