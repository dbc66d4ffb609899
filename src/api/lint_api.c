/* SPDX-License-Identifier: Apache-2.0 */
/* lint_api.c: rp_schema_lint: a schema laid out for a model without an engine, and looked over (pml/lint/lint.h); rp_template_check. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/engine_internal.h"
#include "model/model_template.h"
#include "pml/lint/lint.h"
#include "template/template.h"

int rp_schema_lint(const rp_model *model, const char *pml, size_t n, const char *name, const char *dir, const rp_lint_prompt *prompts, size_t n_prompts,
                   int32_t n_ctx, rp_lint **out, rp_error *err) {
    pml_document *schema = NULL;
    pml_layout *layout = NULL;
    base_key salt = {{0}}; /* keys are not looked at */
    if (!model || !pml || !out || n_ctx < 0 || (n_prompts > 0 && !prompts))
        return base_fail(err, RP_ERR_INVALID, "rp_schema_lint: a model, a schema and a place for the findings are needed, and n_ctx is 0 or more");
    *out = NULL;
    int rc = model_check_whole(model, err);
    if (!rc) rc = pml_schema_parse(&schema, pml, n, name ? name : "schema", dir, NULL, err);
    if (!rc) rc = pml_layout_new(&layout, schema, model, NULL, &salt, err);
    if (!rc) rc = pml_lint(layout, prompts, n_prompts, n_ctx > 0 ? n_ctx : model->hp.n_ctx_train, out, err);
    pml_layout_free(layout);
    pml_document_free(schema);
    return rc;
}

int rp_schema_lint_file(const rp_model *model, const char *path, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out,
                        rp_error *err) {
    base_buffer bytes = {0};
    char *dir = NULL;
    if (out) *out = NULL;
    if (!path) return base_fail(err, RP_ERR_INVALID, "rp_schema_lint_file: path is needed");
    int rc = engine_read_schema(path, &bytes, &dir, err);
    if (!rc) rc = rp_schema_lint(model, bytes.data ? bytes.data : "", bytes.len, path, dir, prompts, n_prompts, n_ctx, out, err);
    base_free(dir);
    base_buffer_free(&bytes);
    return rc;
}

int rp_model_lint(const rp_model *model, rp_lint **out, rp_error *err) {
    if (!model || !out) return base_fail(err, RP_ERR_INVALID, "rp_model_lint: a model and a place for the findings are needed");
    return pml_lint_model(model, out, err);
}

int rp_template_check(const rp_template *t, const rp_model *model, const char *json, size_t n, const rp_template_check_options *options,
                      rp_template_report **out, rp_error *err) {
    const char *items[8];
    template_tokens tokens = {.items = items};
    if (model) model_template_tokens(model, items, &tokens.n);
    return template_check(t, json, n, &tokens, options, out, err);
}

void rp_lint_free(rp_lint *lint) { pml_lint_free(lint); }
