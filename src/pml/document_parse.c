/* SPDX-License-Identifier: Apache-2.0 */
/* document_parse.c: from bytes to a document. Drives expat and turns its events into drafts.
 *
 *   bytes -- check size, byte order mark, UTF-8 -- expat --> on_start, on_text, on_end --> drafts
 *         --> pml_space_settle --> pml_document_finish --> document
 *
 * Owns the builder, which lives on the stack of one parse; document_builder.c adds to it. document_elements.c
 * interprets the elements.
 *
 * Places are byte offsets into the input: expat reads it in one piece and reports each event's offset, and lines are
 * counted here, in bytes. A DTD ends the parse before its contents are read, so no entity is ever declared or expanded.
 * No recursion depends on the depth of the input.
 *
 * Threads: no shared data; parses of different documents may run concurrently.
 */
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "pml/document_internal.h"
#include "reprise_pml.h"

/* ---- expat's events ---- */

static size_t event_offset(const pml_builder *b) {
    if (b->by_parts) return b->part;
    XML_Index i = XML_GetCurrentByteIndex(b->parser);
    return i < 0 ? 0 : BASE_MIN((size_t)i, b->n);
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes) {
    pml_builder *b = user;
    if (b->rc == 0 && pml_builder_flush_text(b) == 0) pml_element_begin(b, event_offset(b), name, attributes);
}

static void XMLCALL document_parse_on_end(void *user, const XML_Char *name) {
    pml_builder *b = user;
    (void)name;
    if (b->rc == 0 && pml_builder_flush_text(b) == 0) pml_element_end(b, event_offset(b));
}

/* Receives a piece of text within one line, a line's end, or a character reference. */
static void XMLCALL document_parse_on_text(void *user, const XML_Char *s, int n_signed) {
    pml_builder *b = user;
    size_t n = (size_t)n_signed, n_white = 0, offset = event_offset(b);
    if (b->rc != 0) return;
    BASE_ASSERT(b->depth > 0); /* text outside of the root is an error of expat's */
    while (n_white < n && pml_is_space(s[n_white])) n_white++;
    const size_t solid = b->by_parts ? offset : offset + n_white; /* of the first character that is not white space */
    if (!b->frames[b->depth - 1].takes_text) {
        if (n_white < n) pml_element_refuse_text(b, solid);
        return;
    }
    if (n_white < n && !b->pending_solid) {
        b->pending_solid = true;
        b->pending_offset = solid;
    } else if (b->pending.len == 0) {
        b->pending_offset = offset;
    }
    if (base_buffer_append(&b->pending, s, n) != 0) pml_builder_memory(b, offset, b->pending.len + n, "a text");
}

/* expat reports a DOCTYPE at the end of its name or brackets; the error must show its start. */
static void XMLCALL document_parse_on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                                              const XML_Char *public, int has_subset) {
    static const char opening[] = "<!DOCTYPE";
    pml_builder *b = user;
    size_t offset = event_offset(b);
    (void)name, (void)system, (void)public, (void)has_subset;
    while (offset > 0 &&
           (b->n - offset < sizeof opening - 1 || memcmp(b->bytes + offset, opening, sizeof opening - 1) != 0))
        offset--;
    pml_builder_fail(b, offset, RP_ERR_SYNTAX, "PML has no document type definitions: remove <!DOCTYPE ...>");
}

static void XMLCALL on_instruction(void *user, const XML_Char *target, const XML_Char *data) {
    pml_builder *b = user;
    (void)data;
    if (b->rc == 0)
        pml_builder_fail(b, event_offset(b), RP_ERR_SYNTAX, "PML has no processing instructions: remove <?%.*s ...?>",
                         PML_SHOWN(target));
}

static void XMLCALL on_declaration(void *user, const XML_Char *version, const XML_Char *encoding, int standalone) {
    pml_builder *b = user;
    (void)standalone;
    if (encoding && strcasecmp(encoding, "UTF-8") != 0)
        pml_builder_fail(b, event_offset(b), RP_ERR_SYNTAX,
                         "encoding=\"%.*s\": save the document as UTF-8 and declare that, or nothing",
                         PML_SHOWN(encoding));
    else if (version && strcmp(version, "1.0") != 0)
        pml_builder_fail(b, event_offset(b), RP_ERR_SYNTAX, "XML version \"%.*s\": write version=\"1.0\"",
                         PML_SHOWN(version));
}

