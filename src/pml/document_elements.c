/* SPDX-License-Identifier: Apache-2.0 */
/* document_elements.c: the elements and attributes of docs/pml.md: names, allowed places and values.
 *
 * Two tables define the language: elements, and each element's attributes with the function that reads its value. The
 * other code applies them and reports errors. document_check.c has the checks that need the whole document (unique
 * names, defaults, scaffold paths).
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "model/reduction.h"
#include "pml/document_internal.h"
#include "pml/quality.h"
#include "reprise_pml.h"

/* The attribute being read, and its draft. */
typedef struct reading {
    pml_builder *b;
    pml_node *node;
    const char *element, *attribute;
    const char *src; /* module: the path; the file is read after all attributes are known */
    bool says_path;  /* scope="path" is written */
} reading;

typedef int (*read_fn)(reading *r, const char *value);

typedef struct attribute_rule {
    const char *name;
    read_fn read;
    bool required;
} attribute_rule;

#define MAX_ATTRIBUTES 10 /* of an element's rule */

typedef struct element_rule {
    const char *name;
    pml_kind kind;
    int role;              /* or -1 */
    const char *place;     /* allowed places: the advice if it is elsewhere */
    const char *in_prompt; /* advice if it is in a prompt; NULL: allowed in a prompt */
    attribute_rule attributes[MAX_ATTRIBUTES];
} element_rule;

static size_t reading_offset_of(const reading *r) {
    const pml_draft *last = &r->b->drafts[r->b->n_drafts - 1];
    BASE_ASSERT(r->node == &last->node); /* no draft is added while the attributes of one are read */
    return last->offset;
}

/* ---- Values ---- */

static int fail_value(const reading *r, const char *value, const char *advice) {
    return pml_builder_fail(r->b, reading_offset_of(r), RP_ERR_SYNTAX, "%s=\"%.*s\" in <%s>: %s", r->attribute,
                            PML_SHOWN(value), r->element, advice);
}

static int reading_keep(reading *r, const char *value, const char **out) {
    *out = pml_storage_string(r->b->storage, value, strlen(value));
    return *out ? 0 : pml_builder_memory(r->b, reading_offset_of(r), strlen(value) + 1, "an attribute");
}

static const element_rule *document_elements_find_rule(const char *name);

static int read_name(reading *r, const char *value) {
    int rc = pml_name_check(value);
    if (rc == RP_ERR_MEMORY) return pml_builder_memory(r->b, reading_offset_of(r), strlen(value), "a name");
    if (rc != 0) return fail_value(r, value, "write an XML name: a letter or _, then letters, digits, '-', '_' or '.'");
    return reading_keep(r, value, &r->node->name);
}

static int read_module_name(reading *r, const char *value) {
    if (document_elements_find_rule(value)) return fail_value(r, value, "the name is reserved by PML: choose another");
    return read_name(r, value);
}

/* An argument is an attribute, and XML reserves attributes with the prefix xml. */
static int read_param_name(reading *r, const char *value) {
    if (strncmp(value, "xml:", 4) == 0)
        return fail_value(r, value, "names that begin with xml: are reserved by XML: choose another");
    return read_name(r, value);
}

/* Reads one of two words: sets *second to true for the second. */
static int read_choice(const reading *r, const char *value, const char *a, const char *b, bool *second) {
    char advice[64];
    *second = strcmp(value, b) == 0;
    if (*second || strcmp(value, a) == 0) return 0;
    snprintf(advice, sizeof advice, "write \"%s\" or \"%s\"", a, b);
    return fail_value(r, value, advice);
}

static int read_layout(reading *r, const char *value) {
    bool fixed;
    if (read_choice(r, value, "packed", "fixed", &fixed) != 0) return r->b->rc;
    r->node->layout = fixed ? PML_LAYOUT_FIXED : PML_LAYOUT_PACKED;
    return 0;
}

static int read_scope(reading *r, const char *value) {
    bool module;
    if (read_choice(r, value, "path", "module", &module) != 0) return r->b->rc;
    r->node->scope = module ? PML_SCOPE_MODULE : PML_SCOPE_PATH;
    r->says_path = !module;
    return 0;
}

