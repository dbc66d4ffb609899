/* SPDX-License-Identifier: Apache-2.0 */
/* mock_backend.c: see mock_backend.h. Of the operations of the forward pass, `store` writes KV, `attend` reads it and
 * sleeps, and `buffer_read` makes logits; buffers have no data, and the others do nothing. One thread, no threads of
 * its own. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include "backend/mock/mock_backend.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"

/* Logits. The sixteen words are drawn for each state; words come before other text, and control tokens appear only if a
   grammar demands them. */
#define N_WORDS 16
#define WORD_LOGIT 10.0f /* of the first word; each further one has WORD_STEP less */
#define WORD_STEP 0.5f
#define END_EVERY 64 /* one state in so many ends the text: answers have 64 tokens on average */
#define END_LOGIT 14.0f
#define LATE_END_LOGIT 0.0f /* of other states: before all text but words, for grammars that may end */
#define TEXT_LOGIT (-20.0f) /* other text: to TEXT_LOGIT + TEXT_SPREAD */
#define TEXT_SPREAD 4.0f
#define CONTROL_LOGIT (-60.0f)

typedef struct mock_backend {
    backend base;
    const model_network *net;
    kernel_table kernels;
    backend_times times;
    const model_step *step;
    uint64_t start_us;
    uint64_t *states; /* [max_rows]: of the step's rows that want logits or hidden states */
    float *floors;    /* [n_vocab]: the lowest logit of each token */
    int32_t *words;   /* [n_words] */
    int32_t *ends;    /* [n_ends] tokens that end an answer */
    int32_t n_words, n_ends;
    float *slots; /* [64][MOCK_HEAD_DIM], of one block while it is encoded */
} mock_backend;

static mock_backend *mock(backend *b) { return (mock_backend *)b; }

/* ---- KV ---- */

static void store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    const mock_backend *b = mock(self);
    (void)keys;
    (void)values;
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        const model_row *row = &b->step->rows[r];
        const rp_kv_format format = kv_span_layer_format(row->span, layer);
        const int32_t block = row->slot / KV_BLOCK_SLOTS, slot = row->slot % KV_BLOCK_SLOTS;
        float x[2 * MOCK_HEAD_DIM];
        BASE_DCHECK(!kv_format_is_encoded(format));
        const uint64_t hash = base_mix64(base_mix64((uint64_t)(uint32_t)row->token + 1) + (uint64_t)(uint32_t)row->pos);
        /* Whole numbers from -128 to 127: exact in f32 and f16. */
        for (int i = 0; i < 2 * MOCK_HEAD_DIM; i++) x[i] = (float)((int)(hash >> (8 * i) & 255) - 128);
        cpu_element_rows[kv_format_keys(format)]->store(&b->kernels, true)(x, MOCK_HEAD_DIM,
                                                                           cpu_keys(row->span, layer, block, 0), slot);
        cpu_element_rows[kv_format_values(format)]->store(&b->kernels, false)(
            x + MOCK_HEAD_DIM, MOCK_HEAD_DIM, cpu_values(row->span, layer, block, 0), slot);
    }
}

static int encode(backend *self, const kv_span *from, kv_span *to, rp_error *err) {
    const mock_backend *b = mock(self);
    const int n_slots = kv_span_slots(from, 0, 0);
    const kv_layer *a = kv_span_layer(from, 0), *z = kv_span_layer(to, 0);
    (void)err;
    for (int32_t block = 0; block * KV_BLOCK_SLOTS < n_slots; block++) {
        const int n = BASE_MIN(n_slots - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS);
        cpu_encode_head(&b->kernels, a, cpu_keys(from, 0, block, 0), true, n, b->slots, z, cpu_keys(to, 0, block, 0));
        cpu_encode_head(&b->kernels, a, cpu_values(from, 0, block, 0), false, n, b->slots, z,
                        cpu_values(to, 0, block, 0));
    }
    return RP_OK;
}

/* ---- what a row sees ---- */

/* One block of a view. */
typedef struct seen_block {
    const void *keys, *values;
    kv_element key, value;
    const int32_t *positions; /* of its slots; NULL: first + slot */
    int64_t first;
    int32_t shift;
} seen_block;

