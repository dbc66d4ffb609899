/* SPDX-License-Identifier: Apache-2.0 */
/* model_mock.c: the model of rp_model_options.mock: vocabulary, chat format and context length of its file, and the least shape that the engine
 * can work with. Its forward pass is forward.c's with the operations of mock/mock_backend.c. */
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/model_internal.h"

#define MOCK_CTX_TRAIN 32768 /* of a file without a context length */
#define MOCK_EMBD 8

/* Its KV moves as that of the file's model does. */
static const model_arch mock_arch = {.name = "mock"};

static bool has_learned_positions(const rp_model *m) {
    return (m->arch && (m->arch->features & MODEL_POSITIONS)) || gguf_find_tensor(m->file, "position_embd.weight");
}

static int32_t read_ctx_train(const rp_model *m) {
    gguf_string name;
    char key[128];
    uint64_t n = 0;
    if (!gguf_get_string(m->file, "general.architecture", &name) || name.n > 64) return MOCK_CTX_TRAIN;
    snprintf(key, sizeof(key), "%.*s.context_length", (int)name.n, name.bytes);
    return gguf_get_u64(m->file, key, &n) && n > 0 && n <= MODEL_MAX_CONTEXT ? (int32_t)n : MOCK_CTX_TRAIN;
}

int model_make_mock(rp_model *m, rp_error *err) {
    static const float no_positions = 0; /* never read */
    if (m->hp.n_vocab < 1 || m->hp.n_vocab > MODEL_MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "a vocabulary of %d tokens", m->hp.n_vocab);
    if (has_learned_positions(m)) m->positions.data = &no_positions;
    m->arch = &mock_arch;
    m->is_mock = true;
    m->hp = (model_hparams){
        .n_layers = 1,
        .n_embd = MOCK_EMBD,
        .n_heads = 1,
        .n_kv_heads = 1,
        .key_dim = MOCK_HEAD_DIM,
        .value_dim = MOCK_HEAD_DIM,
        .n_ff = 1,
        .n_vocab = m->hp.n_vocab,
        .n_outputs = m->hp.n_vocab,
        .n_ctx_train = read_ctx_train(m),
        .pooling = RP_POOLING_LAST,
        .embed_scale = 1,
        .residual_scale = 1,
        .logit_scale = 1,
        .score_scale = 1,
        .rope = {.factor = 1, .magnitude = 1},
    };
    m->layers = base_calloc(1, sizeof(*m->layers));
    if (!m->layers) return base_fail_memory(err, sizeof(*m->layers), "the layers");
    m->layers[0].owns_kv = true;
    const int rc = model_set_layers(m, err);
    if (!rc) model_identify_mock(m);
    return rc;
}
