/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: messages for whoever runs the program, and a trace by component for whoever works on it.
 *
 * The library prints nothing by itself. Two environment variables, read once, ask for output on standard error:
 *   REPRISE_LOG=error|warn|info|debug    messages up to that level
 *   REPRISE_TRACE=pml,kv|all             trace lines of these components: "kv: take block 17 ..."
 * Thread-safe: a line is written with one write.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#include "base/compiler.h"

typedef enum base_log_level { BASE_LOG_ERROR,
                              BASE_LOG_WARN,
                              BASE_LOG_INFO,
                              BASE_LOG_DEBUG } base_log_level;

/* The components that can be traced: one for each folder of src/. */
#define BASE_COMPONENTS(X) X(BASE, "base") X(KERNELS, "kernels") X(KV, "kv") X(MODEL, "model") \
    X(STORE, "store") X(PML, "pml") X(ENGINE, "engine")
typedef enum base_component {
#define X(id, name) BASE_COMPONENT_##id,
    BASE_COMPONENTS(X)
#undef X
        BASE_COMPONENT_COUNT
} base_component;

bool base_log_enabled(base_log_level level);
void base_log(base_log_level level, const char *fmt, ...) BASE_PRINTF(2, 3);

bool base_trace_enabled(base_component c);
void base_trace_write(base_component c, const char *fmt, ...) BASE_PRINTF(2, 3);

/* TRACE(KV, "take block %d", i): arguments are evaluated only if the component is traced. */
#define BASE_TRACE(id, ...) \
    do { \
        if (BASE_UNLIKELY(base_trace_enabled(BASE_COMPONENT_##id))) \
            base_trace_write(BASE_COMPONENT_##id, __VA_ARGS__); \
    } while (0)

#endif
