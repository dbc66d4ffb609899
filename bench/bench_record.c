/* SPDX-License-Identifier: Apache-2.0 */
/* bench_record.c: time to write and read the record of a span, plain and encrypted, against a copy of the same bytes.
 *
 *   bench_record [ROUNDS]     a span of 256 tokens of a 1.1B model (22 layers, 4 heads, 64 dimensions, f16: 5.5 MiB),
 *                             in /tmp
 *
 * The file stays in the page cache: this measures the format and the system's copies, not a disk. Subjects take turns;
 * medians of wall-clock and processor time.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/record_forge.h"
#include "support.h"
#include "support/kv_shapes.h"

#define MAX_ROUNDS 1000

static const kv_shape shape = {KV_SAME(22, 4, 64, 64), .format = RP_KV_F16};

typedef struct bench {
    record_world w;
    record_cipher *cipher;
    kv_span *copy;
    rp_error err;
} bench;

static void write_plain(bench *b) {
    if (record_write(b->w.path, &b->w.format, &b->w.record, b->w.span, NULL, NULL, &b->err))
        bench_die("write", &b->err);
}

static void write_encrypted(bench *b) {
    if (record_write(b->w.other, &b->w.format, &b->w.record, b->w.span, b->cipher, NULL, &b->err))
        bench_die("write", &b->err);
}

/* Reads into the same blocks every time, as from a pool. */
static void read_record(bench *b, const char *path, const record_cipher *cipher) {
    record_reader *r;
    if (record_reader_open(&r, path, &b->w.format, &b->w.record.key, cipher, &b->err)) bench_die("open", &b->err);
    for (int32_t i = 0; i < shape.n_layers; i++)
        if (record_read_layer(r, i, b->copy, &b->err)) bench_die("read", &b->err);
    record_reader_close(r);
}

static void read_plain(bench *b) { read_record(b, b->w.path, NULL); }
static void read_encrypted(bench *b) { read_record(b, b->w.other, b->cipher); }

static void open_plain(bench *b) {
    record_reader *r;
    if (record_reader_open(&r, b->w.path, &b->w.format, &b->w.record.key, NULL, &b->err)) bench_die("open", &b->err);
    record_reader_close(r);
}

static volatile uint64_t sink;

static void each_block(bench *b, bool is_copied) {
    for (int32_t i = 0; i < shape.n_layers; i++)
        for (int32_t k = 0; k < KV_SPAN_BLOCKS; k++) {
            void *from = kv_span_in_place(b->w.span, i, k);
            if (is_copied) memcpy(kv_span_in_place(b->copy, i, k), from, kv_shape_block_bytes(&shape));
            else sink ^= record_checksum_of(&(struct iovec){from, kv_shape_block_bytes(&shape)}, 1).low;
        }
}

static void copy_blocks(bench *b) { each_block(b, true); }
static void check_blocks(bench *b) { each_block(b, false); }

static const struct {
    const char *name;
    void (*run)(bench *b);
} subjects[] = {
    {"copy in RAM", copy_blocks},
    {"checksums in RAM", check_blocks},
    {"write", write_plain},
    {"write, encrypted", write_encrypted},
    {"open and close", open_plain},
    {"read", read_plain},
    {"read, encrypted", read_encrypted},
};

#define N_SUBJECTS (sizeof subjects / sizeof *subjects)

int main(int argc, char **argv) {
    static double wall[N_SUBJECTS][MAX_ROUNDS], cpu[N_SUBJECTS][MAX_ROUNDS];
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    bench b = {.cipher = forge_cipher(7)};
    bench_name = "bench_record";
    if (rounds < 1 || rounds > MAX_ROUNDS) bench_die("rounds: 1 to 1000", NULL);
    record_world_open(&b.w, &(record_plan){.shape = &shape, .n_slots = 256, .seed = 1});
    write_plain(&b);
    record_reader *r;
    if (record_reader_open(&r, b.w.path, NULL, NULL, NULL, &b.err)) bench_die("open", &b.err);
    if (kv_span_restore(&b.copy, b.w.pool, &record_reader_record(r)->form, &b.w.record.key, &b.err))
        bench_die("restore", &b.err);
    record_reader_close(r);
    for (int i = 0; i < rounds; i++)
        for (size_t k = 0; k < N_SUBJECTS; k++) {
            double start = bench_now_s();
            clock_t ticks = clock();
            subjects[k].run(&b);
            cpu[k][i] = (double)(clock() - ticks) / CLOCKS_PER_SEC;
            wall[k][i] = bench_now_s() - start;
        }
    double bytes = (double)record_file_bytes(&b.w.format, &b.w.record, false);
    printf("%.2f MB, median of %d\n", bytes * 1e-6, rounds);
    for (size_t k = 0; k < N_SUBJECTS; k++) {
        double s = bench_median(wall[k], (size_t)rounds), c = bench_median(cpu[k], (size_t)rounds);
        printf("%-18s %8.2f ms %7.0f MB/s   processor %8.2f ms %7.0f MB/s\n", subjects[k].name, s * 1e3,
               bytes / s * 1e-6, c * 1e3, bytes / c * 1e-6);
    }
    kv_span_unref(b.copy);
    record_world_close(&b.w);
    record_cipher_close(b.cipher);
    return 0;
}
