/* SPDX-License-Identifier: Apache-2.0 */
/* test_prompts.c: prompts built part by part (rp_prompt): the plan, tokens and logits of the PML prompt with the same
 * texts, escaped; no text becomes markup, whatever its bytes; errors name the part, and the first one is kept until the
 * prompt is submitted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "support/oracle_run.h"
#include "reprise_pml.h"
#include "support/experiments.h"

#define SEED 20261123
#define ROUNDS 300

static const char schema_text[] =
    "<schema name='s'>You are a guide.\n<module name='plan'>Plan a trip of <param name='days' len='24'/> to "
    "<union><module name='miami'>Miami, "
    "with <param name='what' len='24'/>.</module><module name='lisbon'>Lisbon.</module></union></module><module "
    "name='diet' cache='false'>No meat "
    "for <param name='who' len='24'/>!</module><module name='talk'><user>Is it "
    "open?</user><assistant>Yes.</assistant></module></schema>";

typedef struct world {
    rp_model *model;
    rp_engine *engine;
} world;

static world open_world(const char *format) {
    world w;
    rp_error err;
    tiny_model_shape shape = tiny_model_defaults();
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    w.model = tiny_model_open(&shape, format);
    if (rp_engine_new(&w.engine, w.model, &o, &err)) fail_msg("%s", err.message);
    if (rp_schema_parse(w.engine, schema_text, strlen(schema_text), "s.xml", NULL, NULL, NULL, &err))
        fail_msg("%s", err.message);
    return w;
}

static void close_world(world *w) {
    rp_engine_free(w->engine);
    rp_model_close(w->model);
}

static rp_builder *new_prompt(const char *schema) {
    rp_builder *p;
    rp_error err;
    if (rp_builder_new(&p, schema, &err)) fail_msg("%s", err.message);
    return p;
}

static rp_request request_of(const rp_builder *built, const char *pml) {
    rp_request q = rp_request_defaults();
    q.prompt = pml ? rp_prompt_pml(pml) : rp_prompt_built(built);
    q.max_tokens = 3;
    q.ignore_eos = true;
    return q;
}

/* ---- random prompts, as parts and as PML ---- */

static void put(base_buffer *b, const char *s, size_t n) {
    if (base_buffer_append(b, s, n)) abort();
}

static void put_str(base_buffer *b, const char *s) { put(b, s, strlen(s)); }

/* Escapes every ASCII byte with a possible meaning as its character reference. */
static void put_escaped(base_buffer *b, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == ' ') put(b, s + i, 1);
        else if (base_buffer_printf(b, "&#%u;", c)) abort();
    }
}

static const char *const pieces[] = {"<",
                                     ">",
                                     "&",
                                     "\"",
                                     "'",
                                     "<plan/>",
                                     "<miami/>",
                                     "</user>",
                                     "</prompt>",
                                     "<user>",
                                     "]]>",
                                     "<![CDATA[",
                                     "&lt;",
                                     "&#65;",
                                     "&amp;",
                                     "<!--",
                                     "-->",
                                     "<?x?>",
                                     " ",
                                     "  ",
                                     "\n",
                                     "\r\n",
                                     "\t",
                                     "a",
                                     "red ball",
                                     "<|im_end|>",
                                     "</s>",
                                     "[INST]",
                                     "{{x}}",
                                     "\xc3\xa9",
                                     "\xe2\x82\xac",
                                     "\xf0\x9f\x90\xa2",
                                     "plan/miami",
                                     "<plan days=\"1\">",
                                     "xml:space=\"preserve\"",
                                     "2 < 3 && 4 > 1"};
/* Characters that XML excludes. */
static const char controls[] = {'\0', '\1', '\a', '\b', '\v', '\f', '\33', '\37', '\177'};

typedef struct random_text {
    char bytes[256];
    size_t n;
} random_text;

static random_text make_text(tiny_random *r, uint64_t n_pieces, bool with_controls) {
    random_text t = {.n = 0};
    for (uint64_t k = 1 + tiny_random_below(r, n_pieces); k > 0; k--) {
        if (with_controls && tiny_random_below(r, 3) == 0) {
            t.bytes[t.n++] = controls[tiny_random_below(r, sizeof controls)];
            continue;
        }
        const char *piece = pieces[tiny_random_below(r, BASE_ARRAY_LEN(pieces))];
        memcpy(t.bytes + t.n, piece, strlen(piece));
        t.n += strlen(piece);
    }
    return t;
}

