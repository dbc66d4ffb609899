/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: llama.cpp's logits and greedy tokens for prompts of token ids.
 *
 *   peer MODEL LOGITS < PROMPTS
 *
 * A line of PROMPTS is one prompt: the number of rows to keep, the number of tokens to generate, the number of tokens,
 * the tokens. The logits of the last rows of each prompt are written to the file LOGITS as f32; standard output has a
 * line of greedy tokens for each prompt. Keys and values are f32 and attention is the plain kernel, so that only
 * arithmetic can differ from the reference.
 */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

static void log_errors(enum ggml_log_level level, const char *text, void *unused) {
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_context *new_context(struct llama_model *model, int n_tokens) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)n_tokens;
    params.n_batch = params.n_ubatch = (uint32_t)n_tokens;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) fail("no context");
    return context;
}

static void decode(struct llama_context *context, const llama_token *tokens, int n, int first_pos, int n_rows) {
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = first_pos + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i >= n - n_rows;
    }
    if (llama_decode(context, batch)) fail("llama_decode failed");
    llama_batch_free(batch);
}

static llama_token best(const float *logits, int n_vocab) {
    int best = 0;
    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void answer(struct llama_model *model, int n_rows, int n_greedy, const llama_token *tokens, int n, FILE *out) {
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context *context = new_context(model, n + n_greedy);
    decode(context, tokens, n, 0, n_rows);
    for (int r = 0; r < n_rows; r++) {
        const float *row = llama_get_logits_ith(context, n - n_rows + r);
        if (!row || fwrite(row, sizeof(float), (size_t)n_vocab, out) != (size_t)n_vocab) fail("no logits");
    }
    llama_token next = best(llama_get_logits_ith(context, n - 1), n_vocab);
    for (int i = 0; i < n_greedy; i++) {
        printf("%d ", next);
        decode(context, &next, 1, n + i, 1);
        next = best(llama_get_logits_ith(context, 0), n_vocab);
    }
    printf("\n");
    llama_free(context);
}

int main(int argc, char **argv) {
    if (argc != 3) fail("usage: peer MODEL LOGITS < PROMPTS");
    llama_log_set(log_errors, NULL);
    ggml_backend_load_all();
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(argv[1], params);
    if (!model) fail("llama.cpp refuses the file");
    FILE *out = fopen(argv[2], "wb");
    if (!out) fail("cannot write the logits");
    int n_rows, n_greedy, n;
    while (scanf("%d %d %d", &n_rows, &n_greedy, &n) == 3) {
        llama_token *tokens = malloc(sizeof(*tokens) * (size_t)n);
        for (int i = 0; i < n; i++)
            if (scanf("%d", &tokens[i]) != 1) fail("a prompt is cut short");
        answer(model, n_rows, n_greedy, tokens, n, out);
        free(tokens);
    }
    fclose(out);
    llama_model_free(model);
    return 0;
}