static int read_anchor(reading *r, const char *value) {
    bool bos;
    if (read_choice(r, value, "none", "bos", &bos) != 0) return r->b->rc;
    r->node->anchor = bos ? PML_ANCHOR_BOS : PML_ANCHOR_NONE;
    return 0;
}

static int reading_read_quality(reading *r, const char *value) {
    if (pml_quality_read(value, &r->node->quality)) return 0;
    return fail_value(r, value, PML_QUALITY_ADVICE);
}

static int read_cache(reading *r, const char *value) { return read_choice(r, value, "false", "true", &r->node->cache); }

static int read_required(reading *r, const char *value) {
    return read_choice(r, value, "false", "true", &r->node->required);
}

static int read_pin(reading *r, const char *value) { return read_choice(r, value, "false", "true", &r->node->pin); }

static int read_kv(reading *r, const char *value) {
    r->node->has_kv = kv_format_parse(value, &r->node->kv);
    return r->node->has_kv ? 0 : fail_value(r, value, kv_format_advice(value));
}

static int read_keep(reading *r, const char *value) {
    return reduction_share_parse(value, &r->node->keep) ? 0 : fail_value(r, value, REDUCTION_SHARE_ADVICE);
}

static int read_preserve(reading *r, const char *value) {
    return read_choice(r, value, "default", "preserve", &r->b->drafts[r->b->n_drafts - 1].preserve);
}

/* Reads a decimal number of at most max at *s and advances *s past it. -1: no digits, or too large. */
static int64_t document_elements_take_number(const char **s, int64_t max) {
    int64_t n = 0;
    const char *start = *s;
    for (; **s >= '0' && **s <= '9'; ++*s) {
        n = n * 10 + (**s - '0');
        if (n > max) return -1;
    }
    return *s == start ? -1 : n;
}

static int reading_read_ttl(reading *r, const char *value) {
    static const char units[] = "smhd";
    static const int64_t seconds[] = {1, 60, 3600, 86400};
    const char *s = value;
    int64_t n = document_elements_take_number(&s, INT64_C(1000000000)), unit = 1;
    const char *letter = *s ? strchr(units, *s) : NULL;
    if (letter) {
        unit = seconds[letter - units];
        s++;
    }
    if (n <= 0 || *s)
        return fail_value(r, value, "write a time from 1 to 1000000000, in seconds or with s, m, h or d: \"12h\"");
    r->node->ttl_seconds = n * unit;
    return 0;
}

static int reading_read_length(reading *r, const char *value) {
    const char *s = value;
    int64_t n = document_elements_take_number(&s, PML_MAX_PARAM_TOKENS);
    if (r->node->param_len > 0) return fail_value(r, value, "len and length are the same: give one of them");
    if (n <= 0 || *s) return fail_value(r, value, "write a number of tokens from 1 to 4096");
    r->node->param_len = (int32_t)n;
    return 0;
}

static int read_src(reading *r, const char *value) { return reading_keep(r, value, &r->src); }

static int read_scaffold(reading *r, const char *value) { return reading_keep(r, value, &r->node->scaffold); }

/* ---- The language ---- */

#define PLACE_PARAM "a parameter belongs to a module: put it inside one"
#define PLACE_ROLE "roles belong to the schema or a module, and do not nest"
#define IN_PROMPT_PARAM \
    "parameters are declared in the schema: give arguments as attributes of the import, <MODULE NAME=\"...\"/>"
#define PARAM_ATTRIBUTES \
    { \
        {"name", read_param_name, true}, {"len", reading_read_length, false}, {"length", reading_read_length, false}, \
            {"scaffold", read_scaffold, false}, { \
            "required", read_required, false \
        } \
    }

