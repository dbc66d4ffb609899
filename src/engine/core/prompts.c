/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c: rp_builder: prompts that a program builds part by part, from texts that are never parsed (pml/parts.h).
 * Owns the parts until they are freed; a job makes a document of them when it is submitted. One thread at a time
 * changes a prompt. */
#include "engine/core/prompts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "engine/core/engine_state.h"
#include "engine/core/schemas.h"
#include "model/chat_format.h"
#include "model/model_template.h"
#include "pml/document.h"
#include "pml/parts.h"
#include "reprise_chat.h"

_Static_assert((int)RP_ROLE_SYSTEM == (int)CHAT_SYSTEM && (int)RP_ROLE_TOOL == (int)CHAT_TOOL,
               "the roles of a prompt are the roles of chat formats");

#define DOCUMENT_DIGITS 20 /* of a document's hash, in its name */

struct rp_builder {
    char *schema; /* NULL: none yet, and then the schema is made of the documents */
    size_t n_documents;
    pml_part *parts;
    size_t n, cap;
    size_t bytes;        /* total of all names and texts */
    size_t number;       /* number of the last part in error messages */
    bool role_is_open;   /* of a role or a message */
    bool is_message;     /* what began last */
    bool takes_argument; /* the last part is a module, or an argument of it */
    rp_error err;        /* the first failure; RP_OK: none */
};

int rp_builder_new(rp_builder **out, const char *schema, rp_error *err) {
    if (!out || (schema && !schema[0]))
        return base_fail(err, RP_ERR_INVALID, "rp_builder_new: out is needed, and a schema's name is not empty");
    *out = NULL;
    rp_builder *p = base_calloc(1, sizeof(*p));
    if (p && schema) p->schema = base_strdup(schema);
    if (!p || (schema && !p->schema)) {
        base_free(p);
        return base_fail_memory(err, sizeof(*p), "a prompt");
    }
    *out = p;
    return RP_OK;
}

void rp_builder_free(rp_builder *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) {
        base_free(p->parts[i].name);
        base_free(p->parts[i].text);
        base_free(p->parts[i].trusted);
        pml_document_free(p->parts[i].content);
    }
    base_free(p->parts);
    base_free(p->schema);
    base_free(p);
}

/* ---- parts ---- */

