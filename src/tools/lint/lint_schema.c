/* SPDX-License-Identifier: Apache-2.0 */
/* lint_schema.c: rp_schema_lint: lays a schema out for a model, without an engine, and checks it (lint.h). Any thread;
   no state. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/core/schemas.h"
#include "tools/lint/lint.h"

int rp_schema_lint(const rp_model *model, const char *pml, size_t n, const char *name, const char *dir,
                   const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err) {
    pml_document *schema = NULL;
    pml_layout *layout = NULL;
    base_key salt = {{0}}; /* keys are not looked at */
    if (!model || !pml || !out || n_ctx < 0 || (n_prompts > 0 && !prompts))
        return base_fail(
            err, RP_ERR_INVALID,
            "rp_schema_lint: a model, a schema and a place for the findings are needed, and n_ctx is 0 or more");
    *out = NULL;
    int rc = model_check_whole(model, err);
    if (!rc) rc = pml_schema_parse(&schema, pml, n, name ? name : "schema", dir, NULL, err);
    if (!rc) rc = pml_layout_new(&layout, schema, model, NULL, &salt, err);
    if (!rc) rc = lint_layout(layout, prompts, n_prompts, n_ctx > 0 ? n_ctx : model->net.hp.n_ctx_train, out, err);
    pml_layout_free(layout);
    pml_document_free(schema);
    return rc;
}

int rp_schema_lint_file(const rp_model *model, const char *path, const rp_lint_prompt *prompts, size_t n_prompts,
                        int32_t n_ctx, rp_lint **out, rp_error *err) {
    base_buffer bytes = {0};
    char *dir = NULL;
    if (out) *out = NULL;
    if (!path) return base_fail(err, RP_ERR_INVALID, "rp_schema_lint_file: path is needed");
    int rc = engine_read_schema(path, &bytes, &dir, err);
    if (!rc)
        rc = rp_schema_lint(model, bytes.data ? bytes.data : "", bytes.len, path, dir, prompts, n_prompts, n_ctx, out,
                            err);
    base_free(dir);
    base_buffer_free(&bytes);
    return rc;
}
