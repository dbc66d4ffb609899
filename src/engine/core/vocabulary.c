/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.c: see vocabulary.h. */
#include "engine/core/vocabulary.h"

#include "base/budget.h"
#include "base/check.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/status.h"
#include "engine/reuse/token_chunks.h"
#include "model/model.h"

bool vocabulary_open(engine_vocabulary *v) { return v->has_lock = pthread_mutex_init(&v->lock, NULL) == 0; }

void vocabulary_close(engine_vocabulary *v) {
    if (v->has_lock) pthread_mutex_destroy(&v->lock);
    token_trie_free(v->tries[0]);
    token_trie_free(v->tries[1]);
    base_free(v->classes);
}

/* ---- for grammars ---- */

static const char *vocabulary_bytes(const void *user, int32_t token, size_t *n) {
    return tokenizer_answer_bytes(user, token, false, n);
}
static const char *vocabulary_special_bytes(const void *user, int32_t token, size_t *n) {
    return tokenizer_answer_bytes(user, token, true, n);
}

static bool vocabulary_is_end(const void *user, int32_t token) { return tokenizer_is_end(user, token); }

int vocabulary_trie(rp_engine *e, bool special, const token_trie **out, rp_error *err) {
    token_source source = {e->model->net.hp.n_vocab, special ? vocabulary_special_bytes : vocabulary_bytes,
                           vocabulary_is_end, e->model->tokenizer};
    token_trie **trie = &e->vocabulary->tries[special];
    int rc = RP_OK;
    pthread_mutex_lock(&e->vocabulary->lock);
    base_budget *before = base_budget_enter(NULL); /* the engine's, not the request's */
    if (!*trie && !(rc = token_trie_new(trie, &source, err))) {
        pthread_mutex_lock(&e->lock);
        e->board->status.memory.token_trie += (*trie)->size_bytes;
        pthread_mutex_unlock(&e->lock);
    }
    base_budget_enter(before);
    *out = *trie;
    pthread_mutex_unlock(&e->vocabulary->lock);
    BASE_ASSERT(rc || (*out)->n_tokens == source.n_tokens);
    return rc;
}

/* ---- for automatic modules ---- */

static uint8_t class_of(const tokenizer *t, int32_t id) {
    size_t n, n_shown;
    const char *text = tokenizer_bytes(t, id, true, &n);
    tokenizer_bytes(t, id, false, &n_shown);
    if (n_shown < n || tokenizer_is_end(t, id)) return TOKEN_CLASS_CONTROL;
    return n > 0 && text[n - 1] == '\n' ? TOKEN_CLASS_LINE_END : TOKEN_CLASS_TEXT;
}

const uint8_t *vocabulary_classes(rp_engine *e) {
    engine_vocabulary *v = e->vocabulary;
    pthread_mutex_lock(&v->lock);
    if (!v->classes) {
        base_budget *before = base_budget_enter(NULL); /* the engine's, not the request's */
        const int32_t n = e->model->net.hp.n_vocab;
        uint8_t *classes = base_alloc((size_t)n);
        for (int32_t i = 0; i < n && classes; i++) classes[i] = class_of(e->model->tokenizer, i);
        v->classes = classes;
        base_budget_enter(before);
    }
    const uint8_t *classes = v->classes;
    pthread_mutex_unlock(&v->lock);
    return classes;
}
