/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c: see relay.h. Owns nothing. */
#include "cluster/relay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

enum { HAS_EPOCH = 1,
       HAS_ID = 2,
       HAS_SEED = 4,
       HAS_CREATED = 8,
       HAS_MARKS = 16,
       HAS_ALL = 31,
       HAS_LEFT = 32 };

/* ---- refusals ---- */

static const struct {
    const char *value, *message;
} refusals[] = {
    {"", ""},
#define X(id, value, message) {value, message},
    CLUSTER_REFUSALS(X)
#undef X
};

const char *cluster_refusal_value(cluster_refusal r) {
    BASE_ASSERT(r > CLUSTER_NO_REFUSAL && r < CLUSTER_N_REFUSALS);
    return refusals[r].value;
}

const char *cluster_refusal_message(cluster_refusal r) {
    BASE_ASSERT(r > CLUSTER_NO_REFUSAL && r < CLUSTER_N_REFUSALS);
    return refusals[r].message;
}

cluster_refusal cluster_refusal_read(const char *value) {
    for (int i = CLUSTER_NO_REFUSAL + 1; i < CLUSTER_N_REFUSALS; i++)
        if (strcmp(refusals[i].value, value) == 0) return (cluster_refusal)i;
    return CLUSTER_NO_REFUSAL;
}

/* ---- numbers: digits only, no sign, no white space ---- */

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads a number that ends at `end` or at the end of the text. Returns its end; NULL: there is none, or it is too
 * large. */
static const char *read_number(const char *text, unsigned base, char end, uint64_t *value) {
    const char *at = text;
    BASE_ASSERT(base == 10 || base == 16); /* digit_of has these digits */
    *value = 0;
    for (; digit_of(*at) < (int)base; at++) {
        const uint64_t digit = (uint64_t)digit_of(*at);
        if (*value > (UINT64_MAX - digit) / base) return NULL;
        *value = *value * base + digit;
    }
    if (at == text || (*at && *at != end)) return NULL;
    return at;
}

/* ---- routes ---- */

void cluster_route_write(char out[CLUSTER_ROUTE_BYTES], const cluster_route *r) {
    int n =
        snprintf(out, CLUSTER_ROUTE_BYTES, "epoch=%016" PRIx64 ";id=%s;seed=%" PRIu64 ";created=%" PRId64 ";marks=%d",
                 r->epoch, r->id, r->seed, r->created, r->marks);
    BASE_ASSERT(n > 0 && n < CLUSTER_ROUTE_BYTES);
    if (r->left_ms > 0) n += snprintf(out + n, CLUSTER_ROUTE_BYTES - (size_t)n, ";left=%" PRId64, r->left_ms);
    BASE_ASSERT(n < CLUSTER_ROUTE_BYTES); /* a truncated header would be refused by the node */
}

static const char *read_id(cluster_route *r, const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const size_t n = strspn(text, letters);
    if (n == 0 || n >= sizeof(r->id) || (text[n] && text[n] != ';')) return NULL;
    memcpy(r->id, text, n);
    r->id[n] = '\0';
    return text + n;
}

/* Reads one NAME=VALUE. Returns its end; NULL: malformed. */
static const char *read_field(cluster_route *r, const char *text, unsigned *field) {
    static const struct {
        const char *name;
        unsigned field, base;
    } names[] = {
        {"epoch=", HAS_EPOCH, 16},
        {"id=", HAS_ID, 0},
        {"seed=", HAS_SEED, 10},
        {"created=", HAS_CREATED, 10},
        {"marks=", HAS_MARKS, 10},
        {"left=", HAS_LEFT, 10},
    };
    size_t i = 0;
    uint64_t value = 0;
    while (i < BASE_ARRAY_LEN(names) && strncmp(text, names[i].name, strlen(names[i].name)) != 0) i++;
    if (i == BASE_ARRAY_LEN(names)) return NULL;
    *field = names[i].field;
    text += strlen(names[i].name);
    const char *end = *field == HAS_ID ? read_id(r, text) : read_number(text, names[i].base, ';', &value);
    if (*field == HAS_EPOCH) r->epoch = value;
    if (*field == HAS_SEED) r->seed = value;
    if (*field == HAS_CREATED) r->created = (int64_t)value;
    if (*field == HAS_MARKS) r->marks = value == 1;
    if (*field == HAS_LEFT) r->left_ms = (int64_t)value;
    return ((*field == HAS_CREATED || *field == HAS_LEFT) && value > INT64_MAX) || (*field == HAS_MARKS && value > 1)
               ? NULL
               : end;
}

bool cluster_route_read(cluster_route *out, const char *text) {
    unsigned seen = 0, field = 0;
    *out = (cluster_route){0};
    while (text && (text = read_field(out, text, &field))) {
        if (seen & field) return false;
        seen |= field;
        if (!*text) return (seen & HAS_ALL) == HAS_ALL;
        text++;
    }
    return false;
}

/* ---- continuations ---- */

void cluster_resume_write(char out[CLUSTER_RESUME_BYTES], const cluster_resume *r) {
    const int n =
        snprintf(out, CLUSTER_RESUME_BYTES, "%" PRIu64 ";%" PRIu64 ";%" PRIu64, r->n_tokens, r->text_bytes, r->frames);
    BASE_ASSERT(n > 0 && n < CLUSTER_RESUME_BYTES);
}

bool cluster_resume_read(cluster_resume *out, const char *text) {
    uint64_t *const values[] = {&out->n_tokens, &out->text_bytes, &out->frames};
    *out = (cluster_resume){0};
    for (size_t i = 0; i < BASE_ARRAY_LEN(values); i++) {
        const bool is_last = i + 1 == BASE_ARRAY_LEN(values);
        if (!text || !(text = read_number(text, 10, ';', values[i])) || (*text == '\0') != is_last) return false;
        text += !is_last;
    }
    return out->n_tokens <= CLUSTER_MAX_RESUMED && out->frames <= INT32_MAX;
}
