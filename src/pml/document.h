/* SPDX-License-Identifier: Apache-2.0 */
/* document.h: PML documents as checked trees: bytes -> nodes. Knows XML and names, no model and no tokens.
 *
 * After a successful parse, all rules of docs/pml.md about elements, attributes, names and white space hold:
 * texts have their final white space, unions hold modules only, names are unique, src files are read.
 *
 *   pml_document
 *     nodes[0]  the root (SCHEMA or PROMPT)
 *     nodes[i]  in document order; parent, first_child, next are indices, -1 for none
 *
 * One allocation owner: strings and nodes live until pml_document_free. Immutable after parsing; any thread may read.
 */
#ifndef PML_DOCUMENT_H
#define PML_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "kv/block_pool.h"
#include "model/tokenizer/tokenizer.h"
#include "reprise.h"
#include "reprise_pml.h"

#define PML_MAX_BYTES ((size_t)64 << 20) /* per document or src file */
#define PML_MAX_NODES ((size_t)1 << 18)
#define PML_MAX_DEPTH 64 /* nested elements */
#define PML_MAX_PARAM_TOKENS 4096
#define PML_MAX_TEXT_TOTAL ((size_t)256 << 20) /* all texts of a document, src files included */

typedef enum pml_kind {
    PML_SCHEMA,
    PML_PROMPT,
    PML_MODULE,
    PML_UNION,
    PML_PARAM,
    PML_SCAFFOLD,
    PML_ROLE,
    PML_TEXT,
    PML_IMPORT, /* in prompts: an element named like a module */
} pml_kind;

typedef enum pml_scope { PML_SCOPE_INHERIT,
                         PML_SCOPE_PATH,
                         PML_SCOPE_MODULE } pml_scope;
typedef enum pml_anchor { PML_ANCHOR_INHERIT,
                          PML_ANCHOR_NONE,
                          PML_ANCHOR_BOS } pml_anchor;
/* PML_LAYOUT_DEFAULT: packed where the model's positions can move, else fixed. */
typedef enum pml_layout_kind { PML_LAYOUT_DEFAULT,
                               PML_LAYOUT_PACKED,
                               PML_LAYOUT_FIXED } pml_layout_kind;

/* An argument: an attribute of an import. */
typedef struct pml_argument {
    const char *name, *value;
    size_t n_value; /* bytes; in a prompt built from parts (parts.h) the value may contain NUL */
} pml_argument;

typedef struct pml_node {
    pml_kind kind;
    int32_t parent, first_child, next; /* node indices, -1: none */
    int32_t line, column;              /* of the element's '<' or the text's first character; from 1 (column: in
                                          bytes). For a prompt made of parts: the part's number, and 0 */
    const char *name;                  /* SCHEMA, MODULE, PARAM, IMPORT: name; PROMPT: the schema's name; else "" */
    int role;                          /* ROLE: value of chat_role (system, user, assistant, tool = 0..3); else -1 */
    const char *text;                  /* TEXT: bytes after white-space processing (never empty); else NULL */
    size_t n_text;
    const tokenizer_range *trusted; /* TEXT of a prompt: ranges where control tokens are recognised; NULL: none */
    size_t n_trusted;
    bool text_continues;    /* TEXT: directly preceded by a parameter, text, module or union of the same role or
                               document: no SentencePiece dummy space is inserted */
    bool border_space;      /* white space at a border that is settled later (docs/pml.md, White space). PARAM: before
                               it, so its value begins with one space. TEXT of a prompt: between it and the import after
                               it */
    pml_scope scope;        /* SCHEMA (never INHERIT; default: path), MODULE */
    pml_anchor anchor;      /* SCHEMA (never INHERIT; default: none), MODULE */
    pml_layout_kind layout; /* SCHEMA */
    rp_quality quality;     /* SCHEMA, MODULE, PROMPT */
    bool cache;             /* MODULE */
    bool pin;               /* MODULE */
    bool has_kv;            /* SCHEMA, MODULE: it names a KV format, kv, for itself and the modules inside */
    rp_kv_format kv;
    int32_t keep;        /* SCHEMA, MODULE: share of the slots of its reduced KV, in 1/1000, and of the modules inside;
                            0: none named */
    int64_t ttl_seconds; /* MODULE; 0: none */
    int32_t param_len;   /* PARAM: tokens */
    bool required;       /* PARAM: a prompt without an argument for it is refused */
    /* PARAM: placeholder text or NULL; UNION: the default member's name or NULL (checked: it is a member); SCAFFOLD:
       the modules attribute (checked: every path names a module, two or more) */
    const char *scaffold;
    const pml_argument *arguments; /* IMPORT */
    int32_t n_arguments;
} pml_node;

typedef struct pml_document {
    const char *name; /* document name in error messages */
    pml_node *nodes;
    int32_t n_nodes;
    void *owner; /* internal: string storage */
} pml_document;

/* XML's white space. */
static inline bool pml_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Parses a schema or a prompt from n bytes. name: for errors. dir: the directory for src, NULL: src is refused (schemas
 * only). options: override the schema's attributes; NULL: none. A scaffold from options has the line and column of
 * </schema>. RP_ERR_SYNTAX (XML, UTF-8, structure, unknown element or attribute with the nearest name, missing
 * attribute, bad value), RP_ERR_CONFLICT (duplicate names), RP_ERR_NAME (scaffold paths and defaults that name
 * nothing), RP_ERR_IO (src), RP_ERR_LIMIT, RP_ERR_MEMORY. On error *out is NULL; err->where is "name:line:column". */
int pml_schema_parse(pml_document **out, const char *bytes, size_t n, const char *name, const char *dir,
                     const rp_schema_options *options, rp_error *err);
int pml_prompt_parse(pml_document **out, const char *bytes, size_t n, const char *name, rp_error *err);
void pml_document_free(pml_document *d);

/* base_fail_at with where = "document:line:column" of a node. Returns code. */
int pml_fail(rp_error *err, rp_code code, const pml_document *d, int32_t node, const char *fmt, ...) BASE_PRINTF(5, 6);

/* Finds the module `name` (n bytes) among the modules of `holder` (a SCHEMA or MODULE), looking through unions and
 * roles. Returns -1 if there is none. */
int32_t pml_find_module(const pml_document *d, int32_t holder, const char *name, size_t n);
/* The module or schema that contains a node (looking through unions and roles); -1 for the root. */
int32_t pml_holder(const pml_document *d, int32_t node);
/* The role (chat_role) that a module is in, however deep; -1: none. And whether the module contains one. */
int pml_role_of(const pml_document *d, int32_t module);
bool pml_contains_role(const pml_document *d, int32_t module);
/* The union that a module is a member of, or -1. */
int32_t pml_union_of(const pml_document *d, int32_t module);
/* Marks (by node) the default member of each union that has a marked holder and no marked member. included:
 * [schema->n_nodes] */
void pml_include_defaults(const pml_document *schema, bool *included);
/* The nearest name (by edit distance) among a holder's modules, or NULL if none is near. */
const char *pml_nearest_module(const pml_document *d, int32_t holder, const char *name);
/* The parameter of a module by name, -1 if there is none; and the nearest parameter name, or NULL. */
int32_t pml_find_param(const pml_document *d, int32_t module, const char *name);
const char *pml_nearest_param(const pml_document *d, int32_t module, const char *name);
/* "plan/miami" of a module, into out (cut to `bytes`); "" for the schema. Returns out. */
const char *pml_path(const pml_document *d, int32_t module, char *out, size_t bytes);

#endif
