/* SPDX-License-Identifier: Apache-2.0 */
/* test_interface.c: rules of the public headers: structs of older and newer programs (struct_size), NULL
 * arguments, the log callback.
 *
 * Structs of other versions are allocated with exactly their size, which lets AddressSanitizer report every access
 * beyond it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "reprise_server.h"
#include "reprise_tools.h"
#include "support/tiny_model.h"
#include "reprise_pml.h"
#include "reprise_store.h"

#define PATTERN 0x5a

typedef struct interface_world {
    rp_model *model;
    rp_engine *engine;
} interface_world;

static int open_world(void **state) {
    interface_world *w = calloc(1, sizeof(*w));
    tiny_model_shape shape = tiny_model_defaults();
    rp_engine_options options = rp_engine_options_defaults();
    options.n_threads = 1;
    w->model = tiny_model_open(&shape, NULL);
    assert_int_equal(rp_engine_new(&w->engine, w->model, &options, NULL), RP_OK);
    *state = w;
    return 0;
}

static int close_world(void **state) {
    interface_world *w = *state;
    rp_engine_free(w->engine);
    rp_model_close(w->model);
    free(w);
    return 0;
}

/* ---- Options ---- */

/* A request of a program that was compiled when rp_request had n bytes. */
static rp_request *request_of(uint32_t n) {
    rp_request *r = malloc(n);
    memset(r, PATTERN, n);
    rp_request_init(r, n);
    r->prompt = rp_prompt_text("Once upon a time");
    r->max_tokens = 4;
    return r;
}

static void assert_answers_equal(rp_engine *e, const rp_request *a, const rp_request *b) {
    rp_result *x = tiny_model_answer(e, a), *y = tiny_model_answer(e, b);
    assert_int_equal(x->n_tokens, y->n_tokens);
    assert_memory_equal(x->tokens, y->tokens, (size_t)x->n_tokens * sizeof(*x->tokens));
    rp_result_free(x);
    rp_result_free(y);
}

static void test_a_program_with_a_smaller_request_runs(void **state) {
    const interface_world *w = *state;
    rp_request now = rp_request_defaults();
    now.prompt = rp_prompt_text("Once upon a time");
    now.max_tokens = 4;
    const uint32_t sizes[] = {(uint32_t)offsetof(rp_request, n_draft), (uint32_t)offsetof(rp_request, session),
                              (uint32_t)offsetof(rp_request, pooling), (uint32_t)offsetof(rp_request, on_text)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rp_request *older = request_of(sizes[i]);
        assert_int_equal(older->struct_size, sizes[i]);
        assert_answers_equal(w->engine, older, &now);
        free(older);
    }
}

static void test_a_program_with_a_larger_request_runs_unless_it_sets_an_unknown_field(void **state) {
    const interface_world *w = *state;
    rp_error err;
    rp_result *result;
    rp_request now = rp_request_defaults();
    now.prompt = rp_prompt_text("Once upon a time");
    now.max_tokens = 4;
    rp_request *newer = request_of((uint32_t)sizeof(rp_request) + 24);
    assert_answers_equal(w->engine, newer, &now);
    ((char *)newer)[sizeof(rp_request) + 8] = 1;
    assert_int_equal(rp_engine_run(w->engine, newer, &result, &err), RP_ERR_UNSUPPORTED);
    assert_null(result);
    assert_non_null(strstr(err.message, "rp_request"));
    free(newer);
}

static void test_options_without_their_size_are_refused(void **state) {
    const interface_world *w = *state;
    rp_request request = {.max_tokens = 1};
    rp_engine_options options = {.n_threads = 1};
    rp_schema_options of_schema = {.tenant = NULL};
    rp_store_options of_store = {.read_only = true};
    rp_server_options of_server = {.port = 0};
    rp_engine *e;
    rp_result *r;
    rp_store *s;
    rp_server *server;
    rp_error err;
    assert_int_equal(rp_engine_run(w->engine, &request, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "struct_size"));
    assert_int_equal(rp_engine_new(&e, w->model, &options, &err), RP_ERR_INVALID);
    assert_int_equal(rp_schema_parse(w->engine, "<schema name='x'/>", 18, NULL, NULL, &of_schema, NULL, &err),
                     RP_ERR_INVALID);
    assert_int_equal(rp_store_open(&s, "/nowhere", &of_store, &err), RP_ERR_INVALID);
    assert_int_equal(rp_server_new(&server, &of_server, &err), RP_ERR_INVALID);
}

