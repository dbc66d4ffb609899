/* SPDX-License-Identifier: Apache-2.0 */
/* model_quantize.h: quantized copy of a model. The types and rules are those of rp_model_quantize (reprise.h). */
#ifndef MODEL_MODEL_QUANTIZE_H
#define MODEL_MODEL_QUANTIZE_H

#include "reprise_tools.h"

/* options: not NULL. Errors as rp_model_quantize. */
int model_quantize(const char *in, const char *out, const char *type, const rp_quantize_options *options, rp_error *err);

#endif
