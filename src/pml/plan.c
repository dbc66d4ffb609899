/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: making a plan: entries become items (views and runs; holes and arguments; exactness); conversations become
   runs. */
#include "pml/plan.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/model_template.h"
#include "pml/plan_internal.h"

#define PARAM_PATH_BYTES 160

/* ---- arguments ---- */

/* Records a module's parameter without an argument: its positions stay empty. */
static int note_missing(plan_build *b, int32_t holder, int32_t import, int32_t param) {
    pml_plan *p = b->plan;
    char path[PARAM_PATH_BYTES];
    if (b->schema->nodes[param].required)
        return pml_fail(b->err, RP_ERR_INVALID, b->prompt, BASE_MAX(import, 0),
                        "parameter '%.60s' of '%s' requires an argument: give it", b->schema->nodes[param].name,
                        pml_path(b->schema, holder, path, sizeof(path)));
    int rc = base_grow((void **)&p->missing, &p->cap_missing, p->n_missing + 1, PML_MAX_NODES, sizeof(*p->missing));
    if (rc) return base_fail(b->err, rc, "out of memory: %zu parameters", p->n_missing);
    p->missing[p->n_missing++] = (pml_missing){holder, param};
    return RP_OK;
}

/* Adds the run of a hole's argument, if the prompt gives one. base: position of the segment in the prompt. */
static int plan_build_add_argument(plan_build *b, int32_t segment, const pml_hole *hole, int32_t base) {
    pml_plan *p = b->plan;
    int32_t holder = b->layout->segments[segment].holder, import = b->import_of[holder];
    const pml_node *param = &b->schema->nodes[hole->param];
    const pml_argument *value = plan_argument(b, holder, param->name);
    if (!value) return note_missing(b, holder, import, hole->param);
    BASE_ASSERT(import >= 0); /* plan_argument: of the import */
    size_t first = p->tokens.n;
    int rc = pml_append_argument(b->model, param, value, &p->tokens, b->err);
    if (rc) return rc;
    size_t n = p->tokens.n - first;
    if (n > (size_t)hole->len)
        return pml_fail(b->err, RP_ERR_LENGTH, b->prompt, import,
                        "argument '%s' of '%s' has %zu tokens, but its parameter takes at most %d: shorten it, or "
                        "raise len in the schema",
                        param->name, b->schema->nodes[holder].name, n, hole->len);
    if (n == 0) return RP_OK;
    return plan_add_item(p, &(pml_item){
                                .segment = segment,
                                .holder = holder,
                                .pos = base + hole->offset,
                                .n_tokens = (int32_t)n,
                                .n_counted = (int32_t)n,
                                .first_token = first,
                            },
                         b->err);
}

/* ---- entries to items ---- */

static int plan_build_add_view(plan_build *b, const plan_entry *e) {
    const pml_segment *s = &b->layout->segments[e->segment];
    const pml_hole *holes = pml_segment_holes(b->layout, s);
    pml_item item = {
        .is_view = true,
        .segment = e->segment,
        .holder = s->holder,
        .pos = e->pos,
        .shift = e->pos - s->pos,
        .n_tokens = s->n_tokens,
        .n_counted = s->n_tokens,
        .quality = plan_quality_of(b, s->holder),
    };
    for (int32_t i = 0; i < s->n_holes; i++) item.n_counted -= holes[i].len;
    BASE_ASSERT(item.n_counted >= 0);
    int rc = item.n_counted > 0 ? plan_add_item(b->plan, &item, b->err) : RP_OK;
    for (int32_t i = 0; i < s->n_holes && !rc; i++) rc = plan_build_add_argument(b, e->segment, &holes[i], e->pos);
    return rc;
}

/* Adds tokens [begin, end) of a segment that is recomputed for this prompt. */
static int plan_build_add_piece(plan_build *b, const plan_entry *e, int32_t begin, int32_t end) {
    const pml_segment *s = &b->layout->segments[e->segment];
    const size_t first = b->plan->tokens.n;
    if (begin >= end) return RP_OK;
    BASE_ASSERT(begin >= 0 && end <= s->n_tokens);
    if (token_list_append(&b->plan->tokens, pml_segment_tokens(b->layout, s) + begin, (size_t)(end - begin)))
        return base_fail_memory(b->err, first * 4, "tokens");
    return plan_add_item(b->plan, &(pml_item){
                                      .segment = e->segment,
                                      .holder = s->holder,
                                      .pos = e->pos + begin,
                                      .n_tokens = end - begin,
                                      .n_counted = end - begin,
                                      .first_token = first,
                                  },
                         b->err);
}

