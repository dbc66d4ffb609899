/* SPDX-License-Identifier: Apache-2.0 */
/* plain_layout.c: sizes of structs as a program sees them that does not define RP_EXPERIMENTAL. */
#undef RP_EXPERIMENTAL
#include "plain_layout.h"

#include "reprise.h"

size_t plain_layout_request_bytes(void) { return sizeof(rp_request); }
size_t plain_layout_engine_options_bytes(void) { return sizeof(rp_engine_options); }
