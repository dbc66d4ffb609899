/* SPDX-License-Identifier: Apache-2.0 */
/* test_split.c: schemas derived from plain prompts. Each prompt over the proposed schema keeps its text, byte for byte,
 * in the documents (tests/support/flat_pml) and in the plan's tokens. Planted modules and those of the bundled examples
 * are detected. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
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
#include "base/memory.h"
#include "pml/plan.h"
#include "reprise_tools.h"
#include "support/flat_pml.h"
#include "support/seed.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"

#define MAX_PROMPTS 32

static rp_model *model; /* tokens without a space of their own: their bytes are the text */

static int open_model(void **state) {
    (void)state;
    tiny_model_shape shape = tiny_model_defaults();
    shape.vocab = TINY_VOCAB_BPE;
    model = tiny_model_open(&shape, "chatml");
    return 0;
}

static int close_model(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

/* ---- Prompts ---- */

typedef struct corpus {
    rp_split_prompt prompts[MAX_PROMPTS];
    rp_message messages[MAX_PROMPTS][4];
    base_buffer texts[MAX_PROMPTS][4];
    size_t n;
} corpus;

static void add_text(corpus *c, int role, const char *text, size_t n) {
    rp_split_prompt *p = &c->prompts[c->n];
    base_buffer *to = &c->texts[c->n][p->n_messages];
    *to = BASE_BUFFER(SIZE_MAX / 4);
    assert_int_equal(base_buffer_append(to, "", 0) || base_buffer_append(to, text, n), 0);
    p->name = "p";
    p->messages = c->messages[c->n];
    p->plain = role == FLAT_NO_ROLE;
    c->messages[c->n][p->n_messages++] =
        (rp_message){role == FLAT_NO_ROLE ? RP_ROLE_USER : (rp_role)role, to->data ? to->data : "", n};
}

static void add_plain(corpus *c, const char *text) {
    add_text(c, FLAT_NO_ROLE, text, strlen(text));
    c->n++;
}

static void corpus_free(corpus *c) {
    for (size_t p = 0; p < MAX_PROMPTS; p++)
        for (size_t m = 0; m < 4; m++) base_buffer_free(&c->texts[p][m]);
    memset(c, 0, sizeof(*c));
}

/* ---- The round trip ---- */

static void check_documents(const pml_document *schema, const pml_document *prompt, const rp_split_prompt *in) {
    flat_pml flat;
    flat_pml_make(&flat, schema, prompt);
    assert_true(flat_pml_equals(&flat, in));
    flat_pml_free(&flat);
}

static void append_bytes(base_buffer *to, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = rp_token_bytes(model, tokens[i], true, &n_bytes);
        assert_int_equal(base_buffer_append(to, bytes, n_bytes), 0);
    }
}

/* The plan's tokens decode to the same bytes as the input's tokens, including those of the chat template. */
static void check_tokens(const pml_layout *layout, const pml_document *prompt, const rp_split_prompt *in,
                         const rp_split_import *import) {
    pml_plan *plan;
    rp_error err = {0};
    base_buffer ours = BASE_BUFFER(SIZE_MAX / 4), theirs = BASE_BUFFER(SIZE_MAX / 4);
    int32_t *tokens;
    size_t n;
    if (pml_plan_new(&plan, layout, prompt, false, (rp_quality){0}, (rp_quality){0}, &err)) fail_msg("%s", err.message);
    assert_int_equal(import->total, plan->n_cached + plan->n_fresh);
    assert_int_equal(import->cached, plan->n_cached);
    int32_t *flat = calloc(2 * import->total + 1, sizeof(*flat));
    assert_int_equal(pml_plan_flatten(plan, flat, flat + import->total, NULL), 0);
    append_bytes(&ours, flat, import->total);
    if (in->plain)
        assert_int_equal(rp_tokenize(model, in->messages[0].text, in->messages[0].n, false, true, &tokens, &n, NULL),
                         0);
    else assert_int_equal(rp_tokenize_messages(model, in->messages, in->n_messages, false, &tokens, &n, NULL), 0);
    append_bytes(&theirs, tokens, n);
    assert_int_equal(ours.len, theirs.len);
    assert_memory_equal(ours.data, theirs.data, ours.len);
    rp_free(tokens);
    free(flat);
    base_buffer_free(&ours);
    base_buffer_free(&theirs);
    pml_plan_free(plan);
}