/* ---- expat's errors ---- */

/* Advice for common errors. */
static const char *document_parse_advice(enum XML_Error code) {
    switch (code) {
    case XML_ERROR_INVALID_TOKEN: return "write & as &amp; and < as &lt; in text, and attributes as name=\"value\"";
    case XML_ERROR_UNDEFINED_ENTITY: return "use only &amp; &lt; &gt; &quot; &apos; and &#NUMBER;";
    case XML_ERROR_BAD_CHAR_REF: return "write the number of a character that XML allows";
    case XML_ERROR_DUPLICATE_ATTRIBUTE: return "give the attribute only once";
    case XML_ERROR_JUNK_AFTER_DOC_ELEMENT: return "remove the data after the document's end tag";
    case XML_ERROR_MISPLACED_XML_PI: return "move the XML declaration to the very beginning, or remove it";
    case XML_ERROR_UNCLOSED_CDATA_SECTION: return "end it with ]]>";
    case XML_ERROR_UNCLOSED_TOKEN: return "end it with >, a comment with -->";
    case XML_ERROR_PARTIAL_CHAR: return "the document ends inside a character";
    default: return "correct the XML here";
    }
}

/* Reports the innermost open element at the end of the document or of another element. */
static int fail_open_element(pml_builder *b, size_t offset, const char *what) {
    BASE_ASSERT(b->depth > 0 && !b->by_parts);
    const pml_draft *d = &b->drafts[b->frames[b->depth - 1].draft];
    const char *name = b->bytes + d->offset + 1, *end = name;        /* after '<' */
    while (*end != '>' && *end != '/' && !pml_is_space(*end)) end++; /* expat has seen the whole tag */
    const size_t n = BASE_MIN((size_t)(end - name), (size_t)60);
    return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "%s, but <%.*s> of line %d is open: write </%.*s> first", what,
                            (int)n, name, (int)d->node.line, (int)n, name);
}

static int fail_expat(pml_builder *b) {
    enum XML_Error code = XML_GetErrorCode(b->parser);
    size_t offset = event_offset(b);
    if (code == XML_ERROR_NO_MEMORY) return pml_builder_memory(b, offset, b->n, "parsing XML");
    BASE_ASSERT(!b->by_parts);                          /* parts of PML were parsed once before */
    if (code == XML_ERROR_TAG_MISMATCH && b->depth > 0) /* expat's offset is after "</" */
        return fail_open_element(b, offset >= 2 ? offset - 2 : 0, "the wrong element is closed here");
    if (code == XML_ERROR_NO_ELEMENTS && b->depth > 0) return fail_open_element(b, offset, "the document ends");
    if (code == XML_ERROR_NO_ELEMENTS)
        return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "the document is empty: write %s",
                                b->is_prompt ? "<prompt schema=\"NAME\">...</prompt>"
                                             : "<schema name=\"NAME\">...</schema>");
    return pml_builder_fail(b, offset, RP_ERR_SYNTAX, "%s: %s", XML_ErrorString(code), document_parse_advice(code));
}

/* ---- One parse ---- */

static int check_input(pml_builder *b) {
    if (b->n > PML_MAX_BYTES)
        return pml_builder_fail(b, 0, RP_ERR_LIMIT, "the document has more than %zu bytes: move texts into src files",
                                PML_MAX_BYTES);
    size_t bad = pml_utf8_check(b->bytes, b->n);
    if (bad == b->n) return 0;
    if (b->bytes[bad] == '\0')
        return pml_builder_fail(b, bad, RP_ERR_SYNTAX, "a NUL byte: save the document as text in UTF-8, not in UTF-16");
    return pml_builder_fail(b, bad, RP_ERR_SYNTAX, "byte 0x%02X is not UTF-8: save the document in UTF-8",
                            (unsigned)(unsigned char)b->bytes[bad]);
}

