/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c: texts and places of a plan: white space before imports, texts of a fixed layout, placeholders, the
 * positions that an inspection shows. docs/pml.md has the reasons. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pml/plan.h"
#include "support/must.h"
#include "support/shared_model.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

typedef struct planned {
    pml_document *schema, *prompt;
    pml_layout *layout;
    pml_plan *plan;
    rp_error err;
    int rc;
} planned;

static planned make_plan(const char *schema, const char *prompt) {
    planned p = {0};
    base_key salt = {{0}};
    must(pml_schema_parse(&p.schema, schema, strlen(schema), "s.xml", NULL, NULL, &p.err), &p.err);
    must(pml_prompt_parse(&p.prompt, prompt, strlen(prompt), "p.xml", &p.err), &p.err);
    must(pml_layout_new(&p.layout, p.schema, model, NULL, &salt, &p.err), &p.err);
    p.rc = pml_plan_new(&p.plan, p.layout, p.prompt, false, (rp_quality){0}, (rp_quality){0}, &p.err);
    return p;
}

static void free_plan(planned *p) {
    pml_plan_free(p->plan);
    pml_layout_free(p->layout);
    pml_document_free(p->prompt);
    pml_document_free(p->schema);
}

/* The whole prompt in position order, with control tokens as the chat template writes them. The vocabulary is
 * SentencePiece: a text at an edge begins with its dummy space. */