static int add_uncached(plan_build *b, const plan_entry *e) {
    const pml_segment *s = &b->layout->segments[e->segment];
    const pml_hole *holes = pml_segment_holes(b->layout, s);
    int32_t begin = 0;
    int rc = RP_OK;
    for (int32_t i = 0; i < s->n_holes && !rc; i++) {
        if ((rc = plan_build_add_piece(b, e, begin, holes[i].offset))) break;
        rc = plan_build_add_argument(b, e->segment, &holes[i], e->pos);
        begin = holes[i].offset + holes[i].len;
    }
    return rc ? rc : plan_build_add_piece(b, e, begin, s->n_tokens);
}

/* Is the entry an anonymous text of one token before the prompt's first text, as the beginning-of-text token is? Plain
 * prompts begin so too: as fresh tokens, it and the text are found in the prefix tree, whatever computed them. */
static bool opens_text(const plan_build *b, const plan_entry *e) {
    const pml_segment *s = &b->layout->segments[e->segment];
    if (e->pos != 0 || s->holder != 0 || s->n_tokens != 1 || s->n_holes > 0) return false;
    return e + 1 < b->entries + b->n_entries && e[1].segment < 0 && e[1].pos == 1;
}

static int add_entry_items(plan_build *b, const plan_entry *e) {
    if (e->segment < 0)
        return plan_add_item(b->plan, &(pml_item){
                                          .segment = -1,
                                          .holder = -1,
                                          .node = e->node,
                                          .pos = e->pos,
                                          .n_tokens = e->n_tokens,
                                          .n_counted = e->n_tokens,
                                          .first_token = e->first_token,
                                      },
                             b->err);
    int32_t holder = b->layout->segments[e->segment].holder;
    bool cached = holder == 0 || b->schema->nodes[holder].cache;
    return cached && !opens_text(b, e) ? plan_build_add_view(b, e) : add_uncached(b, e);
}

/* ---- the last token ---- */

/* Offset of the last counted slot of a view. */
static int32_t last_counted(const pml_layout *l, const pml_item *view) {
    const pml_segment *s = &l->segments[view->segment];
    const pml_hole *holes = pml_segment_holes(l, s);
    int32_t last = view->n_tokens - 1;
    for (int32_t i = s->n_holes - 1; i >= 0 && last < holes[i].offset + holes[i].len && last >= holes[i].offset; i--)
        last = holes[i].offset - 1;
    BASE_ASSERT(last >= 0); /* views without a counted slot are not added */
    return last;
}

static int32_t last_position(const pml_layout *l, const pml_item *item) {
    return item->pos + (item->is_view ? last_counted(l, item) : item->n_tokens - 1);
}

/* The answer starts from the output of the token at the highest position. If that token is cached, it is recomputed. */
static int free_last_token(pml_plan *p, rp_error *err) {
    BASE_ASSERT(p->n_items > 0);
    size_t last = 0;
    for (size_t i = 1; i < p->n_items; i++)
        if (last_position(p->layout, &p->items[i]) > last_position(p->layout, &p->items[last])) last = i;
    pml_item *v = &p->items[last];
    p->end = last_position(p->layout, v) + 1;
    if (!v->is_view) return RP_OK;
    const pml_segment *s = &p->layout->segments[v->segment];
    int32_t offset = last_counted(p->layout, v);
    pml_item run = {.segment = v->segment,
                    .holder = v->holder,
                    .pos = v->pos + offset,
                    .n_tokens = 1,
                    .n_counted = 1,
                    .first_token = p->tokens.n};
    if (token_list_push(&p->tokens, pml_segment_tokens(p->layout, s)[offset]))
        return base_fail_memory(err, 4, "tokens");
    v->n_tokens = offset;
    v->n_counted--;
    if (v->n_counted == 0) memmove(v, v + 1, (size_t)(&p->items[p->n_items--] - (v + 1)) * sizeof(*v));
    return plan_add_item(p, &run, err);
}

