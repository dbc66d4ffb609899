/* SPDX-License-Identifier: Apache-2.0 */
/* deferred_backend.h: a backend as a device has it: operations return at once, and a thread of its own computes them in
 * order with another backend. buffer_read, begin, and what reads KV or states wait for all operations before them.
 *
 * What an operation borrows from the stack of its caller (arrays of pointers, indices) is copied by the call, as a
 * device must.
 */
#ifndef SUPPORT_DEFERRED_BACKEND_H
#define SUPPORT_DEFERRED_BACKEND_H

#include "backend/backend.h"

/* Takes the backend over. A failure ends the program. */
backend *deferred_backend_new(backend *inner);
/* While closed, the thread computes nothing: calls that wait would never return. */
void deferred_backend_close_gate(backend *b);
void deferred_backend_open_gate(backend *b);
uint64_t deferred_backend_computed(backend *b); /* operations so far */

#endif