/* ---- Reports ---- */

/* Checks that a report of n bytes has the fields of a complete one, and zeros after the library's fields. */
static void check_report(const interface_world *w, uint32_t n, const rp_model_info *whole) {
    rp_model_info seen = {.n_layers = -1};
    void *info = malloc(n);
    size_t common = n < sizeof(*whole) ? n : sizeof(*whole);
    memset(info, PATTERN, n);
    memcpy(info, &n, sizeof(n));
    assert_int_equal(rp_model_describe(w->model, info), RP_OK);
    memcpy(&seen, info, common);
    assert_int_equal(seen.struct_size, n);
    assert_string_equal(seen.architecture, whole->architecture);
    if (common >= offsetof(rp_model_info, fingerprint))
        assert_true(seen.parameters == whole->parameters && seen.n_layers == whole->n_layers);
    else assert_int_equal(seen.n_layers, -1);
    if (common == sizeof(*whole)) assert_string_equal(seen.fingerprint, whole->fingerprint);
    for (size_t i = common; i < n; i++) assert_int_equal(((const char *)info)[i], 0);
    free(info);
}

static void test_reports_of_older_and_newer_programs(void **state) {
    const interface_world *w = *state;
    rp_model_info whole = {.struct_size = sizeof(whole)};
    assert_int_equal(rp_model_describe(w->model, &whole), RP_OK);
    check_report(w, (uint32_t)offsetof(rp_model_info, weights), &whole);
    check_report(w, (uint32_t)offsetof(rp_model_info, fingerprint), &whole);
    check_report(w, (uint32_t)sizeof(whole), &whole);
    check_report(w, (uint32_t)sizeof(whole) + 40, &whole);
}

static void test_reports_without_their_size_are_refused(void **state) {
    const interface_world *w = *state;
    rp_model_info model = {.n_layers = 77};
    rp_engine_info engine = {.n_ctx = 77};
    rp_memory memory = {.kv = 77};
    rp_store_stats store = {.hits = 77};
    rp_scaffold_stats scaffolds = {.known = 77};
    assert_int_equal(rp_model_describe(w->model, &model), RP_ERR_INVALID);
    assert_int_equal(rp_engine_describe(w->engine, &engine), RP_ERR_INVALID);
    assert_int_equal(rp_engine_memory(w->engine, &memory), RP_ERR_INVALID);
    assert_int_equal(rp_engine_store_stats(w->engine, &store), RP_ERR_INVALID);
    assert_int_equal(rp_engine_scaffold_stats(w->engine, &scaffolds), RP_ERR_INVALID);
    assert_true(model.n_layers == 77 && engine.n_ctx == 77 && memory.kv == 77 && store.hits == 77 &&
                scaffolds.known == 77);
}

static void test_results_carry_their_size(void **state) {
    const interface_world *w = *state;
    rp_request request = rp_request_defaults();
    request.prompt = rp_prompt_text("a");
    request.max_tokens = 1;
    rp_result *r = tiny_model_answer(w->engine, &request);
    assert_int_equal(r->struct_size, sizeof(*r));
    rp_result_free(r);
    rp_audit *audit;
    assert_int_equal(rp_engine_audit(w->engine, &audit, NULL), RP_OK);
    assert_int_equal(audit->struct_size, sizeof(*audit));
    rp_audit_free(audit);
}

/* ---- NULL ---- */

#define REFUSES(call) \
    do { \
        err.code = RP_OK; \
        assert_int_equal(call, RP_ERR_INVALID); \
        assert_int_equal(err.code, RP_ERR_INVALID); \
    } while (0)