static const element_rule elements[] = {
    {"schema",
     PML_SCHEMA,
     -1,
     "a document contains one schema",
     "a prompt names its schema: <prompt schema=\"NAME\">",
     {{"name", read_name, true},
      {"layout", read_layout, false},
      {"scope", read_scope, false},
      {"anchor", read_anchor, false},
      {"quality", reading_read_quality, false},
      {"kv", read_kv, false},
      {"keep", read_keep, false}}},
    {"prompt",
     PML_PROMPT,
     -1,
     "a prompt is a document of its own: move it there",
     "a document contains one prompt: remove the tag",
     {{"schema", read_name, true}, {"quality", reading_read_quality, false}}},
    {"module",
     PML_MODULE,
     -1,
     "modules belong to the schema, modules, unions and roles",
     "modules are declared in the schema: import one by its name, <NAME/>",
     {{"name", read_module_name, true},
      {"src", read_src, false},
      {"cache", read_cache, false},
      {"scope", read_scope, false},
      {"anchor", read_anchor, false},
      {"ttl", reading_read_ttl, false},
      {"pin", read_pin, false},
      {"quality", reading_read_quality, false},
      {"kv", read_kv, false},
      {"keep", read_keep, false}}},
    {"union",
     PML_UNION,
     -1,
     "unions belong to the schema, modules and roles",
     "unions are declared in the schema: import one member by its name, <NAME/>",
     {{"scaffold", read_scaffold, false}}},
    {"param", PML_PARAM, -1, PLACE_PARAM, IN_PROMPT_PARAM, PARAM_ATTRIBUTES},
    {"parameter", PML_PARAM, -1, PLACE_PARAM, IN_PROMPT_PARAM, PARAM_ATTRIBUTES},
    {"scaffold",
     PML_SCAFFOLD,
     -1,
     "scaffolds belong directly to <schema>: move it there",
     "scaffolds are declared in the schema: import its modules by their names",
     {{"modules", read_scaffold, true}}},
    {"system", PML_ROLE, 0, PLACE_ROLE, NULL, {{0}}},
    {"user", PML_ROLE, 1, PLACE_ROLE, NULL, {{0}}},
    {"assistant", PML_ROLE, 2, PLACE_ROLE, NULL, {{0}}},
    {"tool", PML_ROLE, 3, PLACE_ROLE, NULL, {{0}}},
};

static const element_rule *document_elements_find_rule(const char *name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(elements); i++)
        if (strcmp(name, elements[i].name) == 0) return &elements[i];
    return NULL;
}

static const attribute_rule *find_attribute(const element_rule *rule, const char *name) {
    for (int i = 0; i < MAX_ATTRIBUTES && rule->attributes[i].name; i++)
        if (strcmp(name, rule->attributes[i].name) == 0) return &rule->attributes[i];
    return NULL;
}

/* ---- Places ---- */

static const pml_frame *pml_builder_top(const pml_builder *b) { return b->depth > 0 ? &b->frames[b->depth - 1] : NULL; }

static const pml_draft *top_draft(const pml_builder *b) {
    BASE_ASSERT(b->depth > 0);
    return &b->drafts[b->frames[b->depth - 1].draft];
}

const char *pml_role_name(int role) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(elements); i++)
        if (elements[i].kind == PML_ROLE && elements[i].role == role) return elements[i].name;
    return "";
}

static int pml_builder_fail_unknown(pml_builder *b, size_t offset, const char *name) {
    base_guess guess = {.name = name};
    for (size_t i = 0; i < BASE_ARRAY_LEN(elements); i++)
        if (elements[i].kind != PML_PROMPT) base_guess_offer(&guess, elements[i].name);
    if (guess.best)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "unknown element <%.*s>: did you mean <%s>?", PML_SHOWN(name),
                                guess.best);
    return pml_builder_fail(
        b, offset, RP_ERR_SYNTAX,
        "unknown element <%.*s>: a schema has module, union, param, scaffold, system, user, assistant and tool "
        "(write < in text as &lt;)",
        PML_SHOWN(name));
}

