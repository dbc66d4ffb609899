/* SPDX-License-Identifier: Apache-2.0 */
/* test_hostile.c: every template of an attacker ends within the limit of steps, in less than 2 s, and can be cancelled
 * soon. Prints the slowest one, and how many ran out of steps and memory.
 *
 *   test_hostile [--seed N] [--rounds N] [--seconds N]
 *   test_hostile --seed N --print       the template of that seed, for other programs
 *   REPRISE_TEST_SEED, REPRISE_TEST_ROUNDS: likewise
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <signal.h>
#include <unistd.h>

#include "reprise.h"
#include "reprise_chat.h"
#include "support/hostile_template.h"
#include "support/seed.h"

/* Seconds of the processor, not of the clock, which other programs share. A sanitizer's build takes ten times as
   long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
#define MOST_SECONDS 40.0
#else
#define MOST_SECONDS 2.0
#endif
#define ENDLESS_SECONDS 60
#define CANCELLED_ONE_IN 4
#define MOST_UNASKED_SECONDS (MOST_SECONDS / 4) /* between two questions whether the rendering is cancelled */
#define FIXED_ROUNDS 40                         /* a tenth of a second each */
#define FIXED_SEED 46

typedef struct watch {
    double asked, longest; /* CPU seconds */
    int questions, cancel_at;
} watch;

static uint64_t running; /* the seed of the template that is being rendered */

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void on_endless(int signal) {
    char line[80];
    (void)signal;
    int n =
        snprintf(line, sizeof(line), "\nseed %llu: no end after %d s\n", (unsigned long long)running, ENDLESS_SECONDS);
    if (write(STDOUT_FILENO, line, (size_t)n) < 0) _exit(2);
    _exit(1);
}

static void watch_see(watch *w) {
    const double now = cpu_seconds();
    if (now - w->asked > w->longest) w->longest = now - w->asked;
    w->asked = now;
}

static bool goes_on(void *user) {
    watch *w = user;
    watch_see(w);
    return ++w->questions != w->cancel_at;
}

typedef struct totals {
    uint64_t n, refused, rendered, failed, steps, memory, cancelled;
    double slowest, unasked, all;
    uint64_t slowest_seed, unasked_seed;
} totals;

static int render(const rp_template *t, watch *w, rp_error *err) {
    rp_template_options o = rp_template_options_defaults();
    rp_template_text *text = NULL;
    o.on_look = goes_on;
    o.user = w;
    w->asked = cpu_seconds();
    const int rc = rp_template_render(t, hostile_template_input, strlen(hostile_template_input), &o, &text, err);
    watch_see(w);
    rp_template_text_free(text);
    return rc;
}

/* false: not as it must be. */
static bool try_one(uint64_t seed, totals *all) {
    char source[HOSTILE_TEMPLATE_BYTES];
    rp_template *t;
    rp_error err = {0};
    watch w = {0}, cancelled = {0};
    hostile_template_make(seed, source);
    all->n++;
    if (rp_template_new(&t, source, strlen(source), "t", &err)) {
        all->refused++;
        return true;
    }
    running = seed;
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value = {.tv_sec = ENDLESS_SECONDS}}, NULL);
    const double begin = cpu_seconds();
    const int rc = render(t, &w, &err);
    const double took = cpu_seconds() - begin;
    bool good = took < MOST_SECONDS && w.longest < MOST_UNASKED_SECONDS;
    if (!good)
        printf("seed %llu: took %.2f s, %.2f s of it without a look: %s\n", (unsigned long long)seed, took, w.longest,
               source);
    if (rc == RP_ERR_LIMIT && strstr(err.message, "steps")) all->steps++;
    else if (rc == RP_ERR_LIMIT || rc == RP_ERR_MEMORY) all->memory++;
    else if (rc) all->failed++;
    else all->rendered++;
    if (rc && rc != RP_ERR_LIMIT && rc != RP_ERR_INVALID)
        good = printf("seed %llu: error %d, %s\n", (unsigned long long)seed, rc, err.message) < 0;
    all->all += took;
    if (took > all->slowest) all->slowest = took, all->slowest_seed = seed;
    if (w.longest > all->unasked) all->unasked = w.longest, all->unasked_seed = seed;
    if (w.questions > 2 && seed % CANCELLED_ONE_IN == 0) {
        cancelled.cancel_at = 1 + (int)(seed / CANCELLED_ONE_IN % (uint64_t)(w.questions - 1));
        if (render(t, &cancelled, &err) != RP_ERR_CANCELLED || cancelled.questions != cancelled.cancel_at)
            good = printf("seed %llu: not cancelled at look %d: %s\n", (unsigned long long)seed, cancelled.cancel_at,
                          err.message) < 0;
        all->cancelled++;
    }
    rp_template_free(t);
    return good;
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return strtoull(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv) {
    char source[HOSTILE_TEMPLATE_BYTES];
    totals all = {0};
    uint64_t bad = 0;
    uint64_t seed = option(argc, argv, "--seed", UINT64_MAX);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--print") != 0) continue;
        hostile_template_make(seed, source);
        fputs(source, stdout);
        return 0;
    }
    if (seed == UINT64_MAX) seed = test_seed("test_hostile", FIXED_SEED);
    const uint64_t seconds = option(argc, argv, "--seconds", 0),
                   rounds =
                       option(argc, argv, "--rounds", seconds > 0 ? UINT64_MAX : (uint64_t)test_rounds(FIXED_ROUNDS));
    const time_t end = time(NULL) + (time_t)seconds;
    signal(SIGVTALRM, on_endless);
    for (uint64_t i = 0; i < rounds && (seconds == 0 || time(NULL) < end); i++) bad += !try_one(seed + i, &all);
    printf("%llu templates: %llu rendered, %llu failed, %llu ran out of steps, %llu of memory, %llu refused; %llu "
           "cancelled\n",
           (unsigned long long)all.n, (unsigned long long)all.rendered, (unsigned long long)all.failed,
           (unsigned long long)all.steps, (unsigned long long)all.memory, (unsigned long long)all.refused,
           (unsigned long long)all.cancelled);
    printf("slowest %.3f s (seed %llu), longest without a look %.3f s (seed %llu), %.1f s in all; %llu bad\n",
           all.slowest, (unsigned long long)all.slowest_seed, all.unasked, (unsigned long long)all.unasked_seed,
           all.all, (unsigned long long)bad);
    return bad > 0;
}