typedef struct both {
    rp_builder *built;
    base_buffer pml;
    bool took_plan, took_diet, took_talk;
} both;

static void both_text(both *b, const random_text *t) {
    size_t cut = t->n / 2;
    while (cut < t->n && ((unsigned char)t->bytes[cut] & 0xc0) == 0x80) cut++;
    assert_int_equal(rp_builder_append_text(b->built, t->bytes, cut), RP_OK); /* in two pieces: one text */
    assert_int_equal(rp_builder_append_text(b->built, t->bytes + cut, t->n - cut), RP_OK);
    put_escaped(&b->pml, t->bytes, t->n);
}

/* An argument, of a few tokens at most. */
static void both_argument(both *b, tiny_random *r, const char *name) {
    if (tiny_random_below(r, 3) == 0) return;
    random_text t = make_text(r, 1, false);
    assert_int_equal(rp_builder_set_argument(b->built, name, t.bytes, t.n), RP_OK);
    put_str(&b->pml, " ");
    put_str(&b->pml, name);
    put_str(&b->pml, "=\"");
    put_escaped(&b->pml, t.bytes, t.n);
    put_str(&b->pml, "\"");
}

static void both_plan(both *b, tiny_random *r) {
    uint64_t which = tiny_random_below(r, 3);
    static const char *const paths[] = {"plan", "plan/miami", "plan/lisbon"};
    b->took_plan = true;
    assert_int_equal(rp_builder_import(b->built, paths[which]), RP_OK);
    put_str(&b->pml, "<plan");
    both_argument(b, r, "days"); /* of plan, which contains the others */
    put_str(&b->pml, ">");
    if (which == 1) {
        put_str(&b->pml, "<miami");
        both_argument(b, r, "what");
        put_str(&b->pml, "/>");
    }
    put_str(&b->pml, which == 2 ? "<lisbon/></plan>" : "</plan>");
}

static void both_import(both *b, tiny_random *r, bool in_role) {
    uint64_t which = tiny_random_below(r, 3);
    if (which == 0 && !b->took_plan) both_plan(b, r);
    else if (which == 1 && !b->took_diet) {
        b->took_diet = true;
        assert_int_equal(rp_builder_import(b->built, "diet"), RP_OK);
        put_str(&b->pml, "<diet");
        both_argument(b, r, "who");
        put_str(&b->pml, "/>");
    } else if (which == 2 && !b->took_talk && !in_role) {
        b->took_talk = true;
        assert_int_equal(rp_builder_import(b->built, "talk"), RP_OK);
        put_str(&b->pml, "<talk/>");
    }
}

static void both_pieces(both *b, tiny_random *r, bool in_role) {
    for (uint64_t k = tiny_random_below(r, 4); k > 0; k--) {
        random_text t = make_text(r, 6, false);
        if (tiny_random_below(r, 2)) both_text(b, &t);
        else both_import(b, r, in_role);
    }
}

static both make_both(tiny_random *r) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    both b = {.built = new_prompt("s"), .pml = BASE_BUFFER((size_t)1 << 20)};
    put_str(&b.pml, "<prompt schema='s' xml:space='preserve'>");
    for (uint64_t k = 1 + tiny_random_below(r, 3); k > 0; k--) {
        uint64_t role = tiny_random_below(r, 5);
        if (role < 4) {
            assert_int_equal(rp_builder_begin_role(b.built, (rp_role)role), RP_OK);
            if (base_buffer_printf(&b.pml, "<%s>", roles[role])) abort();
        }
        both_pieces(&b, r, role < 4);
        if (role < 4 && (k > 1 || tiny_random_below(r, 2)))
            assert_int_equal(rp_builder_end_role(b.built), RP_OK); /* the last may stay open */
        if (role < 4 && base_buffer_printf(&b.pml, "</%s>", roles[role])) abort();
    }
    put_str(&b.pml, "</prompt>");
    return b;
}