/* Refuses an element inside a parent that may contain nothing, or modules only. */
static int check_parent(pml_builder *b, size_t offset, const char *name) {
    const pml_draft *parent = top_draft(b);
    if (parent->node.kind == PML_UNION && strcmp(name, "module") != 0)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "<%.*s> in <union>: a union contains modules only; put it into one of them",
                                PML_SHOWN(name));
    if (parent->node.kind == PML_PARAM || parent->node.kind == PML_SCAFFOLD)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "<%.*s> in a %s, which must be empty: close it first, with />", PML_SHOWN(name),
                                parent->node.kind == PML_PARAM ? "parameter" : "scaffold");
    if (parent->node.kind == PML_MODULE && !pml_builder_top(b)->takes_text)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "<%.*s> in a module with src, which must be empty: remove it or the src",
                                PML_SHOWN(name));
    return 0;
}

static int check_schema_place(pml_builder *b, size_t offset, const element_rule *rule) {
    const pml_frame *f = pml_builder_top(b);
    const pml_kind parent = top_draft(b)->node.kind;
    bool good = rule->kind != PML_SCHEMA && rule->kind != PML_PROMPT;
    if (rule->kind == PML_SCAFFOLD) good = parent == PML_SCHEMA;
    if (rule->kind == PML_PARAM) good = f->module >= 0;
    if (rule->kind == PML_ROLE && f->role >= 0) {
        const char *outer = pml_role_name(b->drafts[f->role].node.role);
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "<%s> inside <%s>: %s; close <%s> first", rule->name, outer,
                                rule->place, outer);
    }
    return good ? 0
                : pml_builder_fail(b, offset, RP_ERR_SYNTAX, "<%s> is not allowed here: %s", rule->name, rule->place);
}

/* rule NULL: an import. */
static int check_prompt_place(pml_builder *b, size_t offset, const element_rule *rule) {
    const pml_draft *parent = top_draft(b);
    if (!rule) return 0;
    if (rule->in_prompt)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "<%s> in a prompt: %s", rule->name, rule->in_prompt);
    if (parent->node.kind == PML_IMPORT)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "<%s> inside the import <%.*s>: an import contains imports only; close it first",
                                rule->name, PML_SHOWN(parent->node.name));
    if (parent->node.kind == PML_ROLE)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "<%s> inside <%s>: roles do not nest; close <%s> first",
                                rule->name, pml_role_name(parent->node.role), pml_role_name(parent->node.role));
    return 0;
}

/* Checks that an element of this name is allowed here. */
static int check_place(pml_builder *b, size_t offset, const char *name, const element_rule *rule) {
    if (b->depth == 0) {
        const char *root = b->is_prompt ? "prompt" : "schema";
        if (strcmp(name, root) == 0) return 0;
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "the document is a <%.*s>: a %s begins with <%s %s=\"NAME\">",
                                PML_SHOWN(name), root, root, b->is_prompt ? "schema" : "name");
    }
    if (b->depth == PML_MAX_DEPTH)
        return pml_builder_fail(b, offset, RP_ERR_LIMIT, "elements are nested more than %d deep: flatten the document",
                                PML_MAX_DEPTH);
    if (b->is_prompt) return check_prompt_place(b, offset, rule);
    if (!rule) return pml_builder_fail_unknown(b, offset, name);
    return check_parent(b, offset, rule->name) != 0 ? b->rc : check_schema_place(b, offset, rule);
}

int pml_element_refuse_text(pml_builder *b, size_t offset) {
    const pml_node *n = &top_draft(b)->node;
    switch (n->kind) {
    case PML_UNION:
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "text in <union>: a union contains modules only; put it into one of them");
    case PML_IMPORT:
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "text inside the import <%.*s>: an import contains imports only; put it after </%.*s>, "
                                "or give it as an argument",
                                PML_SHOWN(n->name), PML_SHOWN(n->name));
    case PML_MODULE:
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "text in a module with src, which must be empty: remove the text or the src");
    default:
        BASE_ASSERT(n->kind == PML_PARAM || n->kind == PML_SCAFFOLD);
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX,
                                "text in a %s, which must be empty: write it as one tag that ends with />",
                                n->kind == PML_PARAM ? "parameter" : "scaffold");
    }
}

/* ---- Attributes ---- */