/* ---- exactness ---- */

/* Returns true if a segment of the prompt is the one that a scope names. The anchor is present if the anonymous text
 * starts with this token, computed in the same way. */
static bool pml_layout_is_named(const pml_layout *l, const pml_segment *s, int32_t held, int32_t named) {
    if (held == named) return true;
    const pml_segment *h = &l->segments[held];
    int32_t plain = h->joint_of >= 0 ? h->joint_of : held;
    return named < l->first_plain && plain == l->first_plain && h->n_tokens == 1 && h->scaffold == s->scaffold;
}

/* Returns true if the scope of a view equals the preceding views, all of them exact and at the same distances. */
static bool view_is_exact(const pml_plan *p, size_t index) {
    const pml_item *v = &p->items[index];
    const pml_segment *s = &p->layout->segments[v->segment];
    const int32_t *scope = pml_segment_scope(p->layout, s);
    int32_t cursor = 0;
    if (s->n_holes > 0 || (size_t)s->n_scope != index) return false;
    for (size_t i = 0; i < index; i++) {
        const pml_item *before = &p->items[i];
        int32_t in_frame = pml_scope_position(p->layout, s, (int32_t)i, &cursor);
        if (!pml_layout_is_named(p->layout, s, before->segment, scope[i]) || before->pos - v->pos != in_frame - s->pos)
            return false;
    }
    return true;
}

static void mark_exact(pml_plan *p) {
    bool exact = true, has_format = true, only_views = true;
    for (size_t i = 0; i < p->n_items; i++) {
        pml_item *item = &p->items[i];
        if (!item->is_view) only_views = false;
        else if (exact) exact = only_views && view_is_exact(p, i);
        if (item->is_view) has_format &= p->layout->segments[item->segment].format == p->layout->formats.text;
        item->exact = exact;
        item->has_format = has_format;
    }
}

/* ---- public ---- */

static int build_items(plan_build *b) {
    pml_plan *p = b->plan;
    int rc = RP_OK;
    plan_find_quality(b);
    for (size_t i = 0; i < b->n_entries && !rc; i++) rc = add_entry_items(b, &b->entries[i]);
    if (rc) return rc;
    if (p->n_items == 0) return pml_fail(b->err, RP_ERR_INVALID, b->prompt, 0, "the prompt is empty: it has no tokens");
    if ((rc = free_last_token(p, b->err))) return rc;
    mark_exact(p);
    for (size_t i = 0; i < p->n_items; i++)
        *(p->items[i].is_view ? &p->n_cached : &p->n_fresh) += p->items[i].n_counted;
    BASE_ASSERT(p->n_fresh > 0); /* invariant 4 */
    if (p->is_flat) return RP_OK;
    if (model_is_recurrent(&b->model->net) && (rc = plan_compute_last(p, b->err))) return rc;
    return plan_turn_dial(p, b->err);
}

static int32_t *fill_minus_one(int32_t *p, size_t n) {
    if (p) memset(p, 0xff, n * sizeof(*p));
    return p;
}

static int plan_build_build(plan_build *b) {
    size_t n_nodes = (size_t)b->schema->n_nodes, n_segments = (size_t)b->layout->n_plain + 1;
    b->import_of = fill_minus_one(base_alloc(n_nodes * sizeof(int32_t)), n_nodes);
    b->taken_of = fill_minus_one(base_alloc(n_nodes * sizeof(int32_t)), n_nodes);
    b->first_own = fill_minus_one(base_alloc(n_nodes * sizeof(int32_t)), n_nodes);
    b->next_own = fill_minus_one(base_alloc(n_segments * sizeof(int32_t)), n_segments);
    b->instead = fill_minus_one(base_alloc(n_segments * sizeof(int32_t)), n_segments);
    b->plan->included = base_calloc(n_nodes, sizeof(bool));
    int rc;
    if (!b->import_of || !b->taken_of || !b->first_own || !b->next_own || !b->instead || !b->plan->included)
        return base_fail_memory(b->err, n_nodes * 16, "a plan");
    if ((rc = plan_resolve(b)) || (rc = plan_order(b)) || (rc = plan_place(b))) return rc;
    return build_items(b);
}