static void expect_same_plan(const rp_result *a, const rp_result *b) {
    assert_int_equal(a->n_plan, b->n_plan);
    for (int32_t i = 0; i < a->n_plan; i++) {
        assert_string_equal(a->plan[i].module, b->plan[i].module);
        assert_int_equal(a->plan[i].position, b->plan[i].position);
        assert_int_equal(a->plan[i].n_tokens, b->plan[i].n_tokens);
        assert_int_equal(a->plan[i].is_view, b->plan[i].is_view);
    }
}

/* Parts, and PML with the same texts escaped: the same code, or the same plan and bit-identical logits. */
static void test_same_as_escaped(void **state) {
    (void)state;
    static const char *const formats[] = {"chatml", "llama-2"};
    tiny_random r = {SEED};
    int n_ran = 0, n_imports = 0;
    for (size_t f = 0; f < 2; f++) {
        world w = open_world(formats[f]);
        for (int i = 0; i < ROUNDS / 2; i++) {
            both b = make_both(&r);
            oracle_run built, parsed;
            rp_request of_built = request_of(b.built, NULL), of_pml = request_of(NULL, b.pml.data);
            of_built.experiment = of_pml.experiment = &experiment_no_prefix; /* to give both plans the same lines */
            oracle_run_make(&built, w.engine, &of_built);
            oracle_run_make(&parsed, w.engine, &of_pml);
            if (built.rc != parsed.rc)
                fail_msg("%s gives %d (%s), its parts %d (%s)", b.pml.data, parsed.rc, parsed.err.message, built.rc,
                         built.err.message);
            if (!oracle_run_same(&built, &parsed)) fail_msg("%s gives other logits than its parts", b.pml.data);
            if (built.rc == RP_OK) {
                /* modules prefilled by the first run are hits of the second: the rest is the same */
                rp_result *again = NULL;
                assert_int_equal(rp_engine_run(w.engine, &of_built, &again, NULL), RP_OK);
                expect_same_plan(again, parsed.result);
                rp_result_free(again);
                n_ran++;
                n_imports += b.took_plan + b.took_diet + b.took_talk;
            }
            oracle_run_free(&built);
            oracle_run_free(&parsed);
            rp_builder_free(b.built);
            base_buffer_free(&b.pml);
        }
        close_world(&w);
    }
    assert_true(n_ran > ROUNDS * 3 / 4);
    assert_true(n_imports > ROUNDS / 2);
}

/* Any UTF-8 text has exactly the tokens that the tokenizer gives it, and only the prompt's own besides. */
static void test_text_is_text(void **state) {
    (void)state;
    world w = open_world("chatml");
    tiny_random r = {SEED + 1};
    rp_error err;
    for (int i = 0; i < ROUNDS; i++) {
        random_text t = make_text(&r, 8, true);
        rp_builder *p = new_prompt("s");
        rp_result *result;
        int32_t *tokens;
        size_t n_tokens;
        assert_int_equal(rp_builder_append_text(p, t.bytes, t.n), RP_OK);
        rp_request q = request_of(p, NULL);
        q.max_tokens = 1;
        if (rp_engine_run(w.engine, &q, &result, &err)) fail_msg("%s", err.message);
        for (int32_t k = 0; k < result->n_plan; k++)
            if (result->plan[k].module[0] != '\0') assert_string_equal(result->plan[k].module, "prompt");
        int32_t own = 0;
        for (int32_t k = 0; k < result->n_plan; k++)
            own += result->plan[k].module[0] != '\0' ? result->plan[k].n_tokens : 0;
        assert_int_equal(rp_tokenize(w.model, t.bytes, t.n, false, false, &tokens, &n_tokens, &err), RP_OK);
        assert_in_range(own, n_tokens - 1,
                        n_tokens); /* a SentencePiece vocabulary's dummy space, not inserted after other text */
        rp_free(tokens);
        rp_result_free(result);
        rp_builder_free(p);
    }
    close_world(&w);
}

/* ---- imports ---- */

