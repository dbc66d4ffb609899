/* SPDX-License-Identifier: Apache-2.0 */
/* test_requests.c: errors in a request have a code, a place and advice; prefill in advance; small budgets; sampling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reprise_tools.h"
#include "support/shared_model.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/experiments.h"
#include "support/test_device.h"
#include "reprise_test.h"

static const char schema_text[] =
    "<schema name='s'>Once <module name='plan'>a trip of <param name='duration' len='4'/> to<union><module "
    "name='miami'>Miami</module>"
    "<module name='lisbon'>Lisbon</module></union></module><module name='diet' cache='false'>no meat</module></schema>";
static const char fixed_text[] =
    "<schema name='f' layout='fixed'><user>A<module name='m'>B</module><module name='n'>x</module>C</user></schema>";

static rp_engine *new_engine(uint64_t budget, int32_t n_ctx) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.n_ctx = n_ctx;
    o.kv_budget_bytes = budget;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema_text, "s.xml");
    load_schema(e, fixed_text, "f.xml");
    return e;
}

static int run(rp_engine *e, const char *prompt, float temperature, uint64_t seed, rp_result **out, rp_error *err) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.prompt.name = "p.xml";
    q.max_tokens = 8;
    q.experiment = &experiment_no_prefix; /* these tests are about modules */
    q.ignore_eos = true;
    q.sampling.temperature = temperature;
    q.sampling.seed = seed;
    return rp_engine_run(e, &q, out, err);
}

/* ---- preparing, memory ---- */

static void count_progress(void *user, uint64_t done, uint64_t total) {
    uint64_t *last = user;
    assert_true(done > *last && done <= total);
    *last = done;
}

static void weights_are_prepared_once_and_said_to_be(void **state) {
    (void)state;
    uint64_t done = 0, again = 0;
    rp_memory m = {.struct_size = sizeof(m)};
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_result *r;
    rp_engine *e = new_engine(0, 0);
    rp_model_describe(model, &info);
    assert_int_equal(rp_engine_prepare(e, count_progress, &done, NULL), RP_OK);
    assert_int_equal(rp_engine_prepare(e, count_progress, &again, NULL), RP_OK);
    rp_engine_memory(e, &m);
    assert_int_equal(again, 0);
    if (test_device_is_cpu()) assert_int_equal(done, m.weights);      /* both 0 if kernels use the file's weights */
    else if (!test_device_is_apart()) assert_true(done <= m.weights); /* in whole buffers */
    assert_true(m.weights + m.file >= info.weight_bytes && m.file <= info.weight_bytes && m.activations > 0 &&
                m.kv == 0);
    assert_int_equal(run(e, "<prompt schema='s'/>", 0.0f, 0, &r, NULL), RP_OK);
    rp_engine_memory(e, &m);
    assert_true(m.kv > 0 && m.kv <= m.kv_limit);
    rp_result_free(r);
    rp_engine_free(e);
}

static void wrong_prompts_are_told_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *prompt, *where, *says;
        rp_code code;
    } cases[] = {
        {"<prompt schema='t'/>", "p.xml:1:1", "'f', 's'", RP_ERR_NAME},
        {"<prompt schema='s'>\n <plam/></prompt>", "p.xml:2:2", "did you mean 'plan'", RP_ERR_NAME},
        {"<prompt schema='s'><miami/></prompt>", "p.xml:1:20", "'plan/miami'", RP_ERR_NAME},
        {"<prompt schema='s'><plan duratoin='x'/></prompt>", "p.xml:1:20", "did you mean 'duration'", RP_ERR_NAME},
        {"<prompt schema='s'><plan/><plan/></prompt>", "p.xml:1:27", "already imported in line 1", RP_ERR_CONFLICT},
        {"<prompt schema='s'><plan><miami/><lisbon/></plan></prompt>", "p.xml:1:34", "members of one union",
         RP_ERR_CONFLICT},
        {"<prompt schema='s'><plan duration='a very very long argument'/></prompt>", "p.xml:1:20",
         "its parameter takes at most 4", RP_ERR_LENGTH},
        {"<prompt schema='f'><m/>a longer text</prompt>", "p.xml:1:24", "gap of 1 positions", RP_ERR_LENGTH},
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
    assert_int_equal(
        run(e, "<prompt schema='s'><plan><miami/></plan> and much more text than fits</prompt>", 0, 0, &r, &err),
        RP_ERR_CONTEXT);
    assert_non_null(strstr(err.message, "the context has 12"));
    rp_engine_free(e);
    e = new_engine(1, 0);
    assert_int_equal(run(e, "<prompt schema='s'><plan/></prompt>", 0, 0, &r, &err), RP_ERR_BUDGET);
    assert_non_null(strstr(err.message, "budget"));
    rp_engine_free(e);
}

