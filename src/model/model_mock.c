/* SPDX-License-Identifier: Apache-2.0 */
/* model_mock.c: the model of rp_model_open_mock: vocabulary, chat format and context length of its file, and the least
 * shape that the engine can work with. Its forward pass is forward.c's with the operations of mock/mock_backend.c,
 * which writes texts by the classes of tokens. */
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "backend/mock/mock_backend.h"
#include "model/model_internal.h"

#define MOCK_CTX_TRAIN 32768 /* of a file without a context length */
#define MOCK_EMBD 8

/* Its KV moves as that of the file's model does. */
static const model_arch mock_arch = {.name = "mock"};

static int32_t read_ctx_train(const rp_model *m) {
    gguf_string name;
    char key[128];
    uint64_t n = 0;
    if (!gguf_get_string(m->file, "general.architecture", &name) || name.n > 64) return MOCK_CTX_TRAIN;
    snprintf(key, sizeof(key), "%.*s.context_length", (int)name.n, name.bytes);
    return gguf_get_u64(m->file, key, &n) && n > 0 && n <= MODEL_MAX_CONTEXT ? (int32_t)n : MOCK_CTX_TRAIN;
}

/* Letters, after a space or not: what makes a text look like one. */
static bool is_word(const char *bytes, size_t n) {
    size_t letters = 0;
    for (size_t i = 0; i < n; i++) {
        const bool is_letter = (bytes[i] >= 'a' && bytes[i] <= 'z') || (bytes[i] >= 'A' && bytes[i] <= 'Z');
        if (!is_letter && !(i == 0 && bytes[i] == ' ')) return false;
        letters += is_letter;
    }
    return letters > 0;
}

static int classify_tokens(rp_model *m, rp_error *err) {
    const int32_t n_vocab = m->net.hp.n_vocab;
    m->net.token_classes = base_calloc((size_t)n_vocab, sizeof(*m->net.token_classes));
    if (!m->net.token_classes) return base_fail_memory(err, (uint64_t)n_vocab, "the classes of tokens");
    for (int32_t i = 0; i < n_vocab; i++) {
        size_t n = 0;
        const char *bytes = tokenizer_bytes(m->tokenizer, i, false, &n);
        if (tokenizer_is_end(m->tokenizer, i)) m->net.token_classes[i] = MODEL_TOKEN_END;
        else if (!bytes || n == 0) m->net.token_classes[i] = MODEL_TOKEN_CONTROL;
        else m->net.token_classes[i] = is_word(bytes, n) ? MODEL_TOKEN_WORD : MODEL_TOKEN_TEXT;
    }
    return RP_OK;
}

int model_make_mock(rp_model *m, rp_error *err) {
    static const float no_positions = 0; /* never read */
    if (m->net.hp.n_vocab < 1 || m->net.hp.n_vocab > MODEL_MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "a vocabulary of %d tokens", m->net.hp.n_vocab);
    const bool learns_positions = m->arch && (m->arch->features & MODEL_POSITIONS);
    if (learns_positions || gguf_find_tensor(m->file, "position_embd.weight")) m->net.positions.data = &no_positions;
    m->arch = &mock_arch;
    m->net.is_mock = true;
    m->net.hp = (model_hparams){
        .n_layers = 1,
        .n_embd = MOCK_EMBD,
        .n_heads = 1,
        .n_kv_heads = 1,
        .key_dim = MOCK_HEAD_DIM,
        .value_dim = MOCK_HEAD_DIM,
        .n_ff = 1,
        .n_vocab = m->net.hp.n_vocab,
        .n_outputs = m->net.hp.n_vocab,
        .n_ctx_train = read_ctx_train(m),
        .pooling = RP_POOLING_LAST,
        .embed_scale = 1,
        .residual_scale = 1,
        .logit_scale = 1,
        .score_scale = 1,
        .rope = {.factor = 1, .magnitude = 1},
    };
    m->net.layers = base_calloc(1, sizeof(*m->net.layers));
    if (!m->net.layers) return base_fail_memory(err, sizeof(*m->net.layers), "the layers");
    m->net.layers[0] = (model_layer){
        .n_heads = 1, .n_kv_heads = 1, .key_dim = MOCK_HEAD_DIM, .value_dim = MOCK_HEAD_DIM, .owns_kv = true};
    int rc = classify_tokens(m, err);
    if (!rc) rc = model_set_layers(m, err);
    if (!rc) model_identify_mock(m);
    return rc;
}