static void expect_run(world *w, rp_builder *p, int code, const char *says) {
    rp_request q = request_of(p, NULL);
    rp_result *result = NULL;
    rp_error err = {0};
    assert_int_equal(rp_engine_run(w->engine, &q, &result, &err), code);
    if (says && !strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
    rp_result_free(result);
    rp_builder_free(p);
}

static void test_errors_at_submission(void **state) {
    (void)state;
    world w = open_world("chatml");
    rp_builder *p = new_prompt("s");
    rp_builder_append_text(p, "a", 1);
    rp_builder_import(p, "plan/miamy");
    expect_run(&w, p, RP_ERR_NAME, "prompt, part 2: schema 's' has no module 'miamy' in 'plan': did you mean 'miami'?");
    p = new_prompt("s");
    rp_builder_import(p, "plan/miami");
    rp_builder_set_argument(p, "dais", "3", 1);
    expect_run(&w, p, RP_ERR_NAME, "prompt, part 1: module 'miami' has no parameter 'dais'");
    p = new_prompt("s");
    rp_builder_import(p, "plan");
    rp_builder_append_text(p, "a", 1);
    rp_builder_import(p, "plan/miami");
    expect_run(&w, p, RP_ERR_CONFLICT, "prompt, part 3: the module \"plan\" is already imported in part 1");
    p = new_prompt("s");
    rp_builder_import(p, "plan/miami");
    rp_builder_import(p, "plan/lisbon");
    expect_run(&w, p, RP_ERR_CONFLICT, "members of one union");
    p = new_prompt("s");
    rp_builder_import(p, "plan");
    rp_builder_set_argument(p, "days", "3", 1);
    rp_builder_set_argument(p, "days", "4", 1);
    expect_run(&w, p, RP_ERR_CONFLICT, "argument 'days' of 'plan' is given twice");
    p = new_prompt("s");
    rp_builder_import(p, "plan");
    char longer[200];
    memset(longer, 'x', sizeof longer);
    rp_builder_set_argument(p, "days", longer, sizeof longer);
    expect_run(&w, p, RP_ERR_LENGTH, "prompt, part 1: argument 'days'");
    expect_run(&w, new_prompt("nobody"), RP_ERR_NAME, "schema 'nobody' is not loaded");
    p = new_prompt("s"); /* importing the same module again is no second import */
    rp_builder_import(p, "plan/miami");
    rp_builder_import(p, "plan");
    rp_builder_set_argument(p, "days", "3\0\1", 3);
    expect_run(&w, p, RP_OK, NULL);
    close_world(&w);
}

/* ---- messages with modules, and PML as a part ---- */

/* A part: "+u" begins a user's message, "-" ends it, "@a/b" imports, "<..." is PML, "~u" a role; anything else is
   text. */
static rp_builder *prompt_of(const char *const *parts, const char *schema) {
    static const char roles[] = "suat";
    rp_builder *p = new_prompt(schema);
    for (; *parts; parts++) {
        const char *s = *parts;
        if (s[0] == '+') rp_builder_begin_message(p, (rp_role)(strchr(roles, s[1]) - roles));
        else if (s[0] == '~') rp_builder_begin_role(p, (rp_role)(strchr(roles, s[1]) - roles));
        else if (s[0] == '-') rp_builder_end_role(p);
        else if (s[0] == '@') rp_builder_import(p, s + 1);
        else if (s[0] == '<') rp_builder_append_pml(p, s, strlen(s));
        else rp_builder_append_text(p, s, strlen(s));
    }
    return p;
}

/* The schema of these tests has modules inside, outside and in a role. */
static world open_shop(void) {
    static const char shop[] = "<schema name='shop'><system>You sell.</system><user><module name='plan'>Plan a "
                               "visit.<module name='toys'>Balls."
                               "</module></module></user><module name='rule'>One ball a day.</module><module "
                               "name='talk'><user>Is it open?</user>"
                               "<assistant>Yes.</assistant></module><module name='deep'><module "
                               "name='deeper'><user>Hm?</user></module></module></schema>";
    world w = open_world("chatml");
    rp_error err;
    if (rp_schema_parse(w.engine, shop, sizeof(shop) - 1, "shop.xml", NULL, NULL, NULL, &err))
        fail_msg("%s", err.message);
    return w;
}

static void test_messages(void **state) {
    (void)state;
    static const struct {
        const char *parts[16], *pml; /* of a prompt with xml:space="preserve"; after '!': without */
    } rows[] = {
        {{"+s", "Be brief.", "-", "+u", "Look: ", "@rule", " What?\n", "-", "+a", "-", "+u", " x "},
         "<system>Be brief.</system><user>Look: <rule/> What?\n</user><assistant></assistant><user> x </user>"},
        {{"+u", "@plan/toys", " What?"}, "<plan><toys/></plan> What?"},
        {{"+u", "a", "@plan", "b", "-", "+a", "c"}, "a<plan/>b<assistant>c</assistant>"},
        {{"+u", "Hi.", "@talk", "What?"}, "<user>Hi.</user><talk/><user>What?</user>"},
        {{"+u", "@deep", "What?"}, "<deep/><user>What?</user>"},
        {{"+u", "@talk", "-", "+u", "@rule"}, "<talk/><user><rule/></user>"},
        {{"+u", "a", "<prompt schema='shop' xml:space='preserve'> b <rule/> c </prompt>", "d"},
         "<user>a b <rule/> c d</user>"},
        {{"+u", "a", "<prompt schema='shop'>  <rule/>  b  </prompt>", "c"}, "!<user>a <rule/> b c</user>"},
        {{"+u", "<prompt schema='shop'/>", "c"}, "<user>c</user>"},
        {{"+u", "a", "<prompt schema='shop'><user>b</user><talk/></prompt>", "c"},
         "<user>a</user><user>b</user><talk/><user>c</user>"},
        {{"<prompt schema='shop'><plan><toys/></plan>b</prompt>", "~u", "c",
          "<prompt schema='shop'> <rule/> d</prompt>"},
         "!<plan><toys/></plan>b<user>c <rule/> d</user>"},
    };
    world w = open_shop();
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++) {
        char pml[512];
        oracle_run built, parsed;
        rp_builder *p =
            prompt_of(rows[i].parts, rows[i].parts[0][0] == '<' ? NULL : "shop"); /* NULL: the PML names it */
        snprintf(pml, sizeof(pml), "<prompt schema='shop'%s>%s</prompt>",
                 rows[i].pml[0] == '!' ? "" : " xml:space='preserve'", rows[i].pml + (rows[i].pml[0] == '!'));
        rp_request of_built = request_of(p, NULL), of_pml = request_of(NULL, pml);
        oracle_run_make(&built, w.engine, &of_built);
        oracle_run_make(&parsed, w.engine, &of_pml);
        if (built.rc || parsed.rc) fail_msg("row %zu: %s%s", i, built.err.message, parsed.err.message);
        if (!oracle_run_same(&built, &parsed)) fail_msg("%s gives other logits than its parts", pml);
        oracle_run_free(&built);
        oracle_run_free(&parsed);
        rp_builder_free(p);
    }
    close_world(&w);
}

