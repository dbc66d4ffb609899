/* SPDX-License-Identifier: Apache-2.0 */
/* web_server.c: see web_server.h. */
#define _GNU_SOURCE /* unshare */
#include "support/web_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 128

static void expect(bool is_true, const char *what) {
    if (is_true) return;
    perror(what);
    abort();
}

void web_server_listen(web_server *s, int n) {
    const int one = 1;
    expect(n <= WEB_SERVER_MAX_PORTS && !s->pid, "web_server_listen");
    for (int i = 0; i < n; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)(s->n_ports ? s->ports[i] : 0))};
        socklen_t length = sizeof(a);
        s->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        expect(s->fds[i] >= 0, "socket");
        setsockopt(s->fds[i], SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        expect(bind(s->fds[i], (struct sockaddr *)&a, length) == 0, "bind");
        expect(listen(s->fds[i], BACKLOG) == 0, "listen");
        expect(getsockname(s->fds[i], (struct sockaddr *)&a, &length) == 0, "getsockname");
        s->ports[i] = ntohs(a.sin_port);
    }
    s->n_ports = n;
}

static void guard(web_server *s) {
    int ends[2];
    char byte;
    expect(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
    s->guard = fork();
    expect(s->guard >= 0, "fork");
    if (s->guard == 0) {
        setpgid(0, 0); /* Ctrl-C is the test's */
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0) continue;
        kill(-s->pid, SIGKILL);
        _exit(0);
    }
    close(ends[0]);
    s->guarded = ends[1];
}

void web_server_start(web_server *s, const char *const *argv) {
    s->pid = fork();
    expect(s->pid >= 0, "fork");
    if (s->pid > 0) {
        setpgid(s->pid, s->pid); /* whichever of the two is first */
        for (int i = 0; i < s->n_ports; i++) close(s->fds[i]);
        guard(s);
        return;
    }
    char sockets[WEB_SERVER_MAX_PORTS * 4] = "";
    setpgid(0, 0);
    for (int i = 0; i < s->n_ports; i++) {
        const size_t n = strlen(sockets);
        dup2(s->fds[i], WEB_SERVER_FIRST_FD + i); /* without FD_CLOEXEC */
        snprintf(sockets + n, sizeof(sockets) - n, "%d;", WEB_SERVER_FIRST_FD + i);
    }
    setenv("NGINX", sockets, 1);
    execv(argv[0], (char *const *)argv);
    perror(argv[0]);
    _exit(127);
}

void web_server_signal(const web_server *s, int signal) { expect(kill(-s->pid, signal) == 0, "kill"); }

void web_server_kill(web_server *s) {
    if (!s->pid) return;
    web_server_signal(s, SIGKILL);
    expect(waitpid(s->pid, NULL, 0) == s->pid, "waitpid");
    kill(s->guard, SIGKILL);
    expect(waitpid(s->guard, NULL, 0) == s->guard, "waitpid");
    close(s->guarded);
    s->pid = 0;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (!f) return;
    fputs(text, f);
    fclose(f);
}

bool web_server_mount(const char *dir, size_t bytes) {
    char text[64];
    const unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWNS) != 0) { /* as the same user, with the rights of a user namespace */
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        write_text("/proc/self/setgroups", "deny");
        snprintf(text, sizeof(text), "%u %u 1\n", user, user);
        write_text("/proc/self/uid_map", text);
        snprintf(text, sizeof(text), "%u %u 1\n", group, group);
        write_text("/proc/self/gid_map", text);
    }
    snprintf(text, sizeof(text), "size=%zu", bytes);
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", dir, "tmpfs", 0, text) == 0;
}

void web_server_unmount(const char *dir) { expect(umount2(dir, MNT_DETACH) == 0, "umount2"); }

const char *web_server_nginx(void) {
    static const char *const paths[] = {"/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx",
                                        "/usr/local/bin/nginx"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (access(paths[i], X_OK) == 0) return paths[i];
    printf("skipped: nginx is not installed\n");
    return NULL;
}

bool web_server_certificate(const char *dir) {
    char command[512];
    snprintf(command, sizeof(command),
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
             "-addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout %s/key.pem -out %s/cert.pem "
             ">%s/openssl.log 2>&1",
             dir, dir, dir);
    if (system(command) == 0) return true;
    printf("skipped: openssl is not installed\n");
    return false;
}
