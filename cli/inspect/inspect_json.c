/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_json.c: see inspect_json.h; docs/man/reprise-inspect.1 documents the fields. Owns nothing. One thread. */
#include "inspect/inspect_json.h"

#include "common/json_out.h"
#include "reprise_tools.h"

/* What the model's file advises; null: nothing. */
static json_t *inspect_json_sampling(const rp_model *model) {
    rp_sampling s = rp_sampling_defaults();
    const uint32_t advised = rp_model_sampling(model, &s);
    json_t *o = advised != 0 ? json_object() : json_null();
    if (advised & RP_ADVISES_TEMPERATURE) cli_json_set(o, "temperature", cli_json_real((double)s.temperature));
    if (advised & RP_ADVISES_TOP_K) cli_json_set(o, "top_k", json_integer(s.top_k));
    if (advised & RP_ADVISES_TOP_P) cli_json_set(o, "top_p", cli_json_real((double)s.top_p));
    if (advised & RP_ADVISES_MIN_P) cli_json_set(o, "min_p", cli_json_real((double)s.min_p));
    if (advised & RP_ADVISES_REPEAT_PENALTY) cli_json_set(o, "repeat_penalty", cli_json_real((double)s.repeat_penalty));
    if (advised & RP_ADVISES_REPEAT_LAST) cli_json_set(o, "repeat_last", json_integer(s.repeat_last));
    return o;
}

int inspect_json_model(const rp_model *model, const rp_memory *memory) {
    rp_model_info info = {.struct_size = sizeof(info)}, *m = &info;
    rp_model_describe(model, m);
    json_t *o = json_object();
    cli_json_set(o, "name", cli_json_text(m->name));
    cli_json_set(o, "architecture", cli_json_text(m->architecture));
    cli_json_set(o, "weights", cli_json_text(m->weights));
    cli_json_set(o, "chat_format", cli_json_text(m->chat_format));
    cli_json_set(o, "chat_format_guessed", json_boolean(m->chat_format_guessed));
    cli_json_set(o, "parameters", json_integer((json_int_t)m->parameters));
    cli_json_set(o, "weight_bytes", json_integer((json_int_t)m->weight_bytes));
    cli_json_set(o, "n_layers", json_integer(m->n_layers));
    cli_json_set(o, "n_heads", json_integer(m->n_heads));
    cli_json_set(o, "n_kv_heads", json_integer(m->n_kv_heads));
    cli_json_set(o, "head_dim", json_integer(m->head_dim));
    cli_json_set(o, "n_embd", json_integer(m->n_embd));
    cli_json_set(o, "n_ff", json_integer(m->n_ff));
    cli_json_set(o, "n_vocab", json_integer(m->n_vocab));
    cli_json_set(o, "n_ctx_train", json_integer(m->n_ctx_train));
    cli_json_set(o, "positions", cli_json_text(m->positions));
    cli_json_set(o, "movable", json_boolean(m->movable));
    cli_json_set(o, "window", json_integer(m->window));
    cli_json_set(o, "n_window_layers", json_integer(m->n_window_layers));
    cli_json_set(o, "n_recurrent_layers", json_integer(m->n_recurrent_layers));
    cli_json_set(o, "states_compose", json_boolean(m->states_compose));
    cli_json_set(o, "state_bytes", json_integer((json_int_t)m->state_bytes));
    cli_json_set(o, "is_encoder", json_boolean(m->is_encoder));
    cli_json_set(o, "pooling", cli_json_text(m->pooling));
    cli_json_set(o, "n_scores", json_integer(m->n_scores));
    cli_json_set(o, "n_experts", json_integer(m->n_experts));
    cli_json_set(o, "n_experts_used", json_integer(m->n_experts_used));
    cli_json_set(o, "kv_bytes_per_token", json_integer((json_int_t)m->kv_bytes_per_token));
    json_t *sizes = json_object();
    cli_json_set(sizes, "weights", json_integer((json_int_t)memory->weights));
    cli_json_set(sizes, "file", json_integer((json_int_t)memory->file));
    cli_json_set(sizes, "activations", json_integer((json_int_t)memory->activations));
    cli_json_set(o, "memory", sizes);
    cli_json_set(o, "sampling", inspect_json_sampling(model));
    cli_json_set(o, "fingerprint", cli_json_text(m->fingerprint));
    return cli_json_print(o);
}

static json_t *node_object(const rp_inspect_node *n, bool with_prompt) {
    json_t *o = json_object();
    cli_json_set(o, "kind", cli_json_text(n->kind));
    cli_json_set(o, "name", cli_json_text(n->name));
    cli_json_set(o, "path", cli_json_text(n->path));
    cli_json_set(o, "depth", json_integer(n->depth));
    cli_json_set(o, "tokens", json_integer(n->n_tokens));
    cli_json_set(o, "position", json_integer(n->position));
    cli_json_set(o, "key", cli_json_text(n->key));
    cli_json_set(o, "kv_format", cli_json_text(n->kv_format));
    cli_json_set(o, "cached", json_boolean(n->cached));
    if (with_prompt) cli_json_set(o, "taken", json_boolean(n->taken));
    cli_json_set(o, "preview", cli_json_text(n->preview));
    return o;
}

static json_t *tile_object(const rp_inspect_tile *t) {
    json_t *o = json_object();
    cli_json_set(o, "kind", cli_json_text(t->is_view ? "view" : "run"));
    cli_json_set(o, "module", cli_json_text(t->path));
    cli_json_set(o, "tokens", json_integer(t->n_tokens));
    cli_json_set(o, "position", json_integer(t->position));
    cli_json_set(o, "shift", json_integer(t->shift));
    cli_json_set(o, "exact", json_boolean(t->exact));
    return o;
}

int inspect_json_print(const rp_inspection *in, bool with_prompt) {
    json_t *o = json_object(), *nodes = json_array();
    cli_json_set(o, "schema", cli_json_text(in->schema));
    cli_json_set(o, "layout", cli_json_text(in->layout));
    cli_json_set(o, "scope", cli_json_text(in->scope));
    cli_json_set(o, "schema_positions", json_integer(in->schema_positions));
    for (int32_t i = 0; i < in->n_nodes; i++) cli_json_append(nodes, node_object(&in->nodes[i], with_prompt));
    cli_json_set(o, "nodes", nodes);
    if (with_prompt) {
        json_t *tiles = json_array();
        for (int32_t i = 0; i < in->n_tiles; i++) cli_json_append(tiles, tile_object(&in->tiles[i]));
        cli_json_set(o, "prompt_positions", json_integer(in->prompt_positions));
        cli_json_set(o, "tiles", tiles);
    }
    return cli_json_print(o);
}
