/* SPDX-License-Identifier: Apache-2.0 */
/* scaffolds.h: learned scaffolds: what prompts with quality="scaffold" combine is computed together in the background (background.h), so that the next
 * prompt that combines the same is exact.
 *
 *   prompt    [system][a][b] question            two forms: composed of its modules' states, or flat, as RP_QUALITY_EXACT runs it
 *   admitted  flat, if the prefix tree has [system][a][b]; else composed
 *   ended     composed: the combination [system][a][b] is noted, and waits for its turn in the background
 *
 *   KNOWN --a prompt missed it--> PENDING --its turn--> UNDER_WAY --> ENCODED --evicted, dropped--> KNOWN --> forgotten
 *
 * A combination is the flat prompt up to the end of its last module, arguments and text between modules included: a key of tenant, tokens
 * and positions. Its weight is one for each prompt that had it, and halves with every SCAFFOLDS_HALF_LIFE prompts of others: the heaviest is computed
 * first, the lightest goes first where the budget is needed, for one that weighs twice as much, and what weighs less than
 * SCAFFOLDS_LEAST_WEIGHT is forgotten. What it added to the tree is counted span by span, and goes with it, unless other text stands on it; until then it
 * is text like all other, which eviction may drop.
 *
 * The engine's thread, but for scaffold_plan.
 */
#ifndef ENGINE_SCAFFOLDS_H
#define ENGINE_SCAFFOLDS_H

#include "base/hash.h"
#include "engine/observer.h"
#include "reprise.h"

#define SCAFFOLDS_MAX 1024                          /* combinations that are known */
#define SCAFFOLDS_MAX_SPANS ((size_t)1 << 16)       /* that all of them added */
#define SCAFFOLDS_MAX_PENDING_TOKENS ((size_t)1 << 20) /* of those that wait: one more is not noted as such */
#define SCAFFOLDS_HALF_LIFE 128.0
#define SCAFFOLDS_LEAST_WEIGHT 0.25

/* The form of a call's prompt that is not the one in use: see rp_job. */
typedef struct scaffold_form {
    int32_t *tokens, *positions; /* [cap_tokens]; NULL: the call has one form */
    int32_t n_prompt, cap_tokens, n_runs;
    base_key root;
    bool exact;
    int32_t n_combined; /* tokens of the combination */
    base_key combination;
} scaffold_form;

typedef struct combination combination;
typedef struct learned_span learned_span;

typedef struct scaffolds {
    combination *list; /* in no order */
    size_t n, cap;
    learned_span *spans;
    size_t n_spans, cap_spans;
    size_t pending_tokens;
    uint64_t n_prompts;   /* that asked, ever */
    bool under_way;       /* one of them is */
    uint64_t budget_bytes;
    rp_scaffold_stats stats;
} scaffolds;

/* Makes the flat form of a planned request, if its quality wants one; learns from those that have two forms when they end. */
extern const job_observer scaffolds_observer;

/* Has the tree what the flat form needs, as far as can be seen without a look-up? */
bool scaffold_is_there(const rp_engine *e, const rp_job *c);
/* The other form is in use from now on. The call holds nothing. */
void scaffold_swap(rp_job *c);
/* Was all found that makes the flat form, which is in use, worth it? */
bool scaffold_was_found(const rp_job *c);
/* A call that has two forms begins anew: it is a composed one. */
void scaffold_requeue(rp_job *c);

void scaffolds_free(rp_engine *e);

#endif
