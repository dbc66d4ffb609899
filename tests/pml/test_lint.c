/* SPDX-License-Identifier: Apache-2.0 */
/* test_lint.c: each finding of rp_schema_lint, with a similar text that must not be reported; the findings for the
 * documents of the original prototype; random documents; failing allocations. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "model/model.h"
#include "support/random_pml.h"
#include "support/recurrent_model.h"
#include "support/tiny_model.h"
#include "reprise_tools.h"

static rp_model *model;

static int open_model(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.n_ctx = 2048;
    model = tiny_model_open(&shape, "plain");
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

/* ---- Each finding ---- */

#define MOST_PROMPTS 6

typedef struct lint_case {
    const char *what, *schema;
    const char *prompts[MOST_PROMPTS];
    int copies; /* of the prompts; 0: one */
    int32_t n_ctx;
    const char *expected; /* "code:module code:module", in order */
} lint_case;

#define BEGIN "<schema name='s'>We answer from the texts that follow here, in a few plain words each. "
#define LONG "It was a long day and many people came to see what had been built there in the years before that one."
#define MODULE(name) "<module name='" name "'>" LONG "</module>"
#define AND(text) "<prompt schema='s'>" text " And now?</prompt>"

static const lint_case cases[] = {
    {"a good schema", BEGIN MODULE("a") MODULE("b") "</schema>", {AND("<a/>"), AND("<b/>")}, 5, 0, ""},

    {"an unknown module", BEGIN MODULE("a") "</schema>", {AND("<nothing/>")}, 0, 0, "invalid-prompt:"},
    {"a prompt that is no XML",
     BEGIN MODULE("a") "</schema>",
     {"<prompt schema='s'><a></prompt>"},
     0,
     0,
     "invalid-prompt:"},
    {"a prompt of another schema", BEGIN MODULE("a") "</schema>", {"<prompt schema='t'><nothing/></prompt>"}, 0, 0, ""},

    {"an argument too long",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='2'/>.</module></schema>",
     {AND("<a p='three long days and a week'/>")},
     0,
     0,
     "long-argument:a"},
    {"an argument that fits",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='20'/>.</module></schema>",
     {AND("<a p='three long days and a week and one day more'/>")},
     0,
     0,
     ""},

    {"a module beyond the context", BEGIN MODULE("a") "</schema>", {NULL}, 0, 40, "exceeds-context:a"},
    {"a prompt beyond the context",
     BEGIN MODULE("a") MODULE("b") "</schema>",
     {AND("<a/><b/>"), AND("<a/>")},
     0,
     110,
     "schema-exceeds-context: exceeds-context:"},
    {"more than a prompt can have",
     BEGIN MODULE("a") MODULE("b") "</schema>",
     {AND("<a/>")},
     0,
     110,
     "schema-exceeds-context:"},

    {"a word before a parameter",
     BEGIN "<module name='a'>" LONG " It was for<param name='p' len='4'/>.</module></schema>",
     {NULL},
     0,
     0,
     "joined-words:a"},
    {"a word behind a parameter",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='4'/>days.</module></schema>",
     {NULL},
     0,
     0,
     "joined-words:a"},
    {"space on both sides",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='4'/> days.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"an argument that is no word",
     BEGIN "<module name='a'>" LONG " It was for<param name='p' len='5'/>.</module></schema>",
     {AND("<a p=', we say,'/>")},
     0,
     0,
     ""},
    {"a word before a module",
     "<schema name='s'>We answer from the texts that follow here, in a few plain words as" MODULE("a") "</schema>",
     {NULL},
     0,
     0,
     "joined-words:a"},
    {"a word before a member of a union",
     "<schema name='s'>We answer from the texts that follow here, in plain words as<union>" MODULE("a")
         MODULE("b") "</union></schema>",
     {NULL},
     0,
     0,
     "joined-words:a joined-words:b"},
    {"a module left out",
     "<schema name='s'>We answer from the texts that follow here, in plain words each<module name='a'>, " LONG
     "</module>or not.</schema>",
     {NULL},
     0,
     0,
     "joined-words:"},

    {"a space that stays behind",
     BEGIN "<module name='a' xml:space='preserve'>" LONG " Here is </module><module name='b'>the " LONG
           "</module></schema>",
     {NULL},
     0,
     0,
     "cut-token:b"},
    {"a space that goes on",
     BEGIN "<module name='a'>" LONG " Here is </module><module name='b'>the " LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a space before an argument",
     BEGIN "<module name='a' xml:space='preserve'>" LONG " Here is <param name='p' len='4'/>.</module></schema>",
     {AND("<a p='the day'/>")},
     0,
     0,
     "cut-token:a"},

    {"lines that are indented",
     BEGIN "\n    <module name='a'>\n        It was a long day\n        and many people\n        came to see it\n      "
           "  in the years.\n"
           "    </module></schema>",
     {NULL},
     0,
     0,
     "indentation:a"},
    {"lines at the margin",
     BEGIN "\n    <module name='a'>\nIt was a long day\nand many people\ncame to see it\nin the years.\n"
           "    </module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"code that begins behind its tag",
     BEGIN "<module name='a'>def move(speed):\n        # it was a long day\n        # and many came\n        # to see "
           "what had been built\n"
           "        return speed</module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"the above, unseen",
     BEGIN MODULE("a") "<module name='b'>The above is what we know. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     "outside-reference:b"},
    {"the above, seen",
     BEGIN "<module name='a'>" LONG "<module name='b'>The above is what we know. " LONG "</module></module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"the above of the schema",
     BEGIN "<module name='b'>The above is what we know. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"the above at scope module",
     BEGIN "<module name='b' scope='module'>As mentioned, it was so. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     "module-scope:b outside-reference:b"},
    {"the above, computed anew",
     BEGIN MODULE("a") "<module name='b' cache='false'>The above is what we know. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"the above, in company",
     BEGIN MODULE("a") "<module name='b' quality='scaffold'>The above is what we know. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"the above, linked",
     BEGIN MODULE("a") "<module name='b' quality='link:8'>The above is what we know. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     "outside-reference:b"},
    {"the above far inside",
     BEGIN MODULE("a") "<module name='b'>" LONG " " LONG " The above is what we know.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a longer word",
     BEGIN MODULE("a") "<module name='b'>The aboveground rooms. " LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"see below",
     BEGIN "<module name='a'>" LONG " For more, see below.</module>" MODULE("b") "</schema>",
     {NULL},
     0,
     0,
     "outside-reference:a"},
    {"see below, inside",
     BEGIN "<module name='a'>" LONG " For more, see below." MODULE("b") "</module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"a scaffold that fits",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='9' scaffold='three'/>.</module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"a module without text", BEGIN "<module name='a'/></schema>", {NULL}, 0, 0, "empty-module:a"},
    {"a module with modules alone", BEGIN "<module name='a'>" MODULE("b") "</module></schema>", {NULL}, 0, 0, ""},

    {"a small module", BEGIN "<module name='a'>It was so.</module></schema>", {NULL}, 0, 0, "small-module:a"},
    {"a small module, computed anew",
     BEGIN "<module name='a' cache='false'>It was so.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a small module of an exact schema",
     "<schema name='s' quality='exact'>We answer from the texts that follow here. <module name='a'>It was "
     "so.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"small text around modules",
     BEGIN "<module name='a'>It was so.<union>" MODULE("b") MODULE("c") "</union></module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"small modules side by side",
     BEGIN "<module name='a'>It was so.</module> <module name='b'>It was here.</module></schema>",
     {NULL},
     0,
     0,
     "imported-together:a"},
    {"small ones that prompts do not join",
     BEGIN "<module name='a'>It was so.</module> <module name='b'>It was here.</module></schema>",
     {AND("<a/>"), AND("<b/>")},
     5,
     0,
     "small-module:a small-module:b"},
    {"modules that prompts always join",
     BEGIN MODULE("a") MODULE("b") MODULE("c") "</schema>",
     {AND("<a/><b/>"), AND("<c/>")},
     5,
     0,
     "imported-together:a"},
    {"modules joined in another order",
     BEGIN MODULE("a") MODULE("b") MODULE("c") "</schema>",
     {AND("<b/><a/>"), AND("<c/>")},
     5,
     0,
     ""},
    {"modules joined but once not",
     BEGIN MODULE("a") MODULE("b") MODULE("c") "</schema>",
     {AND("<a/><b/>"), AND("<a/><b/>"), AND("<a/>"), AND("<c/>")},
     3,
     0,
     ""},
    {"modules joined in too few prompts",
     BEGIN MODULE("a") MODULE("b") MODULE("c") "</schema>",
     {AND("<a/><b/>"), AND("<c/>")},
     2,
     0,
     ""},
    {"modules joined by a scaffold",
     BEGIN MODULE("a") MODULE("b") MODULE("c") "<scaffold modules='a b'/></schema>",
     {AND("<a/><b/>"), AND("<c/>")},
     5,
     0,
     ""},

    {"a module in all prompts",
     BEGIN MODULE("a") MODULE("b") "</schema>",
     {AND("<a/>"), AND("<a/><b/>")},
     5,
     0,
     "always-imported:a"},
    {"a module whenever another is there",
     BEGIN "<module name='a'>" LONG MODULE("b") "</module>" MODULE("c") "</schema>",
     {AND("<a><b/></a>"), AND("<c/>")},
     5,
     0,
     "always-imported:a/b"},
    {"a template in all prompts",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='2'/>.</module></schema>",
     {AND("<a p='one'/>")},
     5,
     0,
     ""},

    {"a union that wastes",
     "<schema name='s' layout='fixed'>We answer from them. <union><module name='a'>" LONG LONG LONG LONG LONG
     "</module>" MODULE("b") MODULE("c") "</union></schema>",
     {NULL},
     0,
     0,
     "uneven-union:"},
    {"a packed union",
     BEGIN "<union><module name='a'>" LONG LONG LONG LONG LONG "</module>" MODULE("b") MODULE("c") "</union></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a union of equals",
     "<schema name='s' layout='fixed'>We answer from them. <union>" MODULE("a") MODULE("b") "</union></schema>",
     {NULL},
     0,
     0,
     ""},

    {"a name of another module",
     BEGIN "<module name='a'>Ormoor is a town. " LONG " So is Ormoor.</module>\n<module name='b'>" LONG
           " It is in Ormoor.</module></schema>",
     {NULL},
     0,
     0,
     "outside-name:b"},
    {"the module's own name",
     BEGIN "<module name='or-moor'>Here is OrMoor. " LONG "</module>\n<module name='b'>" LONG
           " It is in OrMoor.</module></schema>",
     {NULL},
     0,
     0,
     "outside-name:b"},
    {"a term in quotes",
     BEGIN "<module name='a'>A \"state tax\" is one. " LONG "</module>\n<module name='b'>" LONG
           " It is a state tax.</module></schema>",
     {NULL},
     0,
     0,
     "outside-name:b"},
    {"a function",
     BEGIN "<module name='a'>def kes_load(path):\n    return path # " LONG
           "</module>\n<module name='b'>def mon(path):\n    " LONG " kes_load(path)</module></schema>",
     {NULL},
     0,
     0,
     "outside-name:b"},
    {"prose that begins like code",
     BEGIN "<module name='a'>class teachers are here. " LONG "</module>\n<module name='b'>" LONG
           " The teachers are not.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a name that both introduce",
     BEGIN "<module name='a'>Ormoor is a town. " LONG " So is Ormoor.</module>\n<module name='b'>We know Ormoor. " LONG
           " It is in Ormoor.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a name that has been seen",
     BEGIN "Ormoor is here. <module name='a'>Ormoor is a town. " LONG " So is Ormoor.</module>\n<module name='b'>" LONG
           " It is in Ormoor.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a name of what is around",
     BEGIN "<module name='a'>Ormoor is a town. " LONG " So is Ormoor.<module name='b'> " LONG
           " It is in Ormoor.</module></module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a name of another member",
     BEGIN "<union><module name='a'>Ormoor is a town. " LONG " So is Ormoor.</module>\n<module name='b'>" LONG
           " It is in Ormoor.</module></union></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a name in a scaffold",
     BEGIN "<module name='a'>Ormoor is a town. " LONG " So is Ormoor.</module>\n<module name='b'>" LONG
           " It is in Ormoor.</module><scaffold modules='a b'/></schema>",
     {NULL},
     0,
     0,
     ""},
    {"a word that begins a sentence",
     BEGIN "<module name='a'>Towns are many. " LONG " Towns and more towns.</module>\n<module name='b'>" LONG
           " Towns again.</module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"a parameter longer than its arguments",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='40'/>.</module></schema>",
     {AND("<a p='a day'/>"), AND("<a p='one'/>")},
     0,
     0,
     "long-parameter:a"},
    {"a parameter without arguments",
     BEGIN "<module name='a'>" LONG " For <param name='p' len='2'/>.</module></schema>",
     {AND("<a/>"), AND("")},
     5,
     0,
     "long-parameter:a"},

    {"text behind a parameter",
     BEGIN "<module name='a'>For <param name='p' len='2'/>: " LONG LONG "</module></schema>",
     {NULL},
     0,
     0,
     "text-after-parameter:a"},
    {"text before a parameter",
     BEGIN "<module name='a'>" LONG LONG " For <param name='p' len='2'/>: so.</module></schema>",
     {NULL},
     0,
     0,
     ""},
    {"text behind, computed anew",
     BEGIN "<module name='a' cache='false'>For <param name='p' len='2'/>: " LONG LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},

    {"no text before modules",
     "<schema name='s'>" MODULE("a") MODULE("b") "</schema>",
     {NULL},
     0,
     0,
     "short-beginning:a"},
    {"no text, fixed layout", "<schema name='s' layout='fixed'>" MODULE("a") MODULE("b") "</schema>", {NULL}, 0, 0, ""},
    {"scope module",
     BEGIN "<module name='a' scope='module'>" LONG "</module></schema>",
     {NULL},
     0,
     0,
     "module-scope:a"},
    {"scope module with nothing to see",
     "<schema name='s'><module name='a' scope='module'>" LONG "</module></schema>",
     {NULL},
     0,
     0,
     ""},
};

/* "code:module code:module". Fails where a finding is not one line at a place. */
static const char *list_findings(const rp_lint *lint, char *out, size_t bytes) {
    out[0] = '\0';
    for (size_t i = 0, used = 0; i < lint->n_findings; i++, used = strlen(out)) {
        const rp_lint_finding *f = &lint->findings[i];
        assert_true(f->line > 0 && f->column > 0 && f->message[0] && !strchr(f->message, '\n'));
        assert_string_equal(
            f->document, f->code == RP_LINT_INVALID_PROMPT || strncmp(f->message, "the prompt", 10) == 0 ? "p" : "d");
        snprintf(out + used, bytes - used, "%s%s:%s", i > 0 ? " " : "", rp_lint_name(f->code), f->module);
    }
    return out;
}

static int run_case(const lint_case *c, rp_lint **lint, rp_error *err) {
    rp_lint_prompt prompts[64];
    size_t n = 0;
    for (int copy = 0; copy < (c->copies > 0 ? c->copies : 1); copy++)
        for (int i = 0; i < MOST_PROMPTS && c->prompts[i]; i++)
            prompts[n++] = (rp_lint_prompt){c->prompts[i], strlen(c->prompts[i]), "p"};
    return rp_schema_lint(model, c->schema, strlen(c->schema), "d", NULL, prompts, n, c->n_ctx, lint, err);
}

static void finds_what_is_there(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char found[1024];
        rp_lint *lint;
        rp_error err = {0};
        if (run_case(&cases[i], &lint, &err)) fail_msg("%s: %s", cases[i].what, err.message);
        list_findings(lint, found, sizeof(found));
        if (strcmp(found, cases[i].expected) != 0)
            fail_msg("%s: found '%s', expected '%s': %s", cases[i].what, found, cases[i].expected,
                     lint->n_findings > 0 ? lint->findings[0].message : "");
        rp_lint_free(lint);
    }
}

/* The table above has each finding, besides that of templates. */
static void every_finding_is_tried(void **state) {
    (void)state;
    for (int code = 0; code < RP_N_LINTS; code++) {
        char name[32];
        bool found = false;
        snprintf(name, sizeof(name), "%s:", rp_lint_name((rp_lint_code)code));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) found |= strstr(cases[i].expected, name) != NULL;
        const bool is_of_model = code == RP_LINT_UNSTABLE_TEMPLATE || code == RP_LINT_RECURRENT_MODEL;
        if (!found && !is_of_model) fail_msg("no case has '%s'", name);
    }
    assert_null(rp_lint_name(RP_N_LINTS));
}

/* The model's chat template, alone and with a schema; every allocation fails once. */
static void templates_that_change(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.chat_template = "{% for m in messages %}\n"
                          "{{ m.role + ': ' }}\n"
                          "{% if loop.last %}{{ m.reasoning_content or '' }}{% endif %}\n"
                          "{{ m.content }}\n"
                          "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
    rp_model *changing = tiny_model_open(&shape, NULL);
    rp_lint *lint;
    assert_int_equal(rp_model_lint(changing, &lint, NULL), RP_OK);
    assert_int_equal(lint->n_findings, 1);
    assert_int_equal(lint->n_severity[RP_LINT_NOTE], 1);
    assert_int_equal(lint->findings[0].code, RP_LINT_UNSTABLE_TEMPLATE);
    assert_int_equal(lint->findings[0].line, 3);
    assert_string_equal(lint->findings[0].document, "chat template");
    rp_lint_free(lint);

    const char *schema = BEGIN "<module name='a'></module></schema>";
    assert_int_equal(rp_schema_lint(changing, schema, strlen(schema), "d", NULL, NULL, 0, 0, &lint, NULL), RP_OK);
    assert_int_equal(lint->n_findings, 2);
    assert_int_equal(lint->findings[0].code, RP_LINT_EMPTY_MODULE);
    assert_int_equal(lint->findings[1].code, RP_LINT_UNSTABLE_TEMPLATE);
    rp_lint_free(lint);

    int rc = RP_ERR_MEMORY, n = 0;
    while (rc) {
        rp_error err = {0};
        base_alloc_fail_at((uint64_t)++n, 0);
        rc = rp_model_lint(changing, &lint, &err);
        base_alloc_fail_at(0, 0);
        if (rc) assert_int_equal(rc, RP_ERR_MEMORY);
    }
    assert_true(n > 100);
    rp_lint_free(lint);
    assert_int_equal(rp_model_lint(model, &lint, NULL), RP_OK); /* it has no template */
    assert_int_equal(lint->n_findings, 0);
    rp_lint_free(lint);
    assert_int_equal(rp_model_lint(NULL, &lint, NULL), RP_ERR_INVALID);
    rp_model_close(changing);
}

/* Lint reports what the model can do with modules, for schemas that have some. */
static void recurrent_models(void **state) {
    (void)state;
    const char *modules = BEGIN MODULE("a") "</schema>", *none = BEGIN "</schema>";
    tiny_model_shape shape = tiny_model_defaults();
    rp_model *recurrent = tiny_model_open(&shape, NULL);
    rp_lint *lint;
    recurrent_model_make(recurrent);
    assert_int_equal(rp_schema_lint(recurrent, modules, strlen(modules), "d", NULL, NULL, 0, 0, &lint, NULL), RP_OK);
    assert_int_equal(lint->n_findings, 1);
    assert_int_equal(lint->findings[0].code, RP_LINT_RECURRENT_MODEL);
    assert_string_equal(lint->findings[0].module, "a");
    assert_non_null(strstr(lint->findings[0].message, "--module-states last; "));
    rp_lint_free(lint);
    assert_int_equal(rp_schema_lint(recurrent, none, strlen(none), "d", NULL, NULL, 0, 0, &lint, NULL), RP_OK);
    assert_int_equal(lint->n_findings, 0);
    rp_lint_free(lint);
    rp_model_close(recurrent);
}

static void messages_have_numbers(void **state) {
    (void)state;
    rp_lint *lint;
    lint_case c = {.schema = BEGIN "\n<module name='a'>" LONG " For <param name='p' len='2'/>.</module></schema>",
                   .prompts = {AND("<a p='three long days and a week'/>"), AND("<a p='one'/>")}};
    assert_int_equal(run_case(&c, &lint, NULL), 0);
    assert_int_equal(lint->n_findings, 1);
    assert_int_equal(lint->n_severity[RP_LINT_ERROR], 1);
    assert_int_equal(lint->n_prompts, 1); /* the other one cannot be planned */
    assert_int_equal(lint->findings[0].line, 2);
    assert_non_null(strstr(lint->findings[0].message, "1 of 2 arguments of 'p' are longer than len=\"2\""));
    rp_lint_free(lint);
}

static void a_wrong_schema_is_an_error(void **state) {
    (void)state;
    rp_lint *lint = (rp_lint *)state;
    rp_error err = {0};
    assert_int_equal(rp_schema_lint(model, "<schema/>", 9, "d", NULL, NULL, 0, 0, &lint, &err), RP_ERR_SYNTAX);
    assert_null(lint);
    assert_int_equal(rp_schema_lint(model, "<schema/>", 9, "d", NULL, NULL, 1, 0, &lint, &err), RP_ERR_INVALID);
    assert_int_equal(rp_schema_lint_file(model, "/nowhere/s.xml", NULL, 0, 0, &lint, &err), RP_ERR_IO);
    rp_lint_free(NULL);
}

/* ---- The prototype's documents ---- */

typedef struct golden {
    const char *file, *findings; /* "line:column code" */
} golden;

static const golden prototype[] = {
    {"empty.xml", ""},
    {"parameterized_prompts.xml", "4:9 indentation 14:70 joined-words 21:21 text-after-parameter"},
    {"personalization-education.xml", "2:13 indentation 239:13 exceeds-context"},
    {"schema_mbti.xml", "1:1 schema-exceeds-context 3:9 indentation 1:1 exceeds-context"},
};

static void the_prototypes_documents(void **state) {
    (void)state;
    const char *data = getenv("REPRISE_TEST_DATA"),
               *prompt = "<prompt schema=\"mbti\">\n    <E/><N/><T/><P/>\n</prompt>";
    char path[512];
    rp_model *stories;
    rp_error err = {0};
    rp_lint_prompt use = {prompt, strlen(prompt), "p"};
    if (!data || !*data) skip();
    snprintf(path, sizeof(path), "%s/models/stories260K.gguf", data);
    if (rp_model_open(&stories, path, NULL, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof(prototype) / sizeof(prototype[0]); i++) {
        char found[512] = "";
        rp_lint *lint;
        snprintf(path, sizeof(path), "%s/pml/%s", data, prototype[i].file);
        if (rp_schema_lint_file(stories, path, &use, 1, 0, &lint, &err)) fail_msg("%s", err.message);
        for (size_t k = 0, used = 0; k < lint->n_findings; k++, used = strlen(found))
            snprintf(found + used, sizeof(found) - used, "%s%d:%d %s", k > 0 ? " " : "", (int)lint->findings[k].line,
                     (int)lint->findings[k].column, rp_lint_name(lint->findings[k].code));
        if (strcmp(found, prototype[i].findings) != 0)
            fail_msg("%s: found '%s', expected '%s'", prototype[i].file, found, prototype[i].findings);
        assert_int_equal(lint->n_prompts, strcmp(prototype[i].file, "schema_mbti.xml") == 0);
        rp_lint_free(lint);
    }
    snprintf(path, sizeof(path), "%s/pml/code_generation_game.xml", data); /* writes < in its text, which is no XML */
    rp_lint *lint;
    assert_int_equal(rp_schema_lint_file(stories, path, NULL, 0, 0, &lint, &err), RP_ERR_SYNTAX);
    snprintf(path, sizeof(path), "%s/pml/schema_code_generation.xml", data); /* length="5" for "[to be filled later]" */
    assert_int_equal(rp_schema_lint_file(stories, path, NULL, 0, 0, &lint, &err), RP_ERR_LENGTH);
    assert_non_null(strstr(err.where, "schema_code_generation.xml:15:9"));
    rp_model_close(stories);
}

/* ---- Anything ---- */

#define RANDOM_SCHEMAS 40
#define RANDOM_PROMPTS 6

static void random_documents(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= RANDOM_SCHEMAS; seed++) {
        tiny_random r = {seed};
        random_pml p;
        rp_lint_prompt prompts[RANDOM_PROMPTS];
        rp_lint *lint;
        rp_error err = {0};
        random_pml_init(&p, &r);
        random_pml_schema(&p);
        for (int i = 0; i < RANDOM_PROMPTS; i++) {
            random_pml_prompt(&p, model->tokenizer);
            prompts[i] = (rp_lint_prompt){base_strdup(p.prompt.data), p.prompt.len, "p"};
        }
        if (rp_schema_lint(model, p.schema.data, p.schema.len, "d", NULL, prompts, RANDOM_PROMPTS, 100000, &lint, &err))
            fail_msg("seed %d: %s", (int)seed, err.message);
        for (size_t i = 0; i < lint->n_findings; i++) {
            const rp_lint_finding *f = &lint->findings[i];
            bool of_gap = f->code == RP_LINT_INVALID_PROMPT && (p.fixed || strstr(f->message, "long"));
            assert_true(f->line > 0 && (f->severity != RP_LINT_ERROR || f->code == RP_LINT_LONG_ARGUMENT || of_gap));
        }
        rp_lint_free(lint);
        for (int i = 0; i < RANDOM_PROMPTS; i++) base_free((char *)prompts[i].pml);
        random_pml_free(&p);
    }
}

static void memory_fails(void **state) {
    (void)state;
    lint_case c = {.schema = BEGIN "<module name='a'>Ormoor is a town of<param name='p' len='9' scaffold='three'/>. So "
                                   "is Ormoor.</module>\n<module name='b'>The above "
                                   "is\n        in Ormoor.</module>" MODULE("c")
                                       MODULE("d") "<scaffold modules='c d'/></schema>",
                   .prompts = {AND("<a p='one'/><b/>"), AND("<nothing/>")},
                   .copies = 5};
    int rc = RP_ERR_MEMORY, n = 0;
    while (rc) {
        rp_lint *lint;
        base_alloc_fail_at((uint64_t)++n, 0);
        rc = run_case(&c, &lint, NULL);
        base_alloc_fail_at(0, 0);
        assert_true(rc == 0 || rc == RP_ERR_MEMORY);
        if (rc) assert_null(lint);
        else rp_lint_free(lint);
    }
    assert_true(n > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_there),
        cmocka_unit_test(every_finding_is_tried),
        cmocka_unit_test(templates_that_change),
        cmocka_unit_test(recurrent_models),
        cmocka_unit_test(messages_have_numbers),
        cmocka_unit_test(a_wrong_schema_is_an_error),
        cmocka_unit_test(the_prototypes_documents),
        cmocka_unit_test(random_documents),
        cmocka_unit_test(memory_fails),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