/* Splits, and checks everything that holds for every result. with: a model, or NULL. */
static rp_split_result *split(const corpus *c, const rp_model *with, int32_t min_bytes) {
    static const base_key salt = {{3}};
    rp_split_options o = rp_split_options_defaults();
    rp_split_result *r;
    rp_error err = {0};
    pml_document *schema, *prompt;
    pml_layout *layout = NULL;
    o.model = with;
    if (min_bytes > 0) o.min_bytes = min_bytes;
    if (rp_split(c->prompts, c->n, &o, &r, &err)) fail_msg("%s", err.message);
    assert_int_equal(r->n_prompts, c->n);
    assert_int_equal(r->counts_tokens, with != NULL);
    if (pml_schema_parse(&schema, r->schema, r->n_schema, "schema", NULL, NULL, &err))
        fail_msg("%s\n%s", err.message, r->schema);
    if (with && pml_layout_new(&layout, schema, with, NULL, &salt, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < c->n; i++) {
        const rp_split_import *p = &r->prompts[i];
        assert_true(p->first <= p->cached && p->cached <= p->total && p->prefix <= p->total + (with ? p->total : 0));
        if (pml_prompt_parse(&prompt, p->pml, p->n_pml, "prompt", &err)) fail_msg("%s\n%s", err.message, p->pml);
        check_documents(schema, prompt, &c->prompts[i]);
        if (with) check_tokens(layout, prompt, &c->prompts[i], p);
        pml_document_free(prompt);
    }
    assert_int_equal(r->prompts[0].prefix, 0);
    pml_layout_free(layout);
    pml_document_free(schema);
    return r;
}

static uint64_t all_cached(const rp_split_result *r) {
    uint64_t n = 0;
    for (size_t i = 0; i < r->n_prompts; i++) n += r->prompts[i].cached;
    return n;
}

static const rp_split_module *module_named(const rp_split_result *r, const char *name) {
    for (size_t i = 0; i < r->n_modules; i++)
        if (strcmp(r->modules[i].name, name) == 0) return &r->modules[i];
    fail_msg("no module '%s' in %s", name, r->schema);
    return NULL;
}

/* ---- What is proposed ---- */

#define GUIDE "You are a concise travel guide who answers in two sentences at most.\n\n"
#define MIAMI "Miami lies at the southeastern tip of Florida, and its beaches face the Atlantic Ocean.\n\n"
#define LISBON "Lisbon is built on seven hills above the Tagus; trams climb the steep streets of the old town.\n\n"
#define BERGEN "Bergen is the rainiest town of Norway: take an umbrella and waterproof boots wherever you go.\n\n"

static void documents_in_any_order_are_modules(void **state) {
    (void)state;
    corpus c = {0};
    add_plain(&c, GUIDE MIAMI LISBON "Where are the beaches?");
    add_plain(&c, GUIDE LISBON BERGEN "Where does it rain?");
    add_plain(&c, GUIDE BERGEN MIAMI "Which one is flat?");
    rp_split_result *r = split(&c, NULL, 0);
    assert_int_equal(r->n_modules, 3);
    assert_int_equal(r->anonymous_bytes, strlen(GUIDE) - 2); /* the empty line before a document stays with it */
    assert_int_equal(module_named(r, "lisbon-is-built-on")->n_bytes, strlen(LISBON));
    assert_int_equal(module_named(r, "miami-lies-at-the")->n_prompts, 2);
    assert_int_equal(r->prompts[0].cached, strlen(GUIDE MIAMI LISBON) - 2);
    assert_int_equal(r->prompts[1].first, strlen(BERGEN));
    assert_int_equal(r->prompts[2].prefix, strlen(GUIDE));
    assert_non_null(strstr(r->prompts[2].pml, "<bergen-is-the-rainiest/><miami-lies-at-the/>\n\nWhich one is flat?"));
    rp_split_free(r);
    corpus_free(&c);
}

static void what_varies_is_a_parameter(void **state) {
    (void)state;
    static const char *const towns[] = {"Lisbon", "Miami", "Reykjav\xC3\xADk in winter"};
    corpus c = {0};
    for (size_t i = 0; i < 3; i++) {
        char text[400];
        snprintf(text, sizeof text, "Be brief. For tomorrow, please plan a short walk through the city of %s%s",
                 towns[i], ", with two museums & a lunch < 20 euros; then end it at a station.\r\n");
        add_plain(&c, text);
    }
    rp_split_result *r = split(&c, NULL, 0);
    assert_int_equal(r->n_modules, 1);
    assert_int_equal(r->modules[0].n_params, 1);
    assert_int_equal(r->anonymous_bytes, strlen("Be brief."));
    assert_non_null(strstr(r->schema, "<param name=\"city\" len=\""));
    assert_non_null(strstr(r->prompts[0].pml, "city=\" Lisbon\""));
    rp_split_free(r);
    r = split(&c, model, 0);
    assert_int_equal(r->modules[0].n_params, 1);
    rp_split_free(r);
    corpus_free(&c);
}

static void alternatives_are_a_union(void **state) {
    (void)state;
    static const char *const tones[] = {
        "Write as if to a child of six years who has never heard of any of this. ",
        "Write as an engineer would write to another one, with all figures and units. "};
    corpus c = {0};
    for (size_t i = 0; i < 6; i++) {
        char text[400];
        snprintf(text, sizeof text, GUIDE "%sQuestion %c.", tones[i % 2], (char)('a' + i));
        add_plain(&c, text);
    }
    rp_split_result *r = split(&c, model, 0);
    assert_non_null(strstr(r->schema, "<union>"));
    for (size_t i = 0; i < r->n_modules; i++) assert_true(r->modules[i].is_alternative);
    rp_split_free(r);
    corpus_free(&c);
}

/* If all prompts share the start of a message, its rest is in the role that the schema leaves open. */
static void a_role_stays_open(void **state) {
    (void)state;
    static const char *const documents[] = {MIAMI LISBON, LISBON BERGEN, BERGEN MIAMI, ""};
    corpus c = {0};
    for (size_t i = 0; i < 4; i++) {
        char text[600];
        snprintf(text, sizeof text, GUIDE "%s%s", documents[i], i == 1 ? "Mind the rain." : "");
        add_text(&c, RP_ROLE_SYSTEM, text, strlen(text));
        snprintf(text, sizeof text, "Question %zu: " LISBON, i);
        add_text(&c, RP_ROLE_USER, text, i == 2 ? 0 : strlen(text));
        if (i > 2) add_text(&c, RP_ROLE_ASSISTANT, "<tool_call>]]>", 14);
        c.n++;
    }
    rp_split_result *r = split(&c, model, 0);
    assert_int_equal(strncmp(strchr(r->schema, '>') + 1, "<system>You are", 15), 0);
    assert_non_null(strstr(r->schema, "</module\n></system\n></schema>"));
    rp_split_free(r);
    rp_split_free(split(&c, NULL, 0));
    corpus_free(&c);
}

static void odd_prompts_stay_what_they_are(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "\n\n",
        "x",
        "a a a a a a a a a a a a a a a a a a a a a a a a a a",
        "\t" GUIDE GUIDE " ",
        "  " GUIDE MIAMI MIAMI "\r\n\r",
        "&amp;<!-- no --><![CDATA[ x ]]>",
        GUIDE "xml system prompt module",
        "\xE7\xAC\xAC\xE4\xB8\x80\xE7\xAB\xA0\xE3\x80\x82\xE7\xAC\xAC\xE4\xBA\x8C\xE7\xAB\xA0",
        "----- ----- -----"};
    size_t n = sizeof texts / sizeof *texts;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            corpus c = {0};
            add_plain(&c, texts[i]);
            add_plain(&c, texts[k]);
            add_plain(&c, texts[i]);
            rp_split_free(split(&c, NULL, 1 + (int32_t)k));
            corpus_free(&c);
        }
        corpus one = {0};
        add_plain(&one, texts[i]);
        rp_split_result *r = split(&one, NULL, 0);
        assert_int_equal(r->n_modules + r->anonymous_bytes, 0);
        rp_split_free(r);
        corpus_free(&one);
    }
}

