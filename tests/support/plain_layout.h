/* SPDX-License-Identifier: Apache-2.0 */
/* plain_layout.h: sizes of structs as a program sees them that does not define RP_EXPERIMENTAL. */
#ifndef SUPPORT_PLAIN_LAYOUT_H
#define SUPPORT_PLAIN_LAYOUT_H

#include <stddef.h>

size_t plain_layout_request_bytes(void);
size_t plain_layout_engine_options_bytes(void);

#endif