static void test_messages_refused(void **state) {
    (void)state;
    static const struct {
        const char *parts[8], *schema;
        rp_code rc;
        const char *message;
    } rows[] = {
        {{"+a", "@plan"},
         "shop",
         RP_ERR_CONFLICT,
         "prompt, part 2: module 'plan' is in the schema's <user>: import it in a message of that role, not of "
         "assistant"},
        {{"+u", "a", "-", "+u", "@plan"},
         "shop",
         RP_ERR_CONFLICT,
         "prompt, part 4: module 'plan' is in the schema's own <user>, before all messages"},
        {{"+u", "@none"}, "shop", RP_ERR_NAME, "schema 'shop' has no module 'none': it has plan, rule, talk, deep"},
        {{"+u", "@rule", "a", "<prompt schema='shop'><rule/></prompt>"},
         "shop",
         RP_ERR_CONFLICT,
         "prompt, part 4: the module \"rule\" is already imported in part 2"},
        {{"a", "<prompt schema='s'/>"},
         "shop",
         RP_ERR_CONFLICT,
         "prompt, part 2: PML for schema 's' in a prompt for 'shop'"},
        {{"<prompt schema='s'/>", "<prompt schema='shop'/>"},
         NULL,
         RP_ERR_CONFLICT,
         "prompt, part 2: PML for schema 'shop' in a prompt for 's'"},
        {{"~u", "<prompt schema='shop'><user/></prompt>"}, "shop", RP_ERR_INVALID, "roles do not nest"},
        {{"a", "<prompt schema='shop'>\n<rule></prompt>"},
         "shop",
         RP_ERR_SYNTAX,
         "prompt, part 2:2:7: the wrong element is closed here"},
        {{"<schema name='shop'/>"}, "shop", RP_ERR_SYNTAX, "a prompt begins with <prompt"},
        {{"<prompt schema='shop' quality='exact'/>"}, "shop", RP_ERR_CONFLICT, "quality of its own"},
    };
    world w = open_shop();
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows); i++)
        expect_run(&w, prompt_of(rows[i].parts, rows[i].schema), rows[i].rc, rows[i].message);
    close_world(&w);
}

