/* SPDX-License-Identifier: Apache-2.0 */
/* dialects.h: parsers of the smaller dialects: pure, for the routes and for fuzz/fuzz_requests.c. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "server/prompt/generation.h"

int llamacpp_parse_completion(generation *gen, server_problem *p);
int llamacpp_parse_infill(generation *gen, server_problem *p);
void llamacpp_parse_cache(generation *gen, const server_fields *f); /* return_progress, n_cache_reuse: also of chats */
int llamacpp_parse_messages(generation *gen, server_problem *p);    /* of /apply-template */
int anthropic_parse(generation *gen, server_problem *p);
int anthropic_parse_count(generation *gen, server_problem *p); /* without max_tokens */
int responses_parse(generation *gen, server_problem *p);       /* of /v1/responses */
int interactions_parse(generation *gen, server_problem *p);    /* of /v1/interactions */
int gemini_parse(generation *gen, server_problem *p);
int gemini_parse_content(generation *gen, server_problem *p); /* of cachedContents */

#endif