static uint64_t hash_elements(kv_element e, const void *head, bool is_key, int slot) {
    uint64_t h = 0;
    for (int d = 0; d < MOCK_HEAD_DIM; d++) {
        const float x = cpu_stored_element(e, head, is_key, MOCK_HEAD_DIM, slot, d);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        h = (h + bits) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return h;
}

static uint64_t hash_slot(const seen_block *s, int slot) {
    const int64_t pos = (s->positions ? s->positions[slot] : s->first + slot) + s->shift;
    const uint64_t key = hash_elements(s->key, s->keys, true, slot),
                   value = hash_elements(s->value, s->values, false, slot);
    return base_mix64(key ^ base_mix64(value) ^ base_mix64((uint64_t)pos + 1));
}

static uint64_t sum_block(const kv_view *v, int32_t block, uint64_t visible) {
    const rp_kv_format format = kv_span_layer_format(v->span, 0);
    const int32_t *positions = kv_span_positions(v->span, 0, 0);
    const seen_block s = {.keys = cpu_keys(v->span, 0, block, 0),
                          .values = cpu_values(v->span, 0, block, 0),
                          .key = kv_format_keys(format),
                          .value = kv_format_values(format),
                          .positions = positions ? positions + block * KV_BLOCK_SLOTS : NULL,
                          .first = (int64_t)kv_span_position(v->span) + block * KV_BLOCK_SLOTS,
                          .shift = v->shift};
    uint64_t sum = 0;
    for (; visible; visible &= visible - 1) sum += hash_slot(&s, __builtin_ctzll(visible));
    return sum;
}

static uint64_t state_of(const model_step *step, const model_row *row) {
    const kv_context *c = step->contexts[row->context];
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n_views; i++)
        for (int32_t block = 0; block < KV_SPAN_BLOCKS; block++) {
            const uint64_t visible = kv_view_visible(&c->views[i], 0, 0, block, row->pos, 0);
            if (visible) sum += sum_block(&c->views[i], block, visible);
        }
    return base_mix64(sum + base_mix64((uint64_t)(uint32_t)row->token + 1));
}

/* ---- time ---- */

static void sleep_until(uint64_t end_us) {
    for (uint64_t now = base_clock_us(); now < end_us; now = base_clock_us()) {
        const uint64_t left = end_us - now;
        const struct timespec t = {.tv_sec = (time_t)(left / 1000000), .tv_nsec = (long)(left % 1000000 * 1000)};
        if (nanosleep(&t, NULL) != 0 && errno != EINTR) return;
    }
}

static double step_us(const mock_backend *b) {
    const model_step *step = b->step;
    double row_slots = 0;
    int64_t slots = 0;
    for (int32_t r = 0; r < step->n_rows && b->times.row_slot_us > 0; r++) {
        if (r == 0 || step->rows[r].context != step->rows[r - 1].context)
            slots = kv_context_slots(step->contexts[step->rows[r].context]);
        row_slots += (double)slots;
    }
    return b->times.step_us + b->times.row_us * step->n_rows + b->times.row_slot_us * row_slots;
}

static int begin(backend *self, const model_step *step, rp_error *err) {
    (void)err;
    mock(self)->step = step;
    mock(self)->start_us = base_clock_us();
    return RP_OK;
}

static void attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    const mock_backend *b = mock(self);
    (void)layer;
    (void)queries;
    (void)dst;
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        const model_row *row = &b->step->rows[r];
        if (row->wants_logits || row->wants_hidden) b->states[r] = state_of(b->step, row);
    }
    sleep_until(b->start_us + (uint64_t)step_us(b));
}

/* ---- logits ---- */

static void write_logits(const mock_backend *b, uint64_t state, float *logits) {
    const uint32_t seed = (uint32_t)(state >> 32);
    for (int32_t i = 0; i < b->net->hp.n_vocab; i++) {
        uint32_t x = ((uint32_t)i * UINT32_C(0x9e3779b1)) ^ seed;
        x = (x ^ (x >> 15)) * UINT32_C(0x85ebca6b);
        logits[i] = b->floors[i] + (float)(x >> 8) * (TEXT_SPREAD * 0x1p-24f);
    }
    for (int32_t i = N_WORDS; i-- > 0;)
        logits[b->words[base_mix64(state + (uint64_t)i) % (uint64_t)b->n_words]] = WORD_LOGIT - WORD_STEP * (float)i;
    for (int32_t i = 0; i < b->n_ends; i++)
        logits[b->ends[i]] = state % END_EVERY == 0 ? END_LOGIT - (float)i : LATE_END_LOGIT - (float)i;
}

static void write_hidden(const mock_backend *b, uint64_t state, float *hidden) {
    for (int32_t i = 0; i < b->net->hp.n_embd; i++)
        hidden[i] = (float)(int64_t)(base_mix64(state + (uint64_t)i) >> 40) * 0x1p-23f - 1.0f;
}

/* Of the rows of the step that want logits, or hidden states, in their order. */
static void buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst) {
    const mock_backend *b = mock(self);
    const bool is_logits = src->width == b->net->hp.n_outputs;
    for (int32_t r = 0; r < b->step->n_rows && rows > 0; r++) {
        const model_row *row = &b->step->rows[r];
        if (!(is_logits ? row->wants_logits : row->wants_hidden)) continue;
        (is_logits ? write_logits : write_hidden)(b, b->states[r], dst);
        dst += src->width;
        rows--;
    }
}

/* ---- the vocabulary ---- */

