/* parts.h: a prompt as a list of parts, which a program makes without writing PML (rp_prompt in reprise.h): parts -> the tree that
 * document.h describes, the same that a PML prompt with those imports and texts becomes. Texts are never parsed and stay as they are, to the
 * byte; any bytes of UTF-8 will do, control characters and NUL included.
 *
 *   MODULE plan/miami     <prompt schema="cities">
 *   ARGUMENT days = "3"     <plan days="3"><miami/></plan>
 *   ROLE user          -->  <user>
 *   TEXT "Is 2 < 3?"          "Is 2 < 3?"
 *   END                     </user>
 *                         </prompt>
 *
 * Texts that follow each other are one text. Modules that follow each other and have outer names in common are one import. Places in errors are
 * numbers of parts, from 1: ARGUMENT belongs to the MODULE before it and END to its ROLE, so they have none.
 */
#ifndef PML_PARTS_H
#define PML_PARTS_H

#include "pml/document.h"

typedef enum pml_part_kind { PML_PART_TEXT, PML_PART_MODULE, PML_PART_ARGUMENT, PML_PART_ROLE, PML_PART_END } pml_part_kind;

typedef struct pml_part {
    pml_part_kind kind;
    char *name;   /* MODULE: the path, names that are not empty, at most PML_MAX_PATH_NAMES; ARGUMENT: the parameter */
    char *text;   /* TEXT, ARGUMENT: n bytes of UTF-8 */
    size_t n;
    size_t cap;   /* for who makes them */
    int role;     /* ROLE: chat_role's value */
} pml_part;

#define PML_MAX_PATH_NAMES (PML_MAX_DEPTH - 2) /* an import may be inside a role of the prompt */

/* The document of a prompt for `schema`, which is borrowed during the call. Roles do not nest, and one that no END closes ends with the prompt.
 * An argument is the one of the innermost module of its path that has such a parameter. name: for errors.
 * RP_ERR_CONFLICT (a module imported in two places, an argument given twice), RP_ERR_LIMIT, RP_ERR_MEMORY. Names that the schema does not
 * have are left to the plan. On error *out is NULL. */
int pml_parts_build(pml_document **out, const pml_document *schema, const pml_part *parts, size_t n, const char *name, rp_error *err);

/* Offset of the first byte that is no UTF-8; n if all is well. NUL is a character. */
size_t pml_text_check(const char *bytes, size_t n);

#endif
