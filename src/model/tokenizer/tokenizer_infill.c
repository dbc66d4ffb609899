/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_infill.c: fill-in-the-middle tokens (Bavarian et al., 2022), and the prompt of an infill.
 *
 *   prefix first   [files] PREFIX prefix SUFFIX suffix MIDDLE begun      suffix first   [files] SUFFIX suffix PREFIX
 *         prefix [MIDDLE] begun
 *
 * A file names the tokens by id, or they are known by their text. They become control tokens, whatever type the file
 * gives them: no user's text has one. The texts between them are tokenized one by one, so no token crosses their
 * borders.
 */
#include <string.h>

#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"
#include "reprise_chat.h"

/* Of the families that write them: Qwen, StarCoder and Granite, SantaCoder, DeepSeek, CodeLlama, Codestral, GLM, Yi;
   CodeGemma has Qwen's. */
static const struct {
    const char *key, *older_key; /* GGUF; NULL: none */
    const char *texts[10];       /* NULL ends them */
} known[TOKENIZER_N_INFILL] = {
    [TOKENIZER_INFILL_PREFIX] = {"tokenizer.ggml.fim_pre_token_id",
                                 "tokenizer.ggml.prefix_token_id",
                                 {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<\uFF5Cfim\u2581begin\uFF5C>",
                                  "\u2581<PRE>", "<PRE>", "[PREFIX]", "<|code_prefix|>", "<|fim_begin|>"}},
    [TOKENIZER_INFILL_SUFFIX] = {"tokenizer.ggml.fim_suf_token_id",
                                 "tokenizer.ggml.suffix_token_id",
                                 {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<\uFF5Cfim\u2581hole\uFF5C>",
                                  "\u2581<SUF>", "<SUF>", "[SUFFIX]", "<|code_suffix|>", "<|fim_hole|>"}},
    [TOKENIZER_INFILL_MIDDLE] = {"tokenizer.ggml.fim_mid_token_id",
                                 "tokenizer.ggml.middle_token_id",
                                 {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<\uFF5Cfim\u2581end\uFF5C>",
                                  "\u2581<MID>", "<MID>", "[MIDDLE]", "<|code_middle|>", "<|fim_end|>"}},
    [TOKENIZER_INFILL_PAD] = {"tokenizer.ggml.fim_pad_token_id",
                              NULL,
                              {"<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>"}},
    [TOKENIZER_INFILL_REPOSITORY] = {"tokenizer.ggml.fim_rep_token_id",
                                     NULL,
                                     {"<|fim_repo|>", "<|repo_name|>", "<repo_name>", "<reponame>", "<fim-repo>"}},
    [TOKENIZER_INFILL_FILE] = {"tokenizer.ggml.fim_sep_token_id",
                               NULL,
                               {"<|file_sep|>", "<file_sep>", "<|file_separator|>"}},
};

/* The token that the file names; -1: none. */
static int32_t infill_named(const tokenizer *t, const gguf_file *f, const char *key) {
    uint64_t id;
    return key && gguf_get_u64(f, key, &id) && id < (uint64_t)t->n_vocab ? (int32_t)id : -1;
}

void infill_open(tokenizer *t, const gguf_file *f) {
    for (int i = 0; i < TOKENIZER_N_INFILL; i++) {
        int32_t id = infill_named(t, f, known[i].key);
        if (id < 0) id = infill_named(t, f, known[i].older_key);
        for (int k = 0; id < 0 && known[i].texts[k]; k++)
            id = tokenizer_map_find(t, known[i].texts[k], strlen(known[i].texts[k]));
        t->infill[i] = id;
    }
    const int32_t prefix = t->infill[TOKENIZER_INFILL_PREFIX], suffix = t->infill[TOKENIZER_INFILL_SUFFIX],
                  middle = t->infill[TOKENIZER_INFILL_MIDDLE];
    t->suffix_first = prefix >= 0 && gguf_string_is(t->texts[prefix], "[PREFIX]");
    if (prefix < 0 || suffix < 0 || (middle < 0 && !t->suffix_first)) { /* words that look like them */
        for (int i = 0; i < TOKENIZER_N_INFILL; i++) t->infill[i] = -1;
        return;
    }
    for (int i = 0; i < TOKENIZER_N_INFILL; i++) {
        if (t->infill[i] < 0) continue;
        t->types[t->infill[i]] = TOKEN_CONTROL;
        if (i >= TOKENIZER_INFILL_PAD) t->ends[t->infill[i]] = true; /* an infill does not go on in another file */
    }
}

bool tokenizer_infills(const tokenizer *t) { return t->infill[TOKENIZER_INFILL_PREFIX] >= 0; }

/* ---- the prompt ---- */

typedef struct infill_writer {
    const tokenizer *t;
    token_list *out;
    rp_error *err;
    int rc;
} infill_writer;

/* A control token; nothing if the vocabulary lacks it. */
static void infill_mark(infill_writer *w, int which) {
    if (w->rc || w->t->infill[which] < 0) return;
    w->rc = token_list_push(w->out, w->t->infill[which]);
    if (w->rc) w->rc = base_fail(w->err, w->rc, "an infill has too many tokens");
}

static void infill_add(infill_writer *w, const char *text, size_t n, bool space_prefix) {
    if (!w->rc && n > 0)
        w->rc = tokenizer_encode(w->t, text, n, (tokenizer_options){.space_prefix = space_prefix}, w->out, w->err);
}

static void infill_line(infill_writer *w, const char *text) {
    infill_add(w, text, strlen(text), false);
    infill_add(w, "\n", 1, false);
}

/* The other files; without a token for files, as plain text between lines of their own. */
static void infill_add_files(infill_writer *w, const rp_infill *in) {
    const bool marks = w->t->infill[TOKENIZER_INFILL_FILE] >= 0;
    if (in->n_files == 0) return;
    if (marks && w->t->infill[TOKENIZER_INFILL_REPOSITORY] >= 0) {
        infill_mark(w, TOKENIZER_INFILL_REPOSITORY);
        infill_line(w, "project");
    }
    for (int32_t i = 0; i < in->n_files; i++) {
        const rp_infill_file *file = &in->files[i];
        infill_mark(w, TOKENIZER_INFILL_FILE);
        if (marks) infill_line(w, file->name ? file->name : "file");
        infill_add(w, file->text, file->n_bytes, false);
        if (file->n_bytes == 0 || file->text[file->n_bytes - 1] != '\n') infill_add(w, "\n", 1, false);
    }
    infill_mark(w, TOKENIZER_INFILL_FILE);
    if (marks) infill_line(w, "file");
}

int tokenizer_encode_infill(const tokenizer *t, const rp_infill *in, token_list *out, rp_error *err) {
    infill_writer w = {t, out, err, RP_OK};
    const size_t before = out->n;
    infill_add_files(&w, in);
    if (t->suffix_first) {
        infill_mark(&w, TOKENIZER_INFILL_SUFFIX);
        infill_add(&w, in->suffix, in->n_suffix, false);
    }
    infill_mark(&w, TOKENIZER_INFILL_PREFIX);
    infill_add(&w, in->prefix, in->n_prefix,
               true); /* SentencePiece: words begin with a space, as after the beginning of a text */
    if (!t->suffix_first) {
        infill_mark(&w, TOKENIZER_INFILL_SUFFIX);
        infill_add(&w, in->suffix, in->n_suffix, false);
    }
    infill_mark(&w, TOKENIZER_INFILL_MIDDLE);
    infill_add(&w, in->begun, in->n_begun, false);
    if (w.rc) out->n = before;
    return w.rc;
}
