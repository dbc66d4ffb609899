/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h: the auditor: one in `every` requests with views that are not exact is computed again in full, in the background, and the logits of
 * its first token are compared.
 *
 *   caller's thread   plan, no lower on the dial than what the auditor moved the schema up to
 *   engine's thread   first token's logits --audit_look: a copy--> call ends --audit_end--> exact twin (background.h) --> audit_table_add
 *                                                                                             |
 *                                                                        a schema too far from exact: told, or moved up the dial
 *
 * Which request: every n-th, counted on the engine's thread, of those with RP_REUSE_ON that say no quality themselves (and whose prompt says
 * none): what they ask for is theirs to judge, and nothing that is found moves them. Where AUDIT_MAX_WAITING wait already the request is
 * dropped, and counted. An answer waits for nothing: the copy is made when its first token was told.
 *
 * What is found is kept in the store's folder (docs/store.md), unless records are encrypted: names of schemas and modules would stand there
 * in clear. It is written by the store's own thread every AUDIT_WRITE_S seconds at most, and when the engine ends.
 *
 * The lock is below the engine's, and nothing is called while it is held.
 */
#ifndef ENGINE_AUDIT_H
#define ENGINE_AUDIT_H

#include "engine/background/audit_table.h"
#include "engine/observer.h"
#include "reprise_tools.h"

#define AUDIT_MAX_WAITING 8   /* samples whose logits are held */
#define AUDIT_CASE_MODULES 64 /* of a sample; more are not looked at */
#define AUDIT_WRITE_S 60

typedef struct auditor auditor;       /* an engine's; NULL: it does not audit */
typedef struct audit_case audit_case; /* a request that was chosen */

/* Bytes that the logits of all that wait take. */
uint64_t audit_bytes(const rp_engine_options *o, int32_t n_vocab);
/* Behind the store: reads what the store has, if it is this model's. RP_ERR_INVALID, RP_ERR_MEMORY. */
int audit_open(rp_engine *e, const rp_engine_options *o, rp_error *err);
/* The engine's thread is gone; the store writes what was found. */
void audit_close(rp_engine *e);

/* Submitting thread: the lowest quality that the request's schema gives its modules. */
rp_quality audit_least(rp_job *c);

extern const job_observer audit_observer;

#endif
