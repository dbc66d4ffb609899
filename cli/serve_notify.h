/* SPDX-License-Identifier: Apache-2.0 */
/* serve_notify.h: tells systemd (sd_notify(3)) how far the server is: a datagram to the socket that NOTIFY_SOCKET names. Without it, and where
 * nobody listens, nothing. */
#ifndef CLI_SERVE_NOTIFY_H
#define CLI_SERVE_NOTIFY_H

/* "READY=1", "STOPPING=1" */
void serve_notify(const char *state);

#endif
