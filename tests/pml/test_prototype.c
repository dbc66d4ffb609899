/* SPDX-License-Identifier: Apache-2.0 */
/* test_prototype.c: the documents of the original prototype load and give plans; the forms of import in its README
 * work. Two documents do not load unchanged: code_generation_game.xml is not XML, and schema_code_generation.xml has a
 * placeholder that is longer than its parameter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/file.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

static rp_model *model;
static rp_engine *engine;
static const char *data;

static int open_all(void **state) {
    (void)state;
    char path[512];
    rp_engine_options o = rp_engine_options_defaults();
    data = getenv("REPRISE_TEST_DATA");
    if (!data || !*data) return 0;
    o.n_ctx = 100000;
    snprintf(path, sizeof(path), "%s/models/stories260K.gguf", data);
    return rp_model_open(&model, path, NULL, NULL) || rp_engine_new(&engine, model, &o, NULL);
}

static int close_all(void **state) {
    (void)state;
    rp_engine_free(engine);
    rp_model_close(model);
    return 0;
}

static void load(const char *name, int expected) {
    char path[512];
    rp_error err = {0};
    if (!model) skip();
    snprintf(path, sizeof(path), "%s/pml/%s", data, name);
    int rc = rp_schema_load(engine, path, NULL, NULL, &err);
    if (rc != expected) fail_msg("%s: %s", name, err.message);
}

/* schema_code_generation.xml with a parameter that its placeholder fits. */
static void load_code_generation(void) {
    static const char cut[] = "length=\"5\" scaffold", fits[] = "length=\"20\" scaffold";
    char path[512];
    base_buffer text = BASE_BUFFER(1 << 20), mended = BASE_BUFFER(1 << 20);
    rp_error err = {0};
    if (!model) skip();
    snprintf(path, sizeof(path), "%s/pml/schema_code_generation.xml", data);
    if (base_file_read(path, 1 << 20, &text, &err)) fail_msg("%s", err.message);
    const char *at = strstr(text.data, cut);
    assert_non_null(at);
    assert_int_equal(base_buffer_append(&mended, text.data, (size_t)(at - text.data)) |
                         base_buffer_append_str(&mended, fits) | base_buffer_append_str(&mended, at + strlen(cut)),
                     0);
    if (rp_schema_parse(engine, mended.data, mended.len, path, NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    base_buffer_free(&text);
    base_buffer_free(&mended);
}

/* Positions that a prompt takes, or fails the test. */
static int32_t plan(const char *prompt) {
    rp_inspection *x;
    rp_error err = {0};
    if (rp_engine_inspect(engine, NULL, NULL, prompt, "prompt", &x, &err)) fail_msg("%s", err.message);
    int32_t n = x->prompt_positions;
    rp_inspection_free(x);
    return n;
}

static void schemas_load(void **state) {
    (void)state;
    load("empty.xml", RP_OK);
    load("parameterized_prompts.xml", RP_OK);
    load("personalization-education.xml", RP_OK);
    load("schema_code_generation.xml", RP_ERR_LENGTH); /* the prototype cut "[to be filled later]" to 5 tokens */
    load("schema_mbti.xml", RP_OK);
    load("code_generation_game.xml",
         RP_ERR_SYNTAX); /* writes < in its text, which is no XML; the prototype parsed it with recovery */
}

static void forms_of_import_work(void **state) {
    (void)state;
    load_code_generation();
    int32_t with =
        plan("<prompt schema='default'><preface param-name='test'><!-- a subset --><nested/>"
             "<system3 message='just do'/><user2/></preface><task><task-robot-control speed='fast'/></task>"
             "<user>What will be the next movement of the robot?</user><assistant>It will move forward.</assistant>"
             "<user>What would be the speed then?</user></prompt>");
    int32_t without = plan("<prompt schema='default'><user>What would be the speed then?</user></prompt>");
    assert_true(with > without + 100);
    load("schema_mbti.xml", RP_OK);
    assert_true(plan("<prompt schema=\"mbti\">\n    <E/><N/><T/><P/>\n</prompt>") > 1000);
    load("parameterized_prompts.xml", RP_OK);
    assert_true(plan("<prompt schema='travel'><travel-plan duration='3 "
                     "d'><overseas><tokyo/></overseas></travel-plan></prompt>") > 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemas_load), cmocka_unit_test(forms_of_import_work)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
