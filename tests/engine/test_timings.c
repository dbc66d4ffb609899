/* SPDX-License-Identifier: Apache-2.0 */
/* test_timings.c: TTFT is the sum of queue, module prefill, plan and prompt prefill, whatever a request hits and
 * however it ends. Times are compared only with each other, and with a clock around the request. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "reprise.h"
#include "support/shared_model.h"

static const char schema_text[] = "<schema name='s'><module name='a'>Tom had a red ball and a dog.</module>"
                                  "<module name='b'>Lily saw a blue hat in the box.</module></schema>";
static const char prompt_text[] = "<prompt schema='s'><a/><b/> What does Tom have?</prompt>";

static rp_engine *new_engine(void) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema_text, "s.xml");
    return e;
}

static rp_request new_request(void) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt_text);
    q.max_tokens = 4;
    q.ignore_eos = true;
    return q;
}

static void check_sum(const rp_timings *t) {
    assert_true(t->queue_ms >= 0 && t->module_prefill_ms >= 0 && t->plan_ms > 0 && t->prompt_prefill_ms > 0);
    assert_true(fabs(t->ttft_ms - (t->queue_ms + t->module_prefill_ms + t->plan_ms + t->prompt_prefill_ms)) < 1e-6);
}

static rp_timings time_of(rp_engine *e, const rp_request *q) {
    rp_result *r = NULL;
    uint64_t start = base_clock_us();
    assert_int_equal(rp_engine_run(e, q, &r, NULL), RP_OK);
    double ms = (double)(base_clock_us() - start) / 1e3;
    rp_timings t = r->timings;
    check_sum(&t);
    assert_true(t.ttft_ms + t.decode_ms <= ms);
    rp_result_free(r);
    return t;
}

static void missing_modules_are_part_of_it(void **state) {
    (void)state;
    rp_engine *e = new_engine();
    rp_request q = new_request();
    rp_timings cold = time_of(e, &q), warm = time_of(e, &q);
    assert_true(cold.module_prefill_ms > 0 && cold.ttft_ms > cold.module_prefill_ms);
    assert_true(warm.module_prefill_ms == 0);
    rp_engine_free(e);
}

static void what_is_not_kept_is_the_prompts_own(void **state) {
    (void)state;
    rp_engine *e = new_engine();
    rp_request q = new_request();
    q.reuse = RP_REUSE_OFF;
    assert_true(time_of(e, &q).module_prefill_ms == 0);
    q.reuse = RP_REUSE_EXACT;
    assert_true(time_of(e, &q).module_prefill_ms == 0);
    rp_engine_free(e);
}

static void answers_of_any_length(void **state) {
    (void)state;
    rp_engine *e = new_engine();
    rp_request q = new_request();
    q.max_tokens = 0;
    assert_true(time_of(e, &q).ttft_ms > 0);
    q.max_tokens = 4;
    q.ignore_eos = false;
    q.grammar = "root ::= \"\"";
    assert_true(time_of(e, &q).ttft_ms > 0);
    rp_engine_free(e);
}

/* The second waits until the first has ended. */
static void waiting_is_part_of_it(void **state) {
    (void)state;
    rp_engine *e = new_engine();
    rp_request q = new_request();
    rp_job *calls[2];
    rp_result *r[2];
    q.max_tokens = 32;
    for (int i = 0; i < 2; i++) assert_int_equal(rp_engine_submit(e, &q, &calls[i], NULL), RP_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rp_job_result(calls[i], &r[i], NULL), RP_OK);
        check_sum(&r[i]->timings);
    }
    assert_true(r[1]->timings.queue_ms > r[0]->timings.queue_ms && r[1]->timings.ttft_ms > r[1]->timings.queue_ms);
    for (int i = 0; i < 2; i++) {
        rp_result_free(r[i]);
        rp_job_free(calls[i]);
    }
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_modules_are_part_of_it),
        cmocka_unit_test(what_is_not_kept_is_the_prompts_own),
        cmocka_unit_test(answers_of_any_length),
        cmocka_unit_test(waiting_is_part_of_it),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
