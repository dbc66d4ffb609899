/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_forge.h: bundles of random records (record_forge.h), whole, or repaired after a fuzzer's changes. */
#ifndef SUPPORT_BUNDLE_FORGE_H
#define SUPPORT_BUNDLE_FORGE_H

#include "record_forge.h"

/* A bundle of n small records with the label "cities/plan/miami", the last n_reduced of them of reduced spans;
 * with_text: one is a prompt's. Ends the process on failure. */
forged bundle_forge(const char *name, size_t n, size_t n_reduced, bool with_text);
/* Recomputes the checksum of the header, if its sizes permit. */
void bundle_forge_checksum(uint8_t *bytes, size_t n);
/* Sets the sizes that follow from the size of the file: its own, and the last record's. */
void bundle_forge_sizes(uint8_t *bytes, size_t n);

#endif
