/* test_requests.c: what is wrong with a request gets its code, its place and what to do; encoding ahead; small budgets; sampling. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "reprise.h"
#include "support/tiny_model.h"

static const char schema_text[] =
    "<schema name='s'>Once <module name='plan'>a trip of <param name='duration' len='4'/> to<union><module name='miami'>Miami</module>"
    "<module name='lisbon'>Lisbon</module></union></module><module name='diet' cache='false'>no meat</module></schema>";
static const char fixed_text[] = "<schema name='f' layout='fixed'><user>A<module name='m'>B</module>C</user></schema>";

static rp_model *model;

static int open_model(void **state) {
    (void)state;
    char path[] = "/tmp/reprise-requests-XXXXXX";
    tiny_model_shape shape = tiny_model_defaults();
    rp_model_options options = {.chat_format = "chatml"};
    int fd = mkstemp(path);
    int rc = fd < 0 || close(fd) || tiny_model_write(path, &shape, NULL) || rp_model_open(&model, path, &options, NULL);
    unlink(path);
    return rc;
}

static int close_model(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

static rp_engine *new_engine(uint64_t budget, int32_t n_ctx) {
    rp_engine *e;
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = n_ctx;
    o.state_budget_bytes = budget;
    assert_int_equal(rp_engine_new(&e, model, &o, NULL), RP_OK);
    assert_int_equal(rp_schema_parse(e, schema_text, strlen(schema_text), "s.xml", NULL, NULL, NULL, NULL), RP_OK);
    assert_int_equal(rp_schema_parse(e, fixed_text, strlen(fixed_text), "f.xml", NULL, NULL, NULL, NULL), RP_OK);
    return e;
}

static int run(rp_engine *e, const char *prompt, float temperature, uint64_t seed, rp_result **out, rp_error *err) {
    rp_request q = rp_request_defaults();
    q.prompt = prompt;
    q.prompt_name = "p.xml";
    q.max_tokens = 8;
    q.ignore_eos = true;
    q.temperature = temperature;
    q.seed = seed;
    return rp_engine_run(e, &q, out, err);
}

static void wrong_prompts_are_told_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *prompt, *where, *says;
        rp_code code;
    } cases[] = {
        {"<prompt schema='t'/>", "", "'s', 'f'", RP_ERR_NAME},
        {"<prompt schema='s'>\n <plam/></prompt>", "p.xml:2:2", "did you mean 'plan'", RP_ERR_NAME},
        {"<prompt schema='s'><miami/></prompt>", "p.xml:1:20", "'plan/miami'", RP_ERR_NAME},
        {"<prompt schema='s'><plan duratoin='x'/></prompt>", "p.xml:1:20", "did you mean 'duration'", RP_ERR_NAME},
        {"<prompt schema='s'><plan/><plan/></prompt>", "p.xml:1:27", "imported already in line 1", RP_ERR_CONFLICT},
        {"<prompt schema='s'><plan><miami/><lisbon/></plan></prompt>", "p.xml:1:34", "members of one union", RP_ERR_CONFLICT},
        {"<prompt schema='s'><plan duration='a very very long argument'/></prompt>", "p.xml:1:20", "its parameter holds 4", RP_ERR_LENGTH},
        {"<prompt schema='f'><m/>text</prompt>", "p.xml:1:24", "gap of 0 positions", RP_ERR_LENGTH},
        {"<prompt schema='s'><plan>", "p.xml:1:26", "", RP_ERR_SYNTAX},
    };
    rp_engine *e = new_engine(0, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_error err = {0};
        rp_result *r;
        assert_int_equal(run(e, cases[i].prompt, 0, 0, &r, &err), cases[i].code);
        assert_null(r);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s does not say %s", err.message, cases[i].says);
        assert_string_equal(err.where, cases[i].where);
    }
    rp_engine_free(e);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    rp_error err = {0};
    rp_result *r;
    rp_engine *e = new_engine(0, 12);
    assert_int_equal(run(e, "<prompt schema='s'><plan><miami/></plan> and much more text than fits</prompt>", 0, 0, &r, &err), RP_ERR_CONTEXT);
    assert_non_null(strstr(err.message, "the context holds 12"));
    rp_engine_free(e);
    e = new_engine(1, 0);
    assert_int_equal(run(e, "<prompt schema='s'><plan/></prompt>", 0, 0, &r, &err), RP_ERR_MEMORY);
    assert_non_null(strstr(err.message, "budget"));
    rp_engine_free(e);
}

static void modules_can_be_computed_ahead(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_store_stats stats;
    rp_result *r;
    assert_int_equal(rp_schema_encode(e, "nobody", NULL, NULL, NULL), RP_ERR_NAME);
    assert_int_equal(rp_schema_encode(e, "s", NULL, NULL, NULL), RP_OK);
    rp_engine_store_stats(e, &stats);
    assert_true(stats.spans >= 4 && stats.bytes > 0 && stats.bytes <= stats.budget_bytes);
    assert_int_equal(run(e, "<prompt schema='s'><plan duration='9'><miami/></plan> x</prompt>", 0, 0, &r, NULL), RP_OK);
    assert_true(r->cached_tokens > 0);
    for (int i = 0; i < r->n_plan; i++) assert_string_equal(r->plan[i].tier, r->plan[i].is_view ? "ram" : "");
    assert_int_equal(r->bytes_copied, 0);
    rp_result_free(r);
    rp_engine_free(e);
}

static void a_seed_repeats_an_answer(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_result *a, *b, *c;
    const char *prompt = "<prompt schema='s'><plan/> x</prompt>";
    assert_int_equal(run(e, prompt, 1.5f, 1, &a, NULL), RP_OK);
    assert_int_equal(run(e, prompt, 1.5f, 1, &b, NULL), RP_OK);
    assert_int_equal(run(e, prompt, 1.5f, 2, &c, NULL), RP_OK);
    assert_memory_equal(a->tokens, b->tokens, 8 * sizeof(int32_t));
    assert_memory_not_equal(a->tokens, c->tokens, 8 * sizeof(int32_t));
    rp_result_free(a);
    rp_result_free(b);
    rp_result_free(c);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_prompts_are_told_what_to_do),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(modules_can_be_computed_ahead),
        cmocka_unit_test(a_seed_repeats_an_answer),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
