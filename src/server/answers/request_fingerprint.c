/* SPDX-License-Identifier: Apache-2.0 */
/* request_fingerprint.c: see request_fingerprint.h. A fingerprint is one allocation, which the generation owns; in the
 * registry it has the same bytes. */
#include "server/answers/request_fingerprint.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/answers/response_registry.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/generation.h"

#define N_FIELDS ((int)FINGERPRINT_UNKNOWN)

typedef struct message_fingerprint {
    uint64_t hash, bytes;
} message_fingerprint;

struct request_fingerprint {
    uint64_t fields[N_FIELDS]; /* by difference; SAME and MESSAGES are not used */
    uint64_t before_messages;  /* bytes of the system messages and the tools */
    int64_t n_tokens;          /* of the prompt; 0: not known yet */
    uint64_t n_messages;
    message_fingerprint messages[];
};

/* ---- hashes ---- */

typedef struct hasher {
    base_hash hash;
    uint64_t bytes;
} hasher;

static hasher hasher_begin(void) {
    hasher h = {.bytes = 0};
    base_hash_init(&h.hash, "reprise request fingerprint 1");
    return h;
}

static void hasher_add(hasher *h, const void *bytes, size_t n) {
    base_hash_bytes(&h->hash, bytes, n);
    h->bytes += n;
}

/* NULL is not "". */
static void hasher_add_text(hasher *h, const char *text) {
    base_hash_u64(&h->hash, text != NULL);
    if (text) hasher_add(h, text, strlen(text));
}

