/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_svg.h: drawings of `reprise inspect --svg`. The caller opens and closes the file, and checks its error
 * flag. */
#ifndef CLI_INSPECT_SVG_H
#define CLI_INSPECT_SVG_H

#include <stdio.h>

#include "reprise_tools.h"

/* The prompt's tiles on lanes, gaps hatched (inspect_svg_mosaic.c). */
void inspect_svg_mosaic(FILE *to, const rp_inspection *in);
/* The schema's canonical layout, with nested nodes below their parents (inspect_svg_schema.c). */
void inspect_svg_schema(FILE *to, const rp_inspection *in);

#endif
