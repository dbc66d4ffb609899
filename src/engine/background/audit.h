/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h: the auditor recomputes one request in `every` in full, in the background, and compares the logits of its
 * first token. Requests with views that are not exact are chosen, for reuse; and those with KV below 16 bits, for its
 * format.
 *
 *   caller's thread   plan, at a quality no lower than the one that the auditor raised the schema to, without reduced
 *         KV
 *                     (reductions_plan), and in f16 where a format was too inexact (engine_use_schema)
 *   engine's thread   first token's logits --audit_look: copied--> job ends --audit_end--> exact twin (background.h)
 *                                                                                                  |
 *                     a schema too far from exact: logged, or raised to the next quality <-- audit_table_add
 *                                                                                                  |
 *                     a format too far from f16: logged, or no longer used <-- audit_format_add <- twin in f16
 *
 * The exact twin has the request's formats: the KV of module tokens is in their modules' formats. Its distance from the
 * answer is therefore that of reuse alone, and its distance from the twin in f16 that of the formats alone. A request
 * without inexact views is itself the exact run in its formats, and has the second twin only.
 *
 * Requests with automatic modules (RP_REUSE_AUTO) are judged like those of a schema: one for each text that prompts
 * begin with, named AUDIT_AUTO and the first digits of a hash of that text. There is one step above them: exact, which
 * is no automatic modules.
 *
 * Sampling: every n-th, counted on the engine's thread, of the requests with RP_REUSE_ON that set no quality themselves
 * (nor does their prompt): their caller has chosen the quality, and no audit changes it. Every n-th, too, of the other
 * requests with KV below 16 bits. If AUDIT_MAX_WAITING samples
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
#include "engine/core/observer.h"
#include "reprise.h"
#include "reprise_pml.h"

#define AUDIT_MAX_WAITING 8   /* samples with held logits */
#define AUDIT_CASE_MODULES 64 /* of a sample; further ones are ignored */
#define AUDIT_WRITE_S 60
#define AUDIT_AUTO "automatic modules "

typedef struct auditor auditor;       /* of one engine; NULL: it does not audit */
typedef struct audit_case audit_case; /* a chosen request */

/* Bytes of the logits of all waiting samples. */
uint64_t audit_bytes(const rp_engine_options *o, int32_t n_vocab);
/* Called after the store is opened: loads the store's table if it is of this model. RP_ERR_INVALID, RP_ERR_MEMORY. */
int audit_open(rp_engine *e, const rp_engine_options *o, rp_error *err);
/* Called after the engine's thread has ended; the store writes the table. */
void audit_close(rp_engine *e);

/* Any thread: are the modules of that schema in f16, because their formats were too inexact? */
bool audit_falls_back(const rp_engine *e, const rp_schema *s);
/* Submitting thread: the lowest quality that the request's schema may give its modules. Notes how far that is
   raised. */
rp_quality audit_least(rp_job *c);
/* After that: does the request use no reduced KV, because its schema was raised? */
bool audit_ignores_keep(const rp_job *c);
/* Any thread: was a schema raised so far that its reduced KV is not used? */
bool audit_needs_full(const rp_engine *e, const rp_schema *s);

/* Any thread: may prompts that begin like the job's have automatic modules (auto_modules.h)? */
bool audit_allows_auto(const rp_job *c);

extern const job_observer audit_observer;

#endif
