/* SPDX-License-Identifier: Apache-2.0 */
/* random_pml.c: random valid schemas and prompts. Owns the selection of interesting features; independent of segments
 * and positions. Threads: none.
 */
#include "random_pml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define DOCUMENT_LIMIT ((size_t)1 << 20)
#define MAX_DEPTH 4

static const char *const words[] = {
    "the",
    "quick",
    "river",
    "Lisbon",
    "and",
    "of",
    "a",
    "seven",
    "hills",
    "is",
    "42",
    "question,",
    "don't",
    "x",
    "na\xc3\xafve",
    "\xe6\x97\xa5\xe6\x9c\xac",
    "tea &amp; milk",
    "&lt;b&gt;",
    "surf",
    "answer.",
    "who?",
    "In",
    "I",
    "planning",
    "to",
    "\xf0\x9f\x8c\x8a",
};
static const char *const roles[] = {"system", "user", "assistant", "tool"};

static bool chance(random_pml *p, int one_in) { return tiny_random_below(p->r, (uint64_t)one_in) == 0; }
static int32_t below(random_pml *p, int32_t n) { return (int32_t)tiny_random_below(p->r, (uint64_t)n); }

static void put(base_buffer *b, const char *text) {
    if (base_buffer_append_str(b, text)) abort();
}

static void put_white(random_pml *p, base_buffer *b) {
    static const char *const white[] = {"", "", " ", "\n", "\n  ", "\t "};
    put(b, white[below(p, (int32_t)BASE_ARRAY_LEN(white))]);
}

static void put_words(random_pml *p, base_buffer *b, int32_t most) {
    int32_t n = 1 + below(p, most);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) put(b, chance(p, 12) ? "\n\n" : " ");
        put(b, words[below(p, (int32_t)BASE_ARRAY_LEN(words))]);
    }
}

/* Mostly a few words; occasionally enough to cross the borders of blocks and spans. */
static void put_text(random_pml *p, base_buffer *b) {
    put_white(p, b);
    if (chance(p, 25)) put(b, "<![CDATA[ <&> ]]>");
    if (chance(p, 40)) put(b, "<!-- nothing -->");
    put_words(p, b, (p->longer && chance(p, 3) ? 120 : chance(p, 60) ? 100
                                                   : chance(p, 10)   ? 40
                                                                     : 7) /
                        p->shorter);
    put_white(p, b);
}

void random_pml_init(random_pml *p, tiny_random *r) {
    memset(p, 0, sizeof *p);
    p->r = r;
    p->shorter = 1;
    p->schema = BASE_BUFFER(DOCUMENT_LIMIT);
    p->prompt = BASE_BUFFER(DOCUMENT_LIMIT);
}

void random_pml_free(random_pml *p) {
    base_buffer_free(&p->schema);
    base_buffer_free(&p->prompt);
}

/* ---- schemas --------------------------------------------------------------------------------------------------- */

static void content(random_pml *p, int32_t module, int depth, bool in_role);

static void note_role(random_pml *p, int32_t module) {
    for (; module >= 0; module = p->modules[module].parent) p->modules[module].has_role = true;
}

static void quality(random_pml *p, base_buffer *out, int one_in) {
    if (!p->dial || !chance(p, one_in)) return;
    int kind = below(p, 8);
    if (kind == 7 && base_buffer_printf(out, " quality=\"focus:%d\"", 1 + below(p, 100))) abort();
    if (kind > 4 && kind < 7 && base_buffer_printf(out, " quality=\"blend:%d\"", kind == 5 ? 1 + below(p, 100) : 15))
        abort();
    if (kind > 4) return;
    if (kind < 2) put(out, kind == 0 ? " quality=\"reuse\"" : " quality=\"exact\"");
    else if (base_buffer_printf(out, " quality=\"link:%d\"", kind == 2 ? 1 : 1 + below(p, 20))) abort();
}

static void kv_format_of(random_pml *p, int one_in) {
    static const char *const names[] = {"f16", "int8", "kivi4", "k4v2", "kivi2"};
    if (p->formats && chance(p, one_in) &&
        base_buffer_printf(&p->schema, " kv=\"%s\"", names[below(p, (int32_t)BASE_ARRAY_LEN(names))]))
        abort();
}

static void element_attributes(random_pml *p) {
    quality(p, &p->schema, 6);
    kv_format_of(p, 5);
    bool path = false;
    if (chance(p, 5)) put(&p->schema, (path = chance(p, 2)) ? " scope=\"path\"" : " scope=\"module\"");
    if (!path && chance(p, 6)) put(&p->schema, chance(p, 3) ? " anchor=\"none\"" : " anchor=\"bos\"");
    if (chance(p, 12)) put(&p->schema, " xml:space=\"preserve\"");
}

