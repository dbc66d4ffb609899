/* SPDX-License-Identifier: Apache-2.0 */
/* chat_session.h: a conversation with an engine: its messages, its settings, its last answer. */
#ifndef CLI_CHAT_SESSION_H
#define CLI_CHAT_SESSION_H

#include "common/answer.h"
#include "common/loader.h"
#include "sampling_args.h"

/* Settings of each request; /set changes the numbers. */
typedef struct chat_settings {
    cli_sampling_args sampling;
    int32_t max_tokens;
} chat_settings;

/* Sums over the answers of a session. */
typedef struct chat_totals {
    int64_t answers, prompt_tokens, cached_tokens, answer_tokens;
    double saved_ms, decode_ms;
} chat_totals;

typedef struct chat_session {
    rp_engine *engine; /* borrowed */
    chat_settings settings;
    rp_logit_bias *bias; /* borrowed */
    const char *grammar; /* borrowed: of each answer; NULL: none */
    int32_t n_bias, draft;
    bool interactive;     /* on a terminal: safe text, a status line */
    char *system;         /* owned; NULL: none */
    rp_message *messages; /* their texts are owned; users' and assistants' in turn */
    size_t n, capacity;
    rp_result *last; /* of the last answer; NULL: none */
    chat_totals totals;
    cli_answer answer;
    bool has_text, line_is_open; /* of the answer that is printed */
} chat_session;

void chat_session_free(chat_session *s);

/* Sends a message (borrowed) and prints its answer. A message without an answer, because of an error or Ctrl-C, is
 * taken back. Returns an exit status: CLI_INTERRUPTED after Ctrl-C. */
int chat_session_send(chat_session *s, const char *text);
/* Answers the last message again, with the next seed. CLI_FAILED: there is none. */
int chat_session_retry(chat_session *s);
/* Removes the last message and its answer. Returns false if there is none. */
bool chat_session_undo(chat_session *s);
/* Removes all messages; the system prompt stays. */
void chat_session_reset(chat_session *s);
/* Sets the system prompt; NULL or "": none. */
void chat_session_set_system(chat_session *s, const char *text);

/* A file of a conversation: {"messages": [{"role": "user", "content": "..."}, ...]}, as the body of a request to
 * /v1/chat/completions. Load replaces the conversation, if the whole file is right. Return an exit status. */
int chat_session_save(const chat_session *s, const char *path);
int chat_session_load(chat_session *s, const char *path);

#endif
