/* SPDX-License-Identifier: Apache-2.0 */
/* report_prompt.h: what a kept report knows of a prompt, so that two can be compared without their texts: hashes. */
#ifndef SERVER_REPORT_PROMPT_H
#define SERVER_REPORT_PROMPT_H

#include "server/http/server_request.h"

#define REPORT_MAX_MESSAGES 64  /* described one by one */
#define REPORT_FIRST_CHUNK_BYTES 64
#define REPORT_CHUNKS_OF_A_SIZE 64  /* then they are four times as long */
#define REPORT_MAX_CHUNKS 256       /* 340 KiB; later text is not compared */
#define REPORT_MAX_CHUNK_BYTES 4096 /* the last one's */

/* {"bytes", "n_messages", "messages": [{"role", "bytes", "hash", "begins"}], "first_chunk_bytes", "chunks_of_a_size", "chunks": "8 digits for
 * each"}. The chunks are those of all messages in order, each with its role; or of the prompt's document or text. NULL: no memory. */
json_t *report_prompt(const server_request *x);

#endif
