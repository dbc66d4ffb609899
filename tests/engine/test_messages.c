/* SPDX-License-Identifier: Apache-2.0 */
/* test_messages.c: conversations as requests: in every chat format they have the tokens and logits of the equivalent
 * PML prompt, hit its prefix, and are never parsed for control tokens; documents with an open last role; schemas of one
 * request, and unloaded schemas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/oracle_run.h"
#include "reprise_pml.h"

#define MESSAGE(r, t) \
    { .role = RP_ROLE_##r, .text = t, .n = sizeof(t) - 1 }

static const rp_message conversation[] = {MESSAGE(SYSTEM, "You are a guide."), MESSAGE(USER, "Where is the beach?"),
                                          MESSAGE(ASSISTANT, "In the south."), MESSAGE(USER, "And the tram?")};
static const char same_schema[] = "<schema name='s'><module name='unused'>Nothing.</module></schema>";
static const char same_prompt[] = "<prompt schema='s'><system>You are a guide.</system><user>Where is the beach?</user>"
                                  "<assistant>In the south.</assistant><user>And the tram?</user></prompt>";

static rp_model *open_model(const char *format) {
    tiny_model_shape shape = tiny_model_defaults();
    return tiny_model_open(&shape, format);
}

static rp_engine *open_engine(rp_model *m) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err;
    o.n_threads = 1;
    if (rp_engine_new(&e, m, &o, &err)) fail_msg("%s", err.message);
    return e;
}

static void load(rp_engine *e, const char *text, const char *tenant) {
    rp_schema_options o = {.struct_size = sizeof(o), .tenant = tenant};
    rp_error err;
    if (rp_schema_parse(e, text, strlen(text), "s.xml", NULL, &o, NULL, &err)) fail_msg("%s", err.message);
}

static rp_request ask(const rp_message *messages, size_t n) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_messages(messages, n);
    q.max_tokens = 4;
    q.ignore_eos = true;
    return q;
}

/* Both succeeded with equal results; frees them. */
static void check_same(const char *chat_format, oracle_run *a, oracle_run *b) {
    if (a->rc || b->rc) fail_msg("%s: %s%s", chat_format, a->rc ? a->err.message : "", b->rc ? b->err.message : "");
    assert_int_equal(a->result->prompt_tokens, b->result->prompt_tokens);
    assert_true(oracle_run_same(a, b));
    oracle_run_free(a);
    oracle_run_free(b);
}

static void test_is_what_pml_says(void **state) {
    (void)state;
    for (int i = 0; rp_chat_format_name(i); i++) {
        rp_model *m = open_model(rp_chat_format_name(i));
        rp_engine *e = open_engine(m);
        oracle_run a, b;
        rp_request q = ask(conversation, BASE_ARRAY_LEN(conversation));
        oracle_run_make(&a, e, &q);
        load(e, same_schema, NULL);
        q.prompt = rp_prompt_pml(same_prompt);
        q.reuse = RP_REUSE_EXACT;
        oracle_run_make(&b, e, &q);
        check_same(rp_chat_format_name(i), &a, &b);
        rp_engine_free(e);
        rp_model_close(m);
    }
}

static void test_goes_on_where_it_was(void **state) {
    (void)state;
    rp_model *m = open_model("chatml");
    rp_engine *e = open_engine(m);
    rp_request q = ask(conversation, 2);
    rp_result *first = tiny_model_answer(e, &q);
    assert_int_equal(first->cached_tokens, 0);
    q = ask(conversation, BASE_ARRAY_LEN(conversation));
    rp_result *second = tiny_model_answer(e, &q);
    assert_true(second->cached_tokens >= first->prompt_tokens);
    rp_result_free(first);
    rp_result_free(second);
    rp_engine_free(e);
    rp_model_close(m);
}

static size_t count(const rp_model *m, const rp_message *messages, size_t n, bool continues) {
    int32_t *tokens;
    size_t n_tokens;
    rp_error err;
    if (rp_tokenize_messages(m, messages, n, continues, &tokens, &n_tokens, &err)) fail_msg("%s", err.message);
    rp_free(tokens);
    return n_tokens;
}

static void test_tokens(void **state) {
    (void)state;
    static const rp_message sly[] = {MESSAGE(USER, "x<|im_end|>y")}, plain[] = {MESSAGE(USER, "x y")};
    static const rp_message bad_role[] = {{.role = (rp_role)9, .text = "a", .n = 1}},
                            no_text[] = {{.role = RP_ROLE_USER}};
    rp_model *m = open_model("chatml");
    rp_engine *e = open_engine(m);
    int32_t *tokens;
    size_t n;
    rp_error err;
    rp_request q = ask(conversation, 2);
    rp_result *r = tiny_model_answer(e, &q);
    assert_int_equal(r->prompt_tokens, count(m, conversation, 2, false));
    rp_result_free(r);
    assert_true(count(m, sly, 1, false) > count(m, plain, 1, false) + 4); /* letters, not a control token */
    assert_true(count(m, conversation, 3, true) < count(m, conversation, 3, false));
    assert_int_equal(rp_tokenize_messages(m, conversation, 0, false, &tokens, &n, &err), RP_ERR_INVALID);
    assert_int_equal(rp_tokenize_messages(m, bad_role, 1, false, &tokens, &n, &err), RP_ERR_INVALID);
    assert_int_equal(rp_tokenize_messages(m, no_text, 1, false, &tokens, &n, &err), RP_ERR_INVALID);
    assert_null(tokens);
    q = ask(conversation, 0);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    rp_engine_free(e);
    rp_model_close(m);
}

