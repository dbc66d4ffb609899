/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h: a prompt as a list of parts, built by a program without writing PML (rp_prompt in
 * reprise_pml.h): parts -> the tree of document.h, identical to that of a PML prompt with the same imports and texts.
 * Texts are never parsed and are kept byte for byte; any UTF-8 is valid, control characters and NUL included.
 *
 *   MODULE plan/miami     <prompt schema="cities">
 *   ARGUMENT days = "3"     <plan days="3"><miami/></plan>
 *   ROLE user          -->  <user>
 *   TEXT "Is 2 < 3?"          "Is 2 < 3?"
 *   END                     </user>
 *                         </prompt>
 *
 * A prompt without a schema has DOCUMENT parts: each is a module of a schema that is made of them (pml_parts_schema).
 *
 * A PML part is a prompt document; its content becomes part of this prompt, with PML's rules for white space.
 *
 * A MESSAGE is a ROLE of a conversation. Its modules are placed where the schema allows them, by their outermost
 * module:
 *
 *   inside    the role of the message: the module is independent of roles
 *   outside   before, between or after the texts of the message, which are closed in their role around it: the module
 *         contains roles
 *   bare      in a role of the schema: the message is that role, so no role is added for it. Only in the first message
 *
 * Consecutive texts are one text. Consecutive modules with common outer names are one import. Places in errors are part
 * numbers, from 1: ARGUMENT belongs to the MODULE before it and END to its ROLE, so they have no number.
 */
#ifndef PML_PARTS_H
#define PML_PARTS_H

#include "model/tokenizer/tokenizer.h"
#include "pml/document.h"

typedef enum pml_part_kind {
    PML_PART_TEXT,
    PML_PART_RENDERED, /* a text with ranges of trusted bytes, where control tokens are recognised; never joined with
                          another */
    PML_PART_MODULE,
    PML_PART_DOCUMENT,
    PML_PART_ARGUMENT,
    PML_PART_PML,
    PML_PART_ROLE,
    PML_PART_MESSAGE,
    PML_PART_END, /* of the ROLE or MESSAGE */
} pml_part_kind;

typedef struct pml_part {
    pml_part_kind kind;
    /* MODULE: a path of non-empty names, at most PML_MAX_PATH_NAMES; DOCUMENT: an XML name; ARGUMENT: its parameter */
    char *name;
    /* TEXT, DOCUMENT, ARGUMENT: n bytes of UTF-8; PML: a document that pml_prompt_parse accepts, for the same schema */
    char *text;
    size_t n;
    tokenizer_range *trusted; /* RENDERED: [n_trusted], in the text; owned */
    size_t n_trusted;
    size_t cap;            /* allocated bytes; used by the builder of the part */
    int role;              /* ROLE, MESSAGE: value of chat_role */
    pml_document *content; /* PML: what pml_prompt_parse made of the text */
} pml_part;

#define PML_PARTS_SCHEMA "parts"               /* name of the schema of documents; their labels begin with it */
#define PML_MAX_PATH_NAMES (PML_MAX_DEPTH - 2) /* an import may be inside a role of the prompt */

/* Builds the document of a prompt for `schema`, which is borrowed during the call. Roles do not nest; a role without
 * END ends with the prompt, and so does a message. An argument belongs to the innermost module of its path that has
 * such a parameter. name: for errors. RP_ERR_CONFLICT (a module imported in two places, an argument given twice, a
 * module in a message that cannot have it), RP_ERR_LIMIT, RP_ERR_MEMORY.
 * Names that the schema does not have are left to the plan. On error *out is NULL. */
int pml_parts_build(pml_document **out, const pml_document *schema, const pml_part *parts, size_t n, const char *name,
                    rp_error *err);

/* Builds the schema of the DOCUMENT parts, in packed layout: no document is the first module, so that none is tokenized
 * as the start of a text. Their names differ. RP_ERR_LIMIT, RP_ERR_MEMORY. On error *out is NULL. */
int pml_parts_schema(pml_document **out, const pml_part *parts, size_t n, const char *name, rp_error *err);

/* Offset of the first byte that is not UTF-8; n if all bytes are valid. NUL is a valid character. */
size_t pml_text_check(const char *bytes, size_t n);

#endif