/* The first error is kept: a program may check once, at the end. */
static void test_errors_are_kept(void **state) {
    (void)state;
    world w = open_world("chatml");
    static const char cut[] = {'a', '\xe2', '\x82'};
    rp_builder *p = new_prompt("s");
    assert_int_equal(rp_builder_append_text(p, "a", 1), RP_OK);
    assert_int_equal(rp_builder_append_text(p, cut, 3), RP_ERR_INVALID);
    assert_int_equal(rp_builder_append_text(p, "b", 1), RP_ERR_INVALID);
    assert_int_equal(rp_builder_import(p, "diet"), RP_ERR_INVALID);
    expect_run(&w, p, RP_ERR_INVALID, "prompt, part 2: byte 1 of a text, 0xE2, is not UTF-8");
    p = new_prompt("s");
    assert_int_equal(rp_builder_set_argument(p, "days", "3", 1), RP_ERR_INVALID);
    expect_run(&w, p, RP_ERR_INVALID, "argument 'days' follows no module");
    p = new_prompt("s");
    assert_int_equal(rp_builder_import(p, "diet"), RP_OK);
    assert_int_equal(rp_builder_append_text(p, "x", 1), RP_OK);
    assert_int_equal(rp_builder_set_argument(p, "who", "3", 1), RP_ERR_INVALID);
    rp_builder_free(p);
    p = new_prompt("s");
    assert_int_equal(rp_builder_begin_role(p, RP_ROLE_USER), RP_OK);
    assert_int_equal(rp_builder_begin_role(p, RP_ROLE_USER), RP_ERR_INVALID);
    expect_run(&w, p, RP_ERR_INVALID, "roles do not nest");
    p = new_prompt("s");
    assert_int_equal(rp_builder_end_role(p), RP_ERR_INVALID);
    rp_builder_free(p);
    p = new_prompt("s");
    assert_int_equal(rp_builder_begin_role(p, (rp_role)9), RP_ERR_INVALID);
    rp_builder_free(p);
    static const char *const paths[] = {"", "/plan", "plan/", "plan//miami"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(paths); i++) {
        p = new_prompt("s");
        assert_int_equal(rp_builder_import(p, paths[i]), RP_ERR_NAME);
        rp_builder_free(p);
    }
    assert_int_equal(rp_builder_import(NULL, "a"), RP_ERR_INVALID);
    assert_int_equal(rp_builder_append_text(NULL, "a", 1), RP_ERR_INVALID);
    rp_builder *none;
    assert_int_equal(rp_builder_new(&none, "", NULL), RP_ERR_INVALID);
    rp_builder_free(NULL);
    close_world(&w);
}

/* ---- Documents ---- */

#define N_DOCUMENTS 3

static const char *const documents[N_DOCUMENTS] = {"The harbour opens at nine.\f It is \"deep\" & cold.",
                                                   "<module name='x'>Lisbon has hills.</module>",
                                                   "A red ball lies in the yard, and nobody takes it."};

/* Documents in this order, then a question. */
static rp_builder *prompt_of_documents(const int *order, size_t n) {
    rp_builder *p = new_prompt(NULL);
    rp_builder_begin_role(p, RP_ROLE_USER);
    for (size_t i = 0; i < n; i++) rp_builder_append_document(p, documents[order[i]], strlen(documents[order[i]]));
    rp_builder_append_text(p, "What is deep?", 13);
    assert_int_equal(rp_builder_end_role(p), RP_OK);
    return p;
}

