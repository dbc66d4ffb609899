/* SPDX-License-Identifier: Apache-2.0 */
/* serve_notify.h: notifies systemd (sd_notify(3)) of the server's state: a datagram to the socket named by
 * NOTIFY_SOCKET. Without that variable, or without a listener, it does nothing. */
#ifndef CLI_SERVE_NOTIFY_H
#define CLI_SERVE_NOTIFY_H

/* "READY=1", "STOPPING=1" */
void serve_notify(const char *state);

#endif