static int32_t new_module(random_pml *p, int32_t parent, int32_t union_id) {
    random_pml_module m = {.parent = parent, .union_id = union_id};
    char name[16], around[100] = "";
    if (parent >= 0) snprintf(around, sizeof around, "%.98s/", p->modules[parent].path);
    snprintf(name, sizeof name, "m%d", p->n_modules);
    snprintf(m.path, sizeof m.path, "%s%s", around, name);
    memcpy(m.name, name, sizeof name);
    p->modules[p->n_modules] = m;
    return p->n_modules++;
}

static void module_element(random_pml *p, int32_t parent, int32_t union_id, int depth, bool in_role) {
    int32_t m = new_module(p, parent, union_id);
    put(&p->schema, "<module name=\"");
    put(&p->schema, p->modules[m].name);
    put(&p->schema, "\"");
    element_attributes(p);
    if (chance(p, 8)) put(&p->schema, " cache=\"false\"");
    put(&p->schema, ">");
    content(p, m, depth + 1, in_role);
    put(&p->schema, "</module>");
}

/* The default's name is known only after its members are written; then the element's head is rewritten. */
static void union_element(random_pml *p, int32_t parent, int depth, bool in_role) {
    int32_t id = p->n_unions++, n = 1 + below(p, 3);
    size_t start = p->schema.len;
    bool has_default = chance(p, 2);
    int32_t wanted = below(p, n), member = -1;
    base_buffer head = BASE_BUFFER(64);
    put(&p->schema, "<union>");
    for (int32_t i = 0; i < n && p->n_modules < RANDOM_PML_MODULES; i++) {
        if (member < 0 || i <= wanted) member = p->n_modules;
        put_white(p, &p->schema);
        module_element(p, parent, id, depth, in_role);
    }
    put_white(p, &p->schema);
    put(&p->schema, "</union>");
    if (has_default && base_buffer_printf(&head, "<union scaffold=\"m%d\">", member)) abort();
    if (has_default) {
        char *rest = base_strdup(p->schema.data + start + strlen("<union>"));
        p->schema.len = start;
        put(&p->schema, head.data);
        if (rest) put(&p->schema, rest);
        base_free(rest);
    }
    base_buffer_free(&head);
}

/* With at most as many bytes as tokens are permitted: a token has at least one byte. */
static void placeholder(random_pml *p, int32_t bytes) {
    put(&p->schema, " scaffold=\"");
    for (int32_t i = 0; i < bytes; i++) {
        char c[2] = {"abcdefghijklmnopqrstuvwxyz etaoin shrdlu 0123456789 "[below(p, 52)]};
        put(&p->schema, c);
    }
    put(&p->schema, "\"");
}

static void param_element(random_pml *p, int32_t module) {
    static const int32_t lengths[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 12, 20, 40, 64, 70};
    random_pml_module *m = &p->modules[module];
    int32_t len = lengths[below(p, (int32_t)BASE_ARRAY_LEN(lengths))];
    const char *kind = chance(p, 3) ? "parameter" : "param", *attribute = chance(p, 3) ? "length" : "len";
    if (base_buffer_printf(&p->schema, "<%s name=\"p%d\" %s=\"%d\"", kind, m->n_params, attribute, len)) abort();
    if (chance(p, 3)) placeholder(p, p->may_be_too_long && chance(p, 120) ? 8 * len : len - 1);
    put(&p->schema, "/>");
    m->param_len[m->n_params++] = len;
}

static void role_element(random_pml *p, int32_t module, int depth) {
    const char *role = roles[below(p, 4)];
    note_role(p, module);
    if (base_buffer_printf(&p->schema, "<%s>", role)) abort();
    content(p, module, depth, true);
    if (base_buffer_printf(&p->schema, "</%s>", role)) abort();
}

static void piece(random_pml *p, int32_t module, int depth, bool in_role) {
    bool room = depth < MAX_DEPTH && p->n_modules < RANDOM_PML_MODULES;
    switch (below(p, 8)) {
    case 0:
    case 1:
        if (room) module_element(p, module, -1, depth, in_role);
        break;
    case 2:
        if (room) union_element(p, module, depth, in_role);
        break;
    case 3:
    case 4:
        if (module >= 0 && p->modules[module].n_params < RANDOM_PML_PARAMS) param_element(p, module);
        break;
    case 5:
        if (!in_role && chance(p, 2)) role_element(p, module, depth);
        break;
    default: put_text(p, &p->schema); break;
    }
}