/* Runs it and returns the number of cached tokens; the logits are those of a run without reuse. */
static int32_t run_documents(world *w, const int *order, size_t n) {
    rp_builder *p = prompt_of_documents(order, n);
    rp_request q = request_of(p, NULL), off = q;
    off.reuse = RP_REUSE_OFF;
    q.experiment = &experiment_no_prefix;
    oracle_run hit, cold;
    oracle_run_make(&hit, w->engine, &q);
    oracle_run_make(&cold, w->engine, &off);
    if (hit.rc) fail_msg("%s", hit.err.message);
    assert_true(oracle_run_same(&hit, &cold));
    int32_t cached = hit.result->cached_tokens;
    oracle_run_free(&hit);
    oracle_run_free(&cold);
    rp_builder_free(p);
    return cached;
}

static void test_documents_are_reused_in_any_order(void **state) {
    (void)state;
    world w = open_world("chatml");
    assert_int_equal(run_documents(&w, (const int[]){0, 1, 2}, 3), 0);
    int32_t all = run_documents(&w, (const int[]){2, 0, 1}, 3), two = run_documents(&w, (const int[]){1, 2}, 2);
    assert_true(all > two && two > 0);
    close_world(&w);
}

/* The documents' prompt as PML: the same plan, and hits of the same entries. */
static void test_documents_are_modules(void **state) {
    (void)state;
    world w = open_world("chatml");
    rp_builder *p = prompt_of_documents((const int[]){2}, 1);
    rp_request built = request_of(p, NULL),
               pml = request_of(NULL,
                                "<prompt schema='parts' xml:space='preserve'><user><a/>What is deep?</user></prompt>");
    pml.prompt.schema = "<schema name='parts' layout='packed' xml:space='preserve'><module name='first'>.</module>"
                        "<module name='a'>A red ball lies in the yard, and nobody takes it.</module></schema>";
    rp_result *a, *b;
    assert_int_equal(rp_engine_run(w.engine, &built, &a, NULL), RP_OK);
    assert_int_equal(rp_engine_run(w.engine, &pml, &b, NULL), RP_OK);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_true(b->cached_tokens > a->cached_tokens);
    assert_string_equal(a->text, b->text);
    int n_documents = 0;
    for (int32_t i = 0; i < a->n_plan; i++)
        n_documents += a->plan[i].module[0] == 'd' && strlen(a->plan[i].module) == 21;
    assert_int_equal(n_documents, 1);
    rp_result_free(a);
    rp_result_free(b);
    rp_builder_free(p);
    close_world(&w);
}

static void test_documents_have_rules(void **state) {
    (void)state;
    world w = open_world("chatml");
    rp_result *r, *twice;
    rp_error err;
    rp_builder *p = new_prompt("s");
    assert_int_equal(rp_builder_append_document(p, "a", 1), RP_ERR_CONFLICT);
    rp_builder_free(p);
    p = new_prompt(NULL);
    rp_builder_append_document(p, documents[2], strlen(documents[2]));
    rp_request q = request_of(p, NULL);
    assert_int_equal(rp_engine_run(w.engine, &q, &r, &err), RP_OK);
    assert_int_equal(rp_builder_append_document(p, documents[2], strlen(documents[2])), RP_OK); /* text */
    assert_int_equal(rp_engine_run(w.engine, &q, &twice, &err), RP_OK);
    assert_true(twice->prompt_tokens > r->prompt_tokens && twice->cached_tokens >= r->cached_tokens);
    rp_result_free(r);
    rp_result_free(twice);
    q.prompt.schema = "<schema name='s'/>";
    assert_int_equal(rp_engine_run(w.engine, &q, &r, &err), RP_ERR_CONFLICT);
    assert_int_equal(rp_builder_append_document(p, "\xff", 1), RP_ERR_INVALID);
    rp_builder_free(p);
    p = new_prompt(NULL);
    for (int i = 0; i < RP_MAX_DOCUMENTS; i++) {
        char text[16];
        assert_int_equal(rp_builder_append_document(p, text, (size_t)snprintf(text, sizeof(text), "%d", i)), RP_OK);
    }
    assert_int_equal(rp_builder_append_document(p, "one more", 8), RP_ERR_LIMIT);
    rp_builder_free(p);
    close_world(&w);
}