static void modules_can_be_computed_ahead(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    rp_result *r;
    assert_int_equal(rp_schema_prefill(e, NULL, "nobody", NULL, NULL, NULL), RP_ERR_NAME);
    assert_int_equal(rp_schema_prefill(e, NULL, "s", NULL, NULL, NULL), RP_OK);
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

/* Keys name scope and layout: equal keys, equal KV. */
static void keys_of(rp_engine *e, const char *prompt, char *out, size_t bytes) {
    rp_inspection *i;
    out[0] = '\0';
    assert_int_equal(rp_engine_inspect(e, NULL, NULL, prompt, "p.xml", &i, NULL), RP_OK);
    for (int32_t k = 0; k < i->n_nodes; k++) {
        if (strcmp(i->nodes[k].kind, "module") != 0) continue;
        size_t used = strlen(out);
        snprintf(out + used, bytes - used, "%s@%d ", i->nodes[k].key, i->nodes[k].position);
    }
    rp_inspection_free(i);
}

static void options_of_a_schema_hold_instead_of_what_it_says(void **state) {
    (void)state;
#define BODY \
    "One<module name='a' scope='module'>two<module name='b'>three</module></module><module name='c'>four</module>"
#define BARE "One<module name='a'>two<module name='b'>three</module></module><module name='c'>four</module>"
    static const struct {
        rp_schema_options options;
        const char *same; /* the equivalent schema attribute */
    } cases[] = {
        {{.scope = RP_SCOPE_AS_WRITTEN}, "<schema name='o'>" BODY "</schema>"},
        {{.scope = RP_SCOPE_PATH}, "<schema name='o'>" BARE "</schema>"},
        {{.scope = RP_SCOPE_MODULE}, "<schema name='o' scope='module'>" BARE "</schema>"},
        {{.layout = RP_LAYOUT_FIXED}, "<schema name='o' layout='fixed'>" BODY "</schema>"},
        {{.scope = RP_SCOPE_PATH, .layout = RP_LAYOUT_FIXED}, "<schema name='o' layout='fixed'>" BARE "</schema>"},
        {{.anchor = RP_ANCHOR_BOS}, "<schema name='o' anchor='bos'>" BODY "</schema>"},
        {{.anchor = RP_ANCHOR_NONE, .scope = RP_SCOPE_MODULE}, "<schema name='o' scope='module'>" BARE "</schema>"},
        {{.scaffold = "a/b c"}, "<schema name='o'>" BODY "<scaffold modules='a/b c'/></schema>"},
    };
    const char *written = "<schema name='o'>" BODY "</schema>",
               *prompt = "<prompt schema='o'><a><b/></a><c/> x</prompt>";
    rp_engine *e = new_engine(0, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ours[512], theirs[512];
        rp_result *a, *b;
        rp_schema_options options = cases[i].options;
        options.struct_size = sizeof(options);
        assert_int_equal(rp_schema_parse(e, written, strlen(written), "o.xml", NULL, &options, NULL, NULL), RP_OK);
        keys_of(e, prompt, ours, sizeof ours);
        assert_int_equal(run(e, prompt, 0, 0, &a, NULL), RP_OK);
        assert_int_equal(rp_schema_parse(e, cases[i].same, strlen(cases[i].same), "o.xml", NULL, NULL, NULL, NULL),
                         RP_OK);
        keys_of(e, prompt, theirs, sizeof theirs);
        assert_int_equal(run(e, prompt, 0, 0, &b, NULL), RP_OK);
        assert_string_equal(ours, theirs);
        assert_int_equal(a->n_plan, b->n_plan);
        for (int k = 0; k < a->n_plan; k++) assert_string_equal(a->plan[k].key, b->plan[k].key);
        rp_result_free(a);
        rp_result_free(b);
    }
    rp_error err;
    rp_schema_options wrong = {.struct_size = sizeof(wrong), .scaffold = "a/d c"};
    assert_int_equal(rp_schema_parse(e, written, strlen(written), "o.xml", NULL, &wrong, NULL, &err), RP_ERR_NAME);
    assert_non_null(strstr(err.message, "\"a/d\""));
    rp_engine_free(e);
}

static void count_logits(void *user, const float *logits, int32_t n_vocab) {
    (void)logits;
    (void)n_vocab;
    ++*(int *)user;
}

static void a_forced_answer_is_taken_as_it_is(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    int seen = 0;
    const int32_t tokens[] = {5, 2, info.n_vocab - 1}, wrong[] = {5, info.n_vocab};
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml("<prompt schema='s'><plan/> x</prompt>");
    rp_request_experiment forced = experiment_forced(tokens, 3);
    q.experiment = &forced;
    q.max_tokens = 1;
    q.on_logits = count_logits;
    q.user = &seen;
    rp_result *r;
    rp_error err;
    assert_int_equal(rp_engine_run(e, &q, &r, NULL), RP_OK);
    assert_int_equal(r->n_tokens, 3);
    assert_memory_equal(r->tokens, tokens, sizeof tokens);
    assert_int_equal(seen, 3);
    rp_result_free(r);
    forced = experiment_forced(wrong, 2);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    assert_null(r);
    rp_engine_free(e);
}

/* Its text has a buffer that nothing was written to. */
static void an_answer_of_no_tokens_has_an_empty_text(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text("Once upon");
    for (int i = 0; i < 20; i++) { /* reused memory is not zeroed */
        rp_result *r;
        q.max_tokens = i % 2 ? 0 : 8;
        assert_int_equal(rp_engine_run(e, &q, &r, NULL), RP_OK);
        if (i % 2) assert_string_equal(r->text, "");
        rp_result_free(r);
    }
    rp_engine_free(e);
}

/* Memory in use is reported: no job holds any, so all of it is the store's. */
static void bytes_in_use_are_told(void **state) {
    (void)state;
    rp_engine *e = new_engine(0, 0);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    rp_result *r;
    assert_int_equal(run(e, "<prompt schema='s'><plan/> x</prompt>", 0, 0, &r, NULL), RP_OK);
    rp_engine_store_stats(e, &stats);
    assert_true(stats.used_bytes > 0 && stats.used_bytes == stats.bytes);
    rp_result_free(r);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_prompts_are_told_what_to_do),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(modules_can_be_computed_ahead),
        cmocka_unit_test(a_seed_repeats_an_answer),
        cmocka_unit_test(options_of_a_schema_hold_instead_of_what_it_says),
        cmocka_unit_test(a_forced_answer_is_taken_as_it_is),
        cmocka_unit_test(weights_are_prepared_once_and_said_to_be),
        cmocka_unit_test(an_answer_of_no_tokens_has_an_empty_text),
        cmocka_unit_test(bytes_in_use_are_told),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
