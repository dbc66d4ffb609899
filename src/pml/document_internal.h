/* SPDX-License-Identifier: Apache-2.0 */
/* document_internal.h: internals shared by document*.c only.
 *
 *   document.c           the finished tree: storage, look-ups, errors at nodes
 *   document_builder.c   adding drafts and texts; the first failure of a parse
 *   document_parse.c     expat's events -> drafts
 *   document_parts.c     parts of a prompt -> drafts, without XML
 *   document_elements.c  elements and attributes: names, allowed places, allowed values
 *   document_src.c       src files
 *   document_space.c     white space: drafts -> drafts with their final texts
 *   document_check.c     drafts -> nodes; whole-document checks: names, defaults, scaffolds
 *   document_names.c     names: which strings are XML names
 *
 * A builder lives on the stack of one parse; drafts are nodes plus data that only the parse needs.
 */
#ifndef PML_DOCUMENT_INTERNAL_H
#define PML_DOCUMENT_INTERNAL_H

#include <expat.h>

#include "base/buffer.h"
#include "base/text.h"
#include "pml/document.h"
#include "reprise_pml.h"

/* ---- Storage (document.c): strings and arrays that live as long as the document ---- */

typedef struct pml_chunk pml_chunk;

/* Modules, imports and parameters in the order (holder, is_param, name, node): look-up and search for duplicates. */
typedef struct pml_named {
    int32_t holder, node;
    bool is_param;
    const char *name;
} pml_named;

typedef struct pml_storage {
    pml_chunk *chunks;
    pml_named *named;
    size_t n_named;
} pml_storage;

void *pml_storage_take(pml_storage *s, size_t bytes); /* aligned for any type; NULL: out of memory */
char *pml_storage_string(pml_storage *s, const char *bytes, size_t n);
void pml_storage_free(pml_storage *s); /* frees s itself too; NULL is allowed */

/* Index of the first module of holder in named; n_named if there is none at or after it. */
size_t pml_named_modules(const pml_storage *s, int32_t holder);

/* ---- Drafts and their builder ---- */

typedef struct pml_draft {
    pml_node node;      /* parent, first_child, next: indices of drafts */
    int32_t last_child; /* while linking */
    int32_t final;      /* index of its node, -1: omitted */
    size_t offset;      /* position in the input */
    char *raw;          /* TEXT: node.n_text bytes before white-space processing; one spare byte before them, a NUL
                           after */
    bool preserve;      /* xml:space="preserve" */
} pml_draft;

/* An element that is open. */
typedef struct pml_frame {
    int32_t draft;
    int32_t role;   /* draft of the enclosing role or itself, -1 */
    int32_t module; /* the same for modules */
    bool takes_text;
} pml_frame;

typedef struct pml_builder {
    XML_Parser parser;
    bool is_prompt;
    bool by_parts;             /* built from parts, without input: offsets are part numbers, 0 for the prompt itself */
    size_t part;               /* by_parts: number of the part that is being added */
    const char *bytes;         /* the input after its byte order mark */
    size_t n, mark;            /* mark: bytes of the byte order mark */
    const char *name;          /* of the document */
    const char *dir;           /* for src, or NULL */
    rp_schema_options options; /* schemas */
    rp_error *err;
    int rc; /* the first failure; handlers do nothing after it */

    /* Line counting so far: offset is in line `line`, which starts at line_start. Only advances. */
    size_t offset, line_start;
    int32_t line;

    pml_frame frames[PML_MAX_DEPTH];
    int depth;
    pml_draft *drafts;
    size_t n_drafts, cap_drafts;

    base_buffer pending;   /* text since the last tag */
    size_t pending_offset; /* its position in the input */
    bool pending_solid;    /* it holds more than white space */
    size_t text_total;
    pml_storage *storage;
} pml_builder;

/* ---- document_builder.c ---- */

/* Fails the parse at a byte of the input and prefixes the message with the place. The first failure wins. Returns
 * b->rc. */
int pml_builder_fail(pml_builder *b, size_t offset, rp_code code, const char *fmt, ...) BASE_PRINTF(4, 5);
int pml_builder_memory(pml_builder *b, size_t offset, size_t bytes, const char *what);
void pml_builder_place(pml_builder *b, size_t offset, int32_t *line, int32_t *column);

/* Appends a draft of `kind` under the innermost open element. Invalidates pointers to drafts. */
int pml_builder_add(pml_builder *b, pml_kind kind, size_t offset, int32_t *out);
/* Appends a TEXT under the innermost open element, with n raw bytes. */
int pml_builder_add_text(pml_builder *b, const char *bytes, size_t n, size_t offset);
/* Appends the text since the last tag or part, if there is any. */
int pml_builder_flush_text(pml_builder *b);

/* Parses a prompt of n bytes (document_parse.c), and appends the content of its root under the innermost open element.
 * The prompt was checked by pml_prompt_parse. Only by_parts. */
int pml_builder_graft(pml_builder *b, const char *bytes, size_t n);

/* Handles an element's start (document_elements.c): checks name, place and attributes; adds its draft and opens its
 * frame. */
int pml_element_begin(pml_builder *b, size_t offset, const char *name, const char **attributes);
int pml_element_end(pml_builder *b, size_t offset); /* offset: of its end tag */
const char *pml_role_name(int role);                /* "user"; static */
void pml_element_open(pml_builder *b, int32_t draft, bool takes_text);
/* Refuses text other than white space where none is allowed. */
int pml_element_refuse_text(pml_builder *b, size_t offset);

/* Reads the src file of the module at `offset` into *out, trimmed; checks its path and its UTF-8. */
int pml_src_read(pml_builder *b, size_t offset, const char *path, base_buffer *out);

void pml_space_settle(pml_builder *b);

/* Moves the builder's result into a document. */
int pml_builder_document(pml_builder *b, pml_document **out);
/* Converts drafts to nodes and checks the whole document. */
int pml_document_finish(pml_builder *b, pml_document *d);
/* "name:line:column" of a document; the front of a long name is cut off. "name, part N" without a column; "name"
 * without a line. */
void pml_where(char out[RP_ERROR_WHERE_BYTES], const char *name, int32_t line, int32_t column);

/* ---- Names and bytes (document_names.c) ---- */

/* Returns 0, RP_ERR_SYNTAX (not a valid element name) or RP_ERR_MEMORY. */
int pml_name_check(const char *name);

/* Arguments for "%.*s" in messages. */
#define PML_SHOWN(s) base_shown(s), (s)

/* Offset of the first byte that is not UTF-8 text (NUL included); n if all bytes are valid. */
size_t pml_utf8_check(const char *bytes, size_t n);

/* Advances *line and *line_start past the lines that end between two offsets of n bytes (with CR, LF or CR LF). */
void pml_count_lines(const char *bytes, size_t n, size_t from, size_t to, int32_t *line, size_t *line_start);

#endif
