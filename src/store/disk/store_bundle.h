/* SPDX-License-Identifier: Apache-2.0 */
/* store_bundle.h: exports a module of a store to a bundle (record_bundle.h) and imports it into another. Implements
 * rp_store_export and rp_store_import (reprise_store.h); err is not NULL here. */
#ifndef STORE_STORE_BUNDLE_H
#define STORE_STORE_BUNDLE_H

#include "store/disk/store_admin.h"

int store_bundle_export(store_admin *a, const char *name, const char *path, rp_on_progress on_progress, void *user,
                        rp_store_transfer *out, rp_error *err);
int store_bundle_import(store_admin *a, const char *path, rp_on_progress on_progress, void *user,
                        rp_store_transfer *out, rp_error *err);

#endif