/* ---- What is refused ---- */

static void refuse(const corpus *c, const rp_split_options *o, rp_code code, const char *says) {
    rp_split_result *r = (rp_split_result *)(uintptr_t)1;
    rp_error err = {0};
    assert_int_equal(rp_split(c->prompts, c->n, o, &r, &err), code);
    assert_null(r);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, says) || strchr(err.message, '\n')) fail_msg("%s", err.message);
}

static void hostile_input_gets_one_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *says;
    } bad[] = {
        {"a\0b", 3, "p: byte 1 (0x00)"},
        {"abc\xFF", 4, "byte 3 (0xFF) is not UTF-8"},
        {"\xED\xA0\x80", 3, "is not UTF-8"},
        {"\xC3", 1, "is not UTF-8"},
        {"\x1B[0m", 4, "XML does not allow"},
        {"\xEF\xBF\xBF", 3, "XML does not allow"},
    };
    rp_split_options o = rp_split_options_defaults();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        corpus c = {0};
        add_text(&c, FLAT_NO_ROLE, bad[i].text, bad[i].n);
        c.n++;
        refuse(&c, NULL, RP_ERR_SYNTAX, bad[i].says);
        corpus_free(&c);
    }
    corpus c = {0};
    refuse(&c, NULL, RP_ERR_INVALID, "no prompt");
    add_plain(&c, GUIDE);
    o.name = "two words";
    refuse(&c, &o, RP_ERR_INVALID, "'two words'");
    o = (rp_split_options){.struct_size = sizeof(rp_split_options), .min_bytes = 0};
    refuse(&c, &o, RP_ERR_INVALID, "1 to 65536");
    c.messages[0][0].role = (rp_role)9;
    c.prompts[0].plain = false;
    refuse(&c, NULL, RP_ERR_INVALID, "no known role");
    corpus_free(&c);
    char *large = calloc(RP_MAX_SPLIT_BYTES + 1, 1);
    memset(large, 'a', RP_MAX_SPLIT_BYTES);
    corpus huge = {0};
    add_plain(&huge, large);
    add_plain(&huge, "b");
    refuse(&huge, NULL, RP_ERR_LIMIT, "bytes of prompts");
    corpus_free(&huge);
    free(large);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    corpus c = {0};
    rp_error err;
    rp_split_result *r = NULL;
    int rc = RP_ERR_MEMORY;
    add_plain(&c, GUIDE MIAMI LISBON "Where are the beaches?");
    add_plain(&c, GUIDE LISBON BERGEN "Where does it rain?");
    add_plain(&c, GUIDE BERGEN MIAMI "Which one is flat?");
    rp_split_options o = rp_split_options_defaults();
    o.model = model;
    for (uint64_t n = 1; rc != RP_OK; n++) {
        base_alloc_fail_at(n, 0);
        rc = rp_split(c.prompts, c.n, &o, &r, &err);
        base_alloc_fail_at(0, 0);
        if (rc != RP_OK && rc != RP_ERR_MEMORY)
            assert_int_equal(rc, RP_ERR_INVALID); /* the name could not be checked */
        assert_true(n < 100000);
    }
    rp_split_free(r);
    corpus_free(&c);
}

