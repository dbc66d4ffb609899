/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_split.c: arbitrary bytes as prompts: they are refused with one line, or split, and then each prompt over the
 * proposed schema must equal the original text. The first byte is the minimum size of a module and whether there are
 * roles; byte 1 ends a prompt, byte 2 a message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pml/document.h"
#include "support/flat_pml.h"
#include "reprise_tools.h"

#define MAX_PROMPTS 64
#define MAX_MESSAGES 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct input {
    rp_split_prompt prompts[MAX_PROMPTS];
    rp_message messages[MAX_PROMPTS][MAX_MESSAGES];
    size_t n;
} input;

static void cut(input *in, const char *text, size_t n, bool plain) {
    size_t from = 0;
    for (size_t i = 0; i <= n && in->n < MAX_PROMPTS; i++) {
        rp_split_prompt *p = &in->prompts[in->n];
        bool ends_prompt = i == n || text[i] == 1;
        if (!ends_prompt && (plain || text[i] != 2 || p->n_messages + 1 == MAX_MESSAGES)) continue;
        *p = (rp_split_prompt){"prompt", in->messages[in->n], p->n_messages + 1, plain};
        in->messages[in->n][p->n_messages - 1] =
            (rp_message){(rp_role)(p->n_messages % RP_N_ROLES), text + from, i - from};
        from = i + 1;
        if (ends_prompt) in->n++;
    }
}

static void check(const input *in, const rp_split_result *r) {
    pml_document *schema, *prompt;
    if (pml_schema_parse(&schema, r->schema, r->n_schema, "schema", NULL, NULL, NULL)) abort();
    for (size_t i = 0; i < in->n; i++) {
        flat_pml flat;
        if (pml_prompt_parse(&prompt, r->prompts[i].pml, r->prompts[i].n_pml, "prompt", NULL)) abort();
        flat_pml_make(&flat, schema, prompt);
        if (!flat_pml_equals(&flat, &in->prompts[i]) || r->prompts[i].cached > r->prompts[i].total) abort();
        flat_pml_free(&flat);
        pml_document_free(prompt);
    }
    pml_document_free(schema);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    input *in = calloc(1, sizeof(*in));
    rp_split_options o = rp_split_options_defaults();
    rp_split_result *r;
    rp_error err = {0};
    if (!in) abort();
    o.min_bytes = 1 + data[0] / 2;
    cut(in, (const char *)data + 1, n - 1, data[0] % 2);
    int rc = rp_split(in->prompts, in->n, &o, &r, &err);
    if (rc == RP_OK) check(in, r);
    else if (rc != (int)err.code || !err.message[0] || strchr(err.message, '\n')) abort();
    rp_split_free(rc == RP_OK ? r : NULL);
    free(in);
    return 0;
}
