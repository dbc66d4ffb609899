/* SPDX-License-Identifier: Apache-2.0 */
/* document_names.c: names and bytes. Which strings are XML names, whether bytes are UTF-8, and where lines end.
 *
 * Owns nothing; every function depends on its arguments only.
 */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "pml/document_internal.h"

static bool is_name_start(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || c >= 0x80;
}

/* expat decides which non-ASCII characters a name may contain, because expat parses the imports: it parses <NAME/>. */
static int ask_expat(const char *name, size_t n) {
    static const XML_Memory_Handling_Suite memory = {base_alloc, base_realloc, base_free};
    XML_Parser parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
    if (!parser) return RP_ERR_MEMORY;
    bool good = XML_Parse(parser, "<", 1, 0) == XML_STATUS_OK && XML_Parse(parser, name, (int)n, 0) == XML_STATUS_OK &&
                XML_Parse(parser, "/>", 2, 1) == XML_STATUS_OK;
    int rc = good ? 0 : XML_GetErrorCode(parser) == XML_ERROR_NO_MEMORY ? RP_ERR_MEMORY
                                                                        : RP_ERR_SYNTAX;
    XML_ParserFree(parser);
    return rc;
}

int pml_name_check(const char *name) {
    size_t n = strlen(name);
    bool ascii = true;
    if (n == 0 || !is_name_start((unsigned char)name[0])) return RP_ERR_SYNTAX;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (!is_name_start(c) && !(c >= '0' && c <= '9') && c != '-' && c != '.') return RP_ERR_SYNTAX;
        ascii = ascii && c < 0x80;
    }
    return ascii ? 0 : ask_expat(name, n);
}

size_t pml_utf8_check(const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        int step = bytes[i] ? base_utf8_length((const unsigned char *)bytes + i, n - i) : 0;
        if (step <= 0) return i;
        i += (size_t)step;
    }
    return n;
}

void pml_count_lines(const char *bytes, size_t n, size_t from, size_t to, int32_t *line, size_t *line_start) {
    BASE_DCHECK(to <= n);
    for (size_t i = from; i < to; i++) {
        /* The CR of a CR LF ends no line; the LF may be at `to`, and the next count includes it. */
        if (bytes[i] != '\n' && (bytes[i] != '\r' || (i + 1 < n && bytes[i + 1] == '\n'))) continue;
        ++*line;
        *line_start = i + 1;
    }
}
