/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c: see calls.h. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "must.h"

rp_request calls_request(const char *text, int32_t max_tokens) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text(text);
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    return q;
}

char *calls_text(int number, int n) {
    char *text = malloc((size_t)n * 8 + 32), *end = text + sprintf(text, "%d:", number * 7919);
    for (int i = 0; i < n; i++) end += sprintf(end, " w%d", (i * 37 + number) % 1000);
    return text;
}

rp_job *calls_submit(rp_engine *engine, const rp_request *request) {
    rp_job *c = NULL;
    rp_error err = {0};
    must(rp_engine_submit(engine, request, &c, &err), &err);
    return c;
}

rp_result *calls_result(rp_job *call) {
    rp_result *r = NULL;
    rp_error err = {0};
    must(rp_job_result(call, &r, &err), &err);
    return r;
}

void calls_end(rp_job *call) {
    rp_result_free(calls_result(call));
    rp_job_free(call);
}

void calls_note_order(void *user) {
    calls_order *o = user;
    o->place = ++*o->next;
}