static int fail_attribute(const reading *r, const element_rule *rule) {
    base_guess guess = {.name = r->attribute};
    char all[128] = "";
    size_t used = 0;
    for (int i = 0; i < MAX_ATTRIBUTES && rule->attributes[i].name; i++) {
        base_guess_offer(&guess, rule->attributes[i].name);
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", rule->attributes[i].name);
        BASE_ASSERT(used < sizeof all);
    }
    if (guess.best)
        return pml_builder_fail(r->b, reading_offset_of(r), RP_ERR_SYNTAX,
                                "unknown attribute %.*s in <%s>: did you mean %s?", PML_SHOWN(r->attribute), rule->name,
                                guess.best);
    return pml_builder_fail(r->b, reading_offset_of(r), RP_ERR_SYNTAX,
                            "unknown attribute %.*s in <%s>: allowed are %s; remove it", PML_SHOWN(r->attribute),
                            rule->name, all[0] ? all : "none");
}

static int fail_missing(const reading *r, const char *attribute) {
    return pml_builder_fail(r->b, reading_offset_of(r), RP_ERR_SYNTAX, "<%s> has no %s: write <%s %s=\"...\">",
                            r->element, attribute, r->element, attribute);
}

static bool has_attribute(const char **attributes, const char *name) {
    for (; *attributes; attributes += 2)
        if (strcmp(*attributes, name) == 0) return true;
    return false;
}

static int reading_read_attributes(reading *r, const element_rule *rule, const char **attributes) {
    for (const char **a = attributes; *a; a += 2) {
        const attribute_rule *found = find_attribute(rule, a[0]);
        r->attribute = a[0];
        if (strcmp(a[0], "xml:space") == 0) read_preserve(r, a[1]);
        else if (found) found->read(r, a[1]);
        else fail_attribute(r, rule);
        if (r->b->rc != 0) return r->b->rc;
    }
    for (int i = 0; i < MAX_ATTRIBUTES && rule->attributes[i].name; i++)
        if (rule->attributes[i].required && !has_attribute(attributes, rule->attributes[i].name))
            return fail_missing(r, rule->attributes[i].name);
    if (rule->kind == PML_PARAM && r->node->param_len == 0) return fail_missing(r, "len");
    if (r->says_path && r->node->anchor == PML_ANCHOR_BOS)
        return pml_builder_fail(r->b, reading_offset_of(r), RP_ERR_SYNTAX,
                                "anchor=\"bos\" beside scope=\"path\" in <%s>: with scope path the anchor is part of "
                                "the scope anyway; write scope=\"module\", or remove the anchor",
                                rule->name);
    return 0;
}

/* All attributes of an import except xml:space are arguments. */
static int reading_read_arguments(reading *r, const char *name, const char **attributes) {
    size_t n = 0;
    if (reading_keep(r, name, &r->node->name) != 0) return r->b->rc;
    while (attributes[2 * n]) n++;
    pml_argument *arguments = n > 0 ? pml_storage_take(r->b->storage, n * sizeof *arguments) : NULL;
    if (n > 0 && !arguments) return pml_builder_memory(r->b, reading_offset_of(r), n * sizeof *arguments, "arguments");
    r->node->arguments = arguments;
    for (const char **a = attributes; *a; a += 2) {
        r->attribute = a[0];
        if (strcmp(a[0], "xml:space") == 0) {
            if (read_preserve(r, a[1]) != 0) return r->b->rc;
            continue;
        }
        pml_argument *out = &arguments[r->node->n_arguments++];
        out->n_value = strlen(a[1]);
        if (reading_keep(r, a[0], &out->name) != 0 || reading_keep(r, a[1], &out->value) != 0) return r->b->rc;
    }
    BASE_ASSERT((size_t)r->node->n_arguments <= n);
    return 0;
}

/* ---- Begin and end ---- */

