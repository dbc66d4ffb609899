/* SPDX-License-Identifier: Apache-2.0 */
/* small_device.c: see small_device.h. */
#include "small_device.h"

#include "base/check.h"
#include "reprise_store.h"
#include "support/must.h"

#define LARGE ((uint64_t)1 << 30)

tiny_model_shape small_device_shape(const char **chat) {
    tiny_model_shape shape = oracle_shape(1, chat);
    shape.n_layers = 8;
    shape.n_kv_heads = 4;
    shape.head_dim = 64;
    return shape;
}

static int open_with(rp_engine **out, const small_device *d, uint64_t device_ram, const small_device_setup *s,
                     rp_error *err) {
    const rp_device_options device = {.struct_size = sizeof(device),
                                      .name = "vulkan",
                                      .ram_bytes = device_ram,
                                      .layers = s->layers,
                                      .kv_in_place = s->in_place};
    rp_engine_options o = rp_engine_options_defaults();
    o.device = &device;
    o.n_threads = 1;
    o.n_ctx = SMALL_MOST_TOKENS;
    o.kv_format = d->format;
    o.kv_budget_bytes = s->ram_bytes ? s->ram_bytes : (uint64_t)64 << 20;
    o.store_dir = s->store;
    return rp_engine_new(out, d->model, &o, err);
}

/* What is left of a large limit for KV shows what the rest takes. */
void small_device_init(small_device *d, rp_model *model, rp_kv_format format, int32_t n_tokens) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_engine_info engine = {.struct_size = sizeof(engine)};
    rp_store_stats t = {.struct_size = sizeof(t)};
    rp_error err = {0};
    rp_engine *e;
    *d = (small_device){.model = model, .format = format, .n_tokens = n_tokens};
    must(open_with(&e, d, LARGE, &(small_device_setup){0}, &err), &err);
    must(rp_engine_describe(e, &engine), &err);
    must(rp_engine_store_stats(e, &t), &err);
    rp_model_describe(model, &info);
    d->n_vocab = info.n_vocab;
    d->column_bytes = 64 * engine.kv_bytes_per_token;
    d->rest_bytes = LARGE - t.budget_bytes;
    rp_engine_free(e);
}

int small_device_open(rp_engine **out, const small_device *d, const small_device_setup *s, rp_error *err) {
    return open_with(out, d, s->device_bytes ? d->rest_bytes + s->device_bytes : LARGE, s, err);
}

void small_device_ask(oracle_run *run, rp_engine *e, const small_device *d, int prompt, int32_t most,
                      rp_adapter *adapter) {
    int32_t tokens[SMALL_MOST_TOKENS];
    BASE_ASSERT(d->n_tokens + most <= SMALL_MOST_TOKENS);
    for (int32_t i = 0; i < d->n_tokens; i++)
        tokens[i] = 20 + (prompt * 100 + i * (prompt + 3) % 97) % (d->n_vocab - 20);
    rp_request req = rp_request_defaults();
    req.prompt = rp_prompt_tokens(tokens, (size_t)d->n_tokens);
    req.max_tokens = most;
    req.ignore_eos = true;
    req.adapter = adapter;
    oracle_run_make(run, e, &req);
}
