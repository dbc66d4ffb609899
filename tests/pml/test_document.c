/* SPDX-License-Identifier: Apache-2.0 */
/* test_document.c: the parser's rules: every error with its code, position and remedy; white space; src files;
 * limits; memory. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "pml/document.h"
#include "support/random_pml.h"
#include "support/reference_space.h"
#include "reprise_pml.h"

/* ---- errors ---- */

typedef struct wrong {
    const char *document, *where, *says;
    rp_code code;
} wrong;

static const wrong wrong_schemas[] = {
    {"", "d:1:1", "is empty", RP_ERR_SYNTAX},
    {"<prompt schema='s'/>", "d:1:1", "a schema begins with", RP_ERR_SYNTAX},
    {"<schema/>", "d:1:1", "has no name", RP_ERR_SYNTAX},
    {"<schema name='a b'/>", "d:1:1", "name=\"a b\"", RP_ERR_SYNTAX},
    {"<schema name='s' layout='tight'/>", "d:1:1", "layout=\"tight\"", RP_ERR_SYNTAX},
    {"<schema name='s' scop='path'/>", "d:1:1", "did you mean scope", RP_ERR_SYNTAX},
    {"<schema name='s' anchor='eos'/>", "d:1:1", "write \"none\" or \"bos\"", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m' anchor='bos' scope='path'/></schema>", "d:1:18",
     "beside scope=\"path\" in <module>", RP_ERR_SYNTAX},
    {"<schema name='s'>\n  <modul name='m'/></schema>", "d:2:3", "did you mean <module>", RP_ERR_SYNTAX},
    {"<schema name='s'>\n\n <module>m</module></schema>", "d:3:2", "has no name", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='user'/></schema>", "d:1:18", "\"user\"", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m' cache='maybe'/></schema>", "d:1:18", "cache=\"maybe\"", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m' ttl='5x'/></schema>", "d:1:18", "ttl=\"5x\"", RP_ERR_SYNTAX},
    {"<schema name='s'><param name='p' len='3'/></schema>", "d:1:18", "<param>", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m'><param name='p'/></module></schema>", "d:1:35", "has no len", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m'><param name='p' len='0'/></module></schema>", "d:1:35", "len=\"0\"",
     RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m'><param name='p' len='5000'/></module></schema>", "d:1:35", "len=\"5000\"",
     RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m'><param name='p' len='2'>x</param></module></schema>", "d:1:59", "must be empty",
     RP_ERR_SYNTAX},
    {"<schema name='s'><union></union></schema>", "d:1:18", "is empty: give it a module", RP_ERR_SYNTAX},
    {"<schema name='s'><union>x<module name='m'/></union></schema>", "d:1:25", "contains modules only", RP_ERR_SYNTAX},
    {"<schema name='s'><union><user/></union></schema>", "d:1:25", "contains modules only", RP_ERR_SYNTAX},
    {"<schema name='s'><union scaffold='n'><module name='m'/></union></schema>", "d:1:18", "unknown member",
     RP_ERR_NAME},
    {"<schema name='s'><user><system>x</system></user></schema>", "d:1:24", "<user>", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m'/>\n<module name='m'/></schema>", "d:2:1", "in line 1", RP_ERR_CONFLICT},
    {"<schema name='s'><scaffold modules='m'/><module name='m'/></schema>", "d:1:18", "two or more", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='mm'/><scaffold modules='mn mm'/></schema>", "d:1:37", "did you mean \"mm\"",
     RP_ERR_NAME},
    {"<schema name='s'><module name='m'/><scaffold modules='m m'/></schema>", "d:1:36", "twice", RP_ERR_CONFLICT},
    {"<schema name='s'><union><module name='a'/><module name='b'/></union><scaffold modules='a b'/></schema>", "d:1:69",
     "", RP_ERR_CONFLICT},
    {"<!DOCTYPE schema [<!ENTITY a 'b'>]><schema name='s'>&a;</schema>", "d:1:1", "document type", RP_ERR_SYNTAX},
    {"<?php x?><schema name='s'/>", "d:1:1", "<?php ...?>", RP_ERR_SYNTAX},
    {"<?xml version='1.0' encoding='latin1'?><schema name='s'/>", "d:1:1", "UTF-8", RP_ERR_SYNTAX},
    {"<schema name='s'>a &nbsp; b</schema>", "d:1:20", "", RP_ERR_SYNTAX},
    {"<schema name='s'>a < b</schema>", "d:1:21", "", RP_ERR_SYNTAX},
    {"<schema name='s'>\xC3(</schema>", "d:1:18", "0xC3", RP_ERR_SYNTAX},
    {"<schema name='s'>\n<module name='m'></schema>", "d:2:18", "<module> of line 2", RP_ERR_SYNTAX},
    {"<schema name='s'/><schema name='t'/>", "d:1:19", "", RP_ERR_SYNTAX},
    {"<schema name='s'><module name='m' src='x.txt'/></schema>", "d:1:18", "src=\"x.txt\"", RP_ERR_IO},
};

static const wrong wrong_prompts[] = {
    {"<schema name='s'/>", "d:1:1", "a prompt begins with", RP_ERR_SYNTAX},
    {"<prompt/>", "d:1:1", "has no schema", RP_ERR_SYNTAX},
    {"<prompt schema='s'><module name='m'/></prompt>", "d:1:20", "<module> in a prompt", RP_ERR_SYNTAX},
    {"<prompt schema='s'><m>text</m></prompt>", "d:1:23", "imports only", RP_ERR_SYNTAX},
    {"<prompt schema='s'><m><user>x</user></m></prompt>", "d:1:23", "imports only", RP_ERR_SYNTAX},
    {"<prompt schema='s'><user><user>x</user></user></prompt>", "d:1:26", "do not nest", RP_ERR_SYNTAX},
};

static void expect_wrong(const wrong *w, bool prompt) {
    rp_error err = {0};
    pml_document *d = (pml_document *)&err;
    size_t n = strlen(w->document);
    int rc = prompt ? pml_prompt_parse(&d, w->document, n, "d", &err)
                    : pml_schema_parse(&d, w->document, n, "d", NULL, NULL, &err);
    if (rc != (int)w->code || d != NULL || strcmp(err.where, w->where) != 0 || !strstr(err.message, w->says) ||
        strchr(err.message, '\n'))
        fail_msg("%s\n  gives %d at %s: %s\n  wanted %d at %s: ...%s...", w->document, rc, err.where, err.message,
                 (int)w->code, w->where, w->says);
}

static void errors_have_code_place_and_advice(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_schemas / sizeof wrong_schemas[0]; i++) expect_wrong(&wrong_schemas[i], false);
    for (size_t i = 0; i < sizeof wrong_prompts / sizeof wrong_prompts[0]; i++) expect_wrong(&wrong_prompts[i], true);
}

