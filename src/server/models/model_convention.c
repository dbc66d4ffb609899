/* SPDX-License-Identifier: Apache-2.0 */
/* model_convention.c: see model_convention.h. Owns nothing. */
#include "server/models/model_convention.h"

#include <string.h>

#include "reprise_chat.h"

model_convention model_convention_of(const rp_model *model) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    const size_t n = info.chat_template ? strlen(info.chat_template) : 0;
    return (model_convention){tool_convention_detect(info.chat_template, n, info.chat_format),
                              rp_model_writes_control_marks(model)};
}
