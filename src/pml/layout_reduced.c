/* SPDX-License-Identifier: Apache-2.0 */
/* layout_reduced.c: which segments have reduced KV (model/reduction.h), its keys, and the text that asks the model to
 * repeat a module.
 *
 *   name of a segment's reduced KV = H(key of its last span, method, share, role around it, role before its end)
 *   key of its i-th span           = H(name, i)
 *
 * The roles decide, with the model's chat format, which is part of every key, how the repetition is asked for.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "pml/layout_internal.h"

#define ASK_ALL "Repeat the previous context exactly."
#define ASK_PART "Repeat the part of the previous context exactly, starting with"
#define CITED 8 /* tokens before a part */

/* That of the innermost module that names one, or of the schema. */
static int32_t keep_of(const pml_layout *l, int32_t holder) {
    const pml_node *nodes = l->schema->nodes;
    for (; holder > 0 && nodes[holder].keep == 0; holder = nodes[holder].parent) {}
    return nodes[holder].keep > 0 ? nodes[holder].keep : l->formats.keep;
}

/* The schema's own text stays as it is. */
bool pml_segment_names_keep(const pml_layout *l, const pml_segment *s) {
    if (s->holder <= 0 || !l->schema->nodes[s->holder].cache) return false;
    const int32_t keep = keep_of(l, s->holder);
    return keep > 0 && keep != REDUCTION_ALL;
}

void pml_layout_reduce(pml_layout *l) {
    for (int32_t i = 0; i < l->n_segments; i++) {
        pml_segment *s = &l->segments[i];
        base_hash h;
        /* A reduced span has whole cells of 64 slots: of fewer tokens it has nothing to free. A scaffold's joint
         * segments stay as they are. */
        if (l->formats.falls_back || s->joint_of >= 0 || !pml_segment_names_keep(l, s)) continue;
        if (pml_segment_own_tokens(l, s) <= KV_BLOCK_SLOTS) continue;
        s->keep = keep_of(l, s->holder);
        BASE_ASSERT(s->n_spans > 0); /* pml_layout_name came before */
        const char *method = reduction_method_name(l->formats.method);
        base_hash_init(&h, "reprise reduced 2");
        base_hash_key(&h, &pml_segment_keys(l, s)[s->n_spans - 1]);
        base_hash_bytes(&h, method, strlen(method));
        base_hash_u64(&h, (uint64_t)s->keep);
        base_hash_u64(&h, (uint64_t)(int64_t)pml_role_of(l->schema, s->holder));
        base_hash_u64(&h, (uint64_t)(int64_t)s->last_role);
        base_hash_final(&h, &s->reduced);
    }
}

base_key pml_reduced_key(const pml_segment *s, int32_t i) {
    base_hash h;
    base_key key;
    BASE_ASSERT(s->keep > 0);
    base_hash_init(&h, "reprise reduced span 1");
    base_hash_key(&h, &s->reduced);
    base_hash_u64(&h, (uint64_t)i);
    base_hash_final(&h, &key);
    return key;
}

int pml_append_asking(const pml_layout *l, const pml_segment *s, int32_t begin, token_list *out, rp_error *err) {
    const rp_model *m = l->model;
    const int open = pml_role_of(l->schema, s->holder), previous = open >= 0 ? open : s->last_role;
    const char *text = begin > 0 ? ASK_PART : ASK_ALL;
    const chat_text around = chat_format_around(m->chat, CHAT_USER, previous);
    int rc = open >= 0
                 ? pml_append_role_text(m, chat_format_around(m->chat, (chat_role)open, CHAT_ROLE_NONE).after, out, err)
                 : RP_OK;
    if (!rc) rc = pml_append_role_text(m, around.before[0] ? around.before : "\n\n", out, err);
    if (!rc) rc = pml_append_text(m, text, strlen(text), false, out, err);
    if (!rc && begin > 0) {
        BASE_ASSERT(begin <= s->n_tokens);
        const int32_t first = begin > CITED ? begin - CITED : 0;
        rc = token_list_append(out, pml_segment_tokens(l, s) + first, (size_t)(begin - first));
        if (rc) rc = base_fail_memory(err, (size_t)begin * sizeof(int32_t), "tokens");
    }
    if (!rc) rc = pml_append_role_text(m, around.after, out, err);
    return rc ? rc : pml_append_role_text(m, chat_format_answer(m->chat, CHAT_USER), out, err);
}
