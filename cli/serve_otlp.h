/* SPDX-License-Identifier: Apache-2.0 */
/* serve_otlp.h: spans of requests for OpenTelemetry (`serve --otlp`), sent over OTLP/HTTP in JSON.
 *
 *   request's end -> serve_otlp_add -> a ring of OTLP_RING records -> the sender's thread: batch -> POST URL/v1/traces
 *                    (never waits)      full: the record is dropped     refused for a time: the batch is sent again
 *                                       and counted                    refused for good: dropped and counted
 *
 *   POST /v1/chat/completions                   SERVER; child of the request's traceparent
 *     |- queue |- module prefill |- plan |- prompt prefill |- decode        INTERNAL, one after the other
 *
 * Sampling is OpenTelemetry's parent-based one by trace id: a traceparent's sampled flag decides for its trace, and of
 * the traces that begin here --otlp-sample of them is exported. serve_otlp_add and serve_otlp_metrics: any thread.
 */
#ifndef CLI_SERVE_OTLP_H
#define CLI_SERVE_OTLP_H

#include "reprise_server.h"

typedef struct serve_otlp serve_otlp;

/* url: the collector, to which /v1/traces is added. sample: 0 to 1, the share of traces without a parent. Starts the
 * thread; the collector need not run yet. Returns an exit status. */
int serve_otlp_start(serve_otlp **out, const char *url, double sample);
/* For rp_server_options.on_request and on_metrics; user: the serve_otlp. */
void serve_otlp_add(void *user, const rp_server_request *request);
void serve_otlp_metrics(void *user, char *text, size_t size);
/* Sends what is in the ring, in one attempt, and frees everything. NULL: nothing. After rp_server_free. */
void serve_otlp_stop(serve_otlp *o);

#endif