static void content(random_pml *p, int32_t module, int depth, bool in_role) {
    int32_t n = 1 + below(p, depth == 0 ? 7 : 4);
    bool edges = module >= 0 && !in_role; /* modules that begin or end with a role */
    put_white(p, &p->schema);
    if (edges && chance(p, 8)) role_element(p, module, depth);
    else if (!chance(p, 4)) put_text(p, &p->schema);
    for (int32_t i = 0; i < n; i++) piece(p, module, depth, in_role);
    put_white(p, &p->schema);
    if (edges && chance(p, 6)) role_element(p, module, depth);
    put_white(p, &p->schema);
}

/* Can a prompt import a and b together? */
static bool go_together(const random_pml *p, int32_t a, int32_t b) {
    for (int32_t x = a; x >= 0; x = p->modules[x].parent)
        for (int32_t y = b; y >= 0; y = p->modules[y].parent)
            if (x != y && p->modules[x].union_id >= 0 && p->modules[x].union_id == p->modules[y].union_id) return false;
    return true;
}

static void scaffold_element(random_pml *p) {
    int32_t *named = p->scaffolds[p->n_scaffolds], n = 0;
    for (int tries = 0; tries < 12 && n < RANDOM_PML_NAMED; tries++) {
        int32_t m = below(p, p->n_modules);
        bool fits = true;
        for (int32_t i = 0; i < n; i++) fits = fits && m != named[i] && go_together(p, m, named[i]);
        if (fits && (n < 2 || chance(p, 3))) named[n++] = m;
    }
    if (n < 2) return;
    for (int32_t i = n; i < RANDOM_PML_NAMED; i++) named[i] = -1;
    p->n_scaffolds++;
    put(&p->schema, "<scaffold modules=\"");
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) put(&p->schema, chance(p, 2) ? " " : "\n ");
        put(&p->schema, p->modules[named[i]].path);
    }
    put(&p->schema, "\"/>");
}

