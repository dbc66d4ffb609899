/* SPDX-License-Identifier: Apache-2.0 */
/* bench_trace.c: see bench_trace.h. An event is one fprintf, so that events of two threads do not interleave. The first
 * event is always written before the others, so each of those starts with its comma. */
#include "bench/bench_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"

#define BUFFER_BYTES ((size_t)1 << 20) /* few file writes on the engine's thread */
#define ENGINE 1
#define CALLS 2
#define STEPS_TRACK 1

struct bench_trace {
    FILE *file;
    const char *path;
    char *buffer;
    double start_ms;
};

static const char *const kind_names[] = {"module", "prefill", "decode"}; /* in the order of rp_step_kind */

int bench_trace_open(bench_trace **out, const char *path) {
    bench_trace *t = cli_alloc(sizeof *t);
    t->path = path;
    t->start_ms = cli_now_ms();
    t->file = fopen(path, "w");
    if (t->file == NULL) {
        free(t);
        return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno));
    }
    t->buffer = cli_alloc(BUFFER_BYTES);
    setvbuf(t->file, t->buffer, _IOFBF, BUFFER_BYTES);
    fprintf(t->file,
            "[{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"engine\"}},\n"
            "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"calls\"}},\n"
            "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"steps\"}}",
            ENGINE, CALLS, ENGINE, STEPS_TRACK);
    *out = t;
    return CLI_OK;
}

int bench_trace_close(bench_trace *t) {
    if (t == NULL) return CLI_OK;
    fputs("]\n", t->file);
    int status = cli_close_output(t->file, t->path);
    free(t->buffer);
    free(t);
    return status;
}

/* Converts microseconds of the machine's clock to microseconds in the file. */
static double file_us(const bench_trace *t, double us) { return us - t->start_ms * 1e3; }

void bench_trace_call(bench_trace *t, uint64_t call, const char *kind) {
    if (t == NULL) return;
    fprintf(
        t->file,
        ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%llu,\"name\":\"thread_name\",\"args\":{\"name\":\"%s request %llu\"}}",
        CALLS, (unsigned long long)call, kind, (unsigned long long)call);
}

void bench_trace_queue(bench_trace *t, uint64_t call, double start_ms, double ms) {
    if (t == NULL) return;
    fprintf(t->file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%llu,\"name\":\"queue\",\"ts\":%.0f,\"dur\":%.0f}", CALLS,
            (unsigned long long)call, file_us(t, start_ms * 1e3), ms * 1e3);
}

static void write_counters(bench_trace *t, const rp_step *s, const int32_t rows[RP_N_STEP_KINDS], double ts) {
    fprintf(t->file,
            ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"rows\",\"ts\":%.0f,\"args\":{\"decode\":%d,\"prefill\":%d,"
            "\"module\":%d}}",
            ENGINE, ts, (int)rows[RP_STEP_DECODE], (int)rows[RP_STEP_PREFILL], (int)rows[RP_STEP_MODULE]);
    fprintf(t->file,
            ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"calls\",\"ts\":%.0f,\"args\":{\"running\":%d,\"waiting\":%d}}",
            ENGINE, ts, (int)s->n_running, (int)s->n_waiting);
    fprintf(t->file, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"KV bytes\",\"ts\":%.0f,\"args\":{\"bytes\":%llu}}", ENGINE,
            ts, (unsigned long long)s->kv_bytes);
}

void bench_trace_step(bench_trace *t, const rp_step *s) {
    if (t == NULL) return;
    int32_t rows[RP_N_STEP_KINDS] = {0};
    double ts = file_us(t, (double)s->start_us), us = (double)(s->end_us - s->start_us);
    for (int32_t i = 0; i < s->n_parts; i++) rows[s->parts[i].kind] += s->parts[i].n_rows;
    fprintf(t->file,
            ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"step\",\"ts\":%.0f,\"dur\":%.0f,\"args\":{\"number\":%"
            "llu,\"rows\":%d,"
            "\"parts\":%d,\"predicted_us\":%llu,\"actual_us\":%.0f}}",
            ENGINE, STEPS_TRACK, ts, us, (unsigned long long)s->number, (int)(rows[0] + rows[1] + rows[2] + rows[3]),
            (int)s->n_parts, (unsigned long long)s->predicted_us, us);
    for (int32_t i = 0; i < s->n_parts; i++) {
        const rp_step_part *p = &s->parts[i];
        if (p->job == 0) continue; /* a module that no request waits for: in the counters only */
        fprintf(t->file,
                ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%llu,\"name\":\"%s\",\"ts\":%.0f,\"dur\":%.0f,\"args\":{\"rows\":%"
                "d,\"context\":%d}}",
                CALLS, (unsigned long long)p->job, kind_names[p->kind], ts, us, (int)p->n_rows, (int)p->context_tokens);
    }
    write_counters(t, s, rows, ts);
}
