/* SPDX-License-Identifier: Apache-2.0 */
/* test_failures.c: the N-th allocation fails, for every N, while a model is opened, a schema is loaded and prompts run:
 * each failure is a clean error, nothing leaks (under ASan), and later requests succeed.
 */
#define _POSIX_C_SOURCE 200809L /* mkstemp, strdup */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "reprise_tools.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/tiny_model.h"
#include "reprise_pml.h"

static const char schema_text[] =
    "<schema name='cities'><system>You are a guide.</system><user><module name='plan'>Plan a trip of "
    "<param name='duration' len='12' scaffold='some days'/> to this city.<union scaffold='lisbon'><module "
    "name='miami'>Miami.</module>"
    "<module name='lisbon'>Lisbon is built on seven hills.</module></union> Go!</module><module name='diet' "
    "cache='false'>No "
    "meat.</module></user><scaffold modules='plan/miami diet'/></schema>";
static const char prompt_text[] = "<prompt schema='cities'><plan duration='3'><miami/></plan> Surf? <diet/><user>And "
                                  "with <![CDATA[children]]>?</user></prompt>";

static char model_path[64];
static const char *used_path = model_path; /* of the model that do_all opens */

static int make_model(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.chat_template = "{{'<|im_start|>' + message.role}}";
    strcpy(model_path, "/tmp/reprise-failures-XXXXXX");
    int fd = mkstemp(model_path);
    return fd < 0 || close(fd) != 0 || tiny_model_write(model_path, &shape, NULL) != RP_OK;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

typedef struct things {
    rp_model *model;
    rp_engine *engine;
    rp_result *result[5];
    rp_inspection *inspection;
} things;

static int run(things *t, int i, rp_reuse reuse, rp_error *err) {
    static const rp_logit_bias bias = {5, 1};
    static const char *const stops[] = {"\x01 comes never", "\x02"};
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt_text);
    q.reuse = reuse;
    q.max_tokens = 4;
    q.ignore_eos = true;
    q.sampling.temperature = 0.5f; /* all that sampling allocates */
    q.sampling.top_p = 0.9f;
    q.sampling.repeat_penalty = 1.1f;
    q.sampling.bias = &bias;
    q.sampling.n_bias = 1;
    q.stops = stops;
    q.n_stops = 2;
    q.n_logprobs = 3;
    if (i == 3) q.quality = (rp_quality){RP_QUALITY_BLEND, 30};
    if (i == 4) q.quality = (rp_quality){RP_QUALITY_FOCUS, 30};
    if (i == 2) q.grammar = "root ::= word+\nword ::= [a-z\u00E9]{1,9} \" \"?", q.grammar_trigger = "e";
    return rp_engine_run(t->engine, &q, &t->result[i], err);
}

static int do_all(things *t, rp_error *err) {
    rp_engine_options o = rp_engine_options_defaults();
    int rc;
    o.n_threads = 2;
    if ((rc = rp_model_open(&t->model, used_path, NULL, err)) || (rc = rp_engine_new(&t->engine, t->model, &o, err)) ||
        (rc = rp_schema_parse(t->engine, schema_text, strlen(schema_text), "cities.xml", NULL, NULL, NULL, err)) ||
        (rc = run(t, 0, RP_REUSE_ON, err)) || (rc = run(t, 1, RP_REUSE_OFF, err)) ||
        (rc = run(t, 2, RP_REUSE_EXACT, err)) || (rc = run(t, 3, RP_REUSE_ON, err)) ||
        (rc = run(t, 4, RP_REUSE_ON, err)))
        return rc;
    return rp_engine_inspect(t->engine, NULL, NULL, prompt_text, NULL, &t->inspection, err);
}

static void free_all(things *t) {
    for (int i = 0; i < 5; i++) rp_result_free(t->result[i]);
    rp_inspection_free(t->inspection);
    rp_engine_free(t->engine);
    rp_model_close(t->model);
}

/* step: 1 tests each allocation; sanitizers have time only for every step-th. */
static void fail_allocations(uint64_t step) {
    things t = {0};
    rp_error err = {0};
    base_alloc_count();
    assert_int_equal(do_all(&t, &err), RP_OK);
    uint64_t n = base_alloc_count();
    char *expected = strdup(t.result[0]->text);
    assert_true(t.result[4]->quality.focus_token > 0);
    assert_int_equal(memcmp(t.result[0]->tokens, t.result[1]->tokens, 4 * sizeof(int32_t)), 0);
    free_all(&t);
    assert_true(n > 100);
    for (uint64_t i = 1; i <= n; i += step) {
        t = (things){0};
        err = (rp_error){0};
        base_alloc_fail_at(i, i % 3 == 0);
        int rc = do_all(&t, &err);
        base_alloc_fail_at(0, 0);
        if (rc) {
            assert_int_equal(rc, err.code);
            assert_true(rc == RP_ERR_MEMORY || rc == RP_ERR_LIMIT);
            assert_true(err.message[0] != '\0' && !strchr(err.message, '\n'));
        } else {
            assert_string_equal(t.result[0]->text, expected);
            assert_true(t.result[0]->n_top == 3 && t.result[0]->logprobs && t.result[0]->top_logprobs);
        }
        free_all(&t);
    }
    free(expected);
}

/* Paths after a failure are a subject of memory errors. Threads meet on them in a few ways, whichever allocation it
 * was. */
static uint64_t stride(void) { return test_has_tsan() ? 7 : 1; }

static void every_allocation_fails_cleanly(void **state) {
    (void)state;
    fail_allocations(stride());
}

/* Experts, shared and with biases; windows that free blocks; sinks; two kinds of frequencies; ALiBi. */
static void every_allocation_fails_cleanly_in_every_kind_of_model(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2moe", "gpt-oss", "gemma3", "gemma4", "gemma3n", "phi3-longrope", "mpt"};
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        used_path = golden_find(g, names[i])->path;
        fail_allocations(getenv("REPRISE_TEST_ROUNDS") ? 5 * stride() : stride());
    }
    used_path = model_path;
    golden_close(g);
}

/* After a failed request, the engine serves the next one normally. */
static void an_engine_survives_failed_requests(void **state) {
    (void)state;
    things t = {0};
    rp_error err = {0};
    assert_int_equal(do_all(&t, &err), RP_OK);
    for (uint64_t i = 1; i < 200; i++) {
        rp_result_free(t.result[1]);
        base_alloc_fail_at(i, 0);
        (void)run(&t, 1, RP_REUSE_OFF, &err);
        base_alloc_fail_at(0, 0);
        rp_result_free(t.result[1]);
        t.result[1] = NULL;
        assert_int_equal(run(&t, 1, RP_REUSE_ON, &err), RP_OK);
        assert_string_equal(t.result[1]->text, t.result[0]->text);
        assert_int_equal(t.result[1]->cached_tokens > 0, 1);
    }
    free_all(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_cleanly),
        cmocka_unit_test(every_allocation_fails_cleanly_in_every_kind_of_model),
        cmocka_unit_test(an_engine_survives_failed_requests),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
