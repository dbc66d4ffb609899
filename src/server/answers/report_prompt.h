/* SPDX-License-Identifier: Apache-2.0 */
/* report_prompt.h: the hashes of a prompt in a stored report: two prompts can be compared without their texts. */
#ifndef SERVER_REPORT_PROMPT_H
#define SERVER_REPORT_PROMPT_H

#include "server/http/server_request.h"

#define REPORT_MAX_MESSAGES 64 /* listed one by one */
#define REPORT_FIRST_CHUNK_BYTES 64
#define REPORT_CHUNKS_OF_A_SIZE 64  /* the next ones are four times as long */
#define REPORT_MAX_CHUNKS 256       /* 340 KiB; text after them is not compared */
#define REPORT_MAX_CHUNK_BYTES 4096 /* of the last chunk */

/* {"bytes", "n_messages", "messages": [{"role", "bytes", "hash", "begins"}], "first_chunk_bytes",
 * "chunks_of_a_size", "chunks": "8 digits for each"}. The chunks cover all messages in order, each with its role, or
 * the document or text of the prompt. NULL: out of memory. */
json_t *report_prompt(const server_request *x);

#endif
