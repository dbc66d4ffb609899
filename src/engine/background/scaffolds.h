/* SPDX-License-Identifier: Apache-2.0 */
/* scaffolds.h: learned scaffolds: module combinations of prompts with quality="scaffold" are prefilled jointly in the
 * background (background.h). The next prompt with the same combination is exact.
 *
 *   prompt    [system][a][b] question            two forms: composed of module KV, or flat, as RP_QUALITY_EXACT runs it
 *   admitted  flat, if the prefix tree has [system][a][b]; else composed
 *   ended     composed: the combination [system][a][b] is noted, and queued for the background
 *
 *   KNOWN --a prompt missed it--> PENDING --submitted--> UNDER_WAY --> ENCODED --evicted--> KNOWN --> forgotten
 *
 * A combination is the flat prompt up to the end of its last module, arguments and text between modules included: a key
 * of tenant, tokens and positions. Its weight grows by one with each prompt that has it, and halves with every
 * SCAFFOLDS_HALF_LIFE prompts of others. The heaviest is computed first. The lightest is evicted first, for one of at
 * least twice its weight. A combination below SCAFFOLDS_LEAST_WEIGHT is forgotten. The spans that it added to the tree
 * are counted, and erased with it unless other text extends them; until then they can be evicted like all other text.
 *
 * All functions except scaffold_plan: the engine's thread.
 */
#ifndef ENGINE_SCAFFOLDS_H
#define ENGINE_SCAFFOLDS_H

#include "base/hash.h"
#include "engine/core/observer.h"
#include "reprise.h"
#include "reprise_store.h"

#define SCAFFOLDS_MAX 1024                             /* known combinations */
#define SCAFFOLDS_MAX_SPANS ((size_t)1 << 16)          /* added by all of them */
#define SCAFFOLDS_MAX_PENDING_TOKENS ((size_t)1 << 20) /* of the queued ones; beyond it a combination is not queued */
#define SCAFFOLDS_HALF_LIFE 128.0
#define SCAFFOLDS_LEAST_WEIGHT 0.25

/* The form of a job's prompt that is not in use: see rp_job. */
typedef struct scaffold_form {
    int32_t *tokens, *positions; /* [cap_tokens]; NULL: the job has one form */
    struct job_scope *scopes;    /* [cap_scopes] */
    int32_t n_prompt, cap_tokens, n_runs, n_scopes, cap_scopes;
    bool exact;
    int32_t n_combined; /* tokens of the combination */
    base_key combination;
} scaffold_form;

typedef struct combination combination;
typedef struct learned_span learned_span;

typedef struct scaffolds {
    combination *list; /* unordered */
    size_t n, cap;
    learned_span *spans;
    size_t n_spans, cap_spans;
    size_t pending_tokens;
    uint64_t n_prompts; /* prompts with quality="scaffold", ever */
    bool under_way;     /* one of them runs */
    uint64_t budget_bytes;
    rp_scaffold_stats stats;
} scaffolds;

/* Makes the flat form of a planned request, if its quality needs one; learns from jobs with two forms when they end. */
extern const job_observer scaffolds_observer;

/* Does the tree probably have the KV of the flat form? No lookup, no counts. */
bool scaffold_is_there(const rp_engine *e, const rp_job *c);
/* Switches to the other form. The job holds nothing. */
void scaffold_swap(rp_job *c);
/* Were all tokens hit for which the flat form, which is in use, was chosen? */
bool scaffold_was_found(const rp_job *c);
/* A job with two forms is requeued in its composed form. */
void scaffold_requeue(rp_job *c);

void scaffolds_free(rp_engine *e);

#endif
