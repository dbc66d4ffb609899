/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pml.c: arbitrary bytes as a schema and a prompt for it: they are refused with one line; or laid out, linted and
 * planned, and then the plan's invariants must hold. The first NUL byte splits the input: schema, prompt. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/lint/lint.h"
#include "pml/parts.h"
#include "pml/plan.h"
#include "support/tiny_model.h"
#include "reprise_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static rp_model *model(void) {
    static rp_model *m;
    if (m) return m;
    char path[] = "/tmp/reprise-fuzz-XXXXXX";
    tiny_model_shape shape = tiny_model_defaults();
    rp_model_options options = {.struct_size = sizeof(options), .chat_format = "llama-2"};
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) || tiny_model_write(path, &shape, NULL) || rp_model_open(&m, path, &options, NULL)) abort();
    unlink(path);
    return m;
}

static void check_error(int rc, const rp_error *err) {
    if (rc != (int)err->code || !err->message[0] || strchr(err->message, '\n')) abort();
}

static void check_plan(const pml_plan *p) {
    size_t n = (size_t)p->n_cached + (size_t)p->n_fresh;
    int32_t *flat = malloc(2 * n * sizeof(*flat));
    if (pml_plan_flatten(p, flat, flat + n, NULL)) abort();
    for (size_t i = 1; i < n; i++)
        if (flat[n + i] <= flat[n + i - 1]) abort(); /* two tokens at one position */
    if (flat[2 * n - 1] + 1 != p->end || p->items[p->n_items - 1].is_view) abort();
    free(flat);
    int64_t counted = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (i > 0 && p->items[i].pos < p->items[i - 1].pos) abort();
        counted += p->items[i].n_counted;
    }
    if (counted != (int64_t)n) abort();
}

static void look_over(const pml_layout *layout, const char *prompt, size_t n) {
    rp_lint_prompt use = {prompt, n, "prompt"};
    rp_lint *lint;
    rp_error err = {0};
    if (lint_layout(layout, &use, 1, 512, &lint, &err)) abort();
    for (size_t i = 0; i < lint->n_findings; i++)
        if (!lint->findings[i].message[0] || lint->findings[i].line < 1) abort();
    rp_lint_free(lint);
}

static void plan_any(const pml_layout *layout, const pml_document *prompt) {
    pml_plan *p;
    rp_error err = {0};
    int rc = pml_plan_new(&p, layout, prompt, false, (rp_quality){0}, (rp_quality){0}, &err);
    if (rc) check_error(rc, &err);
    else check_plan(p);
    pml_plan_free(p);
}

/* Any text as a part becomes the prompt's only text, unchanged, or is refused as invalid UTF-8. Text never becomes an
 * import. */
static void build(const pml_document *schema, const pml_layout *layout, const uint8_t *bytes, size_t n) {
    pml_part part = {.kind = PML_PART_TEXT, .text = (char *)bytes, .n = n};
    pml_document *prompt;
    rp_error err = {0};
    if (pml_text_check((const char *)bytes, n) < n) return;
    if (pml_parts_build(&prompt, schema, &part, 1, "prompt", &err)) abort();
    if (prompt->n_nodes != (n > 0 ? 2 : 1)) abort();
    if (n > 0 && (prompt->nodes[1].kind != PML_TEXT || prompt->nodes[1].n_text != n ||
                  memcmp(prompt->nodes[1].text, bytes, n) != 0))
        abort();
    plan_any(layout, prompt);
    pml_document_free(prompt);
}

/* A prompt as the only part of another gives the same tree. In a message between texts it gives a tree, or is
   refused. */
static void graft(const pml_document *schema, const pml_layout *layout, pml_document *content, const uint8_t *bytes,
                  size_t n) {
    pml_part parts[] = {
        {.kind = PML_PART_MESSAGE, .role = 1},
        {.kind = PML_PART_TEXT, .text = (char *)"a ", .n = 2},
        {.kind = PML_PART_PML, .text = (char *)bytes, .n = n, .content = content},
        {.kind = PML_PART_TEXT, .text = (char *)"b", .n = 1},
        {.kind = PML_PART_END},
    };
    pml_document *prompt;
    rp_error err = {0};
    if (pml_parts_build(&prompt, schema, &parts[2], 1, "prompt", &err)) abort();
    if (prompt->n_nodes != content->n_nodes) abort();
    for (int32_t i = 1; i < prompt->n_nodes; i++) {
        const pml_node *a = &prompt->nodes[i], *b = &content->nodes[i];
        if (a->kind != b->kind || a->parent != b->parent || a->n_text != b->n_text || strcmp(a->name, b->name) != 0)
            abort();
        if (a->n_text > 0 && memcmp(a->text, b->text, a->n_text) != 0) abort();
        if (a->border_space != b->border_space || a->n_arguments != b->n_arguments || a->role != b->role) abort();
    }
    pml_document_free(prompt);
    int rc = pml_parts_build(&prompt, schema, parts, sizeof(parts) / sizeof(parts[0]), "prompt", &err);
    if (rc) check_error(rc, &err);
    else plan_any(layout, prompt);
    pml_document_free(prompt);
}

static void plan(const pml_document *schema, const uint8_t *bytes, size_t n) {
    static const rp_quality qualities[] = {{0}, {RP_QUALITY_LINK, 3}, {RP_QUALITY_EXACT, 0}, {0}};
    static const base_key salt = {{7}};
    pml_layout *layout;
    pml_document *prompt;
    pml_plan *p;
    rp_error err = {0};
    int rc = pml_layout_new(&layout, schema, model(), NULL, &salt, &err);
    if (rc) {
        check_error(rc, &err);
        return;
    }
    look_over(layout, (const char *)bytes, n);
    build(schema, layout, bytes, n);
    rc = pml_prompt_parse(&prompt, (const char *)bytes, n, "prompt", &err);
    if (rc) check_error(rc, &err);
    else {
        rc = pml_plan_new(&p, layout, prompt, n % 2 == 1, qualities[n / 2 % 4], qualities[n / 8 % 4], &err);
        if (rc) check_error(rc, &err);
        else check_plan(p);
        pml_plan_free(p);
        graft(schema, layout, prompt, bytes, n);
    }
    pml_document_free(prompt);
    pml_layout_free(layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t first = zero ? (size_t)(zero - data) : n;
    pml_document *schema;
    rp_error err = {0};
    int rc = pml_schema_parse(&schema, n ? (const char *)data : "", first, "schema", NULL, NULL, &err);
    if (rc) check_error(rc, &err);
    else plan(schema, zero ? zero + 1 : data, zero ? n - first - 1 : 0);
    pml_document_free(schema);
    return 0;
}
