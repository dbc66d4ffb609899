/* SPDX-License-Identifier: Apache-2.0 */
/* chat_input.h: a conversation as the input of a chat template, and what the rendered text says about it.
 *
 *   messages, calls, results, reasoning, tools, variables --chat_input_values--> rp_template_input
 *   --rp_model_render_input--> text with origins
 *
 * Calls, results and reasoning are lists beside the messages, each element with the index of its message: most messages
 * have none. The variables are those that transformers sets: what is not given is None.
 *
 * A value: its creator owns what it points to. Any thread.
 */
#ifndef STRUCTURED_CHAT_INPUT_H
#define STRUCTURED_CHAT_INPUT_H

#include <jansson.h>

#include "base/buffer.h"
#include "reprise_chat.h"
#include "structured/answer_form.h"

/* A tool call in the conversation. */
typedef struct chat_call {
    size_t message; /* index of the assistant message */
    const char *id, *name,
        *arguments; /* id: NULL if none, then it is "call_N", N its number; arguments: a JSON object */
} chat_call;

/* Its result: links a message of role tool with a call. */
typedef struct chat_result {
    size_t message;
    const char *id; /* NULL: not given; the n-th result is then of the n-th call */
    bool is_error;  /* for texts of results (tool_text.h); no template has a place for it */
} chat_result;

/* Reasoning of an assistant message. Several of one message follow each other. */
typedef struct chat_reasoning {
    size_t message;
    const char *text;
} chat_reasoning;

/* What a template wants, besides the usual. */
typedef struct chat_style {
    bool text_arguments; /* arguments of calls as JSON text, not as an object */
    bool short_ids;      /* ids of calls have nine letters and digits */
} chat_style;

typedef struct chat_input {
    const rp_template *t;
    const answer_form *form; /* its tools, if it may call and the template writes definitions; thinking */
    const rp_message *messages;
    size_t n_messages;
    const chat_call *calls; /* by rising message; so are results, at most one a message, and reasonings */
    size_t n_calls;
    const chat_result *results;
    size_t n_results;
    const chat_reasoning *reasonings;
    size_t n_reasonings;
    const json_t *variables;      /* more variables, an object; names of the model's tokens are left out. NULL: none */
    const char *reasoning_effort; /* NULL: not given */
    bool continues_last;          /* no generation prompt */
    size_t first;                 /* the first message that is kept, besides leading system messages; 0: all are */
    chat_style style;
} chat_input;

/* The values of the template's variables; the contents of messages are borrowed until they are freed
 * (rp_template_input_free). All texts are UTF-8. sources[n_messages], unless NULL: the origins that the contents have
 * in the rendered text; 0: the message is left out. RP_ERR_MEMORY, with *out NULL; other errors are reported by the
 * rendering. */
int chat_input_values(const chat_input *in, rp_template_input **out, uint32_t *sources, rp_error *err) BASE_NODISCARD;
/* Is a variable the model's own, since it is a control token? */
bool chat_input_is_of_model(const char *variable);
/* What to do after the template has failed. Each form is tried once:
 *
 *   as it is --WRONG_TYPE--> arguments as text --REFUSED--> short ids --> merged messages --REFUSED--> merged, with
 *   short ids
 *
 * and those without calls skip to merged messages. */
typedef enum chat_retry {
    CHAT_GIVE_UP,
    CHAT_AGAIN, /* with the style that was set */
    CHAT_MERGE, /* likewise, after chat_merge */
} chat_retry;
chat_retry chat_input_adapt(chat_input *in, bool is_merged, rp_template_failure why);

/* Messages for templates that refuse other conversations: consecutive messages of the user or the assistant are one,
 * with an empty line between their texts, and system messages are the user's. Results stay as they are. */
typedef struct chat_merged {
    rp_message *messages; /* [n_messages] */
    size_t n_messages;
    size_t *to, *offset; /* [n of chat_merge]: the message that each went into, and where its text begins there */
    base_buffer text;    /* of all messages, each with a NUL after it */
} chat_merged;

/* Returns 0, RP_ERR_MEMORY or RP_ERR_LIMIT (more than max_bytes). Call chat_merged_free in any case. */
int chat_merge(chat_merged *out, const rp_message *messages, size_t n, size_t max_bytes) BASE_NODISCARD;
void chat_merged_free(chat_merged *m);
/* Moves what belongs to messages with them. */
void chat_merged_move(const chat_merged *m, chat_call *calls, size_t n_calls, chat_result *results, size_t n_results,
                      chat_reasoning *reasonings, size_t n_reasonings);

/* turns[n_messages]: where the contents of messages end in the rendered text. Returns their number: contents that the
 * template left out, or wrote in another order, are no turns. of[n_messages], unless NULL: the message of each turn. */
size_t chat_input_turns(const chat_input *in, const rp_template_text *text, const uint32_t *sources,
                        rp_rendered_turn *turns, size_t *of);
/* Does the rendered text end within reasoning? What is after the last content counts, or with continues_last the
   content, too. */
bool chat_input_opens_reasoning(const chat_input *in, const rp_template_text *text);

#endif