static void test_null_is_refused_with_a_message(void **state) {
    const interface_world *w = *state;
    rp_engine *e = w->engine;
    rp_error err;
    void *out;
    size_t n;
    int32_t *tokens;
    rp_quality quality;
    rp_request request = rp_request_defaults();
    rp_store_selection all = {.all = true};
    REFUSES(rp_model_open(NULL, "m", NULL, &err));
    REFUSES(rp_model_open((rp_model **)&out, NULL, NULL, &err));
    REFUSES(rp_model_fingerprint(NULL, 1, NULL, NULL, (const char **)&out, &err));
    REFUSES(rp_model_fingerprint(w->model, 1, NULL, NULL, NULL, &err));
    REFUSES(rp_model_quantize(NULL, "b", "Q8_0", NULL, &err));
    REFUSES(rp_tokenize(NULL, "a", 1, false, false, &tokens, &n, &err));
    REFUSES(rp_tokenize(w->model, NULL, 1, false, false, &tokens, &n, &err));
    REFUSES(rp_tokenize(w->model, "a", 1, false, false, NULL, &n, &err));
    REFUSES(rp_tokenize_messages(w->model, NULL, 1, false, &tokens, &n, &err));
    REFUSES(rp_engine_new(NULL, w->model, NULL, &err));
    REFUSES(rp_engine_new((rp_engine **)&out, NULL, NULL, &err));
    REFUSES(rp_engine_prepare(NULL, NULL, NULL, &err));
    REFUSES(rp_engine_set_quota(e, "t", NULL, &err));
    REFUSES(rp_quality_parse(NULL, &quality, &err));
    REFUSES(rp_schema_load(e, NULL, NULL, NULL, &err));
    REFUSES(rp_schema_parse(e, NULL, 3, NULL, NULL, NULL, NULL, &err));
    REFUSES(rp_schema_unload(e, NULL, NULL, &err));
    REFUSES(rp_builder_new(NULL, "s", &err));
    REFUSES(rp_engine_submit(e, NULL, (rp_job **)&out, &err));
    REFUSES(rp_engine_submit(e, &request, NULL, &err));
    REFUSES(rp_engine_run(NULL, &request, (rp_result **)&out, &err));
    REFUSES(rp_job_result(NULL, (rp_result **)&out, &err));
    REFUSES(rp_schema_prefill(e, NULL, NULL, NULL, NULL, &err));
    REFUSES(rp_schema_submit(e, NULL, "s", NULL, NULL, NULL, &err));
    REFUSES(rp_store_open(NULL, "d", NULL, &err));
    REFUSES(rp_store_attach((rp_store **)&out, NULL, &err));
    REFUSES(rp_store_list(NULL, &all, NULL, (rp_store_listing **)&out, &err));
    REFUSES(rp_store_pin(NULL, &all, true, NULL, &err));
    REFUSES(rp_store_get_usage(NULL, NULL, &err));
    REFUSES(rp_store_export(NULL, "a", "b", NULL, NULL, NULL, &err));
    REFUSES(rp_engine_inspect(e, NULL, NULL, NULL, NULL, (rp_inspection **)&out, &err));
    REFUSES(rp_engine_inspect_prompt(e, NULL, NULL, NULL, (rp_inspection **)&out, &err));
    REFUSES(rp_schema_lint(NULL, "", 0, NULL, NULL, NULL, 0, 0, (rp_lint **)&out, &err));
    REFUSES(rp_schema_lint_file(w->model, NULL, NULL, 0, 0, (rp_lint **)&out, &err));
    REFUSES(rp_split(NULL, 2, NULL, (rp_split_result **)&out, &err));
    REFUSES(rp_engine_audit(e, NULL, &err));
    REFUSES(rp_store_read_audit(NULL, (rp_audit **)&out, NULL, &err));
    REFUSES(rp_simulator_new(NULL, NULL, 0, NULL, &err));
    REFUSES(rp_simulator_run(NULL, RP_POLICY_LRU, 1, NULL, &err));
    REFUSES(rp_server_ready(NULL, w->model, e, &err));
    assert_int_equal(rp_engine_run(e, NULL, (rp_result **)&out, NULL), RP_ERR_INVALID);
    assert_int_equal(rp_builder_append_text(NULL, "a", 1), RP_ERR_INVALID);
    assert_int_equal(rp_builder_append_pml(NULL, "a", 1), RP_ERR_INVALID);
    assert_int_equal(rp_builder_begin_message(NULL, RP_ROLE_USER), RP_ERR_INVALID);
    assert_int_equal(rp_job_get_status(NULL, NULL), RP_ERR_INVALID);
}