/* One prompt for many requests, freed while they run; not together with another prompt. */
static void test_used_by_many(void **state) {
    (void)state;
    world w = open_world("chatml");
    rp_job *calls[3];
    rp_result *results[3];
    rp_error err;
    rp_builder *p = new_prompt("s");
    rp_builder_import(p, "plan/lisbon");
    rp_builder_begin_role(p, RP_ROLE_USER);
    rp_builder_append_text(p, "Is 2 < 3?", 9);
    rp_request q = request_of(p, NULL);
    for (size_t i = 0; i < 3; i++) assert_int_equal(rp_engine_submit(w.engine, &q, &calls[i], &err), RP_OK);
    rp_builder_free(p);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rp_job_result(calls[i], &results[i], &err), RP_OK);
        assert_int_equal(results[i]->prompt_tokens, results[0]->prompt_tokens);
        assert_string_equal(results[i]->text, results[0]->text);
    }
    for (size_t i = 0; i < 3; i++) {
        rp_result_free(results[i]);
        rp_job_free(calls[i]);
    }
    p = new_prompt("s");
    const rp_prompt wrong[] = {
        {.kind = RP_PROMPT_NONE},
        rp_prompt_text(NULL),
        rp_prompt_built(NULL),
        {.kind = (rp_prompt_kind)99, .content = "a", .n = 1},
        {.kind = RP_PROMPT_TEXT, .content = "a", .n = 1, .schema = "<schema name='s'/>"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(wrong); i++) {
        q.prompt = wrong[i];
        assert_int_equal(rp_engine_submit(w.engine, &q, &calls[0], &err), RP_ERR_INVALID);
    }
    q.prompt = rp_prompt_built(p);
    q.prompt.schema = "<schema name='s'><module name='own'>My own.</module></schema>";
    rp_builder_import(p, "own");
    assert_int_equal(rp_engine_run(w.engine, &q, &results[0], &err), RP_OK);
    rp_result_free(results[0]);
    q.prompt.schema = "<schema name='t'><module name='own'>My own.</module></schema>";
    assert_int_equal(rp_engine_run(w.engine, &q, &results[0], &err), RP_ERR_NAME);
    rp_builder_free(p);
    close_world(&w);
}

static int make_and_run(world *w, rp_error *err) {
    static const char with_import[] = "<prompt schema='s'> b <diet who='Ann'/> c </prompt>";
    rp_builder *p;
    rp_result *result = NULL;
    int rc = rp_builder_new(&p, "s", err);
    if (rc) return rc;
    rp_builder_import(p, "plan/miami");
    rp_builder_set_argument(p, "what", "a < b", 5);
    rp_builder_begin_role(p, RP_ROLE_USER);
    for (int i = 0; i < 40; i++) rp_builder_append_text(p, "<plan/>", 7);
    rp_builder_end_role(p);
    rp_builder_begin_message(p, RP_ROLE_USER);
    rp_builder_append_text(p, "a", 1);
    rp_builder_append_pml(p, with_import, sizeof(with_import) - 1);
    rp_builder_append_text(p, "b", 1);
    rp_request q = request_of(p, NULL);
    q.max_tokens = 1;
    rc = rp_engine_run(w->engine, &q, &result, err);
    rp_result_free(result);
    rp_builder_free(p);
    return rc;
}

static void test_failed_allocations(void **state) {
    (void)state;
    world w = open_world("chatml");
    rp_error err;
    assert_int_equal(make_and_run(&w, &err), RP_OK); /* one-time allocations happen here */
    int rc = RP_ERR_MEMORY;
    for (uint64_t i = 1; rc; i++) {
        base_alloc_fail_at(i, 0);
        rc = make_and_run(&w, &err);
        base_alloc_fail_at(0, 0);
        if (rc) assert_int_equal(err.code, RP_ERR_MEMORY);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_escaped),
        cmocka_unit_test(test_text_is_text),
        cmocka_unit_test(test_errors_at_submission),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_refused),
        cmocka_unit_test(test_errors_are_kept),
        cmocka_unit_test(test_used_by_many),
        cmocka_unit_test(test_failed_allocations),
        cmocka_unit_test(test_documents_are_reused_in_any_order),
        cmocka_unit_test(test_documents_are_modules),
        cmocka_unit_test(test_documents_have_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
