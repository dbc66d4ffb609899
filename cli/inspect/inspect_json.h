/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_json.h: models and inspections as one JSON object on standard output. */
#ifndef CLI_INSPECT_JSON_H
#define CLI_INSPECT_JSON_H

#include <stdbool.h>

#include "reprise_tools.h"

/* Both return an exit status. */
int inspect_json_model(const rp_model *model, const rp_memory *memory);
int inspect_json_print(const rp_inspection *in, bool with_prompt);

#endif
