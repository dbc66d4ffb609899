/* SPDX-License-Identifier: Apache-2.0 */
/* pool_object.h: a record in a pool, read by ranges: its headers first, then its layers, as a record_source.
 *
 *   [first POOL_HEAD_BYTES] many at once (pool_driver.h), then, for those that are wanted, piece by piece:
 *   [MiB 0][MiB 1][MiB 2] ...        each read once, into a buffer of the object
 *
 * Nothing that comes from a pool is trusted: its record must be encrypted with the cipher that is given, of the format
 * that is given, and contain the key that is asked for; each layer has a checksum (record/record.h).
 */
#ifndef STORE_POOL_OBJECT_H
#define STORE_POOL_OBJECT_H

#include "store/record/record_row.h"
#include "store/remote/pool_driver.h"

#define POOL_HEAD_BYTES ((size_t)8 << 10)

/* The headers of a record whose first n bytes are head. row: base_free. RECORD_FAULT_IO: *cause is its errno. */
record_fault pool_object_look(record_row **row, pool_link *link, const char *name, uint64_t deadline_us, uint8_t *head,
                              size_t n, const record_format *format, const base_key *key, const record_cipher *cipher,
                              int *cause, rp_error *err);
/* Reads a record into a span of kv_span_restore with its form; each layer is ready when its checksum is right. *bytes:
 * that were read. The caller sets the span failed. */
record_fault pool_object_pull(kv_span *span, pool_link *link, const char *name, uint64_t deadline_us,
                              const record_format *format, const base_key *key, const record_cipher *cipher,
                              uint64_t *bytes, int *cause, rp_error *err);

#endif
