/* SPDX-License-Identifier: Apache-2.0 */
/* responses_logprobs.c: log-probabilities in /v1/responses: each output_text has those of its own tokens. A token
 * belongs to the item in which its text begins; one without text, to the text after it. Tokens of reasoning and of
 * calls are in no list.
 *
 * I/O thread for a stream, else the worker that has the request. */
#include <string.h>

#include "base/check.h"
#include "server/dialects/openai.h"
#include "server/dialects/responses.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

int responses_logprobs_add(server_choice *c, const server_piece *piece) {
    if (c->x->gen->n_logprobs < 0 || piece->tokens == piece->tokens_end) return 0;
    return base_buffer_append(&c->listed, piece->tokens,
                              (size_t)((const char *)piece->tokens_end - (const char *)piece->tokens));
}

int responses_logprobs_add_result(server_choice *c) {
    const rp_result *r = c->result;
    BASE_ASSERT(c->listed.len == 0); /* all of them at once */
    int rc = 0;
    for (int32_t i = 0; c->x->gen->n_logprobs >= 0 && i < r->n_tokens && !rc; i++) {
        const server_token record = {r->tokens[i], r->logprobs[i], BASE_MIN(r->n_top, c->x->gen->n_logprobs)};
        rc = base_buffer_append(&c->listed, &record, sizeof(record));
        if (!rc && record.n_top > 0)
            rc = base_buffer_append(&c->listed, r->top_logprobs + (size_t)i * (size_t)r->n_top,
                                    (size_t)record.n_top * sizeof(*r->top_logprobs));
    }
    return rc;
}

json_t *responses_logprobs_list(const server_choice *c, token_place *place, size_t begin, size_t end) {
    const server_request *x = c->x;
    server_piece piece = {0};
    if (x->gen->n_logprobs < 0) return json_array();
    while (place->record < c->listed.len) {
        const server_token *t = (const server_token *)(const void *)(c->listed.data + place->record),
                           *next = server_token_next(t);
        if (place->at >= end) break;
        if (place->at >= begin) {
            if (!piece.tokens) piece.tokens = t;
            piece.tokens_end = next;
        }
        size_t n_bytes = 0; /* of the token in the answer's text */
        rp_token_bytes(x->model->model, t->id, x->gen->special_text, &n_bytes);
        place->at += n_bytes;
        place->record += (size_t)((const char *)next - (const char *)t);
    }
    BASE_ASSERT(place->record <= c->listed.len); /* records are whole */
    return openai_piece_logprobs(x, &piece);
}
