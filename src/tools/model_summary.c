/* SPDX-License-Identifier: Apache-2.0 */
/* model_summary.c: rp_model_summarize and rp_model_measure: what the header of a GGUF file says. Owns nothing. Any
   thread. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/sized.h"
#include "model/gguf/gguf.h"
#include "model/model.h"
#include "reprise_tools.h"

/* llama.cpp's llama_ftype, by number. */
static const char *const file_types[] = {
    [0] = "F32",
    [1] = "F16",
    [2] = "Q4_0",
    [3] = "Q4_1",
    [7] = "Q8_0",
    [8] = "Q5_0",
    [9] = "Q5_1",
    [10] = "Q2_K",
    [11] = "Q3_K_S",
    [12] = "Q3_K_M",
    [13] = "Q3_K_L",
    [14] = "Q4_K_S",
    [15] = "Q4_K_M",
    [16] = "Q5_K_S",
    [17] = "Q5_K_M",
    [18] = "Q6_K",
    [19] = "IQ2_XXS",
    [20] = "IQ2_XS",
    [21] = "Q2_K_S",
    [22] = "IQ3_XS",
    [23] = "IQ3_XXS",
    [24] = "IQ1_S",
    [25] = "IQ4_NL",
    [26] = "IQ3_S",
    [27] = "IQ3_M",
    [28] = "IQ2_S",
    [29] = "IQ2_M",
    [30] = "IQ4_XS",
    [31] = "IQ1_M",
    [32] = "BF16",
    [36] = "TQ1_0",
    [37] = "TQ2_0",
    [38] = "MXFP4",
};

/* The type of most bytes; NULL: no tensors. */
static const char *main_tensor_type(const gguf_file *f) {
    uint64_t by_type[KERNEL_TYPE_END] = {0};
    kernel_type best = KERNEL_F32;
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        by_type[t->type] += t->bytes;
        if (by_type[t->type] > by_type[best]) best = t->type;
    }
    return gguf_n_tensors(f) > 0 ? kernel_type_name(best) : NULL;
}

int rp_model_summarize(const char *path, rp_model_summary *out, rp_error *err) {
    gguf_file *f;
    gguf_string name;
    uint64_t number;
    const char *type = NULL;
    int rc = !path ? base_fail(err, RP_ERR_INVALID, "rp_model_summarize: path is needed")
                   : base_sized_check(out, "rp_model_summary", err);
    if (!rc) rc = gguf_open(&f, path, err);
    if (rc) return rc;
    rp_model_summary s = {.is_supported = false};
    if (gguf_get_string(f, "general.architecture", &name)) {
        snprintf(s.architecture, sizeof(s.architecture), "%.*s", (int)BASE_MIN(name.n, sizeof(s.architecture) - 1),
                 name.bytes);
        s.is_supported = model_arch_find(name.bytes, (size_t)name.n) != NULL;
    }
    if (gguf_get_u64(f, "general.file_type", &number) && number < BASE_ARRAY_LEN(file_types)) type = file_types[number];
    if (!type) type = main_tensor_type(f);
    snprintf(s.weights, sizeof(s.weights), "%s", type ? type : "");
    gguf_close(f);
    base_sized_write(out, &s, sizeof(s));
    return RP_OK;
}

int rp_model_measure(const char *path, uint64_t *bytes, uint64_t *padded_bytes, rp_error *err) {
    if (!path || !bytes || !padded_bytes)
        return base_fail(err, RP_ERR_INVALID, "rp_model_measure: path, bytes and padded_bytes are needed");
    return gguf_measure(path, bytes, padded_bytes, err);
}