static void test_null_may_be_freed(void **state) {
    (void)state;
    rp_model_close(NULL);
    rp_engine_free(NULL);
    assert_int_equal(rp_engine_close(NULL, 0), 0);
    rp_builder_free(NULL);
    rp_job_free(NULL);
    rp_result_free(NULL);
    rp_store_close(NULL);
    rp_store_listing_free(NULL);
    rp_inspection_free(NULL);
    rp_lint_free(NULL);
    rp_split_free(NULL);
    rp_audit_free(NULL);
    rp_simulator_free(NULL);
    rp_server_free(NULL);
    rp_free(NULL);
}

/* ---- A folder's functions and an engine's store ---- */

static void test_an_attached_store_has_no_folder(void **state) {
    const interface_world *w = *state;
    rp_store *s;
    rp_store_usage usage = {.struct_size = sizeof(usage)};
    rp_store_cleaning cleaning = {.struct_size = sizeof(cleaning)};
    rp_store_listing *l;
    assert_int_equal(rp_store_attach(&s, w->engine, NULL), RP_OK);
    assert_int_equal(rp_store_get_usage(s, &usage, NULL), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_gc(s, NULL, NULL, &cleaning, NULL), RP_ERR_CONFLICT);
    assert_int_equal(rp_store_list(s, NULL, NULL, &l, NULL), RP_OK);
    assert_int_equal(l->struct_size, sizeof(*l));
    rp_store_listing_free(l);
    rp_store_close(s);
}

/* ---- The log ---- */

typedef struct log_lines {
    int n;
    rp_log_level level;
    char last[256];
} log_lines;

static void take_line(void *user, rp_log_level level, const char *line) {
    log_lines *l = user;
    l->n++;
    l->level = level;
    snprintf(l->last, sizeof(l->last), "%s", line);
}

static void test_the_log_callback_gets_the_lines(void **state) {
    log_lines lines = {0};
    (void)state;
    if (getenv("REPRISE_LOG")) skip();
    rp_log_set_callback(take_line, &lines);
    base_log(BASE_LOG_WARN, "nobody %s", "listens");
    assert_int_equal(lines.n, 0);
    rp_log_set_level(RP_LOG_WARN);
    base_log(BASE_LOG_WARN, "the disk is %s", "full");
    base_log(BASE_LOG_INFO, "unimportant");
    assert_int_equal(lines.n, 1);
    assert_int_equal(lines.level, RP_LOG_WARN);
    assert_string_equal(lines.last, "reprise: warn: the disk is full");
    rp_log_set_level(RP_LOG_OFF);
    rp_log_set_callback(NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_with_a_smaller_request_runs),
        cmocka_unit_test(test_a_program_with_a_larger_request_runs_unless_it_sets_an_unknown_field),
        cmocka_unit_test(test_options_without_their_size_are_refused),
        cmocka_unit_test(test_reports_of_older_and_newer_programs),
        cmocka_unit_test(test_reports_without_their_size_are_refused),
        cmocka_unit_test(test_results_carry_their_size),
        cmocka_unit_test(test_null_is_refused_with_a_message),
        cmocka_unit_test(test_null_may_be_freed),
        cmocka_unit_test(test_an_attached_store_has_no_folder),
        cmocka_unit_test(test_the_log_callback_gets_the_lines),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