/* Runs expat over n bytes, with `start` for the first element. */
static int document_parse_run(pml_builder *b, const char *bytes, size_t n, XML_StartElementHandler start) {
    static const XML_Memory_Handling_Suite memory = {base_alloc, base_realloc, base_free};
    b->parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
    if (!b->parser) return pml_builder_memory(b, b->part, n, "an XML parser");
    XML_SetUserData(b->parser, b);
    XML_SetElementHandler(b->parser, start, document_parse_on_end);
    XML_SetCharacterDataHandler(b->parser, document_parse_on_text);
    XML_SetStartDoctypeDeclHandler(b->parser, document_parse_on_doctype);
    XML_SetProcessingInstructionHandler(b->parser, on_instruction);
    XML_SetXmlDeclHandler(b->parser, on_declaration);
    if (XML_Parse(b->parser, n > 0 ? bytes : "", (int)n, 1) != XML_STATUS_OK && b->rc == 0) fail_expat(b);
    XML_ParserFree(b->parser);
    b->parser = NULL;
    return b->rc;
}

int pml_builder_document(pml_builder *b, pml_document **out) {
    pml_document *d = base_calloc(1, sizeof *d);
    if (!d) return pml_builder_memory(b, 0, sizeof *d, "a document");
    d->owner = b->storage;
    b->storage = NULL;
    d->name = pml_storage_string(d->owner, b->name, strlen(b->name));
    int rc = d->name ? pml_document_finish(b, d) : pml_builder_memory(b, 0, strlen(b->name) + 1, "the document's name");
    if (rc == 0) *out = d;
    else pml_document_free(d);
    return rc;
}

static int pml_builder_parse(pml_builder *b, pml_document **out) {
    *out = NULL;
    b->line = 1;
    b->pending = BASE_BUFFER(PML_MAX_BYTES);
    if (b->n >= 3 && memcmp(b->bytes, "\xEF\xBB\xBF", 3) == 0) {
        b->mark = 3;
        b->bytes += 3;
        b->n -= 3;
    }
    b->storage = base_calloc(1, sizeof *b->storage);
    if (!b->storage) pml_builder_memory(b, 0, sizeof *b->storage, "a document");
    if (b->rc == 0 && check_input(b) == 0 && document_parse_run(b, b->bytes, b->n, on_start) == 0) {
        BASE_ASSERT(b->depth == 0); /* the root was closed */
        pml_space_settle(b);
        b->rc = pml_builder_document(b, out);
    }
    if (b->rc == 0)
        BASE_TRACE(PML, "parse %s: %d nodes, %zu bytes of text", b->name, (int)(*out)->n_nodes, b->text_total);
    base_buffer_free(&b->pending);
    base_free(b->drafts);
    pml_storage_free(b->storage);
    return b->rc;
}

/* ---- A prompt's content as a part of another ---- */

/* The root of the grafted prompt opens a second frame of the element that gets its content. */
static void XMLCALL on_graft_start(void *user, const XML_Char *name, const XML_Char **attributes) {
    pml_builder *b = user;
    (void)name;
    const int32_t parent = b->frames[b->depth - 1].draft;
    for (const XML_Char **a = attributes; *a; a += 2)
        if (strcmp(a[0], "xml:space") == 0) b->drafts[parent].preserve = strcmp(a[1], "preserve") == 0;
    pml_element_open(b, parent, true);
    XML_SetStartElementHandler(b->parser, on_start);
}

int pml_builder_graft(pml_builder *b, const char *bytes, size_t n) {
    BASE_ASSERT(b->by_parts && b->depth > 0);
    const int32_t parent = b->frames[b->depth - 1].draft;
    const int depth = b->depth;
    const bool preserved = b->drafts[parent].preserve;
    if (pml_builder_flush_text(b) != 0) return b->rc;
    b->drafts[parent].preserve = false; /* inherited by the content */
    document_parse_run(b, bytes, n, on_graft_start);
    b->drafts[parent].preserve = preserved;
    BASE_ASSERT(b->rc != 0 || b->depth == depth);
    return b->rc;
}

int pml_schema_parse(pml_document **out, const char *bytes, size_t n, const char *name, const char *dir,
                     const rp_schema_options *options, rp_error *err) {
    pml_builder b = {.bytes = bytes, .n = n, .name = name, .dir = dir, .err = err};
    if (options) b.options = *options;
    return pml_builder_parse(&b, out);
}

int pml_prompt_parse(pml_document **out, const char *bytes, size_t n, const char *name, rp_error *err) {
    pml_builder b = {.is_prompt = true, .bytes = bytes, .n = n, .name = name, .err = err};
    return pml_builder_parse(&b, out);
}
