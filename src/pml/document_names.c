/* document_names.c: names and bytes. Which strings are XML names, which known name a wrong one was meant to be, whether
 * bytes are UTF-8, and where lines end.
 *
 * Owns nothing; every function depends on its arguments only.
 */
#include <string.h>

#include "base/memory.h"
#include "pml/document_internal.h"

#define MAX_GUESS_BYTES 64 /* longer names are not compared: the table stays small */
#define SHOWN_NAME_BYTES 60

static bool is_name_start(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || c >= 0x80;
}

static bool is_name_byte(unsigned char c) {
    return is_name_start(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

/* Which characters beyond ASCII a name may hold is expat's to say, for expat reads the imports: it is asked with <NAME/>. */
static int ask_expat(const char *name, size_t n) {
    static const XML_Memory_Handling_Suite memory = {base_alloc, base_realloc, base_free};
    XML_Parser parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
    if (!parser) return RP_ERR_MEMORY;
    bool good = XML_Parse(parser, "<", 1, 0) == XML_STATUS_OK && XML_Parse(parser, name, (int)n, 0) == XML_STATUS_OK &&
                XML_Parse(parser, "/>", 2, 1) == XML_STATUS_OK;
    int rc = good ? 0 : XML_GetErrorCode(parser) == XML_ERROR_NO_MEMORY ? RP_ERR_MEMORY : RP_ERR_SYNTAX;
    XML_ParserFree(parser);
    return rc;
}

int pml_name_check(const char *name) {
    size_t n = strlen(name);
    bool ascii = true;
    if (n == 0 || !is_name_start((unsigned char)name[0])) return RP_ERR_SYNTAX;
    for (size_t i = 0; i < n; i++) {
        if (!is_name_byte((unsigned char)name[i])) return RP_ERR_SYNTAX;
        ascii = ascii && (unsigned char)name[i] < 0x80;
    }
    return ascii ? 0 : ask_expat(name, n);
}

static unsigned char fold(char c) { return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* Edits that make b of a: insert, delete or replace a byte, or swap two neighbours; upper and lower case are one.
 * (Optimal string alignment: three rows of the Levenshtein table.) */
static int edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    int rows[3][MAX_GUESS_BYTES + 1];
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            bool same = fold(a[i - 1]) == fold(b[j - 1]);
            int best = above[j - 1] + !same;
            best = BASE_MIN(best, BASE_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                best = BASE_MIN(best, above2[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

/* Near: about one edit in three bytes, so that "E" is not taken for "I". */
void pml_guess_offer(pml_guess *g, const char *candidate) {
    size_t n = strlen(g->name), n_candidate = strlen(candidate);
    if (n > MAX_GUESS_BYTES || n_candidate > MAX_GUESS_BYTES) return;
    int distance = edit_distance(g->name, n, candidate, n_candidate);
    if (distance > (int)(BASE_MAX(n, n_candidate) + 1) / 3 || (g->best && distance >= g->distance)) return;
    g->best = candidate;
    g->distance = distance;
}

int pml_shown(const char *s) {
    size_t n = 0;
    while (n < SHOWN_NAME_BYTES && s[n]) n++;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--; /* whole characters */
    return (int)n;
}

/* Bytes of the UTF-8 character at p, of which n >= 1 are there; 0 if there is none. */
static size_t character_bytes(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return p[0] != 0;
    size_t want = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < want) return 0;
    for (size_t i = 1; i < want; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    bool too_long = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xED && p[1] >= 0xA0;
    bool too_high = p[0] == 0xF4 && p[1] >= 0x90;
    return too_long || surrogate || too_high ? 0 : want;
}

size_t pml_utf8_check(const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t step = character_bytes((const unsigned char *)bytes + i, n - i);
        if (step == 0) return i;
        i += step;
    }
    return n;
}

void pml_count_lines(const char *bytes, size_t n, size_t from, size_t to, int32_t *line, size_t *line_start) {
    for (size_t i = from; i < to; i++) {
        /* The CR of a CR LF ends no line; the LF may be just behind `to`, and is counted when the count goes on. */
        if (bytes[i] != '\n' && (bytes[i] != '\r' || (i + 1 < n && bytes[i + 1] == '\n'))) continue;
        ++*line;
        *line_start = i + 1;
    }
}
