/* SPDX-License-Identifier: Apache-2.0 */
/* hints.c: see hints.h. Owns nothing. */
#include "server/answers/hints.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "server/answers/generate.h"
#include "server/prompt/agent_noise.h"
#include "server/prompt/volatile_text.h"

#define LOOKED_AT_BYTES 8192 /* examined per message */
#define SHOWN_BYTES 80       /* shown per piece */
#define AROUND_BYTES 1024

static const char advice[] = "remove it, or move it after the constant text: into the last message";

/* ---- hints in the report ---- */

/* The volatile piece that contains the first mismatch, or that begins right after it. */
typedef struct divergent {
    bool is_there;
    size_t message; /* index of the message that contains it, or SIZE_MAX: only the text around the mismatch is known */
    char text[AROUND_BYTES];
    volatile_piece piece; /* in the message, or in `text` */
} divergent;

static void add_hint(json_t *array, volatile_kind kind, const char *message, const char *text, size_t n,
                     bool at_mismatch) {
    size_t cut = BASE_MIN(n, (size_t)SHOWN_BYTES);
    while (cut < n && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) cut--;
    json_t *hint = json_pack("{s:s, s:s, s:o, s:b, s:s}", "what", volatile_word(kind), "message", message, "text",
                             base_json_string(text, cut), "at_mismatch", at_mismatch, "do", advice);
    json_array_append_new(array, hint);
}

/* Index of the message with this name ("user 2"), or SIZE_MAX. */
static size_t find_message(const generation *a, const char *name) {
    char own[24];
    int counts[RP_N_ROLES] = {0};
    for (size_t i = 0; i < a->n_messages; i++) {
        BASE_ASSERT((unsigned)a->messages[i].role < RP_N_ROLES);
        snprintf(own, sizeof(own), "%s %d", rp_role_name(a->messages[i].role), ++counts[a->messages[i].role]);
        if (strcmp(own, name) == 0) return i;
    }
    return SIZE_MAX;
}

/* The first piece from `from` on that ends after `at` and begins before `end`. */
static bool hints_find_piece(const char *text, size_t n, size_t from, size_t at, size_t end, volatile_piece *piece) {
    for (; volatile_find(text, n, from, piece) && piece->begin < end; from = piece->end)
        if (piece->end > at) return true;
    return false;
}

static divergent find_mismatch(const generation *a, const rp_mismatch *d) {
    divergent found = {.is_there = false, .message = SIZE_MAX};
    size_t before = d->token >= 0 ? strlen(d->before) : 0;
    if (d->token < 0) return found;
    snprintf(found.text, sizeof(found.text), "%s%s", d->before, d->prompt);
    size_t i = find_message(a, d->message);
    const char *where = i < SIZE_MAX && found.text[0] ? strstr(a->messages[i].text, found.text) : NULL;
    if (where) {
        size_t begin = (size_t)(where - a->messages[i].text), at = begin + before,
               n = BASE_MIN(a->messages[i].n, at + SHOWN_BYTES);
        found.message = i;
        found.is_there = hints_find_piece(a->messages[i].text, n, begin > SHOWN_BYTES ? begin - SHOWN_BYTES : 0, at,
                                          begin + strlen(found.text), &found.piece);
    } else
        found.is_there = hints_find_piece(found.text, strlen(found.text), 0, before, strlen(found.text), &found.piece);
    return found;
}

static bool is_same_piece(const divergent *d, size_t message, const char *text, const volatile_piece *piece) {
    size_t own = d->piece.end - d->piece.begin;
    if (!d->is_there) return false;
    if (d->message < SIZE_MAX)
        return d->message == message && d->piece.end > piece->begin && d->piece.begin < piece->end;
    return memcmp(d->text + d->piece.begin, text + piece->begin, BASE_MIN(own, piece->end - piece->begin)) == 0;
}

static void hints_examine_message(const generation *a, size_t i, json_t *array, divergent *at) {
    BASE_ASSERT(i < a->n_messages);
    const rp_message *m = &a->messages[i];
    size_t n = BASE_MIN(m->n, (size_t)LOOKED_AT_BYTES);
    char name[24];
    volatile_piece piece;
    int count = 0;
    for (size_t k = 0; k <= i; k++) count += a->messages[k].role == m->role;
    snprintf(name, sizeof(name), "%s %d", rp_role_name(m->role), count);
    for (size_t from = 0; json_array_size(array) < SERVER_MAX_HINTS && volatile_find(m->text, n, from, &piece);
         from = piece.end) {
        bool is_it = is_same_piece(at, i, m->text, &piece);
        if (!agent_noise_has(a, m->text + piece.begin, piece.end - piece.begin))
            add_hint(array, piece.kind, name, m->text + piece.begin, piece.end - piece.begin, is_it);
        if (is_it) at->is_there = false; /* it is reported: not a second time below */
    }
}

json_t *hints_of(const server_request *x) {
    BASE_ASSERT(x->answers->n_choices > 0 && x->answers->choices[0].result);
    const rp_result *r = x->answers->choices[0].result;
    json_t *array = json_array();
    divergent at = {.is_there = false};
    if (!x->gen->template_hint) at = find_mismatch(x->gen, &r->mismatch);
    else if (array) json_array_append(array, x->gen->template_hint);
    /* System messages and the first user message, but for the last one. Later ones change from turn to turn anyway. */
    for (size_t i = 0; i + 1 < x->gen->n_messages && array; i++) {
        const rp_message *m = &x->gen->messages[i];
        const bool is_first_user = m->role == RP_ROLE_USER && (i == 0 || m[-1].role == RP_ROLE_SYSTEM);
        if (m->role == RP_ROLE_SYSTEM || is_first_user) hints_examine_message(x->gen, i, array, &at);
    }
    if (array && at.is_there)
        add_hint(array, at.piece.kind, r->mismatch.message[0] ? r->mismatch.message : r->mismatch.module,
                 (at.message < SIZE_MAX ? x->gen->messages[at.message].text : at.text) + at.piece.begin,
                 at.piece.end - at.piece.begin, true);
    return array;
}
