/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_grammar.c: arbitrary bytes as a grammar, a trigger and a text. A refused grammar gives one line with a position;
 * an accepted one matches the text equally with a large and a small limit, split anywhere, and its mask allows exactly
 * the tokens that can follow. NUL bytes split the input: grammar, trigger (empty: none), text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "grammar/matcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_TEXT 256
#define LITTLE_ROOM 20000

static const char *const words[] = {"",
                                    "a",
                                    "b",
                                    "ab",
                                    "0",
                                    "12",
                                    "\"",
                                    "\":",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    " ",
                                    "\n",
                                    "-",
                                    "x",
                                    "\\",
                                    "u0",
                                    "true",
                                    "<t>",
                                    "t>",
                                    "\xc3",
                                    "\xa9",
                                    "\xe2\x82",
                                    "\xe2\x82\xac",
                                    "\xf0\x9f\x98\x80",
                                    "\xff"};

static void check(bool ok) {
    if (!ok) abort();
}

static const char *bytes_of(const void *user, int32_t token, size_t *n) {
    (void)user;
    *n = strlen(words[token]);
    return words[token];
}

static bool is_end(const void *user, int32_t token) {
    (void)user;
    return token == (int32_t)BASE_ARRAY_LEN(words) - 1;
}

static const token_trie *trie(void) {
    static token_trie *t;
    token_source source = {(int32_t)BASE_ARRAY_LEN(words), bytes_of, is_end, NULL};
    if (!t) check(token_trie_new(&t, &source, NULL) == RP_OK);
    return t;
}

/* Every token of the mask can follow, and no other can. */
static void check_tokens(matcher *m) {
    const uint64_t *bits;
    if (matcher_allowed(m, trie(), false, &bits)) return;
    uint64_t set = bits[0];
    for (int32_t i = 1; i + 1 < (int32_t)BASE_ARRAY_LEN(words); i++) {
        int32_t place = m->place;
        bool fits;
        if (matcher_walk(m, &place, words[i], strlen(words[i]), &fits)) return;
        check(fits == token_mask_has(&set, i));
    }
}

static void follow(const grammar *g, const char *trigger, const char *text, size_t n) {
    matcher much = {0}, little = {0};
    bool fits = true, fits_little = true;
    if (matcher_open(&much, g, trigger, NULL) || matcher_open(&little, g, trigger, NULL)) n = 0;
    little.pool_bytes = LITTLE_ROOM;
    for (size_t i = 0; i < n && fits; i++) {
        if (matcher_walk(&much, &much.place, text + i, 1, &fits)) break;
        if (matcher_walk(&little, &little.place, text + i, 1, &fits_little)) break;
        check(fits == fits_little);
        if (fits)
            check(matcher_may_end(&much) == matcher_may_end(&little) &&
                  matcher_must_end(&much) == matcher_must_end(&little));
        if (i % 16 == 0) check_tokens(&much);
    }
    matcher_close(&much);
    matcher_close(&little);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *all = malloc(n + 3);
    check(all != NULL);
    if (n > 0) memcpy(all, data, n);
    memset(all + n, 0, 3);
    const char *trigger = all + strlen(all) + 1;
    if (trigger > all + n) trigger = all + n;
    const char *text = trigger + strlen(trigger) + 1;
    if (text > all + n) text = all + n;
    size_t n_text = BASE_MIN((size_t)(all + n - text), MOST_TEXT);
    grammar *g;
    rp_error err = {0};
    int rc = grammar_new(&g, all, &err);
    if (rc) {
        check(rc == (int)err.code && err.message[0] && !strchr(err.message, '\n'));
        check(rc != RP_ERR_SYNTAX || strncmp(err.where, "grammar:", 8) == 0);
    } else if (strlen(trigger) <= RP_MAX_TRIGGER_BYTES) follow(g, trigger[0] ? trigger : NULL, text, n_text);
    grammar_free(g);
    free(all);
    return 0;
}
