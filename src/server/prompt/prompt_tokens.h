/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_tokens.h: completion prompts given as token ids: conversion for the engine, and detokenization. Any thread. */
#ifndef SERVER_PROMPT_TOKENS_H
#define SERVER_PROMPT_TOKENS_H

#include "base/buffer.h"
#include "server/prompt/generation.h"

/* Fills in the tokens of each prompt of ids. Strings among the ids are tokenized in place; a string at index 0 gets a
 * beginning-of-text token. Prompts to echo get their text as well. Returns a server_problem_kind. */
int prompt_tokens_fill(generation *gen, const rp_model *model, server_problem *p);
/* Appends the text of tokens, names of control tokens included. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int prompt_tokens_text(const rp_model *model, const int32_t *tokens, size_t n, base_buffer *out);

#endif
