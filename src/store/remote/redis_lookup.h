/* SPDX-License-Identifier: Apache-2.0 */
/* redis_lookup.h: network addresses of a host, by a deadline: getaddrinfo has none, and may wait for name servers for
 * half a minute. */
#ifndef STORE_REDIS_LOOKUP_H
#define STORE_REDIS_LOOKUP_H

#include <stdint.h>

#include "reprise.h"

struct addrinfo; /* <netdb.h> */

/* Of TCP, into *out (freeaddrinfo). RP_ERR_IO: errno is EHOSTUNREACH (no such host), ETIMEDOUT or EAGAIN (too many
 * look-ups wait for name servers); RP_ERR_MEMORY. deadline_us: base_clock_us. Any thread. */
int redis_lookup(struct addrinfo **out, const char *host, uint16_t port, uint64_t deadline_us, rp_error *err);

#endif
