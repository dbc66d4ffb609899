/* SPDX-License-Identifier: Apache-2.0 */
/* flat_pml.h: a prompt over its schema as plain messages: the rules of docs/pml.md for order and white space, in a
 * second, slow implementation. */
#ifndef SUPPORT_FLAT_PML_H
#define SUPPORT_FLAT_PML_H

#include "base/buffer.h"
#include "pml/document.h"
#include "reprise_tools.h"

#define FLAT_NO_ROLE (-1)

typedef struct flat_message {
    int role; /* rp_role, or FLAT_NO_ROLE */
    base_buffer text;
} flat_message;

typedef struct flat_pml {
    flat_message *messages;
    size_t n, cap;
    size_t schema_bytes; /* of the texts, those that the schema gave, arguments aside */
} flat_pml;

void flat_pml_make(flat_pml *out, const pml_document *schema, const pml_document *prompt);
void flat_pml_free(flat_pml *f);

/* Is it that prompt, bit for bit? An empty text without a role is not a message. */
bool flat_pml_equals(const flat_pml *f, const rp_split_prompt *prompt);

#endif
