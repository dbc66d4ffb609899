/* SPDX-License-Identifier: Apache-2.0 */
/* reference_space.h: the white space of a document's texts, from docs/pml.md, 'White space', and the bytes of the
 * document. Searches backward from each text, while the parser works forward in one pass.
 *
 * For tests: out of memory ends the program. Threads: none.
 */
#ifndef SUPPORT_REFERENCE_SPACE_H
#define SUPPORT_REFERENCE_SPACE_H

#include <stddef.h>

#include "pml/document.h"

/* 0, or RP_ERR_CONFLICT: a text or parameter of the parsed document differs from the page's rules; *err shows both. The
 * document has no src files. */
int reference_space_check(const char *xml, size_t n, const pml_document *d, rp_error *err);

#endif