/* ---- What was planted is found ---- */

#define N_DOCUMENTS 8
#define N_TEMPLATES 3

typedef struct world {
    tiny_random r;
    base_buffer lead, documents[N_DOCUMENTS], fixed[N_TEMPLATES][3];
    uint32_t uses[N_DOCUMENTS + N_TEMPLATES];
} world;

static void put(base_buffer *to, const char *text) { assert_int_equal(base_buffer_append_str(to, text), 0); }

/* Words of three thousand, with stops, lines and now and then a sign that XML does not like. */
static void put_words(world *w, base_buffer *to, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word = tiny_random_below(&w->r, 3000), kind = tiny_random_below(&w->r, 40);
        if (i > 0) put(to, kind == 0 ? ".\n" : kind == 1 ? ". "
                                           : kind == 2   ? " <&> "
                                           : kind == 3   ? ", "
                                                         : " ");
        for (uint64_t k = 0; k < 3; k++, word /= 15) {
            static const char *const syllables[] = {"ba", "re", "ti", "mo", "lu", "ka", "ne", "si",
                                                    "vo", "du", "ga", "he", "\xC3\xA9l", "po", "ru"};
            put(to, syllables[word % 15]);
        }
    }
}

static void make_world(world *w, uint64_t seed) {
    memset(w, 0, sizeof(*w));
    w->r.state = seed;
    w->lead = BASE_BUFFER(SIZE_MAX / 4);
    put_words(w, &w->lead, 10 + tiny_random_below(&w->r, 60));
    put(&w->lead, ".\n\n");
    for (size_t i = 0; i < N_DOCUMENTS; i++) {
        w->documents[i] = BASE_BUFFER(SIZE_MAX / 4);
        put_words(w, &w->documents[i], 30 + tiny_random_below(&w->r, 150));
        put(&w->documents[i], ".\n\n");
    }
    for (size_t i = 0; i < N_TEMPLATES; i++)
        for (size_t k = 0; k < 3; k++) {
            w->fixed[i][k] = BASE_BUFFER(SIZE_MAX / 4);
            put_words(w, &w->fixed[i][k], 12 + tiny_random_below(&w->r, 25));
            put(&w->fixed[i][k], k < 2 ? " " : ".\n\n");
        }
}