/* Invariants 3 and 4: positions of counted tokens are distinct, so the flat prompt's ascend; the last item is a run. */
BASE_UNUSED static bool plan_is_valid(const pml_plan *p) {
    size_t n = (size_t)p->n_cached + (size_t)p->n_fresh;
    int32_t *flat = base_alloc(2 * n * sizeof(*flat));
    bool valid = p->n_items > 0 && !p->items[p->n_items - 1].is_view;
    if (flat && valid && pml_plan_flatten(p, flat, flat + n, NULL) == RP_OK)
        for (size_t i = 1; i < n && valid; i++) valid = flat[n + i] > flat[n + i - 1];
    base_free(flat);
    return valid;
}

int pml_plan_new(pml_plan **out, const pml_layout *layout, const pml_document *prompt, bool continues,
                 rp_quality quality, rp_quality least, rp_error *err) {
    *out = NULL;
    pml_plan *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a plan");
    p->layout = layout;
    plan_build b = {
        .plan = p,
        .layout = layout,
        .schema = layout->schema,
        .prompt = prompt,
        .model = layout->model,
        .err = err,
        .previous_role = CHAT_ROLE_NONE,
        .open_role = -1,
        .quality = quality,
        .least = least,
    };
    int rc = continues ? plan_leave_open(&b) : RP_OK;
    if (!rc) rc = plan_build_build(&b);
    base_free(b.import_of);
    base_free(b.taken_of);
    base_free(b.first_own);
    base_free(b.next_own);
    base_free(b.instead);
    base_free(b.entries);
    if (rc) {
        pml_plan_free(p);
        return rc;
    }
    BASE_DCHECK(plan_is_valid(p)); /* invariants 3 and 4 */
    BASE_TRACE(PML, "plan %s: %zu items, %d tokens cached, %d fresh, up to position %d", prompt->name, p->n_items,
               p->n_cached, p->n_fresh, p->end);
    *out = p;
    return RP_OK;
}

static int append_bos(const rp_model *m, token_list *out, rp_error *err) {
    int32_t bos = tokenizer_adds_bos(m->tokenizer) ? tokenizer_bos(m->tokenizer) : -1;
    return bos >= 0 && token_list_push(out, bos) ? base_fail_memory(err, sizeof(bos), "tokens") : RP_OK;
}

/* All tokens as one run. Takes ownership of the plan. */
static int finish_run(pml_plan **out, pml_plan *p, int rc, rp_error *err) {
    if (!rc && p->tokens.n == 0) rc = base_fail(err, RP_ERR_INVALID, "the prompt is empty: it has no tokens");
    if (!rc) {
        p->n_fresh = p->end = (int32_t)p->tokens.n;
        p->asked.mode = RP_QUALITY_REUSE;
        const pml_item run = {
            .exact = true,
            .has_format = true,
            .segment = -1,
            .holder = -1,
            .n_tokens = p->end,
            .n_counted = p->end,
        };
        rc = plan_add_item(p, &run, err);
    }
    if (rc) pml_plan_free(p);
    else *out = p;
    return rc;
}

int pml_plan_text(pml_plan **out, const rp_model *m, const char *text, size_t n, rp_error *err) {
    *out = NULL;
    pml_plan *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a plan");
    int rc = append_bos(m, &p->tokens, err);
    if (!rc) rc = tokenizer_encode(m->tokenizer, text, n, (tokenizer_options){.space_prefix = true}, &p->tokens, err);
    return finish_run(out, p, rc, err);
}

static int append_tokens(const rp_model *m, const int32_t *tokens, size_t n, token_list *out, rp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->net.hp.n_vocab)
            return base_fail(err, RP_ERR_INVALID, "token %zu of the prompt is %d, but the vocabulary has %d", i,
                             tokens[i], m->net.hp.n_vocab);
    const int rc = token_list_append(out, tokens, n);
    return rc ? base_fail(err, rc, "out of memory: a prompt of %zu tokens", n) : RP_OK;
}

int pml_plan_tokens(pml_plan **out, const rp_model *m, const int32_t *tokens, size_t n, rp_error *err) {
    *out = NULL;
    pml_plan *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a plan");
    return finish_run(out, p, append_tokens(m, tokens, n, &p->tokens, err), err);
}

