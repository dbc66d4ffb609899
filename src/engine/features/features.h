/* SPDX-License-Identifier: Apache-2.0 */
/* features.h: the table of features (core/job_feature.h). The order is that in which a job's rows are called.
 */
#ifndef ENGINE_FEATURES_H
#define ENGINE_FEATURES_H

#include "engine/core/job_feature.h"

extern const job_feature *const job_features_table[]; /* ends with NULL */

#endif
