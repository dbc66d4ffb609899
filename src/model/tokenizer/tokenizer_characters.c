/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_characters.c: SentencePiece: the characters of a text, and the tokens of one that no piece covers. Both of
 * its models use them: BPE (tokenizer_spm.c) and unigram. */
#include "base/check.h"
#include "model/tokenizer/tokenizer_internal.h"

size_t character_bytes(const char *s, size_t n) {
    BASE_DCHECK(n > 0);
    unsigned char c = (unsigned char)s[0];
    size_t length = c < 0xc0 ? 1 : c < 0xe0 ? 2
                               : c < 0xf0   ? 3
                                            : 4;
    if (length > n) return 1;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 1;
    return length;
}

int character_add_unknown(const tokenizer *t, const char *text, size_t n, bool *after_unknown, token_list *out) {
    bool bytes = true;
    int rc = RP_OK;
    for (size_t i = 0; bytes && i < n; i++) bytes = t->byte_tokens[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; bytes && i < n && !rc; i++) rc = token_list_push(out, t->byte_tokens[(unsigned char)text[i]]);
    if (!bytes && !*after_unknown && t->unk >= 0) rc = token_list_push(out, t->unk);
    *after_unknown = !bytes;
    return rc;
}
