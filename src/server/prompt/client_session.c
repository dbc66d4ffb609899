/* SPDX-License-Identifier: Apache-2.0 */
/* client_session.c: see client_session.h.
 *
 * Headers go before fields, and the row that comes first counts: Dynamo's names are set by proxies that have looked at
 * an agent's own ones. */
#include "server/prompt/client_session.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "server/prompt/generation.h"

/* What an agent sends. child: names its subagent; then the session is that one, and its parent the header's, or the
   session itself. */
typedef struct session_headers {
    const char *session, *child, *parent; /* NULL: none */
} session_headers;

#define FINAL_HEADER "x-dynamo-session-final"

static const session_headers known[] = {
    /* NVIDIA Dynamo, normalised */
    {"x-dynamo-session-id", NULL, "x-dynamo-parent-session-id"},
    {"x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id"}, /* Claude Code */
    {"thread-id", NULL, "x-codex-parent-thread-id"},                                         /* Codex */
    {"session_id", NULL, "x-codex-parent-thread-id"},                                        /* Codex, older */
    {"session-id", NULL, "x-codex-parent-thread-id"},
    {"conversation_id", NULL, NULL},
    {"x-session-id", NULL, "x-parent-session-id"}, /* opencode */
    {"x-opencode-session", NULL, "x-parent-session-id"},
    {"x-session-affinity", NULL, "x-parent-session-id"},
    {"x-qwen-code-session-id", NULL, NULL}, /* qwen-code */
};

/* The hash of a name; "": none, or one that is too long. */
static void session_name(char out[SERVER_SESSION_NAME], const char *name) {
    base_hash h;
    base_key key;
    out[0] = '\0';
    if (!name || !name[0] || strlen(name) > RP_MAX_SESSION_BYTES) return;
    base_hash_init(&h, "reprise client session 1");
    base_hash_bytes(&h, name, strlen(name));
    base_hash_final(&h, &key);
    base_key_hex(&key, out, SERVER_SESSION_NAME - 1);
}

static const char *session_header(const server_request *x, const char *name) {
    const char *value = name ? server_request_header(x, name) : NULL;
    return value && value[0] ? value : NULL;
}

static bool session_read_headers(server_request *x) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(known); i++) {
        const char *session = session_header(x, known[i].session), *child = session_header(x, known[i].child);
        if (!session) continue;
        const char *parent = session_header(x, known[i].parent);
        session_name(x->gen->session, child ? child : session);
        session_name(x->gen->parent_session, parent ? parent : child ? session
                                                                     : NULL);
        return true;
    }
    return false;
}

static const char *text_in(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static void session_read_fields(server_request *x) {
    const json_t *root = x->gen->root, *metadata = json_object_get(root, "metadata");
    const json_t *client = json_object_get(root, "client_metadata");
    /* Claude Code names its session at the end of metadata.user_id; other user ids name people. */
    const char *user = text_in(metadata, "user_id"), *in_user = user ? strstr(user, "session_") : NULL;
    if (!in_user && user && strstr(user, "\"session_id\"")) in_user = user;
    const char *const names[] = {
        text_in(root, "session_id"), text_in(metadata, "session_id"), in_user,
        text_in(client, "thread_id"), text_in(root, "conversation_id"), text_in(root, "prompt_cache_key")};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names) && !x->gen->session[0]; i++) session_name(x->gen->session, names[i]);
    session_name(x->gen->parent_session, text_in(metadata, "parent_session_id"));
}

void client_session_read(server_request *x) {
    const char *final = session_header(x, FINAL_HEADER);
    if (!session_read_headers(x)) session_read_fields(x);
    x->gen->ends_session = x->gen->session[0] && final && strcmp(final, "true") == 0;
}

bool client_session_each_header(bool (*fn)(void *user, const char *name), void *user) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(known); i++)
        for (int k = 0; k < 3; k++) {
            const char *name = k == 0 ? known[i].session : k == 1 ? known[i].child
                                                                  : known[i].parent;
            bool again = !name;
            for (size_t j = 0; j < i && !again; j++)
                again = known[j].parent && k == 2 && strcmp(known[j].parent, name) == 0;
            if (!again && !fn(user, name)) return false;
        }
    return fn(user, FINAL_HEADER);
}
