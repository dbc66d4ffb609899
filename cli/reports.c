/* SPDX-License-Identifier: Apache-2.0 */
/* reports.c: see reports.h. One thread. */
#include "reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"

#define MAX_ID_BYTES 40

/* Prints the server's own error message, if it sent one. */
static int reports_refused(const http_target *target, const http_reply *reply) {
    json_t *said = json_loadb(reply->body, reply->n_body, 0, NULL);
    const char *message = json_string_value(json_object_get(json_object_get(said, "error"), "message"));
    int status = cli_fail(CLI_FAILED, "%s: %s", target->name,
                          message != NULL ? message : "the server refused the request without a message");
    json_decref(said);
    return status;
}

int reports_get(const reports_args *args, const char *path, json_t **out) {
    http_target target;
    http_reply reply = {0};
    char *key = NULL;
    *out = NULL;
    int status = cli_read_key(args->key_file, &key);
    const char *url = args->url != NULL ? args->url : HTTP_DEFAULT_URL;
    if (status == CLI_OK) status = http_target_open(&target, url, args->unix_path, args->ca_file);
    http_request request = {.method = "GET", .path = path, .key = key};
    if (status == CLI_OK) status = http_ask(&target, &request, &reply);
    if (status == CLI_OK && reply.status != 200) status = reports_refused(&target, &reply);
    if (status == CLI_OK && (*out = json_loadb(reply.body, reply.n_body, 0, NULL)) == NULL)
        status = cli_fail(CLI_FAILED, "%s%s: the reply is not JSON: is it a Reprise server?", target.name, path);
    http_reply_free(&reply);
    free(key);
    return status;
}

int reports_get_one(const reports_args *args, const char *id, json_t **out) {
    char path[MAX_ID_BYTES + 64];
    size_t n = strlen(id);
    *out = NULL;
    if (n == 0 || n > MAX_ID_BYTES || strspn(id, "0123456789abcdef") != n)
        return cli_fail(
            CLI_WRONG_USE,
            "unknown request id '%s': replies carry it as x-request-id, and 'reprise explain' lists the last ones", id);
    snprintf(path, sizeof path, "/v1/requests/%s/explain", id);
    return reports_get(args, path, out);
}

const char *report_text(const json_t *object, const char *field) {
    const char *text = json_string_value(json_object_get(object, field));
    return text != NULL ? text : "";
}

double report_number(const json_t *object, const char *field) {
    return json_number_value(json_object_get(object, field));
}

bool report_flag(const json_t *object, const char *field) { return json_is_true(json_object_get(object, field)); }