/* Whatever the order of its keys. Nonzero: out of memory. */
static int hasher_add_json(hasher *h, const json_t *value) {
    char *text = value ? base_json_text(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const int rc = value && !text ? RP_ERR_MEMORY : RP_OK;
    hasher_add_text(h, text);
    base_free(text);
    return rc;
}

static uint64_t hasher_end(hasher *h) {
    base_key key;
    uint64_t first;
    base_hash_final(&h->hash, &key);
    memcpy(&first, key.bytes, sizeof(first));
    return first;
}

static uint64_t hash_of_text(const char *text) {
    hasher h = hasher_begin();
    hasher_add_text(&h, text);
    return hasher_end(&h);
}

/* ---- a request's ---- */

/* Where calls, results and parts of the next message begin in their lists. */
typedef struct message_lists {
    size_t call, result, part;
} message_lists;

/* Ids of calls are not in the prompt, and clients may drop the reasoning of earlier answers. */
static int hash_message(const generation *gen, size_t i, message_lists *at, hasher *h) {
    BASE_ASSERT(i < gen->n_messages);
    const rp_message *m = &gen->messages[i];
    int rc = RP_OK;
    base_hash_u64(&h->hash, (uint64_t)m->role);
    hasher_add(h, m->text, m->n);
    for (; at->call < gen->n_calls && gen->calls[at->call].message <= i; at->call++) {
        hasher_add_text(h, gen->calls[at->call].name);
        hasher_add_text(h, gen->calls[at->call].arguments);
    }
    for (; at->result < gen->n_results && gen->results[at->result].message <= i; at->result++)
        base_hash_u64(&h->hash, gen->results[at->result].is_error);
    for (; at->part < gen->n_parts && gen->parts[at->part].message <= i && !rc; at->part++) {
        const server_part *part = &gen->parts[at->part];
        if (part->kind != SERVER_PART_PML && part->kind != SERVER_PART_MODULE) continue;
        hasher_add_text(h, part->pml);
        hasher_add_text(h, part->schema);
        hasher_add_text(h, part->name);
        rc = hasher_add_json(h, part->args);
    }
    return rc;
}

static int hash_tools(const generation *gen, hasher *h) {
    int rc = RP_OK;
    for (size_t i = 0; i < gen->form.n_tools && !rc; i++) {
        hasher_add_text(h, gen->form.tools[i].name);
        hasher_add_text(h, gen->form.tools[i].description);
        rc = hasher_add_json(h, gen->form.tools[i].schema);
    }
    return rc;
}

/* The system messages that begin the conversation. */
static size_t count_system(const generation *gen) {
    size_t n = 0;
    while (n < gen->n_messages && gen->messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

static int make_fields(const generation *gen, struct request_fingerprint *f, message_lists *at) {
    hasher system = hasher_begin(), tools = hasher_begin(), others = hasher_begin();
    int rc = hash_tools(gen, &tools);
    for (size_t i = 0; i < count_system(gen) && !rc; i++) rc = hash_message(gen, i, at, &system);
    f->before_messages = system.bytes + tools.bytes;
    f->fields[FINGERPRINT_SYSTEM] = hasher_end(&system);
    f->fields[FINGERPRINT_TOOLS] = hasher_end(&tools);
    f->fields[FINGERPRINT_EFFORT] = hash_of_text(gen->reasoning_effort);
    base_hash_u64(&others.hash, (uint64_t)gen->form.tool_choice);
    for (size_t i = 0; i < gen->form.n_tools; i++) base_hash_u64(&others.hash, gen->form.tools[i].barred);
    base_hash_u64(&others.hash, (uint64_t)gen->form.thinking);
    hasher_add_text(&others, gen->cache_salt);
    f->fields[FINGERPRINT_OTHERS] = hasher_end(&others);
    return rc;
}

int request_fingerprint_make(server_request *x) {
    generation *gen = x->gen;
    BASE_ASSERT(!gen->fingerprint);
    const size_t first = count_system(gen), n = BASE_MIN(gen->n_messages - first, (size_t)FINGERPRINT_MAX_MESSAGES);
    struct request_fingerprint *f = base_calloc(1, sizeof(*f) + n * sizeof(f->messages[0]));
    message_lists at = {0};
    if (!f) return server_fail_memory(&x->problem);
    gen->fingerprint = f;
    f->n_messages = n;
    int rc = make_fields(gen, f, &at);
    for (size_t k = 0, i = first; k < n && !rc; k++) {
        hasher h = hasher_begin();
        const size_t end = k + 1 < n ? i + 1 : gen->n_messages;
        for (; i < end && !rc; i++) rc = hash_message(gen, i, &at, &h);
        f->messages[k].bytes = h.bytes;
        f->messages[k].hash = hasher_end(&h);
    }
    return rc ? server_fail_memory(&x->problem) : SERVER_FINE;
}

static size_t fingerprint_bytes(const struct request_fingerprint *f) {
    return sizeof(*f) + f->n_messages * sizeof(f->messages[0]);
}

/* The model is known once the request has one: an adapter is another model. */
static void set_model(const server_request *x) {
    x->gen->fingerprint->fields[FINGERPRINT_MODEL] = hash_of_text(server_request_model(x));
}

void request_fingerprint_keep(const server_request *x, const char *id, int64_t n_own) {
    struct request_fingerprint *f = x->gen->fingerprint;
    if (!f) return;
    set_model(x);
    f->n_tokens = n_own;
    response_registry_put(x->server->fingerprints, id, x->key->tenant, (const char *)f, fingerprint_bytes(f));
}

/* ---- comparison ---- */

/* Bytes before message n. */
static uint64_t bytes_before(const struct request_fingerprint *f, size_t n) {
    BASE_ASSERT(n <= f->n_messages);
    uint64_t bytes = f->before_messages;
    for (size_t i = 0; i < n; i++) bytes += f->messages[i].bytes;
    return bytes;
}

/* Of n_tokens, those after the messages that are common. */
static int64_t tokens_after(const struct request_fingerprint *f, size_t n_common, int64_t n_tokens) {
    const uint64_t all = bytes_before(f, f->n_messages), common = bytes_before(f, n_common);
    return all > 0 ? (int64_t)((double)n_tokens * (double)(all - common) / (double)all + 0.5) : n_tokens;
}

static fingerprint_difference find_difference(const struct request_fingerprint *own,
                                              const struct request_fingerprint *earlier, size_t n_common) {
    BASE_ASSERT(n_common <= own->n_messages && n_common <= earlier->n_messages);
    for (int d = FINGERPRINT_SAME + 1; d < N_FIELDS; d++) {
        const bool is_other =
            d == FINGERPRINT_MESSAGES ? n_common < earlier->n_messages : own->fields[d] != earlier->fields[d];
        if (is_other) return (fingerprint_difference)d;
    }
    return FINGERPRINT_SAME;
}

fingerprint_comparison request_fingerprint_compare(const server_request *x, const char *id, int64_t n_own) {
    const struct request_fingerprint *own = x->gen->fingerprint, *earlier;
    fingerprint_comparison found = {.difference = FINGERPRINT_UNKNOWN};
    base_buffer bytes = BASE_BUFFER(SERVER_MAX_RESPONSE_BYTES);
    if (own && response_registry_get(x->server->fingerprints, id, x->key->tenant, &bytes) == 0) {
        set_model(x);
        earlier = (const struct request_fingerprint *)(const void *)bytes.data;
        BASE_ASSERT(bytes.len == fingerprint_bytes(earlier));
        const size_t n_both = BASE_MIN(own->n_messages, earlier->n_messages);
        size_t n_common = 0; /* messages at the beginning that are the same */
        while (n_common < n_both && own->messages[n_common].hash == earlier->messages[n_common].hash) n_common++;
        found.difference = find_difference(own, earlier, n_common);
        const bool is_after = found.difference >= FINGERPRINT_MESSAGES ||
                              found.difference == FINGERPRINT_SAME; /* templates write the effort first */
        found.n_compared = earlier->n_tokens;
        found.n_missed = is_after ? tokens_after(earlier, n_common, earlier->n_tokens) : earlier->n_tokens;
        found.n_missed_of_own = is_after ? tokens_after(own, n_common, n_own) : n_own;
    }
    base_buffer_free(&bytes);
    return found;
}
