/* SPDX-License-Identifier: Apache-2.0 */
/* redis_server.c: see redis_server.h. */
#define _GNU_SOURCE /* pipe2 */
#include "support/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

#define LINE_BYTES 2048
#define WAIT_US 30000000
#define TRIES 5

bool redis_server_is_here(const char *program) {
    char command[LINE_BYTES];
    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
    if (system(command) == 0) return true;
    print_message("skipped: %s is not installed\n", program);
    return false;
}

int redis_server_free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* Reads its output up to a text. false: it ended, or time is over. */
static bool await_output(const redis_server *s, const char *text) {
    char seen[1 << 16];
    size_t n = 0;
    const uint64_t deadline_us = base_clock_us() + WAIT_US;
    while (n < sizeof(seen) - 1 && base_clock_us() < deadline_us) {
        struct pollfd p = {.fd = s->log, .events = POLLIN};
        if (poll(&p, 1, 1000) <= 0) continue;
        const ssize_t k = read(s->log, seen + n, sizeof(seen) - 1 - n);
        if (k <= 0) break;
        n += (size_t)k;
        seen[n] = '\0';
        if (strstr(seen, text)) return true;
    }
    return false;
}

/* A command of the shell, which it replaces. */
static void spawn(redis_server *s, const char *command) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    s->log = ends[0];
}

void redis_server_kill(redis_server *s) {
    if (s->pid <= 0) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    close(s->log);
    s->pid = 0;
}

static bool try_start(redis_server *s, const char *program, const char *ready, const char *options) {
    char command[LINE_BYTES], all[LINE_BYTES];
    snprintf(all, sizeof(all), "exec %s %s", program, options);
    char *out = command;
    const char *const end = command + sizeof(command);
    for (const char *c = all; *c && out < end - STORE_FOLDER_BYTES; c++) { /* %d and %s, each as often as it occurs */
        if (c[0] == '%' && c[1] == 'd') out += snprintf(out, STORE_FOLDER_BYTES, "%d", s->port), c++;
        else if (c[0] == '%' && c[1] == 's') out += snprintf(out, STORE_FOLDER_BYTES, "%s", s->folder), c++;
        else *out++ = *c;
    }
    *out = '\0';
    spawn(s, command);
    if (await_output(s, ready)) return true;
    redis_server_kill(s);
    return false;
}

#define SERVER "redis-server --bind 127.0.0.1 --dir %s --save '' --appendonly no --repl-diskless-sync-delay 0"
#define SERVER_IS_READY "Ready to accept connections"

void redis_server_start(redis_server *s, const char *options) {
    store_folder_make(s->folder);
    for (int i = 0; i < TRIES; i++) {
        s->port = redis_server_free_port();
        if (try_start(s, SERVER, SERVER_IS_READY, options)) return;
    }
    fail_msg("redis-server does not start with %s", options);
}

void redis_server_restart(redis_server *s, const char *options) {
    if (!try_start(s, SERVER, SERVER_IS_READY, options)) fail_msg("redis-server does not start again");
}

void redis_sentinel_start(redis_server *s, const char *configuration) {
    char path[STORE_FOLDER_BYTES + 16];
    store_folder_make(s->folder);
    for (int i = 0; i < TRIES; i++) {
        s->port = redis_server_free_port();
        snprintf(path, sizeof(path), "%s/sentinel.conf", s->folder);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "bind 127.0.0.1\nport %d\ndir %s\n%s", s->port, s->folder, configuration);
        fclose(f);
        if (try_start(s, "redis-sentinel %s/sentinel.conf", "+monitor master", "")) return;
    }
    fail_msg("redis-sentinel does not start");
}

void redis_server_signal(const redis_server *s, int signal) { kill(s->pid, signal); }

void redis_server_stop(redis_server *s) {
    redis_server_kill(s);
    store_folder_remove(s->folder);
}

const char *redis_server_ask(int port, const char *options, const char *command) {
    static char reply[1 << 16];
    char line[LINE_BYTES];
    snprintf(line, sizeof(line), "redis-cli --no-auth-warning -p %d %s %s 2>&1", port, options, command);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    reply[fread(reply, 1, sizeof(reply) - 1, f)] = '\0';
    pclose(f);
    return reply;
}

void redis_server_await(int port, const char *options, const char *command, const char *text) {
    const uint64_t deadline_us = base_clock_us() + WAIT_US;
    const char *reply;
    while (!strstr(reply = redis_server_ask(port, options, command), text))
        if (base_clock_us() > deadline_us) fail_msg("%s: '%s' has no '%s'", command, reply, text);
}

/* ---- a scripted one ---- */

/* Ends when the client has closed the connection, or the server stops. */
static void answer(const scripted_server *s, int fd) {
    char bytes[4096];
    if (recv(fd, bytes, sizeof(bytes), 0) <= 0) return;
    do {
        for (size_t at = 0; at < s->n;) {
            const ssize_t k = send(fd, s->script + at, s->n - at, MSG_NOSIGNAL);
            if (k <= 0) return;
            at += (size_t)k;
        }
    } while (s->repeats);
    while (s->holds && recv(fd, bytes, sizeof(bytes), 0) > 0) {}
}

static void *serve(void *arg) {
    const scripted_server *s = arg;
    for (int fd; (fd = accept(s->fd, NULL, NULL)) >= 0; close(fd)) answer(s, fd);
    return NULL;
}

void scripted_server_start(scripted_server *s, const char *script, size_t n, bool repeats, bool holds) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(a);
    *s = (scripted_server){.script = script, .n = n, .repeats = repeats, .holds = holds};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s->fd, 16), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &size), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* After its clients have closed their connections. */
void scripted_server_stop(scripted_server *s) {
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
}
