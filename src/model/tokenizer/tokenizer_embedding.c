/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_embedding.c: the tokens of a text, or of a pair of texts, that an embedding is computed from.
 *
 *   WordPiece      [CLS] text [SEP]     [CLS] query [SEP] document [SEP]
 *   SentencePiece  <s> text </s>        <s> query </s> </s> document </s>      (unigram: XLM-RoBERTa)
 *   others         as the file's add_bos_token, add_eos_token and add_sep_token say
 */
#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"

static int32_t first_token(const tokenizer *t) { return t->kind == TOKENIZER_WORDPIECE || t->adds_bos ? t->bos : -1; }

static int32_t last_token(const tokenizer *t) {
    if (t->kind == TOKENIZER_WORDPIECE) return t->sep;
    return t->adds_eos ? t->eos : -1;
}

/* After the end of a pair's first text. */
static int32_t between_token(const tokenizer *t) {
    if (t->kind == TOKENIZER_WORDPIECE) return -1;
    if (t->kind == TOKENIZER_UNIGRAM) return t->sep >= 0 ? t->sep : last_token(t);
    return t->adds_sep ? t->sep : -1;
}

/* -1: none */
static int push_special(token_list *l, int32_t id, rp_error *err) {
    const int rc = id < 0 ? RP_OK : token_list_push(l, id);
    return rc ? base_fail(err, rc, "a text has too many tokens") : RP_OK;
}

int tokenizer_encode_embedding(const tokenizer *t, const char *text, size_t n, const char *second, size_t n_second,
                               size_t max_tokens, token_list *out, rp_error *err) {
    const tokenizer_options beginning = {.space_prefix = true};
    const size_t before = out->n;
    int rc;
    if ((rc = push_special(out, first_token(t), err)) || (rc = tokenizer_encode(t, text, n, beginning, out, err)))
        return rc;
    if (second && ((rc = push_special(out, last_token(t), err)) || (rc = push_special(out, between_token(t), err))))
        return rc;
    const size_t least = out->n - before + (last_token(t) >= 0); /* with an empty second text */
    if (second && max_tokens > 0 && least > max_tokens)
        return base_fail(err, RP_ERR_LENGTH,
                         "the query alone has %zu tokens with its special ones, the limit is %zu: shorten it", least,
                         max_tokens);
    if (second && (rc = tokenizer_encode(t, second, n_second, beginning, out, err))) return rc;
    const size_t room = max_tokens > 0 ? max_tokens - (last_token(t) >= 0) : SIZE_MAX;
    if (out->n - before > room) out->n = before + room;
    return push_special(out, last_token(t), err);
}