/* The first failure is kept. Errors name the part that is being added. Returns code. */
BASE_PRINTF(3, 4)
static int prompt_fail(rp_builder *p, rp_code code, const char *fmt, ...) {
    char where[RP_ERROR_WHERE_BYTES], message[RP_ERROR_MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    snprintf(where, sizeof(where), "prompt, part %zu", p->number + 1);
    return base_fail_at(&p->err, code, where, 0, "%s", message);
}

/* Checks n bytes of text, and the size limit. what: the name of the text. */
static int prompt_check_text(rp_builder *p, const char *text, size_t n, const char *what) {
    BASE_ASSERT(p->bytes <= PML_MAX_BYTES);
    if (!text && n > 0) return prompt_fail(p, RP_ERR_INVALID, "%s is NULL", what);
    if (n > PML_MAX_BYTES - p->bytes)
        return prompt_fail(p, RP_ERR_LIMIT, "the prompt has more than %zu bytes: shorten it", PML_MAX_BYTES);
    size_t bad = n > 0 ? pml_text_check(text, n) : 0;
    if (bad < n)
        return prompt_fail(p, RP_ERR_INVALID, "byte %zu of %s, 0x%02X, is not UTF-8: give whole characters", bad, what,
                           (unsigned)(unsigned char)text[bad]);
    p->bytes += n;
    return RP_OK;
}

static char *copy_text(const char *text, size_t n) {
    char *copy = base_alloc(n + 1);
    if (!copy) return NULL;
    if (n > 0) memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

/* Adds a part with copies of its name and text, each of which may be NULL. */
static int prompt_add_part(rp_builder *p, pml_part part, const char *name, const char *text) {
    BASE_ASSERT(p->err.code == RP_OK); /* after a failure no part is added */
    int rc = base_grow((void **)&p->parts, &p->cap, p->n + 1, PML_MAX_NODES, sizeof(*p->parts));
    if (rc == RP_ERR_LIMIT) return prompt_fail(p, rc, "the prompt has more than %zu parts: give fewer", PML_MAX_NODES);
    if (rc) return prompt_fail(p, rc, "out of memory: %zu parts", p->n);
    if (name) part.name = base_strdup(name);
    if (text) part.text = copy_text(text, part.n);
    if ((name && !part.name) || (text && !part.text)) {
        base_free(part.name);
        base_free(part.text);
        return prompt_fail(p, RP_ERR_MEMORY, "out of memory: a text of %zu bytes", part.n);
    }
    part.cap = part.text ? part.n + 1 : 0;
    p->parts[p->n++] = part;
    p->number += part.kind != PML_PART_ARGUMENT && part.kind != PML_PART_END;
    p->takes_argument = part.kind == PML_PART_MODULE || part.kind == PML_PART_ARGUMENT;
    return RP_OK;
}

/* Does the prompt accept another part? */
static int builder_accepts(const rp_builder *p) { return p ? (int)p->err.code : RP_ERR_INVALID; }

static int check_path(rp_builder *p, const char *path) {
    int names = 0;
    if (!path) return prompt_fail(p, RP_ERR_INVALID, "the path of a module is NULL");
    for (const char *name = path;; name++) {
        size_t n = strcspn(name, "/");
        if (n == 0)
            return prompt_fail(p, RP_ERR_NAME,
                               "module '%.*s': a name is empty: write names from the outermost inward, as a/b",
                               base_shown(path), path);
        if (++names > PML_MAX_PATH_NAMES)
            return prompt_fail(p, RP_ERR_LIMIT, "a path of more than %d names", PML_MAX_PATH_NAMES);
        name += n;
        if (*name == '\0') return prompt_check_text(p, path, strlen(path), "the path");
    }
}

int rp_builder_import(rp_builder *p, const char *path) {
    int rc = builder_accepts(p);
    if (!rc) rc = check_path(p, path);
    return rc ? rc : prompt_add_part(p, (pml_part){.kind = PML_PART_MODULE}, path, NULL);
}

int rp_builder_set_argument(rp_builder *p, const char *param, const char *text, size_t n) {
    int rc = builder_accepts(p);
    if (rc) return rc;
    if (!param || !param[0]) return prompt_fail(p, RP_ERR_INVALID, "an argument without the name of its parameter");
    if (!p->takes_argument)
        return prompt_fail(p, RP_ERR_INVALID, "argument '%.*s' follows no module: set it right after rp_builder_import",
                           base_shown(param), param);
    if ((rc = prompt_check_text(p, param, strlen(param), "a parameter's name")) ||
        (rc = prompt_check_text(p, text, n, "an argument")))
        return rc;
    return prompt_add_part(p, (pml_part){.kind = PML_PART_ARGUMENT, .n = n}, param, n > 0 ? text : "");
}

/* Consecutive texts form one part. */
static int extend_text(rp_builder *p, const char *text, size_t n) {
    pml_part *last = &p->parts[p->n - 1];
    int rc = base_grow((void **)&last->text, &last->cap, last->n + n + 1, PML_MAX_BYTES + 1, 1);
    if (rc) return prompt_fail(p, RP_ERR_MEMORY, "out of memory: a text of %zu bytes", last->n + n);
    memcpy(last->text + last->n, text, n);
    last->n += n;
    last->text[last->n] = '\0';
    return RP_OK;
}

int rp_builder_append_text(rp_builder *p, const char *text, size_t n) {
    int rc = builder_accepts(p);
    if (!rc) rc = prompt_check_text(p, text, n, "a text");
    if (rc || n == 0) return rc;
    if (p->n > 0 && p->parts[p->n - 1].kind == PML_PART_TEXT) return extend_text(p, text, n);
    return prompt_add_part(p, (pml_part){.kind = PML_PART_TEXT, .n = n}, NULL, text);
}

int rp_builder_append_rendered(rp_builder *p, const rp_template_text *text, size_t from, size_t to) {
    int rc = builder_accepts(p);
    if (rc) return rc;
    if (!text || from > to || to > text->n || model_check_rendered(text, NULL))
        return prompt_fail(p, RP_ERR_INVALID,
                           "bytes %zu to %zu of a rendered text that lacks them, or with malformed runs", from, to);
    if (p->role_is_open)
        return prompt_fail(p, RP_ERR_INVALID,
                           "rendered text in a role: it has its roles; call rp_builder_end_role first");
    if ((rc = prompt_check_text(p, text->bytes + from, to - from, "a rendered text")) || from == to) return rc;
    pml_part part = {.kind = PML_PART_RENDERED, .n = to - from};
    part.trusted = model_trusted_ranges(text, from, to, &part.n_trusted);
    if (!part.trusted) return prompt_fail(p, RP_ERR_MEMORY, "out of memory: %zu runs", text->n_runs);
    rc = prompt_add_part(p, part, NULL, text->bytes + from);
    if (rc) base_free(part.trusted);
    return rc;
}

static bool prompt_has_document(const rp_builder *p, const char *name) {
    for (size_t i = 0; i < p->n; i++)
        if (p->parts[i].kind == PML_PART_DOCUMENT && strcmp(p->parts[i].name, name) == 0) return true;
    return false;
}

int rp_builder_append_document(rp_builder *p, const char *text, size_t n) {
    char name[DOCUMENT_DIGITS + 2] = "d";
    base_hash h;
    base_key key;
    int rc = builder_accepts(p);
    if (rc) return rc;
    if (p->schema)
        return prompt_fail(p, RP_ERR_CONFLICT,
                           "the prompt has a schema, '%.*s': import its modules, or make a prompt without one",
                           base_shown(p->schema), p->schema);
    if (n > 0 && text) {
        base_hash_init(&h, "reprise document 1");
        base_hash_bytes(&h, text, n);
        base_hash_final(&h, &key);
        base_key_hex(&key, name + 1, DOCUMENT_DIGITS);
    }
    if (n == 0 || (text && prompt_has_document(p, name))) return rp_builder_append_text(p, text, n);
    if (p->n_documents == RP_MAX_DOCUMENTS)
        return prompt_fail(p, RP_ERR_LIMIT, "more than %d documents: append the others as text", RP_MAX_DOCUMENTS);
    if ((rc = prompt_check_text(p, text, n, "a document"))) return rc;
    rc = prompt_add_part(p, (pml_part){.kind = PML_PART_DOCUMENT, .n = n}, name, text);
    p->n_documents += !rc;
    return rc;
}

/* The PML's schema must be the prompt's, which has none before its first module. */
static int check_schema_of(rp_builder *p, const pml_document *content) {
    const char *name = content->nodes[0].name;
    if (!p->schema && p->n_documents > 0)
        return prompt_fail(p, RP_ERR_CONFLICT, "PML in a prompt of documents: a prompt can use one schema");
    if (!p->schema && !(p->schema = base_strdup(name))) return prompt_fail(p, RP_ERR_MEMORY, "out of memory: a name");
    if (strcmp(p->schema, name) != 0)
        return prompt_fail(p, RP_ERR_CONFLICT,
                           "PML for schema '%.*s' in a prompt for '%.*s': a prompt can use one schema",
                           base_shown(name), name, base_shown(p->schema), p->schema);
    if (content->nodes[0].quality.mode != RP_QUALITY_AS_WRITTEN)
        return prompt_fail(p, RP_ERR_CONFLICT, "PML with a quality of its own: give the request's quality instead");
    return RP_OK;
}

static bool has_role(const pml_document *content) {
    for (int32_t i = 1; i < content->n_nodes; i++)
        if (content->nodes[i].kind == PML_ROLE) return true;
    return false;
}

int rp_builder_append_pml(rp_builder *p, const char *pml, size_t n) {
    char name[RP_ERROR_WHERE_BYTES];
    pml_document *content = NULL;
    int rc = builder_accepts(p);
    if (!rc) rc = prompt_check_text(p, pml, n, "PML");
    if (rc) return rc;
    snprintf(name, sizeof(name), "prompt, part %zu", p->number + 1);
    if (pml_prompt_parse(&content, pml ? pml : "", n, name, &p->err)) return (int)p->err.code;
    rc = check_schema_of(p, content);
    if (!rc && p->role_is_open && !p->is_message && has_role(content))
        rc = prompt_fail(p, RP_ERR_INVALID,
                         "PML with roles in a role: roles do not nest; call rp_builder_end_role first");
    if (!rc) rc = prompt_add_part(p, (pml_part){.kind = PML_PART_PML, .n = n}, NULL, pml);
    if (!rc) p->parts[p->n - 1].content = content;
    else pml_document_free(content);
    return rc;
}

static int prompt_begin(rp_builder *p, pml_part_kind kind, rp_role role) {
    int rc = builder_accepts(p);
    if (rc) return rc;
    if ((unsigned)role >= RP_N_ROLES) return prompt_fail(p, RP_ERR_INVALID, "unknown role %d", (int)role);
    if (p->role_is_open) return prompt_fail(p, RP_ERR_INVALID, "roles do not nest: call rp_builder_end_role first");
    rc = prompt_add_part(p, (pml_part){.kind = kind, .role = (int)role}, NULL, NULL);
    p->role_is_open = !rc;
    p->is_message = kind == PML_PART_MESSAGE;
    return rc;
}

int rp_builder_begin_role(rp_builder *p, rp_role role) { return prompt_begin(p, PML_PART_ROLE, role); }

int rp_builder_begin_message(rp_builder *p, rp_role role) { return prompt_begin(p, PML_PART_MESSAGE, role); }

int rp_builder_end_role(rp_builder *p) {
    int rc = builder_accepts(p);
    if (rc) return rc;
    if (!p->role_is_open) return prompt_fail(p, RP_ERR_INVALID, "no role to end: call rp_builder_begin_role first");
    p->role_is_open = false;
    return prompt_add_part(p, (pml_part){.kind = PML_PART_END}, NULL, NULL);
}

/* ---- for jobs ---- */

const char *builder_schema(const rp_builder *p) { return p->schema; }

int builder_make_schema(const rp_builder *p, rp_engine *e, const base_key *salt, const char *name,
                        const char *modules_in, rp_schema **out, rp_error *err) {
    return engine_make_parts_schema(e, salt, p->parts, p->n, name, modules_in, out, err);
}

int builder_check(const rp_builder *p, rp_error *err) {
    if (p->err.code && err) *err = p->err;
    return (int)p->err.code;
}

int builder_build(const rp_builder *p, const pml_document *schema, const char *name, pml_document **out,
                  rp_error *err) {
    return pml_parts_build(out, schema, p->parts, p->n, name, err);
}

int engine_prompt_check(const rp_prompt *p, rp_error *err) {
    const bool is_document = p->kind == RP_PROMPT_PML || p->kind == RP_PROMPT_BUILT;
    if (p->kind == RP_PROMPT_NONE)
        return base_fail(err, RP_ERR_INVALID,
                         "a request needs a prompt: text, tokens, messages, PML or one built part by part");
    if ((unsigned)p->kind > RP_PROMPT_BUILT)
        return base_fail(err, RP_ERR_INVALID, "unknown kind of prompt %d", (int)p->kind);
    if (!p->content) return base_fail(err, RP_ERR_INVALID, "the request's prompt has no content: it is NULL");
    if (p->schema && !is_document)
        return base_fail(err, RP_ERR_INVALID, "a request with a schema of its own needs a prompt over it");
    return RP_OK;
}
