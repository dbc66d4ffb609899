/* SPDX-License-Identifier: Apache-2.0 */
/* report_prompt.c: see report_prompt.h. Owns nothing. */
#include "server/answers/report_prompt.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/prompt/generation.h"

_Static_assert(REPORT_MAX_CHUNK_BYTES == REPORT_FIRST_CHUNK_BYTES
                                             << 2 * ((REPORT_MAX_CHUNKS - 1) / REPORT_CHUNKS_OF_A_SIZE),
               "the last chunk's size");

#define MESSAGE_DIGITS 16
#define CHUNK_DIGITS 8
#define BEGINS_BYTES 48

/* Splits a stream of bytes into hashed chunks. */
typedef struct chunker {
    char chunk[REPORT_MAX_CHUNK_BYTES];
    size_t used, total;
    char digits[REPORT_MAX_CHUNKS * CHUNK_DIGITS + 1];
    size_t n_chunks;
} chunker;

static void hash_text(const char *domain, const char *text, size_t n, char *hex, size_t digits) {
    base_hash h;
    base_key key;
    base_hash_init(&h, domain);
    base_hash_bytes(&h, text, n);
    base_hash_final(&h, &key);
    base_key_hex(&key, hex, digits);
}

static void end_chunk(chunker *c) {
    BASE_ASSERT(c->n_chunks <= REPORT_MAX_CHUNKS && c->used <= sizeof(c->chunk));
    if (c->used == 0 || c->n_chunks == REPORT_MAX_CHUNKS) return;
    hash_text("reprise report chunk 1", c->chunk, c->used, c->digits + c->n_chunks++ * CHUNK_DIGITS, CHUNK_DIGITS);
    c->used = 0;
}

/* Short chunks first, where most prompts differ. */
static void add_bytes(chunker *c, const char *bytes, size_t n) {
    c->total += n;
    while (n > 0 && c->n_chunks < REPORT_MAX_CHUNKS) {
        size_t whole = (size_t)REPORT_FIRST_CHUNK_BYTES << 2 * (c->n_chunks / REPORT_CHUNKS_OF_A_SIZE);
        size_t part = BASE_MIN(n, whole - c->used);
        BASE_ASSERT(c->used < whole && whole <= sizeof(c->chunk)); /* so that this ends */
        memcpy(c->chunk + c->used, bytes, part);
        c->used += part;
        bytes += part;
        n -= part;
        if (c->used == whole) end_chunk(c);
    }
}

static json_t *describe_message(const rp_message *m) {
    char hash[MESSAGE_DIGITS + 1];
    size_t cut = BASE_MIN(m->n, (size_t)BEGINS_BYTES);
    while (cut < m->n && cut > 0 && ((unsigned char)m->text[cut] & 0xc0) == 0x80) cut--; /* whole characters */
    hash_text("reprise report message 1", m->text, m->n, hash, MESSAGE_DIGITS);
    return json_pack("{s:s, s:I, s:s, s:o}", "role", rp_role_name(m->role), "bytes", (json_int_t)m->n, "hash", hash,
                     "begins", base_json_string(m->text, cut));
}

json_t *report_prompt(const server_request *x) {
    const generation *a = x->gen;
    chunker c = {.total = 0};
    json_t *messages = json_array();
    if (a->pml) add_bytes(&c, a->pml, strlen(a->pml));
    if (a->built && a->n_messages == 0) { /* a prompt of parts is hashed as the JSON of the request */
        char *text = base_json_text(json_object_get(a->root, "parts"), JSON_COMPACT);
        if (text) add_bytes(&c, text, strlen(text));
        base_free(text);
    }
    for (size_t i = 0; i < a->n_messages; i++) {
        const char *role = rp_role_name(a->messages[i].role);
        add_bytes(&c, role, strlen(role));
        add_bytes(&c, "\n", 1);
        add_bytes(&c, a->messages[i].text, a->messages[i].n);
        add_bytes(&c, "\n", 1);
    }
    for (size_t i = 0; i < a->n_parts; i++) { /* of modules and PML in messages */
        const server_part *part = &a->parts[i];
        if (part->kind == SERVER_PART_PML) add_bytes(&c, part->pml, strlen(part->pml));
        if (part->kind == SERVER_PART_MODULE) add_bytes(&c, part->name, strlen(part->name));
    }
    const server_prompt *p = a->n_prompts > 0 ? &a->prompts[0] : NULL;
    /* Token ids are hashed in their memory representation. */
    if (p && p->tokens) add_bytes(&c, (const char *)p->tokens, p->n_tokens * sizeof(*p->tokens));
    else if (p) add_bytes(&c, p->text, strlen(p->text));
    end_chunk(&c);
    for (size_t i = 0; i < BASE_MIN(a->n_messages, (size_t)REPORT_MAX_MESSAGES) && messages; i++)
        if (json_array_append_new(messages, describe_message(&a->messages[i]))) break;
    return json_pack("{s:I, s:I, s:o, s:i, s:i, s:s}", "bytes", (json_int_t)c.total, "n_messages",
                     (json_int_t)a->n_messages, "messages", messages, "first_chunk_bytes", REPORT_FIRST_CHUNK_BYTES,
                     "chunks_of_a_size", REPORT_CHUNKS_OF_A_SIZE, "chunks", c.digits);
}
