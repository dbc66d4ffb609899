/* SPDX-License-Identifier: Apache-2.0 */
/* answer_meaning.c: see answer_meaning.h. Owns nothing. */
#include "structured/answer_meaning.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "structured/tool_finder.h"
#include "structured/tool_heads.h"

_Static_assert(sizeof(((base_key *)0)->bytes) == RP_MEANING_BYTES, "a meaning is a key");

#define FED_BYTES 4096 /* at a time: what the finder holds back is moved whenever it reads on */

/* ---- values ---- */

/* A number by its value: 1 and 1.0 are the same. */
static int hash_number(base_hash *h, const json_t *value) {
    BASE_ASSERT(json_is_number(value));
    base_json_decimal d;
    const int rc = base_json_decimal_read(value, &d);
    if (!rc) {
        base_hash_u64(h, d.negative);
        base_hash_u64(h, (uint64_t)d.point);
        base_hash_bytes(h, d.digits ? d.digits : "", d.n);
    }
    base_json_decimal_free(&d);
    return rc;
}

static int hash_value(base_hash *h, const json_t *value);

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Members in the order of their names. */
static int hash_object(base_hash *h, const json_t *object) {
    BASE_ASSERT(json_is_object(object));
    const size_t n = json_object_size(object);
    const char **names = base_alloc(BASE_MAX(n, 1) * sizeof(*names)), *name;
    json_t *item;
    size_t i = 0;
    int rc = names ? 0 : RP_ERR_MEMORY;
    if (rc) return rc;
    json_object_foreach((json_t *)object, name, item) names[i++] = name;
    qsort(names, n, sizeof(*names), compare_names);
    for (i = 0; i < n && !rc; i++) {
        base_hash_bytes(h, names[i], strlen(names[i]));
        rc = hash_value(h, json_object_get(object, names[i]));
    }
    base_free((void *)names);
    return rc;
}

static int hash_value(base_hash *h, const json_t *value) {
    int rc = 0;
    if (json_is_number(value)) {
        base_hash_u64(h, JSON_REAL);
        return hash_number(h, value);
    }
    base_hash_u64(h, (uint64_t)json_typeof(value));
    if (json_is_string(value)) base_hash_bytes(h, json_string_value(value), json_string_length(value));
    if (json_is_object(value)) {
        base_hash_u64(h, json_object_size(value));
        return hash_object(h, value);
    }
    if (json_is_array(value)) base_hash_u64(h, json_array_size(value));
    for (size_t i = 0; i < json_array_size(value) && !rc; i++) rc = hash_value(h, json_array_get(value, i));
    return rc;
}

/* ---- answers ---- */

static int read_answer(tool_finder *f, const char *text, size_t n) {
    int rc = 0;
    for (size_t at = 0; at < n && !rc; at += FED_BYTES)
        rc = tool_finder_feed(f, text + at, BASE_MIN(n - at, (size_t)FED_BYTES));
    if (!rc && tool_finder_is_open(f)) rc = RP_ERR_INVALID;
    return rc ? rc : tool_finder_finish(f);
}

/* Without white space at its ends. */
static int hash_text(base_hash *h, const tool_finder *f, bool reasoning) {
    base_buffer text = BASE_BUFFER(TOOL_CALLS_BYTES);
    const int rc = tool_finder_text(f, reasoning, &text);
    size_t begin = tool_heads_spaces(&text, 0), end = text.len;
    while (end > begin && tool_heads_is_space(text.data[end - 1])) end--;
    base_hash_bytes(h, end > begin ? text.data + begin : "", end - begin);
    base_buffer_free(&text);
    return rc;
}

static int hash_answer(base_hash *h, const tool_finder *f) {
    int rc = hash_text(h, f, true);
    if (!rc) rc = hash_text(h, f, false);
    for (size_t i = 0; i < f->n_items && !rc; i++) {
        const tool_item *call = &f->items[i];
        if (!call->tool) continue;
        json_t *arguments = tool_item_arguments(call);
        base_hash_bytes(h, call->tool->name, strlen(call->tool->name));
        rc = arguments ? hash_value(h, arguments) : RP_ERR_INVALID;
        json_decref(arguments);
    }
    return rc;
}

bool answer_meaning(const answer_form *answer, const char *opening, const char *text, size_t n,
                    uint8_t meaning[RP_MEANING_BYTES]) {
    answer_form all = *answer; /* as the model's answer begins, not this request's */
    tool_finder f;
    base_hash h;
    base_key key;
    all.reasoning_open = tool_convention_opens_reasoning(&answer->convention, opening, strlen(opening));
    tool_finder_init(&f, &all, TOOL_REASONING_ITEMS, NULL, NULL);
    base_hash_init(&h, "reprise what an answer means 1");
    const bool ok = read_answer(&f, text, n) == 0 && hash_answer(&h, &f) == 0;
    base_hash_final(&h, &key);
    memcpy(meaning, key.bytes, sizeof(key.bytes));
    tool_finder_free(&f);
    return ok;
}
