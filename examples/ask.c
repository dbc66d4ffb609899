/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c: loads a model and a schema, asks a question about a module twice, and shows what was reused. Whatever the
 * question holds is text.
 *
 *   cc ask.c $(pkg-config --cflags --libs reprise) -o ask
 *   ./ask model.gguf cities.xml plan/miami "Is it < 30 degrees?"
 */
#include <reprise.h>
#include <stdio.h>
#include <string.h>
#include "reprise_pml.h"

static bool print_text(void *user, const char *text, size_t n) {
    (void)user;
    fwrite(text, 1, n, stdout);
    return true; /* continue */
}

/* rp_engine_run reports errors of the three functions that add to it. */
static int make_prompt(rp_builder **prompt, const rp_schema *schema, const char *module, const char *question,
                       rp_error *err) {
    int rc = rp_builder_new(prompt, rp_schema_name(schema), err);
    if (rc) return rc;
    rp_builder_import(*prompt, module);
    rp_builder_append_text(*prompt, "\n", 1);
    rp_builder_append_text(*prompt, question, strlen(question));
    return RP_OK;
}

static int ask(rp_engine *engine, const rp_builder *prompt, rp_error *err) {
    rp_request request = rp_request_defaults();
    request.prompt = rp_prompt_built(prompt);
    request.on_text = print_text;
    rp_result *result = NULL;
    int rc = rp_engine_run(engine, &request, &result, err);
    if (rc == RP_OK)
        printf("\n[%d of %d prompt tokens reused, first token after %.1f ms, %.1f of them for modules that were "
               "missing]\n",
               result->cached_tokens, result->prompt_tokens, result->timings.ttft_ms,
               result->timings.module_prefill_ms);
    rp_result_free(result);
    return rc;
}

int main(int argc, char **argv) {
    rp_error err;
    rp_model *model = NULL;
    rp_engine *engine = NULL;
    rp_schema *schema = NULL;
    rp_builder *prompt = NULL;
    if (argc != 5) return fprintf(stderr, "usage: ask MODEL SCHEMA MODULE QUESTION\n"), 2;
    int rc = rp_model_open(&model, argv[1], NULL, &err);
    if (!rc) rc = rp_engine_new(&engine, model, NULL, &err);
    if (!rc) rc = rp_schema_load(engine, argv[2], NULL, &schema, &err);
    if (!rc) rc = make_prompt(&prompt, schema, argv[3], argv[4], &err);
    for (int i = 0; i < 2 && !rc; i++) rc = ask(engine, prompt, &err);
    if (rc) fprintf(stderr, "ask: %s\n", err.message);
    rp_builder_free(prompt);
    rp_engine_free(engine);
    rp_model_close(model);
    return rc ? 1 : 0;
}
