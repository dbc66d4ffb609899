/* SPDX-License-Identifier: Apache-2.0 */
/* shared_model.c: see shared_model.h. */
#include "shared_model.h"

#include <string.h>

#include "must.h"
#include "tiny_model.h"
#include "reprise_pml.h"

rp_model *model;
uint64_t column_bytes;

int open_model(void **state) {
    (void)state;
    rp_model_info info = {.struct_size = sizeof(info)};
    tiny_model_shape shape = tiny_model_defaults();
    model = tiny_model_open(&shape, "chatml");
    rp_model_describe(model, &info);
    column_bytes = info.kv_bytes_per_token * 64;
    return 0;
}

int close_model(void **state) {
    (void)state;
    rp_model_close(model);
    return 0;
}

rp_engine *open_engine(const rp_engine_options *options) {
    rp_engine *e;
    rp_error err = {0};
    must(rp_engine_new(&e, model, options, &err), &err);
    return e;
}

void load_schema(rp_engine *engine, const char *pml, const char *file) {
    rp_error err = {0};
    must(rp_schema_parse(engine, pml, strlen(pml), file, NULL, NULL, NULL, &err), &err);
}
