/* SPDX-License-Identifier: Apache-2.0 */
/* token_ids.c: tokenizes many texts in many vocabularies, for comparison with other tokenizers
 * (tools/golden/compare_tokenizers.py).
 *
 * Reads requests from standard input, and answers each on standard output:
 *
 *   open PATH\n                                a GGUF file -> "ok\n"; vocabularies are numbered from 0 in the order of
 *                                              opening
 *   encode VOCABULARY SPECIAL BYTES\n TEXT     -> the ids with a space after each, and "\n"
 *
 * SPECIAL 1: control tokens in the text are recognised. TEXT has BYTES bytes and is the start of a text. Any failure
 * ends the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tokenizer.h"

#define MAX_VOCABULARIES 64
#define MAX_TEXT_BYTES (1 << 20)

static const tokenizer *vocabularies[MAX_VOCABULARIES]; /* they, and their files, live as long as the process */
static int n_vocabularies;

static int fail(const char *what) {
    fprintf(stderr, "token_ids: %s\n", what);
    return 1;
}

static int open_vocabulary(const char *path) {
    gguf_file *f;
    tokenizer *t;
    rp_error err = {0};
    if (n_vocabularies == MAX_VOCABULARIES) return fail("too many vocabularies");
    if (gguf_open(&f, path, &err) || tokenizer_new(&t, f, &err)) return fail(err.message);
    vocabularies[n_vocabularies++] = t;
    return puts("ok") < 0;
}

static int encode(int vocabulary, bool special, size_t n) {
    static char text[MAX_TEXT_BYTES];
    token_list l = {0};
    rp_error err = {0};
    if (vocabulary < 0 || vocabulary >= n_vocabularies || n > sizeof(text))
        return fail("no such vocabulary, or the text is too long");
    if (fread(text, 1, n, stdin) != n) return fail("the text is cut off");
    tokenizer_options o = {.parse_special = special, .space_prefix = true};
    if (tokenizer_encode(vocabularies[vocabulary], text, n, o, &l, &err)) return fail(err.message);
    for (size_t i = 0; i < l.n; i++) printf("%d ", (int)l.ids[i]);
    token_list_free(&l);
    return putchar('\n') < 0;
}

int main(void) {
    static char line[4096];
    int rc = 0, vocabulary, special;
    unsigned long bytes;
    while (!rc && fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "open ", 5) == 0) rc = open_vocabulary(line + 5);
        else if (sscanf(line, "encode %d %d %lu", &vocabulary, &special, &bytes) == 3)
            rc = encode(vocabulary, special != 0, bytes);
        else rc = fail("neither 'open PATH' nor 'encode VOCABULARY SPECIAL BYTES'");
        if (!rc) rc = fflush(stdout);
    }
    return rc;
}
