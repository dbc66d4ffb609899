/* SPDX-License-Identifier: Apache-2.0 */
/* web_server.h: a server that a test starts as a process of its own, such as nginx, and stops in every way.
 *
 * Its sockets are bound by the test and inherited, so that it can be reached as soon as it was started, and its ports
 * are nobody else's. It ends with the test. */
#ifndef TESTS_WEB_SERVER_H
#define TESTS_WEB_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WEB_SERVER_MAX_PORTS 4
#define WEB_SERVER_FIRST_FD 10 /* of its sockets, in the order of its ports */

typedef struct web_server {
    pid_t pid;   /* 0: it does not run */
    pid_t guard; /* kills it and its own processes when the test has died */
    int guarded; /* the test's end of a pipe */
    int n_ports, ports[WEB_SERVER_MAX_PORTS];
    int fds[WEB_SERVER_MAX_PORTS]; /* until it was started */
} web_server;

/* Binds n ports of 127.0.0.1; those that it has already, if it has. */
void web_server_listen(web_server *s, int n);
/* Runs a program, argv[0] as a path. Its environment has NGINX, as nginx wants it. */
void web_server_start(web_server *s, const char *const *argv);
/* SIGSTOP, SIGCONT, ...: to it and its own processes. */
void web_server_signal(const web_server *s, int signal);
/* SIGKILL, and waits for its end. */
void web_server_kill(web_server *s);

/* Mounts a small file system at a folder, for this process and those that it starts. false: not allowed. */
bool web_server_mount(const char *dir, size_t bytes);
void web_server_unmount(const char *dir);
/* nginx's path, or NULL and a message: it is not installed. */
const char *web_server_nginx(void);
/* A key and a certificate for 127.0.0.1 and localhost: DIR/key.pem, DIR/cert.pem. false: openssl is missing. */
bool web_server_certificate(const char *dir);

#endif