void random_pml_schema(random_pml *p) {
    p->n_modules = p->n_unions = p->n_scaffolds = 0;
    p->fixed = chance(p, 3);
    if (p->layout != RANDOM_PML_ANY) p->fixed = p->layout == RANDOM_PML_FIXED;
    base_buffer_clear(&p->schema);
    put(&p->schema, "<schema name=\"s\"");
    if (p->fixed) put(&p->schema, " layout=\"fixed\"");
    else if (chance(p, 2)) put(&p->schema, " layout=\"packed\"");
    if (chance(p, 3)) put(&p->schema, " scope=\"module\"");
    if (chance(p, 3)) put(&p->schema, " anchor=\"bos\"");
    quality(p, &p->schema, 2);
    kv_format_of(p, 4);
    if (chance(p, 20)) put(&p->schema, " xml:space=\"preserve\"");
    put(&p->schema, ">");
    content(p, -1, 0, false);
    while (p->n_modules < 3) module_element(p, -1, -1, 0, false);
    for (int32_t i = below(p, RANDOM_PML_SCAFFOLDS + 1); i > 0; i--) scaffold_element(p);
    put(&p->schema, "</schema>");
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */

typedef struct choice {
    bool taken[RANDOM_PML_MODULES];
    bool union_taken[RANDOM_PML_MODULES]; /* a union holds at least one module, so there are no more of them */
} choice;

static bool may_take(const random_pml *p, const choice *c, int32_t m) {
    for (; m >= 0 && !c->taken[m]; m = p->modules[m].parent)
        if (p->modules[m].union_id >= 0 && c->union_taken[p->modules[m].union_id]) return false;
    return true;
}

/* With the modules around it. */
static void take(const random_pml *p, choice *c, int32_t m) {
    if (!may_take(p, c, m)) return;
    for (; m >= 0; m = p->modules[m].parent) {
        c->taken[m] = true;
        if (p->modules[m].union_id >= 0) c->union_taken[p->modules[m].union_id] = true;
    }
}

static void choose(random_pml *p, choice *c) {
    int one_in = 1 + below(p, 4);
    memset(c, 0, sizeof *c);
    for (int32_t s = 0; s < p->n_scaffolds; s++)
        for (int32_t i = 0; chance(p, 2) && i < RANDOM_PML_NAMED; i++)
            for (int32_t k = 0; k < RANDOM_PML_NAMED && p->scaffolds[s][k] >= 0; k++) take(p, c, p->scaffolds[s][k]);
    for (int32_t m = p->n_modules - 1; m >= 0; m--)
        if (chance(p, one_in)) take(p, c, m);
}

/* The taken modules that a module (-1: the schema) holds, shuffled or in order. */
static int32_t held(random_pml *p, const choice *c, int32_t parent, int32_t *list) {
    int32_t n = 0;
    bool shuffle = !chance(p, 3);
    for (int32_t m = 0; m < p->n_modules; m++)
        if (p->modules[m].parent == parent && c->taken[m]) list[n++] = m;
    for (int32_t i = n - 1; shuffle && i > 0; i--) {
        int32_t k = below(p, i + 1), other = list[i];
        list[i] = list[k];
        list[k] = other;
    }
    return n;
}

/* The tokens of a text, with or without a space before it: the larger number. */
static size_t tokens_of(const tokenizer *t, const char *text) {
    char spaced[513] = " ";
    size_t most = 0, n = strlen(text);
    memcpy(spaced + 1, text, n + 1);
    for (int space = 0; space < 2; space++) {
        token_list l = {0};
        if (tokenizer_encode(t, spaced + !space, n + (size_t)space, (tokenizer_options){0}, &l, NULL)) abort();
        if (l.n > most) most = l.n;
        token_list_free(&l);
    }
    return most;
}

/* A value of 0 to len tokens, sometimes a longer one. It is ASCII without markup: valid wherever it is cut. */
static void argument(random_pml *p, const tokenizer *t, int32_t module, int32_t i) {
    char value[512] = "";
    int32_t len = p->modules[module].param_len[i];
    int32_t n = below(p, len + 1) * 4;
    if (chance(p, 3)) n = len * 6;
    for (int32_t k = 0; k < n && k < 500; k++) {
        value[k] = "abcdefghijklmnopqrstuvwxyz etaoinshrdlu 0123456789 "[below(p, 51)];
        value[k + 1] = '\0';
    }
    if (chance(p, 40)) memset(value, '%', (size_t)len * 2 < 500 ? (size_t)len * 2 : 500);
    else
        while (tokens_of(t, value) > (size_t)len) value[strlen(value) - 1] = '\0';
    if (base_buffer_printf(&p->prompt, " p%d=\"%s\"", i, value)) abort();
}

static void import_element(random_pml *p, const choice *c, const tokenizer *t, int32_t module) {
    int32_t inner[RANDOM_PML_MODULES], n = held(p, c, module, inner);
    if (base_buffer_printf(&p->prompt, "<%s", p->modules[module].name)) abort();
    for (int32_t i = 0; i < p->modules[module].n_params; i++)
        if (!chance(p, 5)) argument(p, t, module, i);
    put(&p->prompt, n > 0 ? ">" : "/>");
    for (int32_t i = 0; i < n; i++) {
        put_white(p, &p->prompt);
        import_element(p, c, t, inner[i]);
    }
    if (n > 0 && base_buffer_printf(&p->prompt, "</%s>", p->modules[module].name)) abort();
}

/* In a fixed layout many texts between imports do not fit. */
static void maybe_text(random_pml *p) {
    put_white(p, &p->prompt);
    if (chance(p, p->fixed ? 6 : 3)) put_words(p, &p->prompt, p->fixed ? 3 : 12);
    put_white(p, &p->prompt);
}

static void turn(random_pml *p, int role) {
    if (base_buffer_printf(&p->prompt, "<%s>", roles[role])) abort();
    put_text(p, &p->prompt);
    if (base_buffer_printf(&p->prompt, "</%s>", roles[role])) abort();
}

void random_pml_prompt(random_pml *p, const tokenizer *t) {
    choice c;
    int32_t list[RANDOM_PML_MODULES];
    choose(p, &c);
    int32_t n = held(p, &c, -1, list), in_role = chance(p, 3) ? below(p, n + 1) : n;
    base_buffer_clear(&p->prompt);
    put(&p->prompt, "<prompt schema=\"s\"");
    quality(p, &p->prompt, 3);
    put(&p->prompt, ">");
    for (int32_t i = 0; i < n; i++) {
        bool inside = i >= in_role && !p->modules[list[i]].has_role;
        maybe_text(p);
        if (inside) put(&p->prompt, "<user>");
        if (inside) maybe_text(p);
        import_element(p, &c, t, list[i]);
        if (inside) maybe_text(p);
        if (inside) put(&p->prompt, "</user>");
    }
    if (p->fixed && n > 0) maybe_text(p);
    else if (n == 0 || !chance(p, 4)) put_text(p, &p->prompt); /* never nothing at all */
    for (int32_t i = chance(p, p->fixed ? 4 : 2) ? 0 : 1 + below(p, 3); i > 0; i--) turn(p, i % 2 ? 1 : 2);
    put(&p->prompt, "</prompt>");
}