/* A PML document with an open last role equals the conversation with an open last message. */
static void test_continues_a_document(void **state) {
    (void)state;
    static const char open_prompt[] =
        "<prompt schema='s'><system>You are a guide.</system><user>Where is the beach?</user>"
        "<assistant>In the south.</assistant></prompt>";
    static const char no_role[] = "<prompt schema='s'><user>Where?</user> Text</prompt>";
    for (int i = 0; rp_chat_format_name(i); i++) {
        rp_model *m = open_model(rp_chat_format_name(i));
        rp_engine *e = open_engine(m);
        oracle_run a, b;
        rp_request q = ask(conversation, 3);
        q.prompt.continues_last = true;
        oracle_run_make(&a, e, &q);
        q.prompt = rp_prompt_pml(open_prompt);
        q.prompt.schema = same_schema;
        q.prompt.continues_last = true;
        q.reuse = RP_REUSE_EXACT;
        oracle_run_make(&b, e, &q);
        check_same(rp_chat_format_name(i), &a, &b);
        rp_result *r;
        rp_error err;
        q.prompt = rp_prompt_pml(no_role);
        q.prompt.schema = same_schema;
        q.prompt.continues_last = true;
        assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
        rp_engine_free(e);
        rp_model_close(m);
    }
}

/* A request's own schema: its modules are hits for other requests of the same tenant with the same modules, in any
 * order; its name is visible to none. */
static void test_schema_of_a_request(void **state) {
    (void)state;
    static const char one[] =
        "<schema name='own'><module name='x'>.</module><module name='a'>The tram goes to the beach.</module>"
        "<module name='b'>The museum opens at nine.</module></schema>";
    static const char other[] =
        "<schema name='own'><module name='x'>.</module><module name='b'>The museum opens at nine.</module>"
        "<module name='a'>The tram goes to the beach.</module></schema>";
    rp_model *m = open_model("chatml");
    rp_engine *e = open_engine(m);
    rp_request q = ask(NULL, 0);
    rp_result *r;
    rp_error err;
    q.tenant = "t";
    q.prompt.schema = one;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID); /* and no prompt */
    q.prompt = rp_prompt_pml("<prompt schema='own'><user><a/><b/> When?</user></prompt>");
    q.prompt.schema = one;
    rp_result *first = tiny_model_answer(e, &q);
    assert_true(first->cached_tokens < 5);
    q.prompt = rp_prompt_pml("<prompt schema='own'><user><b/><a/> Where?</user></prompt>");
    q.prompt.schema = other;
    rp_result *second = tiny_model_answer(e, &q);
    for (int32_t i = 0; i < second->n_plan; i++)
        if (second->plan[i].is_view) assert_string_equal(second->plan[i].tier, "ram");
    assert_true(second->cached_tokens > 10);
    rp_result_free(first);
    rp_result_free(second);
    q.tenant = "u";
    rp_result *stranger = tiny_model_answer(e, &q);
    for (int32_t i = 0; i < stranger->n_plan; i++)
        if (stranger->plan[i].is_view) assert_string_equal(stranger->plan[i].tier, "computed");
    rp_result_free(stranger);
    q.prompt = rp_prompt_pml("<prompt schema='s'><user>When?</user></prompt>"); /* not the schema's name */
    q.prompt.schema = other;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_NAME);
    q.prompt = rp_prompt_pml("<prompt schema='own'><user><b/></user></prompt>");
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_NAME);
    rp_engine_free(e);
    rp_model_close(m);
}

static void test_unload(void **state) {
    (void)state;
    rp_model *m = open_model("chatml");
    rp_engine *e = open_engine(m);
    rp_error err;
    rp_schema_options other = {.struct_size = sizeof(other), .name = "other"};
    assert_int_equal(rp_schema_parse(e, same_schema, strlen(same_schema), "s.xml", NULL, &other, NULL, &err),
                     RP_ERR_INVALID);
    load(e, same_schema, NULL);
    load(e, same_schema, "a");
    assert_int_equal(rp_schema_unload(e, "b", "s", &err), RP_ERR_NAME); /* a tenant cannot unload shared ones */
    assert_int_equal(rp_schema_unload(e, "a", "s", &err), RP_OK);
    assert_int_equal(rp_schema_unload(e, "a", "s", &err), RP_ERR_NAME);
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(same_prompt);
    q.tenant = "a";
    q.max_tokens = 1;
    rp_result_free(tiny_model_answer(e, &q)); /* the shared one */
    assert_int_equal(rp_schema_unload(e, NULL, "s", &err), RP_OK);
    rp_result *r;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_NAME);
    rp_engine_free(e);
    rp_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_what_pml_says),
        cmocka_unit_test(test_goes_on_where_it_was),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_continues_a_document),
        cmocka_unit_test(test_schema_of_a_request),
        cmocka_unit_test(test_unload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
