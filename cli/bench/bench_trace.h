/* SPDX-License-Identifier: Apache-2.0 */
/* bench_trace.h: an engine's activity as a Chrome trace: a JSON array of events, for Perfetto (ui.perfetto.dev).
 *
 *   process "engine"   track "steps": one slice a step, with rows, predicted and actual duration; counters rows, calls,
 *                      KV bytes
 *   process "calls"    one track a request: queue, then prefill, module or decode for each step that computed for it
 *
 * Events are written at once and not retained. Thread-safe.
 */
#ifndef CLI_BENCH_TRACE_H
#define CLI_BENCH_TRACE_H

#include "common/console.h"

typedef struct bench_trace bench_trace;

/* Returns an exit status. Times in the file start at this moment. */
int bench_trace_open(bench_trace **out, const char *path);
/* Ends the array. NULL is valid. Returns an exit status. */
int bench_trace_close(bench_trace *t);

/* Names a request's track. kind: "short". The next three functions do nothing if t is NULL. */
void bench_trace_call(bench_trace *t, uint64_t call, const char *kind);
/* The request was queued for ms from start_ms (cli_now_ms) on. */
void bench_trace_queue(bench_trace *t, uint64_t call, double start_ms, double ms);
void bench_trace_step(bench_trace *t, const rp_step *step);

#endif