void pml_element_open(pml_builder *b, int32_t draft, bool takes_text) {
    const pml_frame *outer = pml_builder_top(b);
    const pml_kind kind = b->drafts[draft].node.kind;
    BASE_ASSERT(b->depth < PML_MAX_DEPTH);
    b->frames[b->depth] = (pml_frame){
        .draft = draft,
        .role = kind == PML_ROLE ? draft
                : outer          ? outer->role
                                 : -1,
        .module = kind == PML_MODULE ? draft
                  : outer            ? outer->module
                                     : -1,
        .takes_text =
            takes_text && (kind == PML_SCHEMA || kind == PML_PROMPT || kind == PML_MODULE || kind == PML_ROLE),
    };
    b->depth++;
}

/* Overrides the document's attributes by the options. */
static void apply_options(const rp_schema_options *o, pml_node *n) {
    if (n->kind == PML_SCHEMA && o->layout != RP_LAYOUT_AS_WRITTEN)
        n->layout = o->layout == RP_LAYOUT_FIXED ? PML_LAYOUT_FIXED : PML_LAYOUT_PACKED;
    if (o->quality.mode != RP_QUALITY_AS_WRITTEN && n->kind == PML_SCHEMA) n->quality = o->quality;
    if (o->quality.mode != RP_QUALITY_AS_WRITTEN && n->kind == PML_MODULE) n->quality = (rp_quality){0};
    if (o->scope != RP_SCOPE_AS_WRITTEN) {
        if (n->kind == PML_SCHEMA) n->scope = o->scope == RP_SCOPE_MODULE ? PML_SCOPE_MODULE : PML_SCOPE_PATH;
        if (n->kind == PML_MODULE) n->scope = PML_SCOPE_INHERIT;
    }
    if (o->anchor != RP_ANCHOR_AS_WRITTEN) {
        if (n->kind == PML_SCHEMA) n->anchor = o->anchor == RP_ANCHOR_BOS ? PML_ANCHOR_BOS : PML_ANCHOR_NONE;
        if (n->kind == PML_MODULE) n->anchor = PML_ANCHOR_INHERIT;
    }
}

int pml_element_begin(pml_builder *b, size_t offset, const char *name, const char **attributes) {
    const element_rule *rule = document_elements_find_rule(name);
    int32_t i;
    if (check_place(b, offset, name, rule) != 0) return b->rc;
    if (pml_builder_add(b, rule ? rule->kind : PML_IMPORT, offset, &i) != 0) return b->rc;
    reading r = {.b = b, .node = &b->drafts[i].node, .element = name};
    r.node->role = rule ? rule->role : -1;
    r.node->cache = r.node->kind == PML_MODULE;
    r.node->scope = r.node->kind == PML_SCHEMA ? PML_SCOPE_PATH : PML_SCOPE_INHERIT;
    r.node->anchor = r.node->kind == PML_SCHEMA ? PML_ANCHOR_NONE : PML_ANCHOR_INHERIT;
    int rc = rule ? reading_read_attributes(&r, rule, attributes) : reading_read_arguments(&r, name, attributes);
    if (rc != 0) return rc;
    apply_options(&b->options, r.node);
    pml_element_open(b, i, r.src == NULL);
    if (!r.src) return 0;
    base_buffer text = {0};
    rc = pml_src_read(b, offset, r.src, &text);
    if (rc == 0 && text.len > 0) rc = pml_builder_add_text(b, text.data, text.len, offset);
    base_buffer_free(&text);
    return rc;
}

int pml_element_end(pml_builder *b, size_t offset) {
    const pml_draft *d = top_draft(b);
    if (d->node.kind == PML_UNION && d->node.first_child < 0)
        return pml_builder_fail(b, d->offset, RP_ERR_SYNTAX, "<union> is empty: give it a module, or remove it");
    const char *modules = b->depth == 1 ? b->options.scaffold : NULL; /* it belongs to the schema itself */
    if (modules) {
        int32_t i;
        if (pml_builder_add(b, PML_SCAFFOLD, offset, &i) != 0) return b->rc;
        const char *scaffold = pml_storage_string(b->storage, modules, strlen(modules));
        if (!scaffold) return pml_builder_memory(b, offset, strlen(modules) + 1, "a scaffold");
        b->drafts[i].node.scaffold = scaffold;
    }
    b->depth--;
    return 0;
}