/* ---- conversations ---- */

static int append_message(const rp_model *m, const rp_message *message, int *previous, bool open,
                          const pml_recall *recall, token_list *out, rp_error *err) {
    if ((unsigned)message->role >= RP_N_ROLES || !message->text)
        return base_fail(err, RP_ERR_INVALID, "a message has no %s: give a role of rp_role and a text",
                         message->text ? "known role" : "text");
    chat_text around = chat_format_around(m->chat, (chat_role)message->role, *previous);
    *previous = (int)message->role;
    int rc = pml_append_role_text(m, around.before, out, err);
    const bool is_known = !rc && recall && message->role == RP_ROLE_ASSISTANT &&
                          recall->find(recall->user, around.before, message->text, message->n, out);
    if (!rc && !is_known) rc = pml_append_text(m, message->text, message->n, false, out, err);
    return rc || open ? rc : pml_append_role_text(m, around.after, out, err);
}

/* p: gets the turns, and where the answer begins; NULL: not wanted. */
static int append_messages(const rp_model *m, const rp_message *messages, size_t n, bool continues,
                           const pml_recall *recall, token_list *out, pml_plan *p, rp_error *err) {
    int previous = CHAT_ROLE_NONE, rc;
    if (!messages || n == 0)
        return base_fail(err, RP_ERR_INVALID, "the conversation has no messages: give at least one");
    if (n > RP_MAX_MESSAGES) return base_fail(err, RP_ERR_LIMIT, "%zu messages: give at most %d", n, RP_MAX_MESSAGES);
    if ((rc = append_bos(m, out, err))) return rc;
    for (size_t i = 0; i < n; i++) {
        if ((rc = append_message(m, &messages[i], &previous, continues && i + 1 == n, recall, out, err))) return rc;
        if (p) p->turns[i] = (pml_turn){out->n, (int)messages[i].role};
    }
    if (continues) return RP_OK;
    const char *opening = chat_format_answer(m->chat, previous);
    rc = pml_append_role_text(m, opening, out, err);
    if (p) p->opened = (pml_opened){.opening = opening, .n_tokens = out->n};
    return rc;
}

int pml_append_messages(const rp_model *m, const rp_message *messages, size_t n, bool continues, token_list *out,
                        rp_error *err) {
    return append_messages(m, messages, n, continues, NULL, out, NULL, err);
}

int pml_plan_messages(pml_plan **out, const rp_model *m, const rp_message *messages, size_t n, bool continues,
                      const pml_recall *recall, rp_error *err) {
    *out = NULL;
    pml_plan *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a plan");
    p->n_turns = BASE_MIN(n, (size_t)RP_MAX_MESSAGES);
    p->turns = base_calloc(BASE_MAX(p->n_turns, 1), sizeof(*p->turns));
    int rc = p->turns ? append_messages(m, messages, n, continues, recall, &p->tokens, p, err)
                      : base_fail_memory(err, n, "a plan");
    return finish_run(out, p, rc, err);
}

/* ---- rendered conversations ---- */

typedef struct rendering {
    const rp_model *m;
    const rp_template_text *text;
    const rp_rendered_turn *turns;
    pml_turn *ends;       /* [n_turns]: in tokens */
    size_t n_turns, turn; /* the next one */
    const pml_recall *recall;
    pml_opened opened;
    size_t opened_at; /* a byte of the text */
} rendering;

/* A turn ends before the first control token after its content, or after its end-of-turn token: text is cut into tokens
   there anyway. */
static size_t turn_cut(const rendering *r) {
    if (r->turn == r->n_turns) return SIZE_MAX;
    const size_t control = model_find_control(r->m, r->text, r->turns[r->turn].end);
    const bool is_end = control != SIZE_MAX && control == model_find_turn_end(r->m, r->text, control);
    return is_end ? model_find_control(r->m, r->text, control + 1) : control;
}

