/* SPDX-License-Identifier: Apache-2.0 */
/* engine_metrics.h: the metrics of models and of their engines, for /metrics. */
#ifndef SERVER_ENGINE_METRICS_H
#define SERVER_ENGINE_METRICS_H

#include "server/models/model_pool.h"

/* Appends the families of all models, and those of the engines of loaded ones: with the label `model` if the server has
 * several models. Any thread. Errors of base_buffer_printf. */
int engine_metrics_append(base_buffer *b, model_pool *p) BASE_NODISCARD;

#endif
