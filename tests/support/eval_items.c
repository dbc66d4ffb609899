/* SPDX-License-Identifier: Apache-2.0 */
/* eval_items.c: see eval_items.h. */
#define _POSIX_C_SOURCE 200809L /* getline */
#include "support/eval_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/must.h"
#include "support/reference_model.h"

const char *eval_path(char path[512], const char *name) {
    const char *root = getenv("REPRISE_SOURCE_DIR");
    snprintf(path, 512, "%s/%s", root ? root : ".", name);
    return path;
}

/* The text of a JSON string with PML, from after its first quote, without tags. */
static char *plain_text(const char *at) {
    static const char *const entities[] = {"&gt;", ">", "&lt;", "<", "&amp;", "&"};
    char *text = reference_alloc(strlen(at) + 1, 1);
    size_t n = 0;
    for (bool in_tag = false; *at && *at != '"'; at++) {
        size_t i = 0;
        while (i < 6 && strncmp(at, entities[i], strlen(entities[i])) != 0) i += 2;
        if (i < 6) {
            text[n++] = entities[i + 1][0];
            at += strlen(entities[i]) - 1;
            continue;
        }
        if (*at == '\\') at++;
        if (*at == '<' || *at == '>') in_tag = *at == '<';
        else if (!in_tag) text[n++] = *at;
    }
    return text;
}

static char *field(const char *line, const char *name) {
    const char *at = strstr(line, name);
    return at ? plain_text(at + strlen(name)) : NULL;
}

static rp_message message(rp_role role, const char *text) {
    return (rp_message){.role = role, .text = text, .n = strlen(text)};
}

/* reply NULL: the prompt alone. */
static int32_t *tokens_of(const rp_model *m, const char *document, const char *question, const char *reply, size_t *n) {
    const rp_message messages[] = {message(RP_ROLE_SYSTEM, document), message(RP_ROLE_USER, question),
                                   message(RP_ROLE_ASSISTANT, reply ? reply : "")};
    rp_error err = {0};
    int32_t *tokens;
    must(rp_tokenize_messages(m, messages, reply ? 3 : 2, reply != NULL, &tokens, n, &err), &err);
    return tokens;
}

/* Tokens that two prompts have in common at their beginning. */
static int32_t common_tokens(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return (int32_t)n;
}

int32_t *eval_question_tokens(const rp_model *m, const char *question, int32_t *n) {
    size_t n_all, n_other;
    int32_t *all = tokens_of(m, "A.", question, NULL, &n_all), *other = tokens_of(m, "A.", "?", NULL, &n_other);
    const int32_t first = common_tokens(all, n_all, other, n_other);
    rp_free(other);
    *n = (int32_t)n_all - first;
    memmove(all, all + first, sizeof(*all) * (size_t)*n);
    return all;
}

/* before: the text before the first document. */
static eval_item make_item(const rp_model *m, const char *before, const char *document, const char *line) {
    char *question = field(line, "<user>"), *text = field(line, "\"answers\": [\""), reply[256];
    snprintf(reply, sizeof reply, " %s", text); /* the model's answers begin so */
    size_t n_prompt, n_other, n_alone, n;
    int32_t *prompt = tokens_of(m, document, question, NULL, &n_prompt),
            *other = tokens_of(m, document, "?", NULL, &n_other);
    int32_t *alone = tokens_of(m, before, question, NULL, &n_alone);
    eval_item it = {.tokens = tokens_of(m, document, question, reply, &n)};
    it.n_document = common_tokens(prompt, n_prompt, other, n_other);
    it.n_before = common_tokens(prompt, n_prompt, alone, n_alone);
    it.n_prompt = (int32_t)n_prompt;
    it.n = (int32_t)n;
    rp_free(prompt);
    rp_free(other);
    rp_free(alone);
    free(question);
    free(text);
    return it;
}

int eval_items_read(const rp_model *m, const char *task, int32_t most_rows, eval_item *items, int n) {
    char name[64], path[512], *document = NULL, *before = NULL, *line = NULL;
    size_t cap = 0;
    int n_items = 0;
    snprintf(name, sizeof name, "models/eval/%s.jsonl", task);
    FILE *f = fopen(eval_path(path, name), "r");
    if (!f) {
        perror(path);
        abort();
    }
    while (n_items < n && getline(&line, &cap, f) > 0) {
        char *next = field(line, "{\"schema\": \""), *module = next ? strstr(line, "<module") : NULL;
        if (next) {
            free(document);
            free(before);
            document = next;
            if (module) *module = '"'; /* ends the text */
            before = field(line, "{\"schema\": \"");
            if (module) *module = '<';
        }
        eval_item it = make_item(m, before, document, line);
        if (it.n - it.n_document <= most_rows && it.n > it.n_prompt) items[n_items++] = it;
        else eval_item_free(&it);
    }
    free(document);
    free(before);
    free(line);
    fclose(f);
    return n_items;
}

void eval_item_free(eval_item *it) { rp_free(it->tokens); }

int32_t eval_best_of(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

bool eval_is_right(const eval_item *it, const float *logits, int32_t n_vocab) {
    for (int32_t i = 0; i < it->n - it->n_prompt; i++)
        if (eval_best_of(logits + (size_t)i * (size_t)n_vocab, n_vocab) != it->tokens[it->n_prompt + i]) return false;
    return true;
}
