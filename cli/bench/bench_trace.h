/* SPDX-License-Identifier: Apache-2.0 */
/* bench_trace.h: what an engine did and when, as a Chrome trace: a JSON array of events that Perfetto (ui.perfetto.dev) opens.
 *
 *   process "engine"   track "steps": one slice a step, with rows, predicted and actual duration; counters rows, calls, state bytes
 *   process "calls"    one track a call: queue, then prefill, module or decode for each step that computed for it
 *
 * Events are written as they happen and not kept. Functions may be called by any thread.
 */
#ifndef CLI_BENCH_TRACE_H
#define CLI_BENCH_TRACE_H

#include "common/console.h"

typedef struct bench_trace bench_trace;

/* Returns an exit status. Times in the file count from now. */
int bench_trace_open(bench_trace **out, const char *path);
/* Ends the array. NULL is fine. Returns an exit status. */
int bench_trace_close(bench_trace *t);

/* Names a call's track. kind: "short". The three below do nothing if t is NULL. */
void bench_trace_call(bench_trace *t, uint64_t call, const char *kind);
/* The call waited from start_ms (of cli_now_ms) for ms. */
void bench_trace_queue(bench_trace *t, uint64_t call, double start_ms, double ms);
void bench_trace_step(bench_trace *t, const rp_step *step);

#endif
