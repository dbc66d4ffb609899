/* SPDX-License-Identifier: Apache-2.0 */
/* answer_stream.h: the engine's side of rp_stream (reprise.h, 'Streams'): answers as a queue of events for another
 * thread.
 *
 *   engine's thread --append, end--> waiting [event | event | ...] <--swap under the lock--> reading --borrowed-->
 *   rp_stream_read
 *                                    text    [..................]
 *
 * Appending never waits for the reader, only for the swap. Text of the job of the last waiting event extends that
 * event, so a stream that nobody reads holds one event for each change of job. The end of a job is never lost: its
 * place is reserved when the job is submitted. Lock order: the engine's lock, then the stream's.
 */
#ifndef SAMPLING_ANSWER_STREAM_H
#define SAMPLING_ANSWER_STREAM_H

#include "reprise.h"

/* Reserves the place of a job's end. RP_ERR_MEMORY. */
int answer_stream_reserve(rp_stream *s, rp_error *err);
/* The job was not submitted. */
void answer_stream_cancel(rp_stream *s);
/* Whole characters. false: out of memory; the job's later text must not be appended either, and its end says so. */
bool answer_stream_append(rp_stream *s, uint64_t tag, const char *text, size_t n);
/* The job's last event. is_incomplete: text was lost. The stream may be freed by another thread once the job can be
   freed. */
void answer_stream_end(rp_stream *s, uint64_t tag, bool is_incomplete);

#endif
