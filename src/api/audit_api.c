/* SPDX-License-Identifier: Apache-2.0 */
/* audit_api.c: audit results that an engine wrote to its store's folder, read without an engine. */
#include "api/store.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/background/audit_table.h"
#include "reprise_store.h"

int rp_store_read_audit(rp_store *s, rp_audit **out, char *model, rp_error *err) {
    base_buffer text = {0};
    audit_table *t = NULL;
    base_key fingerprint;
    if (!out) return base_fail(err, RP_ERR_INVALID, "rp_store_read_audit: out is needed");
    *out = NULL;
    int rc = store_check_folder(s, "rp_store_read_audit", err);
    if (rc) return rc;
    if (disk_folder_read_audit(s->admin->folder.dir, AUDIT_MAX_FILE, &text)) return RP_OK;
    rc = audit_table_read(&t, &fingerprint, text.data ? text.data : "", text.len);
    base_buffer_free(&text);
    BASE_ASSERT(!rc == (t != NULL));
    if (rc) return rc == RP_ERR_MEMORY ? base_fail_memory(err, sizeof(rp_audit), "an audit report") : RP_OK;
    if (model) base_key_hex(&fingerprint, model, STORE_KEY_DIGITS);
    rc = audit_table_report(t, out, err);
    audit_table_free(t);
    return rc;
}
