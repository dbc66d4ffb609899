/* SPDX-License-Identifier: Apache-2.0 */
/* serve_notify.c: see serve_notify.h. Owns nothing. One thread. */
#define _GNU_SOURCE /* SOCK_CLOEXEC */

#include "serve_notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void serve_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path != NULL ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = '\0'; /* an abstract socket */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)(const void *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}
