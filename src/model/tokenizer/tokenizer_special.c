/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_special.c: special tokens written in a text, and end-of-turn tokens.
 *
 * Control tokens are recognised only in trusted text, user-defined ones always. The text is searched from left to
 * right; at each position the longest token wins. An earlier token wins over a longer one that overlaps it.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

static bool text_is(gguf_string s, const char *text) {
    return s.n == strlen(text) && memcmp(s.bytes, text, (size_t)s.n) == 0;
}

static bool is_special(const tokenizer *t, int32_t id) {
    return t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_USER_DEFINED || t->types[id] == TOKEN_UNKNOWN;
}

static int list_specials(tokenizer *t, rp_error *err) {
    prefix_list *l = &t->specials;
    size_t n = 0;
    for (int32_t i = 0; i < t->n_vocab; i++) n += is_special(t, i);
    l->texts = base_calloc(n + 1, sizeof(*l->texts));
    if (!l->texts) return base_fail_memory(err, n * sizeof(*l->texts), "special tokens");
    for (int32_t i = 0; i < t->n_vocab; i++) {
        gguf_string s = is_special(t, i) ? token_bytes(t, i) : (gguf_string){0};
        if (s.n > 0) l->texts[l->n++] = (prefix_text){s.bytes, (uint32_t)s.n, i};
    }
    prefix_sort(l);
    for (int32_t i = 0; i < l->n; i++) t->special_first[(unsigned char)l->texts[i].bytes[0] + 1] = i + 1;
    for (int b = 1; b <= 256; b++) t->special_first[b] = BASE_MAX(t->special_first[b], t->special_first[b - 1]);
    BASE_ASSERT(t->special_first[256] == l->n);
    return RP_OK;
}

/* The first recognisable one of n tokens with the same text, or -1. */
static int32_t tokenizer_special_recognised(const tokenizer *t, const prefix_text *same, int n, bool control) {
    for (int i = 0; i < n; i++)
        if (control || t->types[same[i].id] == TOKEN_USER_DEFINED) return same[i].id;
    return -1;
}

int32_t special_at(const tokenizer *t, const char *text, size_t n, bool control) {
    BASE_DCHECK(n > 0);
    const prefix_list *l = &t->specials;
    unsigned char byte = (unsigned char)text[0];
    prefix_walk walk = {t->special_first[byte], t->special_first[byte + 1], 1};
    int32_t found = -1;
    for (bool more = walk.low < walk.high; more; more = walk.depth < n && prefix_step(l, &walk, text[walk.depth])) {
        const prefix_text *same;
        int n_same = prefix_whole(l, &walk, &same);
        int32_t id = tokenizer_special_recognised(t, same, n_same, control);
        if (id >= 0) found = id;
    }
    return found;
}

/* ---- white space after them ---- */

size_t special_strip(const tokenizer *t, int32_t id, const char *text, size_t n) {
    size_t i = 0;
    if (!t->strips_right || id == t->bos || id == t->unk || text_is(t->texts[id], "<|endoftext|>")) return 0;
    while (i < n && (text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r'))) i++;
    return i;
}

/* ---- ends ---- */

/* Names of end-of-turn tokens of known models. */
static const char *const end_names[] = {"<|im_end|>",
                                        "<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|end|>",
                                        "<end_of_turn>",
                                        "<turn|>",
                                        "<|endoftext|>",
                                        "<|end_of_text|>",
                                        "</s>",
                                        "<|eot|>",
                                        "<|eom|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<EOT>",
                                        "<|EOT|>",
                                        "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

static int32_t find_special(const tokenizer *t, const char *name) {
    int32_t id = tokenizer_map_find(t, name, strlen(name));
    return id >= 0 && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_USER_DEFINED) ? id : -1;
}

/* "</s>" is also an HTML tag (struck-out text), and vocabularies with HTML tags have it as a user-defined token of
 * plain text (Gemma: 212). A vocabulary with a beginning-of-text token other than "<s>" is of that kind. In all others
 * "</s>" ends a turn (Phi-3 declares it as user-defined, too). */
static bool is_tag(const tokenizer *t, int32_t id) {
    return text_is(t->texts[id], "</s>") && t->types[id] == TOKEN_USER_DEFINED && t->bos >= 0 &&
           !text_is(t->texts[t->bos], "<s>");
}

static void mark_ends(tokenizer *t) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(end_names); i++) {
        int32_t id = find_special(t, end_names[i]);
        if (id < 0 || is_tag(t, id)) continue;
        t->ends[id] = true;
        t->types[id] = TOKEN_CONTROL; /* regardless of the file's type: user text must not be able to end a turn */
    }
    /* harmony: <|end|> ends a message, and the turn continues with the next */
    int32_t end = find_special(t, "<|end|>");
    if (end >= 0 && find_special(t, "<|return|>") >= 0 && find_special(t, "<|call|>") >= 0) t->ends[end] = false;
    if (t->eos >= 0) t->ends[t->eos] = true;
    if (t->eot >= 0) t->ends[t->eot] = true;
}

int special_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    /* GGUF has no rstrip flags of tokens. Of the supported models, Phi-3's SentencePiece vocabulary has them: every
     * special token, except those of special_strip, includes the white space after it. */
    gguf_string arch;
    t->strips_right = t->kind == TOKENIZER_SPM && gguf_get_string(f, "general.architecture", &arch) &&
                      text_is(arch, "phi3");
    mark_ends(t);
    return list_specials(t, err);
}
