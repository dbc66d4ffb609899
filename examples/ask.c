/* ask.c: loads a model and a schema, asks the same prompt twice, and shows what was reused.
 *
 *   cc ask.c $(pkg-config --cflags --libs reprise) -o ask
 *   ./ask model.gguf cities.xml "<prompt schema='cities'><plan duration='3 days'><miami/></plan></prompt>"
 */
#include <reprise.h>
#include <stdio.h>

static bool print_text(void *user, const char *text, size_t n) {
    (void)user;
    fwrite(text, 1, n, stdout);
    return true; /* go on */
}

static int ask(rp_engine *engine, const char *prompt, rp_error *err) {
    rp_request request = rp_request_defaults();
    request.prompt = prompt;
    request.on_text = print_text;
    rp_result *result = NULL;
    int rc = rp_engine_run(engine, &request, &result, err);
    if (rc == RP_OK)
        printf("\n[%d of %d prompt tokens reused, first token after %.1f ms, %.1f of them for modules that were missing]\n", result->cached_tokens,
               result->prompt_tokens, result->timings.ttft_ms, result->timings.encode_ms);
    rp_result_free(result);
    return rc;
}

int main(int argc, char **argv) {
    rp_error err;
    rp_model *model = NULL;
    rp_engine *engine = NULL;
    if (argc != 4) return fprintf(stderr, "usage: ask MODEL SCHEMA PROMPT\n"), 2;
    int rc = rp_model_open(&model, argv[1], NULL, &err);
    if (!rc) rc = rp_engine_new(&engine, model, NULL, &err);
    if (!rc) rc = rp_schema_load(engine, argv[2], NULL, NULL, &err);
    for (int i = 0; i < 2 && !rc; i++) rc = ask(engine, argv[3], &err);
    if (rc) fprintf(stderr, "ask: %s\n", err.message);
    rp_engine_free(engine);
    rp_model_close(model);
    return rc ? 1 : 0;
}