static void world_free(world *w) {
    base_buffer_free(&w->lead);
    for (size_t i = 0; i < N_DOCUMENTS; i++) base_buffer_free(&w->documents[i]);
    for (size_t i = 0; i < N_TEMPLATES; i++)
        for (size_t k = 0; k < 3; k++) base_buffer_free(&w->fixed[i][k]);
}

static void put_part(world *w, base_buffer *to, size_t part) {
    w->uses[part]++;
    if (part < N_DOCUMENTS) {
        put(to, w->documents[part].data);
        return;
    }
    for (size_t k = 0; k < 3; k++) {
        put(to, w->fixed[part - N_DOCUMENTS][k].data);
        if (k == 2) return;
        put_words(w, to, 1 + tiny_random_below(&w->r, 5));
        put(to, " ");
    }
}

/* A prompt: the lead, some parts in any order, free text between some. */
static void add_random_prompt(world *w, corpus *c, bool plain) {
    size_t order[N_DOCUMENTS + N_TEMPLATES], n = N_DOCUMENTS + N_TEMPLATES;
    base_buffer text = BASE_BUFFER(SIZE_MAX / 4);
    bool alone = tiny_random_below(&w->r, 2); /* the lead is a message of its own */
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i-- > 1;) {
        size_t k = tiny_random_below(&w->r, i + 1), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
    if (plain || !alone) put(&text, w->lead.data);
    else add_text(c, RP_ROLE_SYSTEM, w->lead.data, w->lead.len);
    uint64_t n_parts = tiny_random_below(&w->r, 6);
    for (uint64_t i = 0; i < n_parts; i++) {
        put_part(w, &text, order[i]);
        if (tiny_random_below(&w->r, 4) > 0) continue;
        put_words(w, &text, 3 + tiny_random_below(&w->r, 30));
        put(&text, "\n\n");
    }
    put_words(w, &text, 1 + tiny_random_below(&w->r, 20));
    add_text(c, plain ? FLAT_NO_ROLE : alone ? RP_ROLE_USER
                                             : RP_ROLE_SYSTEM,
             text.data, text.len);
    if (!plain && tiny_random_below(&w->r, 3) == 0) {
        base_buffer_clear(&text);
        put_words(w, &text, 8);
        add_text(c, RP_ROLE_ASSISTANT, text.data, text.len);
        add_text(c, RP_ROLE_USER, "And then?", 9);
    }
    base_buffer_free(&text);
    c->n++;
}

/* Bytes that can be reused: of text in two prompts or more. */
static uint64_t planted(const world *w, size_t n_prompts) {
    uint64_t n = w->lead.len * n_prompts;
    for (size_t i = 0; i < N_DOCUMENTS; i++) n += w->uses[i] > 1 ? w->uses[i] * w->documents[i].len : 0;
    for (size_t i = 0; i < N_TEMPLATES; i++)
        for (size_t k = 0; k < 3 && w->uses[N_DOCUMENTS + i] > 1; k++)
            n += w->uses[N_DOCUMENTS + i] * w->fixed[i][k].len;
    return n;
}

static void what_was_planted_is_found(void **state) {
    (void)state;
    uint64_t first = test_seed("split", 1), n_seeds = (uint64_t)test_rounds(40), found = 0, all = 0;
    size_t n_params = 0;
    for (uint64_t seed = first; seed < first + n_seeds; seed++) {
        world w;
        corpus c = {0};
        make_world(&w, seed * 7919);
        size_t n = 3 + tiny_random_below(&w.r, 20);
        for (size_t i = 0; i < n; i++) add_random_prompt(&w, &c, seed % 2);
        rp_split_result *r = split(&c, NULL, 0);
        uint64_t have = all_cached(r), want = planted(&w, n);
        if (10 * have < 8 * want)
            fail_msg("seed %llu: %llu of %llu planted bytes", (unsigned long long)seed, (unsigned long long)have,
                     (unsigned long long)want);
        for (size_t i = 0; i < r->n_modules; i++) n_params += (size_t)r->modules[i].n_params;
        found += have;
        all += want;
        rp_split_free(r);
        if (seed % 4 < 2) rp_split_free(split(&c, model, 16));
        corpus_free(&c);
        world_free(&w);
    }
    print_message("found %.1f %% of the planted bytes, %zu parameters\n", 100.0 * (double)found / (double)all,
                  n_params);
    assert_true(100 * found >= 95 * all);
    assert_true(n_params > 0 || n_seeds < 40);
}

