/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_constraint.c: see grammar_constraint.h. */
#include "sampling/grammar_constraint.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"

/* ---- opening ---- */

int grammar_constraint_open(grammar_constraint *g, const rp_request *o, const tokenizer *t, const token_trie *trie,
                            rp_error *err) {
    int rc;
    g->tokenizer = t;
    g->trie = trie;
    g->special_text = o->special_text;
    const size_t n = o->grammar_trigger ? strlen(o->grammar_trigger) : 1;
    if (n == 0) return base_fail(err, RP_ERR_INVALID, "grammar_trigger is empty: give a text, or NULL for none");
    if (n > RP_MAX_TRIGGER_BYTES)
        return base_fail(err, RP_ERR_LIMIT, "grammar_trigger has %zu bytes: give at most %d", n, RP_MAX_TRIGGER_BYTES);
    if ((rc = grammar_new(&g->grammar, o->grammar, err)) ||
        (rc = matcher_open(&g->matcher, g->grammar, o->grammar_trigger, err)))
        return rc;
    g->matcher.no_end = o->ignore_eos;
    return RP_OK;
}

void grammar_constraint_close(grammar_constraint *g) {
    matcher_close(&g->matcher);
    grammar_free(g->grammar);
    *g = (grammar_constraint){0};
}

/* ---- tokens ---- */

/* A limit of the matcher is no error of the engine. */
static int grammar_constraint_judge(int rc, bool *too_hard, rp_error *err) {
    *too_hard = rc == RP_ERR_LIMIT;
    return rc && !*too_hard ? base_fail_memory(err, MATCHER_POOL_BYTES, "a grammar") : RP_OK;
}

/* Does the grammar allow the token at *place? Then *place is set to the position after it. The same as the trie, for
   one token. */
static int try_token(grammar_constraint *g, int32_t *place, int32_t token, bool drops_space, bool *fits) {
    BASE_ASSERT(*place >= MATCHER_NOWHERE && (size_t)*place < g->matcher.pool.n_places);
    const matcher_place *at = &g->matcher.pool.places[*place];
    size_t n = 0;
    const char *bytes = tokenizer_answer_bytes(g->tokenizer, token, g->special_text, &n);
    bool is_end = tokenizer_is_end(g->tokenizer, token);
    if (is_end || !bytes || n == 0 || n > TOKEN_TRIE_MAX_DEPTH) {
        *fits = at->is_free || (is_end && at->may_end && !g->matcher.no_end);
        return RP_OK;
    }
    if (drops_space && bytes[0] == ' ') bytes++, n--;
    return matcher_walk(&g->matcher, place, bytes, n, fits);
}

int32_t grammar_constraint_fitting(grammar_constraint *g, const int32_t *tokens, int32_t n) {
    int32_t place = g->matcher.place;
    for (int32_t i = 0; i < n; i++) {
        bool fits;
        if (try_token(g, &place, tokens[i], false, &fits) || !fits) return i;
    }
    return n;
}

int grammar_constraint_draw(grammar_constraint *g, sampler *s, const float *logits, bool drops_space, int32_t *token,
                            bool *too_hard, rp_error *err) {
    const uint64_t *allowed = NULL;
    bool done = false;
    int rc = RP_OK;
    BASE_ASSERT(!s->allowed); /* it is of one draw */
    /* The most likely token is also the most likely allowed one, if it is allowed. */
    if (!(s->options.temperature > 0)) {
        int32_t place = g->matcher.place;
        *token = sampler_draw(s, logits);
        rc = try_token(g, &place, *token, drops_space, &done);
    }
    if (!rc && !done) rc = matcher_allowed(&g->matcher, g->trie, drops_space, &allowed);
    rc = grammar_constraint_judge(rc, too_hard, err);
    if (rc || *too_hard) *token = -1;
    if (rc || *too_hard || done) return rc;
    s->allowed = allowed;
    *token = sampler_draw(s, logits);
    s->allowed = NULL;
    if (!token_mask_has(allowed, *token)) *token = -1;
    return RP_OK;
}

int grammar_constraint_check(grammar_constraint *g, const sampler *s, bool drops_space, int32_t token, bool *fits,
                             bool *too_hard, rp_error *err) {
    const uint64_t *allowed = NULL;
    int32_t place = g->matcher.place;
    const bool is_greedy = s->options.temperature <= 0;
    *fits = false;
    int rc = is_greedy ? try_token(g, &place, token, drops_space, fits)
                       : matcher_allowed(&g->matcher, g->trie, drops_space, &allowed);
    rc = grammar_constraint_judge(rc, too_hard, err);
    if (rc || *too_hard) return rc;
    if (!is_greedy) *fits = token_mask_has(allowed, token);
    return RP_OK;
}

int grammar_constraint_accept(grammar_constraint *g, const char *bytes, size_t n, bool *too_hard, rp_error *err) {
    bool fits = false;
    int rc = matcher_walk(&g->matcher, &g->matcher.place, bytes, n, &fits);
    if (!rc) rc = matcher_pay(&g->matcher);
    if (rc) fits = false;
    rc = grammar_constraint_judge(rc, too_hard, err);
    *too_hard = !fits;
    return rc;
}