static int copy_begun(rendering *r, rp_error *err) {
    pml_opened *o = &r->opened;
    o->n_begun = o->opening ? r->text->n - r->opened_at : 0;
    if (o->n_begun == 0) return RP_OK;
    BASE_ASSERT(r->opened_at + o->n_begun == r->text->n);
    o->begun = base_alloc(o->n_begun);
    if (!o->begun) return base_fail_memory(err, o->n_begun, "a plan");
    memcpy(o->begun, r->text->bytes + r->opened_at, o->n_begun);
    return RP_OK;
}

/* Where an answer ends: before its end-of-turn token. The last message of a turn may end with another one (harmony's
 * <|end|>): an answer does not go on in the content of a later message. SIZE_MAX: nowhere. */
static size_t answer_end(const rendering *r, size_t answer) {
    const size_t end = model_find_turn_end(r->m, r->text, answer);
    size_t turn = r->turn;
    while (turn < r->n_turns && r->turns[turn].end <= answer) turn++;
    if (turn + 1 >= r->n_turns || r->turns[turn + 1].end > end) return end;
    return model_find_control(r->m, r->text, r->turns[turn].end);
}

/* An answer, if its tokens are known. Returns where the text goes on. */
static size_t append_answer(rendering *r, size_t answer, const char *opening, token_list *out) {
    const size_t end = r->recall ? answer_end(r, answer) : SIZE_MAX;
    const bool precedes_message = r->n_turns > 0 && r->turns[r->n_turns - 1].end > answer;
    if (end == SIZE_MAX && !precedes_message) { /* the answer that the prompt is for comes after all messages */
        r->opened = (pml_opened){.opening = opening, .n_tokens = out->n};
        r->opened_at = answer;
    }
    return end != SIZE_MAX && end > answer &&
                   r->recall->find(r->recall->user, opening, r->text->bytes + answer, end - answer, out)
               ? end
               : answer;
}

static int append_rendering(rendering *r, token_list *out, rp_error *err) {
    const rp_template_text *text = r->text;
    const char *opening = NULL;
    size_t at = 0, answer = model_find_answer(r->m, text, 0, &opening), cut = turn_cut(r);
    for (;;) {
        const size_t to = BASE_MIN(BASE_MIN(answer, cut), text->n);
        BASE_ASSERT(at <= to);
        const int rc = model_append_rendered(r->m, text, at, to, out, err);
        if (rc) return rc;
        at = to;
        if (at == answer) {
            at = append_answer(r, answer, opening, out);
            answer = model_find_answer(r->m, text, at, &opening);
        }
        for (; r->turn < r->n_turns && cut <= at; cut = turn_cut(r)) {
            r->ends[r->turn] = (pml_turn){out->n, (int)r->turns[r->turn].role};
            r->turn++;
        }
        if (at == text->n) break;
    }
    for (; r->turn < r->n_turns; r->turn++) r->ends[r->turn] = (pml_turn){out->n, (int)r->turns[r->turn].role};
    return RP_OK;
}

int pml_append_rendered(const rp_model *m, const rp_template_text *text, const rp_rendered_turn *turns, size_t n_turns,
                        pml_turn *ends, token_list *out, rp_error *err) {
    return append_rendering(&(rendering){.m = m, .text = text, .turns = turns, .n_turns = n_turns, .ends = ends}, out,
                            err);
}

int pml_plan_rendered(pml_plan **out, const rp_model *m, const rp_template_text *text, const rp_rendered_turn *turns,
                      size_t n_turns, const pml_recall *recall, rp_error *err) {
    *out = NULL;
    int rc = model_check_rendered(text, err);
    if (!rc && n_turns > RP_MAX_MESSAGES)
        rc = base_fail(err, RP_ERR_LIMIT, "%zu messages: give at most %d", n_turns, RP_MAX_MESSAGES);
    if (rc) return rc;
    pml_plan *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a plan");
    p->turns = base_calloc(BASE_MAX(n_turns, 1), sizeof(*p->turns));
    p->n_turns = p->turns ? n_turns : 0;
    rendering r = {.m = m, .text = text, .turns = turns, .ends = p->turns, .n_turns = n_turns, .recall = recall};
    rc = p->turns ? append_rendering(&r, &p->tokens, err) : base_fail_memory(err, n_turns, "a plan");
    if (!rc) rc = copy_begun(&r, err);
    p->opened = r.opened;
    return finish_run(out, p, rc, err);
}
