/* SPDX-License-Identifier: Apache-2.0 */
/* model_convention.h: the convention of a model (tool_conventions.h), and whether its marks are control tokens. Any
   thread. */
#ifndef SERVER_MODEL_CONVENTION_H
#define SERVER_MODEL_CONVENTION_H

#include "reprise.h"
#include "structured/tool_conventions.h"

typedef struct model_convention {
    tool_convention convention;
    bool special_text; /* for rp_request: some of its marks are control tokens, which have no text otherwise */
} model_convention;

model_convention model_convention_of(const rp_model *model);

#endif
