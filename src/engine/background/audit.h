/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h: the auditor recomputes one request in `every` in full, in the background, and compares the logits of its
 * first token. Only requests with views that are not exact are chosen.
 *
 *   caller's thread   plan, at a quality no lower than the one that the auditor raised the schema to
 *   engine's thread   first token's logits --audit_look: copied--> job ends --audit_end--> exact twin (background.h)
 *                                                                                                  |
 *                     a schema too far from exact: logged, or raised to the next quality <-- audit_table_add
 *
 * Sampling: every n-th, counted on the engine's thread, of the requests with RP_REUSE_ON that set no quality themselves
 * (nor does their prompt): their caller has chosen the quality, and no audit changes it. If AUDIT_MAX_WAITING samples
 * already wait, the request is skipped and counted. No answer waits: the copy is made after its
 * first token was published.
 *
 * The results are kept in the store's folder (docs/store.md), unless records are encrypted: the file has the names of
 * schemas and modules in clear. The store's own thread writes it every AUDIT_WRITE_S seconds at most, and when the
 * engine ends.
 *
 * The lock is below the engine's. Nothing is called while it is held.
 */
#ifndef ENGINE_AUDIT_H
#define ENGINE_AUDIT_H

#include "engine/background/audit_table.h"
#include "engine/observer.h"
#include "reprise_tools.h"

#define AUDIT_MAX_WAITING 8   /* samples with held logits */
#define AUDIT_CASE_MODULES 64 /* of a sample; further ones are ignored */
#define AUDIT_WRITE_S 60

typedef struct auditor auditor;       /* of one engine; NULL: it does not audit */
typedef struct audit_case audit_case; /* a chosen request */

/* Bytes of the logits of all waiting samples. */
uint64_t audit_bytes(const rp_engine_options *o, int32_t n_vocab);
/* Called after the store is opened: loads the store's table if it is of this model. RP_ERR_INVALID, RP_ERR_MEMORY. */
int audit_open(rp_engine *e, const rp_engine_options *o, rp_error *err);
/* Called after the engine's thread has ended; the store writes the table. */
void audit_close(rp_engine *e);

/* Submitting thread: the lowest quality that the request's schema may give its modules. */
rp_quality audit_least(rp_job *c);

extern const job_observer audit_observer;

#endif
