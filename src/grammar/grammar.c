/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c: creates and frees a grammar. */
#include "grammar/grammar.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "grammar/grammar_internal.h"

int grammar_new(grammar **out, const char *text, rp_error *err) {
    grammar_tree t = {.text = text, .n_text = strlen(text), .err = err};
    *out = NULL;
    if (t.n_text > RP_MAX_GRAMMAR_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "the grammar has %zu bytes: at most %zu are allowed", t.n_text,
                         RP_MAX_GRAMMAR_BYTES);
    t.g = base_calloc(1, sizeof(*t.g));
    if (!t.g) return base_fail_memory(err, sizeof(*t.g), "a grammar");
    int rc = grammar_parse(&t);
    if (!rc) rc = grammar_link(&t);
    base_free(t.exprs);
    base_free(t.bytes);
    base_free(t.rules);
    base_free(t.uses);
    if (rc) grammar_free(t.g);
    else *out = t.g;
    return rc;
}

void grammar_free(grammar *g) {
    if (!g) return;
    base_free(g->nodes);
    base_free(g->entries);
    base_free(g->units);
    base_free(g->edges);
    base_free(g);
}
