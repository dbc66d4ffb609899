/* SPDX-License-Identifier: Apache-2.0 */
/* redis_server.h: servers of Debian's redis-server and redis-sentinel, and a scripted one, each a process or a thread
 * of the test, on a port of its own of 127.0.0.1. */
#ifndef SUPPORT_REDIS_SERVER_H
#define SUPPORT_REDIS_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "support/store_folder.h"

typedef struct redis_server {
    pid_t pid;
    int port, log; /* log: its output */
    char folder[STORE_FOLDER_BYTES];
} redis_server;

/* Is the program installed? If not, a line has the reason for a test that is skipped. */
bool redis_server_is_here(const char *program);
/* Starts it with `options` (a command line's, in which %d is its port and %s its folder), and waits until it accepts
 * connections; not to disk. Another port if that one is taken. The test ends if it cannot be started. */
void redis_server_start(redis_server *s, const char *options);
/* The same for a Sentinel, with lines of its configuration. */
void redis_sentinel_start(redis_server *s, const char *configuration);
void redis_server_signal(const redis_server *s, int signal);
void redis_server_kill(redis_server *s);                         /* SIGKILL, and waits */
void redis_server_restart(redis_server *s, const char *options); /* after a kill, on the same port */
void redis_server_stop(redis_server *s);                         /* also its folder; a killed one is fine */
int redis_server_free_port(void);

/* A command by redis-cli: its reply, of at most 64 KiB, static. options: of redis-cli, as "-a secret". */
const char *redis_server_ask(int port, const char *options, const char *command);
/* Asks until the reply contains `text`; the test ends if it does not in 30 s. */
void redis_server_await(int port, const char *options, const char *command, const char *text);

/* A server that answers the first bytes of each connection with a script. */
typedef struct scripted_server {
    const char *script;
    size_t n;
    bool repeats; /* the script, until the connection is closed; else the server closes it, or holds */
    bool holds;
    int fd, port;
    pthread_t thread;
} scripted_server;

void scripted_server_start(scripted_server *s, const char *script, size_t n, bool repeats, bool holds);
void scripted_server_stop(scripted_server *s);

#endif