/* ---- Bundled examples ---- */

/* Appends random imports from `holder` to `to`: about two thirds of its modules in any order, one of each union. */
static void put_imports(tiny_random *r, const pml_document *schema, int32_t holder, base_buffer *to);

static void put_import(tiny_random *r, const pml_document *schema, int32_t module, base_buffer *to) {
    static const char *const values[] = {"three days", "the largest one", "blue", "a family of five"};
    assert_int_equal(base_buffer_printf(to, "<%s", schema->nodes[module].name), 0);
    for (int32_t i = module + 1; i < schema->n_nodes; i++)
        if (schema->nodes[i].kind == PML_PARAM && pml_holder(schema, i) == module)
            assert_int_equal(
                base_buffer_printf(to, " %s=\"%s\"", schema->nodes[i].name, values[tiny_random_below(r, 4)]), 0);
    put(to, ">");
    put_imports(r, schema, module, to);
    assert_int_equal(base_buffer_printf(to, "</%s> ", schema->nodes[module].name), 0);
}

static void put_imports(tiny_random *r, const pml_document *schema, int32_t holder, base_buffer *to) {
    int32_t chosen[256], n = 0;
    for (int32_t i = 0; i < schema->n_nodes; i++) {
        if (schema->nodes[i].kind != PML_MODULE || pml_holder(schema, i) != holder) continue;
        int32_t around = pml_union_of(schema, i), n_members = 0, which;
        if (around < 0) {
            if (tiny_random_below(r, 3) > 0 && n < 256) chosen[n++] = i;
            continue;
        }
        if (schema->nodes[around].first_child != i) continue;
        for (int32_t m = i; m >= 0; m = schema->nodes[m].next) n_members++;
        which = (int32_t)tiny_random_below(r, (uint64_t)n_members);
        int32_t member = i;
        while (which-- > 0) member = schema->nodes[member].next;
        if (n < 256) chosen[n++] = member;
    }
    bool shuffled = n > 2 && pml_union_of(schema, chosen[0]) < 0;
    for (int32_t i = n; shuffled && i-- > 1;) {
        int32_t k = (int32_t)tiny_random_below(r, (uint64_t)i + 1), other = chosen[k];
        chosen[k] = chosen[i];
        chosen[i] = other;
    }
    for (int32_t i = 0; i < n; i++) put_import(r, schema, chosen[i], to);
}

static pml_document *load_schema(const char *folder, const char *file) {
    char path[600], dir[500];
    base_buffer bytes = BASE_BUFFER(PML_MAX_BYTES);
    rp_error err = {0};
    pml_document *schema = NULL;
    const char *root = getenv(strncmp(folder, "examples", 8) == 0 ? "REPRISE_SOURCE_DIR" : "REPRISE_TEST_DATA");
    snprintf(dir, sizeof dir, "%s/%s", root, folder);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (base_file_read(path, PML_MAX_BYTES, &bytes, &err) ||
        pml_schema_parse(&schema, bytes.data, bytes.len, file, dir, NULL, &err))
        fail_msg("%s", err.message);
    base_buffer_free(&bytes);
    return schema;
}

/* Adds a prompt over a schema as plain messages. Returns bytes of them that the schema gave. */
static size_t add_flat(corpus *c, const pml_document *schema, const char *pml, size_t n) {
    pml_document *prompt;
    flat_pml flat;
    rp_error err = {0};
    if (pml_prompt_parse(&prompt, pml, n, "prompt", &err)) fail_msg("%s", err.message);
    flat_pml_make(&flat, schema, prompt);
    assert_true(flat.n > 0 && flat.n <= 4);
    for (size_t i = 0; i < flat.n; i++)
        add_text(c, flat.messages[i].role, flat.messages[i].text.data ? flat.messages[i].text.data : "",
                 flat.messages[i].text.len);
    c->n++;
    size_t bytes = flat.schema_bytes;
    flat_pml_free(&flat);
    pml_document_free(prompt);
    return bytes;
}

