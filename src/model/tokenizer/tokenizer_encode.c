/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_encode.c: text to tokens, for every kind of vocabulary: special tokens are found first, and the text
 * between them is encoded by the functions of the vocabulary's kind. */
#include "base/check.h"
#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"

static int encode_plain(const tokenizer *t, const char *text, size_t n, bool beginning, token_list *out,
                        rp_error *err) {
    if (n == 0) return RP_OK;
    if (t->kind == TOKENIZER_WORDPIECE) return wordpiece_encode(t, text, n, out, err);
    return t->kind == TOKENIZER_BPE ? bpe_encode(t, text, n, out, err) : spm_encode(t, text, n, beginning, out, err);
}

/* The special token at byte `at`; of several, the longest. *range: the first trusted range that does not end before. */
static int32_t tokenizer_special(const tokenizer *t, const char *text, size_t n, size_t at, const tokenizer_options *o,
                                 size_t *range) {
    const int32_t any = special_at(t, text + at, n - at, o->parse_special);
    BASE_DCHECK(at < n && (*range == 0 || o->trusted[*range - 1].end <= at));
    while (*range < o->n_trusted && o->trusted[*range].end <= at) ++*range;
    if (*range == o->n_trusted || o->trusted[*range].begin > at) return any;
    const int32_t control = special_at(t, text + at, o->trusted[*range].end - at, true);
    if (control < 0 || any < 0) return control < 0 ? any : control;
    return token_bytes(t, control).n >= token_bytes(t, any).n ? control : any;
}

static int encode_parts(const tokenizer *t, const char *text, size_t n, tokenizer_options o, token_list *out,
                        rp_error *err) {
    size_t begin = 0, range = 0;
    bool prefix = o.space_prefix && !o.continues;
    int rc;
    for (size_t i = 0; i < n;) {
        int32_t id = special_may_begin(t, text[i]) ? tokenizer_special(t, text, n, i, &o, &range) : -1;
        if (id < 0) {
            i++;
            continue;
        }
        if ((rc = encode_plain(t, text + begin, i - begin, prefix, out, err))) return rc;
        if ((rc = token_list_push(out, id))) return base_fail(err, rc, "a text of %zu bytes has too many tokens", n);
        i += (size_t)token_bytes(t, id).n;
        begin = i += special_strip(t, id, text + i, n - i);
        BASE_ASSERT(i <= n);
        prefix = o.space_prefix;
    }
    return encode_plain(t, text + begin, n - begin, prefix, out, err);
}

BASE_UNUSED static bool has_control(const tokenizer *t, const token_list *l, size_t from) {
    for (size_t i = from; i < l->n; i++)
        if (t->types[l->ids[i]] == TOKEN_CONTROL) return true;
    return false;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, tokenizer_options options, token_list *out,
                     rp_error *err) {
    size_t before = out->n;
    int rc = encode_parts(t, text, n, options, out, err);
    if (rc) out->n = before;
    BASE_DCHECK(options.parse_special || options.n_trusted > 0 ||
                !has_control(t, out, before)); /* invariant 3 of src/model */
    return rc;
}
