/* SPDX-License-Identifier: Apache-2.0 */
/* modular.c: "reuse": "modular": the documents of a conversation as modules of a schema that is made for its request.
 *
 *   <schema name="parts" layout="packed" xml:space="preserve">
 *     <module name="first">.</module>      never imported: it stands before all others, so that none is tokenized as a document's beginning
 *     <module name="d0123...">...</module> a document, named by its text
 *   </schema>
 *
 * A module attends to the beginning-of-text token and itself, and its states are named by that and its tokens: whatever the documents are,
 * and in whatever order, those that were read before are found. The schema itself is gone with its request: nothing is to be listed or
 * bounded, and a document's states live as those of any other module.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "server/prompt/compose.h"
#include "server/server_internal.h"

#define MIN_MODULE_TOKENS 32   /* shorter parts stay text */
#define LOOKED_AT_BYTES 2048   /* of a part, to tell whether it has so many tokens */
#define MAX_DOCUMENTS 1024     /* of a request; the rest stays text */
#define NAME_DIGITS 20

/* ---- which parts ---- */

/* The last text of a message is what is asked: it is to see what stands before it. A document says what it is. */
static bool is_candidate(const generation *a, size_t i) {
    const server_part *part = &a->parts[i];
    rp_role role = a->messages[part->message].role;
    if (role == RP_ROLE_ASSISTANT) return false;
    if (part->kind == SERVER_PART_DOCUMENT || role == RP_ROLE_SYSTEM) return true;
    return part->kind == SERVER_PART_TEXT && i + 1 < a->n_parts && a->parts[i + 1].message == part->message;
}

static bool is_long(const rp_model *m, const char *text, size_t n) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    if (n > LOOKED_AT_BYTES)
        for (n = LOOKED_AT_BYTES; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--; /* whole characters */
    if (n < MIN_MODULE_TOKENS / 2 || rp_tokenize(m, text, n, false, false, &tokens, &n_tokens, NULL)) return false;
    rp_free(tokens);
    return n_tokens >= MIN_MODULE_TOKENS;
}

static void name_document(server_document *d, const char *text, size_t n) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise document 1");
    base_hash_bytes(&h, text, n);
    base_hash_final(&h, &key);
    d->name[0] = 'd';
    base_key_hex(&key, d->name + 1, NAME_DIGITS);
}

/* PML imports a module once. */
static bool server_document_is_there(const server_document *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return true;
    return false;
}

static size_t list_documents(server_request *x, server_document *list) {
    const generation *a = &x->gen;
    size_t n = 0;
    for (size_t i = 0; i < a->n_parts && n < MAX_DOCUMENTS; i++) {
        const server_part *part = &a->parts[i];
        const char *text = a->messages[part->message].text + part->begin;
        size_t bytes = part->end - part->begin;
        if (!is_candidate(a, i) || !is_long(x->server->model, text, bytes)) continue;
        list[n].part = i;
        name_document(&list[n], text, bytes);
        if (!server_document_is_there(list, n, list[n].name)) n++;
    }
    return n;
}

/* ---- their schema ---- */

static int modular_append_module(base_buffer *out, const generation *a, const server_document *d) {
    const server_part *part = &a->parts[d->part];
    int rc = base_buffer_printf(out, "<module name=\"%s\">", d->name);
    if (!rc) rc = compose_escape(out, a->messages[part->message].text + part->begin, part->end - part->begin, false);
    return rc ? rc : base_buffer_append_str(out, "</module>");
}

static int modular_make_schema(server_request *x, const server_document *list, size_t *n) {
    base_buffer out = BASE_BUFFER(SERVER_MAX_COMPOSED_BYTES);
    int rc = base_buffer_append_str(&out, "<schema name=\"" MODULAR_SCHEMA "\" layout=\"packed\" xml:space=\"preserve\">"
                                          "<module name=\"first\">.</module>");
    for (size_t i = 0; i < *n && !rc; i++) rc = modular_append_module(&out, &x->gen, &list[i]);
    if (!rc) rc = base_buffer_append_str(&out, "</schema>");
    if (!rc) x->gen.schema = generation_own(&x->gen, base_buffer_take(&out), &x->problem);
    else if (rc == RP_ERR_MEMORY) server_fail_memory(&x->problem);
    else *n = 0; /* PML cannot hold them */
    base_buffer_free(&out);
    return (int)x->problem.kind;
}

int modular_choose(server_request *x, server_document **documents, size_t *n_documents) {
    size_t most = BASE_MIN(x->gen.n_parts, (size_t)MAX_DOCUMENTS);
    *n_documents = 0;
    *documents = most > 0 ? base_calloc(most, sizeof(**documents)) : NULL;
    if (most == 0) return SERVER_FINE;
    if (!generation_own(&x->gen, (char *)*documents, &x->problem)) return (int)x->problem.kind;
    *n_documents = list_documents(x, *documents);
    return *n_documents > 0 ? modular_make_schema(x, *documents, n_documents) : SERVER_FINE;
}