static void write_prompt(const pml_plan *p, char *out, size_t bytes) {
    int32_t n = p->n_cached + p->n_fresh, tokens[512], positions[512];
    rp_error err;
    size_t used = 0;
    assert_true(n <= 512);
    must(pml_plan_flatten(p, tokens, positions, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        size_t length;
        const char *text = rp_token_bytes(model, tokens[i], true, &length);
        assert_true(used + length < bytes);
        memcpy(out + used, text, length);
        used += length;
    }
    out[used] = '\0';
}

static void expect_text(const char *schema, const char *prompt, const char *expected) {
    char text[1024];
    planned p = make_plan(schema, prompt);
    if (p.rc) fail_msg("%s\n%s\n%s", schema, prompt, p.err.message);
    write_prompt(p.plan, text, sizeof text);
    const char *have = strncmp(text, "<s>", 3) == 0 ? text + 3 : text;
    if (strcmp(have, expected) != 0) fail_msg("%s\n%s\n  gives  '%s'\n  wanted '%s'", schema, prompt, have, expected);
    free_plan(&p);
}

/* ---- white space ---- */

#define USER(text) "<|im_start|>user\n" text "<|im_end|>\n"
#define ANSWER "<|im_start|>assistant\n"

static void texts_around_modules_that_end_with_roles(void **state) {
    (void)state;
    const char *schema = "<schema name='s'>Alpha. <module name='m'><user>x</user></module> owns red!</schema>";
    expect_text(schema, "<prompt schema='s'/>", " Alpha. owns red!");
    expect_text(schema, "<prompt schema='s'><m/></prompt>", " Alpha." USER(" x") " owns red!" ANSWER);
    schema = "<schema name='s'>Alpha. <union><module name='m'>M <user>x</user></module><module "
             "name='n'><user>y</user></module></union>owns</schema>";
    expect_text(schema, "<prompt schema='s'/>", " Alpha. owns");
}

/* A text before an import ends with the space between them, unless the import begins with a space or a role. */
static void texts_before_imports(void **state) {
    (void)state;
    static const struct {
        const char *inside, *prompt, *text;
    } cases[] = {
        {"A <module name='m'>M</module>", "B <m/>", " A B M"},
        {"<module name='m'>M</module>", "B <m/>", " B M"},
        {"A<module name='m'>M</module>", "B<m/>", " A BM"},
        {"A <module name='m'><module name='n'>N</module></module>", "B <m><n/></m>", " A B N"},
        {"A <module name='m'><module name='n'>N</module> C</module>", "B <m/>", " A B C"},
        {"A<module name='m'><module name='n'>N</module>C</module>", "B <m/>", " A B C"},
        {"A <module name='m'><union scaffold='n'><module name='n'>N</module></union></module>", "B <m/>", " A B N"},
        {"A <module name='m'><union><module name='n'>N</module><module name='o'>O</module></union></module>",
         "B <m><o/></m>", " A B O"},
        {"A<module name='l'>L</module> C<module name='m'>M</module>", "<l/>B <m/>", " ALB CM"},
        {"A <module name='m'><param name='p' len='4'/> C</module>", "B <m p='x'/>", " A B x C"},
        {"A <module name='m'><param name='p' len='4'/>C</module>", "B <m/>", " A B C"},
        {"A <module name='m'/>", "B <m/> C", " A B C"},
        {"A <module name='m'><user>M</user></module>", "B <m/>", " A B" USER(" M") ANSWER},
        {"<user>A<module name='m'/></user>", "B <m/>", "<|im_start|>user\n A B<|im_end|>\n" ANSWER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char schema[512], prompt[256];
        snprintf(schema, sizeof schema, "<schema name='s'>%s</schema>", cases[i].inside);
        snprintf(prompt, sizeof prompt, "<prompt schema='s'>%s</prompt>", cases[i].prompt);
        expect_text(schema, prompt, cases[i].text);
    }
}

/* ---- fixed layouts ---- */

static void texts_without_a_gap_come_after_the_schema(void **state) {
    (void)state;
    const char *schema =
        "<schema name='s' layout='fixed'>A<module name='m'>M</module><module name='long'>a b c d e f g h</module>"
        "<module name='n'>N</module> end.</schema>";
    expect_text(schema, "<prompt schema='s'><m/><long/><n/>tail</prompt>", " AMa b c d e f g hN end.tail");
    expect_text(schema, "<prompt schema='s'><m/><long/>one<n/>two</prompt>", " AMa b c d e f g hN end.onetwo");
    expect_text(schema, "<prompt schema='s'><m/>gap<n/>two</prompt>", " AMgapN end.two");
    expect_text(schema, "<prompt schema='s'><n/>one<m/>two</prompt>", " AMN end.onetwo"); /* texts keep their order */
    expect_text(schema, "<prompt schema='s'><m/><long/><n/><user>x</user></prompt>",
                " AMa b c d e f g hN end." USER(" x") ANSWER);
    const char *guide = "<schema name='s' layout='fixed'><user><module name='plan'>Plan.<union><module "
                        "name='a'>Miami</module><module name='b'>Rio</module>"
                        "</union></module><module name='diet' cache='false'>No meat.</module></user></schema>";
    expect_text(guide, "<prompt schema='s'><plan><a/></plan><diet/> Surf. <user>And?</user></prompt>",
                USER(" Plan.MiamiNo meat.") " Surf." USER(" And?") ANSWER);
}

static void expect_misfit(const char *schema, const char *prompt, const char *where, const char *says,
                          const char *says_not) {
    planned p = make_plan(schema, prompt);
    assert_int_equal(p.rc, RP_ERR_LENGTH);
    assert_string_equal(p.err.where, where);
    if (!strstr(p.err.message, says) || strstr(p.err.message, says_not)) fail_msg("%s", p.err.message);
    free_plan(&p);
}

static void a_text_that_does_not_fit_its_gap_is_told_what_helps(void **state) {
    (void)state;
    const char *schema = "<schema name='s' layout='fixed'>A<module name='m'>M</module><module "
                         "name='o'>O</module><module name='n'>N</module></schema>";
    const char *text = "a text that is longer than any gap that there is in this schema";
    char prompt[256];
    snprintf(prompt, sizeof prompt, "<prompt schema='s'><m/>%s<n/></prompt>", text);
    expect_misfit(schema, prompt, "p.xml:1:24", "shorten it, move it after the last import, or write layout=\"packed\"",
                  "role");
    schema = "<schema name='s' layout='fixed'>A<module name='m'>M</module><module name='o'>O</module> end.</schema>";
    snprintf(prompt, sizeof prompt, "<prompt schema='s'><m/>%s</prompt>", text);
    expect_misfit(schema, prompt, "p.xml:1:24", "shorten it, or write layout=\"packed\"",
                  "last import"); /* it is there already */
    snprintf(prompt, sizeof prompt, "<prompt schema='s'>%s<o/></prompt>", text);
    expect_misfit(schema, prompt, "p.xml:1:20", "move it after the last import", "role");
}

/* ---- placeholders and positions ---- */

static void a_placeholder_longer_than_its_parameter_is_an_error(void **state) {
    (void)state;
    rp_engine *e = open_engine(NULL);
    rp_error err;
    const char *schema = "<schema name='s'>A\n<module name='m'>for <param name='p' len='2' scaffold='three long days "
                         "and a week'/></module></schema>";
    assert_int_equal(rp_schema_parse(e, schema, strlen(schema), "s.xml", NULL, NULL, NULL, &err), RP_ERR_LENGTH);
    assert_string_equal(err.where, "s.xml:2:22");
    assert_non_null(strstr(err.message, "the placeholder of parameter 'p' has "));
    assert_non_null(strstr(err.message, "len=\"2\": shorten the placeholder, or raise len"));
    rp_engine_free(e);
}

/* Of a module without own text: where it begins. */
static void expect_positions(const char *attributes, const char *expected) {
    char schema[512], found[256] = "";
    rp_engine *e = open_engine(NULL);
    rp_inspection *x;
    rp_error err;
    snprintf(schema, sizeof schema,
             "<schema name='s'%s><module name='a'>xyz</module><module name='b'><module "
             "name='c'>C</module></module><module name='d'/>"
             "<union><module name='e'/><module name='f'>F</module></union></schema>",
             attributes);
    load_schema(e, schema, "s.xml");
    must(rp_engine_inspect(e, NULL, "s", NULL, NULL, &x, &err), &err);
    for (int32_t i = 0; i < x->n_nodes; i++)
        if (x->nodes[i].kind[0] == 'm' || x->nodes[i].kind[0] == 'u')
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s%d ",
                     x->nodes[i].kind[0] == 'u' ? "union" : "", x->nodes[i].name, (int)x->nodes[i].position);
    if (strcmp(found, expected) != 0) fail_msg("%s: found '%s', expected '%s'", attributes, found, expected);
    rp_inspection_free(x);
    rp_engine_free(e);
}

static void modules_without_own_text_have_positions(void **state) {
    (void)state;
    expect_positions(" layout='fixed'", "a1 b5 c5 d6 union6 e6 f6 ");
    expect_positions("", "a1 b1 c1 d1 union1 e1 f1 ");
    expect_positions(" scope='module'", "a0 b0 c0 d0 union0 e0 f0 ");
    expect_positions(" scope='module' anchor='bos'", "a1 b1 c1 d1 union1 e1 f1 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_around_modules_that_end_with_roles),
        cmocka_unit_test(texts_before_imports),
        cmocka_unit_test(texts_without_a_gap_come_after_the_schema),
        cmocka_unit_test(a_text_that_does_not_fit_its_gap_is_told_what_helps),
        cmocka_unit_test(a_placeholder_longer_than_its_parameter_is_an_error),
        cmocka_unit_test(modules_without_own_text_have_positions),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
