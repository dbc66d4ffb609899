/* SPDX-License-Identifier: Apache-2.0 */
/* compose_markup.c: a part of type pml: where the content of its <prompt> begins and ends, and whose it is. That it is well-formed by itself is
 * checked here, so that it cannot close what stands around it; what it means is checked with the prompt that it becomes part of. */
#include <expat.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "server/prompt/compose.h"

/* ---- text as XML ---- */

/* What stands for a byte of ASCII; NULL: itself. */
static const char *entity_of(char byte, bool in_attribute) {
    switch (byte) {
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '&': return "&amp;";
    case '"': return "&quot;";
    case '\r': return "&#13;";
    case '\n': return in_attribute ? "&#10;" : NULL;
    case '\t': return in_attribute ? "&#9;" : NULL;
    default: return NULL;
    }
}

/* XML has no control characters but white space, nor U+FFFE and U+FFFF. */
static bool is_no_xml(const unsigned char *s, size_t left) {
    if (s[0] < 0x20) return s[0] != '\t' && s[0] != '\n' && s[0] != '\r';
    return left >= 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe;
}

int compose_escape(base_buffer *out, const char *text, size_t n, bool in_attribute) {
    size_t done = 0;
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *entity = entity_of(text[i], in_attribute);
        if (is_no_xml((const unsigned char *)text + i, n - i)) return RP_ERR_INVALID;
        if (!entity) continue;
        rc = base_buffer_append(out, text + done, i - done);
        if (!rc) rc = base_buffer_append_str(out, entity);
        done = i + 1;
    }
    return rc ? rc : base_buffer_append(out, text + done, n - done);
}

/* ---- the content of a prompt ---- */

typedef struct scan {
    XML_Parser parser;
    compose_markup *out;
    int depth;
    const char *wrong; /* why the document is refused, beside what expat says */
    void (*child)(void *user, const char *name);
    void *user;
} scan;

static void scan_refuse(scan *s, const char *why) {
    if (!s->wrong) s->wrong = why;
    XML_StopParser(s->parser, XML_FALSE);
}

static void begin_prompt(scan *s, const char *name, const char **attributes) {
    if (strcmp(name, "prompt") != 0 || !attributes[0] || strcmp(attributes[0], "schema") != 0 || attributes[2]) {
        scan_refuse(s, "it must be <prompt schema=\"...\">...</prompt>, without other attributes");
        return;
    }
    if (strlen(attributes[1]) >= sizeof(s->out->schema)) scan_refuse(s, "the schema's name is too long");
    else snprintf(s->out->schema, sizeof(s->out->schema), "%s", attributes[1]);
    s->out->begin = (size_t)XML_GetCurrentByteIndex(s->parser) + (size_t)XML_GetCurrentByteCount(s->parser);
}

static void XMLCALL on_begin(void *user, const XML_Char *name, const XML_Char **attributes) {
    scan *s = user;
    if (s->depth == 0) begin_prompt(s, name, attributes);
    else if (s->depth == 1 && s->child) s->child(s->user, name);
    s->depth++;
}

static void XMLCALL compose_markup_on_end(void *user, const XML_Char *name) {
    scan *s = user;
    (void)name;
    if (--s->depth == 0) s->out->end = (size_t)XML_GetCurrentByteIndex(s->parser);
}

static void XMLCALL compose_markup_on_doctype(void *user, const XML_Char *name, const XML_Char *system, const XML_Char *public, int has_subset) {
    (void)name, (void)system, (void)public, (void)has_subset;
    scan_refuse(user, "a DTD is not allowed");
}

int compose_scan(const char *pml, compose_markup *out, void (*child)(void *user, const char *name), void *user, server_problem *p) {
    static const XML_Memory_Handling_Suite memory = {base_alloc, base_realloc, base_free};
    size_t n = strlen(pml);
    scan s = {.out = out, .child = child, .user = user, .parser = XML_ParserCreate_MM("UTF-8", &memory, NULL)};
    *out = (compose_markup){0};
    if (!s.parser) return server_fail_memory(p);
    XML_SetUserData(s.parser, &s);
    XML_SetElementHandler(s.parser, on_begin, compose_markup_on_end);
    XML_SetStartDoctypeDeclHandler(s.parser, compose_markup_on_doctype);
    enum XML_Status status = n <= SERVER_MAX_COMPOSED_BYTES ? XML_Parse(s.parser, pml, (int)n, 1) : XML_STATUS_ERROR;
    if (status != XML_STATUS_OK) {
        enum XML_Error code = XML_GetErrorCode(s.parser);
        if (code == XML_ERROR_NO_MEMORY) server_fail_memory(p);
        else
            server_fail(p, SERVER_INVALID, "messages", "invalid part of type pml: line %d, column %d: %s",
                        (int)XML_GetCurrentLineNumber(s.parser), (int)XML_GetCurrentColumnNumber(s.parser) + 1,
                        s.wrong ? s.wrong : XML_ErrorString(code));
    }
    XML_ParserFree(s.parser);
    if (p->kind) return (int)p->kind;
    if (out->end < out->begin || pml[out->begin - 2] == '/') out->end = out->begin; /* <prompt .../> */
    return SERVER_FINE;
}