static void list_tokens(mock_backend *b) {
    const uint8_t *classes = b->net->token_classes;
    int32_t n_texts = 0;
    for (int32_t i = 0; i < b->net->hp.n_vocab; i++) {
        const bool is_end = classes[i] == MODEL_TOKEN_END, is_text = !is_end && classes[i] != MODEL_TOKEN_CONTROL;
        b->floors[i] = is_text ? TEXT_LOGIT : CONTROL_LOGIT;
        if (is_end) b->ends[b->n_ends++] = i;
        if (classes[i] == MODEL_TOKEN_WORD) b->words[b->n_words++] = i;
        n_texts += is_text;
    }
    for (int32_t i = 0; i < b->net->hp.n_vocab && b->n_words == 0; i++) /* a vocabulary of bytes, or of symbols */
        if (n_texts == 0 || b->floors[i] == TEXT_LOGIT) b->words[b->n_words++] = i;
    BASE_ASSERT(b->n_words > 0); /* write_logits draws from them */
}

/* ---- opening ---- */

static void free_backend(backend *self) {
    mock_backend *b = mock(self);
    base_free(b->states);
    base_free(b->floors);
    base_free(b->words);
    base_free(b->ends);
    base_free(b->slots);
    base_free(b);
}

static kv_memory *memory(backend *self) {
    (void)self;
    return kv_host_memory();
}

static int buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    (void)self;
    *out = base_calloc(1, sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "activations");
    **out = (backend_buffer){.rows = rows, .width = width};
    return RP_OK;
}

static void usage(backend *self, rp_memory *out) {
    (void)self;
    out->weights = out->weights_file = out->file = out->activations = 0;
}

static bool has_adapters(const backend *self) {
    (void)self;
    return false;
}

/* Operations without an effect. */
static int nothing_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err) {
    return (void)self, (void)on_progress, (void)user, (void)err, RP_OK;
}
static void nothing_set_width(backend *self, backend_buffer *buffer, int32_t width) {
    (void)self, (void)buffer, (void)width;
}
static void nothing_embed(backend *self, const model_weight *table, backend_buffer *dst) {
    (void)self, (void)table, (void)dst;
}
static void nothing_linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n,
                           const model_weight *const *weights, const model_weight *const *biases,
                           backend_buffer *const *dst) {
    (void)self, (void)src, (void)rows, (void)n, (void)weights, (void)biases, (void)dst;
}
static void nothing_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows) {
    (void)self, (void)act, (void)a, (void)up, (void)rows;
}
static void nothing_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows) {
    (void)self, (void)dst, (void)src, (void)scale, (void)rows;
}
static void nothing_gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n,
                           backend_buffer *dst) {
    (void)self, (void)src, (void)indices, (void)n, (void)dst;
}

/* The others are for features that model_mock gives no mock: norms, adapters, experts, caps. It cannot study slots. */
static const backend_ops ops = {
    .name = "mock",
    .free = free_backend,
    .memory = memory,
    .buffer_new = buffer_new,
    .buffer_free = cpu_buffer_free,
    .buffer_set_width = nothing_set_width,
    .buffer_read = buffer_read,
    .prepare = nothing_prepare,
    .usage = usage,
    .begin = begin,
    .embed = nothing_embed,
    .linear = nothing_linear,
    .has_adapters = has_adapters,
    .store = store,
    .encode = encode,
    .attend = attend,
    .act = nothing_act,
    .add = nothing_add,
    .gather = nothing_gather,
};

size_t mock_backend_devices(rp_device *out, size_t most) {
    (void)out, (void)most;
    return 0;
}

const char *mock_backend_unavailable(const model_network *net, int32_t device) {
    (void)device;
    return net->is_mock ? NULL : "the model has weights: it is for models opened with mock";
}

int mock_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err) {
    const size_t n_vocab = (size_t)net->hp.n_vocab;
    *out = NULL;
    BASE_ASSERT(net->is_mock && net->hp.key_dim == MOCK_HEAD_DIM && net->hp.n_layers == 1);
    mock_backend *b = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "the mock backend");
    b->base.ops = &ops;
    b->net = net;
    b->times = options->times;
    kernel_table_init(&b->kernels, BASE_CPU_GENERIC);
    b->states = base_calloc((size_t)options->max_rows, sizeof(*b->states));
    b->floors = base_calloc(n_vocab, sizeof(*b->floors));
    b->words = base_calloc(n_vocab, sizeof(*b->words));
    b->ends = base_calloc(n_vocab, sizeof(*b->ends));
    b->slots = base_calloc(KV_BLOCK_SLOTS, MOCK_HEAD_DIM * sizeof(*b->slots));
    if (!b->states || !b->floors || !b->words || !b->ends || !b->slots) {
        free_backend(&b->base);
        return base_fail_memory(err, n_vocab * 3 * sizeof(int32_t), "the mock backend");
    }
    list_tokens(b);
    *out = &b->base;
    return RP_OK;
}
