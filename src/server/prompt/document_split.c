/* SPDX-License-Identifier: Apache-2.0 */
/* document_split.c: see document_split.h. The compiled expression is immutable. */
#include "server/prompt/document_split.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "reprise_pml.h"

/* Steps of the matcher for one search: linear in the text, whatever it is. */
#define STEPS_PER_BYTE 16
#define STEPS 100000

struct document_split {
    pcre2_code *code;
};

int document_split_new(document_split **out, const char *pattern, rp_error *err) {
    char why[160] = "";
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t matches_empty = 0;
    *out = NULL;
    if (strlen(pattern) > DOCUMENT_SPLIT_MAX_BYTES)
        return base_fail(err, RP_ERR_INVALID, "split_documents: the expression has more than %d bytes",
                         DOCUMENT_SPLIT_MAX_BYTES);
    document_split *d = base_calloc(1, sizeof(*d));
    if (!d) return base_fail_memory(err, sizeof(*d), "a regular expression");
    d->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_MULTILINE, &code, &at, NULL);
    if (!d->code) {
        document_split_free(d);
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
        return base_fail(err, RP_ERR_INVALID, "split_documents: byte %zu of '%.120s': %s", (size_t)at + 1, pattern,
                         why);
    }
    pcre2_pattern_info(d->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty) {
        document_split_free(d);
        return base_fail(err, RP_ERR_INVALID,
                         "split_documents: '%.120s' matches the empty text: give an expression of a separator",
                         pattern);
    }
    *out = d;
    return RP_OK;
}

void document_split_free(document_split *d) {
    if (!d) return;
    pcre2_code_free(d->code);
    base_free(d);
}

/* A split under way: the parts of all messages, old and new, in order. */
typedef struct splitter {
    const document_split *d;
    generation *gen;
    server_problem *p;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    server_part *parts; /* [n] */
    size_t n, cap;
} splitter;

static void splitter_add(splitter *s, const server_part *part) {
    int rc =
        base_grow((void **)&s->parts, &s->cap, s->n + 1, SERVER_MAX_PARTS + RP_MAX_DOCUMENTS + 1, sizeof(*s->parts));
    if (rc) server_fail_memory(s->p); /* the limit is that of the client's parts and RP_MAX_DOCUMENTS */
    else s->parts[s->n++] = *part;
}

/* The first match in [at, n); an empty one (by \K) ends the search. options: PCRE2_NO_UTF_CHECK from the second search
   on. */
static bool splitter_find(splitter *s, const char *text, size_t n, size_t at, uint32_t options, size_t *begin,
                          size_t *end) {
    BASE_ASSERT(at <= n);
    pcre2_set_match_limit(
        s->limits, (uint32_t)BASE_MIN((uint64_t)STEPS + STEPS_PER_BYTE * (uint64_t)(n - at), (uint64_t)UINT32_MAX));
    int found = pcre2_match(s->d->code, (PCRE2_SPTR)text, n, at, options, s->match, s->limits);
    const PCRE2_SIZE *borders = pcre2_get_ovector_pointer(s->match);
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        generation_ignore(s->gen, s->p, "the rest of a text, on which split_documents takes too long");
    *begin = found > 0 ? borders[0] : n;
    *end = found > 0 ? borders[1] : n;
    return found > 0 && *begin >= at && *end > *begin;
}

/* The part, split. is_given: it is a part also without a separator. */
static void splitter_split(splitter *s, const server_part *part, bool is_given) {
    BASE_ASSERT(part->begin <= part->end && part->end <= s->gen->messages[part->message].n);
    const char *text = s->gen->messages[part->message].text;
    size_t at = part->begin, begin, end, before = s->n;
    while (!s->p->kind && s->n < RP_MAX_DOCUMENTS &&
           splitter_find(s, text, part->end, at, at > part->begin ? PCRE2_NO_UTF_CHECK : 0, &begin, &end)) {
        server_part piece = *part;
        piece.begin = at;
        piece.end = begin;
        if (begin > at) splitter_add(s, &piece);
        at = end;
    }
    server_part rest = *part;
    rest.begin = at;
    const bool is_split = at > part->begin;
    if (at < part->end && (is_split || is_given)) splitter_add(s, &rest);
    if (is_split) s->gen->n_split += (int32_t)(s->n - before);
}

static void splitter_run(splitter *s) {
    const generation *gen = s->gen;
    size_t k = 0;
    for (size_t i = 0; i < gen->n_messages && !s->p->kind; i++) {
        const bool splits = gen->messages[i].role != RP_ROLE_ASSISTANT;
        if (splits && (k == gen->n_parts || gen->parts[k].message != i)) {
            /* Text that was moved to the end of the first message (agent_noise.h) is no document. */
            size_t end = gen->messages[i].n;
            if (i == 0 && gen->stable_bytes > 0) end = BASE_MIN(gen->stable_bytes, end);
            splitter_split(s, &(server_part){.kind = SERVER_PART_TEXT, .message = i, .end = end}, false);
        }
        for (; k < gen->n_parts && gen->parts[k].message == i && !s->p->kind; k++) {
            if (splits && gen->parts[k].kind == SERVER_PART_TEXT) splitter_split(s, &gen->parts[k], true);
            else splitter_add(s, &gen->parts[k]);
        }
    }
    BASE_ASSERT(s->p->kind || k == gen->n_parts); /* parts are ordered by message */
}

int document_split_apply(const document_split *d, generation *gen, server_problem *p) {
    splitter s = {.d = d,
                  .gen = gen,
                  .p = p,
                  .match = pcre2_match_data_create(1, NULL),
                  .limits = pcre2_match_context_create(NULL)};
    if (!s.match || !s.limits) server_fail_memory(p);
    else splitter_run(&s);
    if (!p->kind && gen->n_split > 0) {
        base_free(gen->parts);
        gen->parts = s.parts;
        gen->n_parts = s.n;
        gen->cap_parts = s.cap;
    } else base_free(s.parts);
    pcre2_match_data_free(s.match);
    pcre2_match_context_free(s.limits);
    return (int)p->kind;
}
