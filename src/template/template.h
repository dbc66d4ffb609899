/* SPDX-License-Identifier: Apache-2.0 */
/* template.h: chat templates: the Jinja that models carry (docs/templates.md), parsed once and rendered for each
 * conversation.
 *
 *   source --template_lexer, template_parser--> template (immutable)
 *   values, or JSON --template_input, template_json--> variables (immutable) --template_evaluate--> text with the
 *   origin of each byte
 *
 * The result equals that of Python's Jinja2 in the sandboxed environment of transformers (trim_blocks, lstrip_blocks,
 * loop controls, tojson as json.dumps), byte for byte, errors included.
 *
 * A template comes from a model's file and is untrusted: it sees its variables only, and its steps, memory and depth
 * are limited. So are the variables: a byte of the result is *trusted* only if it is the template's own text. User text
 * never becomes a control token, since control tokens are recognised in trusted text only.
 *
 * A template is immutable: any number of threads may render it.
 */
#ifndef TEMPLATE_TEMPLATE_H
#define TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "reprise_chat.h"

#define TEMPLATE_MAX_SOURCE_BYTES ((size_t)1 << 20)
#define TEMPLATE_MAX_INPUT_BYTES ((size_t)128 << 20) /* of JSON, or of texts and keys */
#define TEMPLATE_MAX_OUTPUT_BYTES ((size_t)64 << 20)
#define TEMPLATE_MAX_MEMORY_BYTES ((size_t)1 << 30) /* of one rendering */
#define TEMPLATE_MAX_STEPS RP_TEMPLATE_MAX_STEPS    /* of one rendering; see STEP_COPIED, ... in template_internal.h */
#define TEMPLATE_MAX_DEPTH 128                      /* of nested expressions, calls and values */

typedef struct rp_template template;
typedef rp_template_run template_run;
typedef rp_template_text template_text;
enum { TEMPLATE_TRUSTED = RP_TEMPLATE_TRUSTED,
       TEMPLATE_UNTRUSTED = RP_TEMPLATE_UNTRUSTED,
       TEMPLATE_FIRST_STRING = RP_TEMPLATE_FIRST_STRING };
#define TEMPLATE_NO_OFFSET SIZE_MAX

/* More variables, trusted texts: n pairs of name and text. */
typedef struct template_tokens {
    const char *const *items;
    size_t n;
} template_tokens;

/* rp_template_render_input with more variables, trusted texts, unless the input has them. tokens: NULL for none. */
int template_render(const rp_template *t, const rp_template_input *in, const template_tokens *tokens,
                    const rp_template_options *options, rp_template_text **out, rp_error *err);

/* ---- Input (template_input.c, template_json.c), besides the builder of reprise_chat.h ---- */

/* An input with the members of a JSON object. *out: rp_template_input_free; NULL on failure: RP_ERR_INVALID,
   RP_ERR_LIMIT, RP_ERR_MEMORY. */
int template_input_read(rp_template_input **out, const char *json, size_t n, rp_error *err);
/* rp_template_input_text of a text that is known to be UTF-8. */
uint32_t template_input_copy(rp_template_input *in, const char *bytes, size_t n);
/* The same without a copy: the bytes must stay as they are until the input is freed. */
uint32_t template_input_borrow(rp_template_input *in, const char *bytes, size_t n);
/* A value of any type; a copy. Numbers that are kept as text (base/json_number.h) become the numbers that the text
   says. */
void template_input_json(rp_template_input *in, const json_t *json);
/* The members of an object, keys and values, into the current dict. */
void template_input_members(rp_template_input *in, const json_t *object);

/* rp_template_new, rp_template_free, rp_template_uses, rp_template_render and rp_template_text_free (reprise_chat.h),
 * and rp_template_render_input (reprise_chat.h) are in template.c. */

#endif