/* ---- white space ---- */

/* The document's texts in order, each in brackets; a parameter is {p}, with its space inside. */
static void texts_of(const pml_document *d, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < d->n_nodes && used < bytes; i++) {
        const pml_node *n = &d->nodes[i];
        if (n->kind == PML_TEXT) used += (size_t)snprintf(out + used, bytes - used, "[%s]", n->text);
        if (n->kind == PML_PARAM)
            used += (size_t)snprintf(out + used, bytes - used, "{%sp}", n->border_space ? " " : "");
    }
}

static void white_space(void **state) {
    (void)state;
    static const struct {
        const char *inside, *texts;
    } cases[] = {
        {"A.\n <module name='m'>\n M.\n </module>\n B", "[A.][ M.][ B]"},
        {"A<module name='m'>M</module>B", "[A][M][B]"},
        {"\n  A  B \n", "[A  B]"},
        {"<user>\n A </user>\n<module name='m'> M </module>", "[A][M]"},
        {"<module name='m'>M</module>\n<module name='n'>N</module>", "[M][ N]"},
        {"<module name='m'>to <param name='p' len='1'/> and <param name='q' len='1'/>.</module>",
         "[to]{ p}[ and]{ p}[.]"},
        {"<module name='m'>to<param name='p' len='1'/>and</module>", "[to]{p}[and]"},
        {"<module name='m'><param name='p' len='1'/> <param name='q' len='1'/></module>", "{p}{ p}"},
        {"A <union><module name='m'> M</module><module name='n'>N</module></union> B", "[A][ M][ N][ B]"},
        {"A <module name='m' xml:space='preserve'>  M\n</module> B", "[A][  M\n][ B]"},
        {"Alpha. <module name='m'><user>x</user></module> owns", "[Alpha.][x][ owns]"},
        {"Alpha. <module name='m'><user>x</user></module>owns", "[Alpha.][x][ owns]"},
        {"Alpha.<module name='m'> <user>x</user> </module>owns", "[Alpha.][x][ owns]"},
        {"Alpha.<module name='m'><user>x</user></module>owns", "[Alpha.][x][owns]"},
        {"A. <module name='m'>M<user>x</user></module>B", "[A.][ M][x][ B]"},
        {"A. <module name='m'><user>x</user>M</module>B", "[A.][x][M][B]"},
        {"<module name='m'><user>x</user></module> B", "[x][B]"},
        {"<user>x</user> B <module name='m'><user>y</user></module> C", "[x][B][y][ C]"},
        {"A <module name='m'><module name='n'><user>x</user></module> M</module> B", "[A][x][ M][ B]"},
        {"A <union><module name='m'><user>x</user></module><module name='n'>N<user>y</user></module></union>B",
         "[A][x][ N][y][ B]"},
        {"A <union><module name='m'><user>x</user></module><module name='n'>N</module></union>B", "[A][x][ N][B]"},
        {"<module name='o'>A. <module name='m'><user>x</user></module><param name='p' len='1'/></module>",
         "[A.][x]{ p}"},
        {"&lt;a&gt; <![CDATA[<b>]]><!-- no --> &#x41;", "[<a> <b> A]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char document[512], texts[512];
        pml_document *d;
        rp_error err;
        snprintf(document, sizeof document, "<schema name='s'>%s</schema>", cases[i].inside);
        if (pml_schema_parse(&d, document, strlen(document), "d", NULL, NULL, &err))
            fail_msg("%s: %s", document, err.message);
        texts_of(d, texts, sizeof texts);
        if (strcmp(texts, cases[i].texts) != 0)
            fail_msg("%s\n  gives %s\n  wanted %s", cases[i].inside, texts, cases[i].texts);
        pml_document_free(d);
    }
}

static void random_documents_say_what_the_page_says(void **state) {
    (void)state;
    tiny_random r = {7};
    for (int i = 0; i < 300; i++) {
        random_pml p;
        pml_document *d;
        rp_error err;
        random_pml_init(&p, &r);
        random_pml_schema(&p);
        if (pml_schema_parse(&d, p.schema.data, p.schema.len, "d", NULL, NULL, &err)) fail_msg("%s", err.message);
        if (reference_space_check(p.schema.data, p.schema.len, d, &err)) fail_msg("%s\n%s", err.message, p.schema.data);
        pml_document_free(d);
        random_pml_free(&p);
    }
}

/* ---- src files ---- */

static char folder[] = "/tmp/reprise-document-XXXXXX";

static void write_file(const char *name, const char *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int parse_src(const char *src, char *texts, size_t bytes, rp_error *err) {
    char document[512], dir[256];
    pml_document *d;
    snprintf(document, sizeof document, "<schema name='s'>A <module name='m' src='%s'/></schema>", src);
    snprintf(dir, sizeof dir, "%s/in", folder);
    int rc = pml_schema_parse(&d, document, strlen(document), "d", dir, NULL, err);
    if (rc) return rc;
    texts_of(d, texts, bytes);
    pml_document_free(d);
    return RP_OK;
}

static void src_files_come_from_their_folder(void **state) {
    (void)state;
    char path[256], target[256], texts[256];
    rp_error err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/in", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/in/sub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("out.txt", "secret", 6);
    write_file("in/good.txt", "\n Hello\n world. \n", 17);
    write_file("in/sub/deep.txt", "deep", 4);
    write_file("in/bad.txt", "a\n\xFF", 3);
    snprintf(path, sizeof path, "%s/in/link.txt", folder);
    snprintf(target, sizeof target, "%s/out.txt", folder);
    assert_int_equal(symlink(target, path), 0);

    assert_int_equal(parse_src("good.txt", texts, sizeof texts, &err), RP_OK);
    assert_string_equal(texts, "[A][ Hello\n world.]");
    assert_int_equal(parse_src("sub/deep.txt", texts, sizeof texts, &err), RP_OK);
    static const char *const refused[] = {
        "../out.txt", "sub/../../out.txt", "/etc/passwd", "link.txt", "none.txt", "sub", ""};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int rc = parse_src(refused[i], texts, sizeof texts, &err);
        if (rc != RP_ERR_IO && rc != RP_ERR_SYNTAX) fail_msg("src='%s' gives %d", refused[i], rc);
        assert_string_equal(err.where, "d:1:20");
        assert_null(strstr(err.message, "secret"));
    }
    assert_int_equal(parse_src("bad.txt", texts, sizeof texts, &err), RP_ERR_SYNTAX);
    assert_non_null(strstr(err.message, "line 2, column 1: byte 0xFF"));
}

/* ---- options ---- */

static void a_scaffold_of_the_options_stands_at_the_end_tag(void **state) {
    (void)state;
    const char *text = "<schema name='s'>\n<module name='m'/>\n  </schema>\n<!-- behind -->\n";
    rp_schema_options o = {.struct_size = sizeof(o), .scaffold = "m n"};
    rp_error err;
    pml_document *d;
    assert_int_equal(pml_schema_parse(&d, text, strlen(text), "d", NULL, &o, &err), RP_ERR_NAME);
    assert_string_equal(err.where, "d:3:3");
}

/* ---- limits and memory ---- */

static void depth_is_bounded(void **state) {
    (void)state;
    char document[PML_MAX_DEPTH * 32 + 256] = "<schema name='s'>";
    rp_error err;
    pml_document *d;
    for (int i = 0; i < PML_MAX_DEPTH; i++) strcat(document, "<module name='m'>");
    assert_int_equal(pml_schema_parse(&d, document, strlen(document), "d", NULL, NULL, &err), RP_ERR_LIMIT);
    assert_non_null(strstr(err.message, "nested"));
}

static void failing_allocations_are_clean(void **state) {
    (void)state;
    const char *text = "<schema name='s' layout='fixed'>A <module name='m' scope='module'>to <param name='p' len='2' "
                       "scaffold='x y'/></module>"
                       "<union scaffold='a'><module name='a'>1</module><module name='b'>2</module></union><scaffold "
                       "modules='m a'/></schema>";
    rp_schema_options o = {.struct_size = sizeof(o), .scaffold = "m b"};
    int rc = RP_ERR_MEMORY, n = 0;
    while (rc == RP_ERR_MEMORY && n < 10000) {
        rp_error err;
        pml_document *d = NULL;
        base_alloc_fail_at((uint64_t)++n, 0);
        rc = pml_schema_parse(&d, text, strlen(text), "d", NULL, &o, &err);
        base_alloc_fail_at(0, 0);
        if (rc) assert_null(d);
        pml_document_free(d);
    }
    assert_int_equal(rc, RP_OK);
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_have_code_place_and_advice),
        cmocka_unit_test(white_space),
        cmocka_unit_test(random_documents_say_what_the_page_says),
        cmocka_unit_test(src_files_come_from_their_folder),
        cmocka_unit_test(a_scaffold_of_the_options_stands_at_the_end_tag),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(failing_allocations_are_clean),
    };
    return cmocka_run_group_tests_name("pml/document", tests, NULL, NULL);
}
