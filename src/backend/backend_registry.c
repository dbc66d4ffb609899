/* SPDX-License-Identifier: Apache-2.0 */
/* backend_registry.c: see backend_registry.h. */
#include "backend/backend_registry.h"

#include <stdlib.h>
#include <string.h>

#include "backend/split/split_layers.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"

static const backend_row rows[] = {
#define X(name, can) {#name, can, name##_backend_unavailable, name##_backend_new, name##_backend_devices},
    BACKENDS(X)
#undef X
};

/* Made by an option of the backend of a device, that which there is. */
static const backend_row split_row = {.name = "vulkan", .can = BACKEND_ADAPTS | BACKEND_ONE_KV};

const backend_row *backend_find_split(void) { return &split_row; }

#define X(name, can) ", " #name
static const char names[] = BACKENDS(X);
#undef X

#define MAX_NAME 40

/* A name without and the number after its colon. false: not of this form. */
static bool split_name(const char *name, char base[MAX_NAME], int32_t *device) {
    const size_t n = strcspn(name, ":");
    if (n >= MAX_NAME) return false;
    memcpy(base, name, n);
    base[n] = '\0';
    if (name[n] == '\0') return true;
    const size_t digits = strspn(name + n + 1, "0123456789");
    if (digits == 0 || digits > 3 || name[n + 1 + digits] != '\0') return false;
    *device = (int32_t)strtol(name + n + 1, NULL, 10);
    return true;
}

static bool is_auto(const char *name) { return !name || strcmp(name, "auto") == 0; }

static int find(const backend_row **out, const char *name, const model_network *net, int32_t *device, rp_error *err) {
    const char *reason = NULL;
    char wanted[MAX_NAME] = "";
    *out = NULL;
    *device = BACKEND_ANY_DEVICE;
    bool is_known = is_auto(name) || split_name(name, wanted, device);
    for (size_t i = 0; i < BASE_ARRAY_LEN(rows) && !*out && is_known; i++) {
        if (is_auto(name) ? !(rows[i].can & BACKEND_AUTO) : strcmp(wanted, rows[i].name) != 0) continue;
        const char *why = rows[i].unavailable(net, *device);
        if (!why) *out = &rows[i];
        else if (!reason || strcmp(rows[i].name, "cpu") == 0) reason = why; /* the CPU computes most networks */
    }
    if (*out) return RP_OK;
    if (!reason)
        return base_fail(err, RP_ERR_NAME, "there is no device '%.40s': give auto, one of %s, or vulkan:N", name,
                         names + 2);
    return base_fail(err, RP_ERR_UNSUPPORTED, "device '%.40s' is unavailable: %s", name ? name : "auto", reason);
}

int backend_find(const backend_row **out, const char *name, const model_network *net, rp_error *err) {
    int32_t device;
    return find(out, name, net, &device, err);
}

static size_t devices_of(const backend_row *row, rp_device *out, size_t most) {
    const size_t n = row->devices(out, most);
    for (size_t i = 0; i < BASE_MIN(n, most); i++) {
        out[i].is_automatic = (row->can & BACKEND_AUTO) != 0;
    }
    return n;
}

size_t backend_devices(rp_device *out, size_t most) {
    size_t n = 0;
    for (size_t i = BASE_ARRAY_LEN(rows); i-- > 0;) { /* the last row that has any is the processor's */
        const size_t left = n < most ? most - n : 0;
        n += devices_of(&rows[i], left ? out + n : NULL, left);
    }
    return n;
}

int backend_open(backend **out, const char *name, const model_network *net, const backend_options *options,
                 rp_error *err) {
    const backend_row *row;
    backend_options own = *options;
    *out = NULL;
    int rc = find(&row, name, net, &own.device, err);
    if (!rc && own.host_layers == 0) rc = row->open(out, net, &own, err);
    else if (!rc) {
        rc = split_backend_new(out, row, net, &own, err);
        row = &split_row;
    }
    BASE_ASSERT(rc || ((row->can & BACKEND_STUDIES) != 0) == ((*out)->ops->study != NULL));
    BASE_ASSERT(rc || ((row->can & BACKEND_ADAPTS) != 0) == ((*out)->ops->adapt != NULL));
    BASE_ASSERT(rc || ((row->can & BACKEND_ONE_KV) == 0) == ((*out)->ops->encode != NULL));
    BASE_ASSERT(rc || !model_is_recurrent(net) || (*out)->ops->recurrence);
    BASE_ASSERT(rc || ((*out)->ops->submit != NULL) == ((*out)->ops->finish != NULL));
    return rc;
}