/* The prompts of an example, as they are. */
static size_t add_bundled(corpus *c, const pml_document *schema, const char *folder, const char *schema_file) {
    char path[1000];
    size_t given = 0;
    struct dirent *entry;
    snprintf(path, sizeof path, "%s/%s", getenv("REPRISE_SOURCE_DIR"), folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        base_buffer bytes = BASE_BUFFER(PML_MAX_BYTES);
        if (!strstr(entry->d_name, ".xml") || strcmp(entry->d_name, schema_file) == 0) continue;
        snprintf(path, sizeof path, "%s/%s/%s", getenv("REPRISE_SOURCE_DIR"), folder, entry->d_name);
        assert_int_equal(base_file_read(path, PML_MAX_BYTES, &bytes, NULL), 0);
        given += add_flat(c, schema, bytes.data, bytes.len);
        base_buffer_free(&bytes);
    }
    closedir(dir);
    assert_true(c->n >= 2);
    return given;
}

/* The prompts of a folder of examples and 24 random ones: the share of the schema's text that the proposed schema also
 * has. Text that is in one prompt only, or shorter than a module, is not counted. */
static void modules_of_a_schema_are_found_again(const char *folder, const char *file, unsigned at_least) {
    pml_document *schema = load_schema(folder, file);
    tiny_random r = {4711};
    corpus c = {0};
    size_t given = strncmp(folder, "examples", 8) == 0 ? add_bundled(&c, schema, folder, file) : 0;
    for (int i = 0; i < 24; i++) {
        base_buffer prompt = BASE_BUFFER(SIZE_MAX / 4);
        assert_int_equal(base_buffer_printf(&prompt, "<prompt schema=\"%s\">", schema->nodes[0].name), 0);
        put_imports(&r, schema, 0, &prompt);
        assert_int_equal(base_buffer_printf(&prompt, "<user>Question %d, if you please?</user></prompt>", i), 0);
        given += add_flat(&c, schema, prompt.data, prompt.len);
        base_buffer_free(&prompt);
    }
    rp_split_result *x = split(&c, NULL, 0);
    uint64_t found = all_cached(x);
    print_message("%s: %llu of %zu bytes of the schema found again (%.1f %%), %zu modules\n", file,
                  (unsigned long long)found, given, 100.0 * (double)found / (double)given, x->n_modules);
    assert_true(100 * found >= (uint64_t)at_least * given);
    rp_split_free(x);
    rp_split_free(split(&c, model, 0));
    corpus_free(&c);
    pml_document_free(schema);
}

static void modules_of_the_examples_are_found_again(void **state) {
    (void)state;
    if (!getenv("REPRISE_SOURCE_DIR")) skip();
    modules_of_a_schema_are_found_again("examples/cities", "cities.xml", 80);
    modules_of_a_schema_are_found_again("examples/code", "code.xml", 80);
    modules_of_a_schema_are_found_again("examples/labels", "labels.xml", 80);
    modules_of_a_schema_are_found_again("examples/reader", "reader.xml", 80);
    modules_of_a_schema_are_found_again("examples/retrieval", "documents.xml", 80);
    modules_of_a_schema_are_found_again("examples/travel", "travel.xml", 80);
}

static void modules_of_the_prototype_are_found_again(void **state) {
    (void)state;
    if (!getenv("REPRISE_TEST_DATA")) skip();
    modules_of_a_schema_are_found_again("pml", "parameterized_prompts.xml", 80);
    modules_of_a_schema_are_found_again("pml", "personalization-education.xml", 80);
    modules_of_a_schema_are_found_again("pml", "schema_mbti.xml", 80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_in_any_order_are_modules),
        cmocka_unit_test(what_varies_is_a_parameter),
        cmocka_unit_test(alternatives_are_a_union),
        cmocka_unit_test(a_role_stays_open),
        cmocka_unit_test(odd_prompts_stay_what_they_are),
        cmocka_unit_test(hostile_input_gets_one_line),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(what_was_planted_is_found),
        cmocka_unit_test(modules_of_the_examples_are_found_again),
        cmocka_unit_test(modules_of_the_prototype_are_found_again),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
