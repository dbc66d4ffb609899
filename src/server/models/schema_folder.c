/* SPDX-License-Identifier: Apache-2.0 */
/* schema_folder.c: see schema_folder.h. */
#define _DEFAULT_SOURCE /* PATH_MAX */
#include "server/models/schema_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"

#define DIGITS 64
#define SUFFIX ".json"
#define MAX_FILE_BYTES ((size_t)256 << 20)
#define NAME_BYTES (DIGITS + sizeof(SUFFIX))

struct schema_folder {
    char *path;
};

int schema_folder_new(schema_folder **out, const char *path, rp_error *err) {
    *out = NULL;
    char real[PATH_MAX];
    int rc = base_io_resolve(path, real, sizeof(real), err);
    if (!rc) rc = base_io_mkdir(real, err);
    if (rc) return rc;
    schema_folder *f = base_calloc(1, sizeof(*f));
    if (!f || !(f->path = base_strdup(real))) {
        base_free(f);
        return base_fail_memory(err, strlen(real), "a folder of schemas");
    }
    *out = f;
    return RP_OK;
}

void schema_folder_free(schema_folder *f) {
    if (!f) return;
    base_free(f->path);
    base_free(f);
}

/* ---- paths ---- */

static int path_to(const schema_folder *f, const char *file, char **out, rp_error *err) {
    size_t n = strlen(f->path) + 1 + strlen(file) + 1;
    *out = base_alloc(n);
    if (!*out) return base_fail_memory(err, n, "a path");
    snprintf(*out, n, "%s/%s", f->path, file);
    return RP_OK;
}

static int path_of(const schema_folder *f, const char *tenant, const char *name, char **out, rp_error *err) {
    char file[NAME_BYTES];
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise schema file 1");
    base_hash_bytes(&h, tenant ? tenant : "", tenant ? strlen(tenant) : 0);
    base_hash_bytes(&h, name, strlen(name));
    base_hash_final(&h, &key);
    base_key_hex(&key, file, DIGITS);
    memcpy(file + DIGITS, SUFFIX, sizeof(SUFFIX));
    BASE_ASSERT(strlen(file) == NAME_BYTES - 1);
    return path_to(f, file, out, err);
}

/* ---- writing ---- */

int schema_folder_put(const schema_folder *f, const schema_entry *e, rp_error *err) {
    char *path = NULL;
    BASE_ASSERT(e->text); /* not a removal */
    if (e->n > MAX_FILE_BYTES / 8)
        return base_fail(err, RP_ERR_LIMIT, "schema '%.80s' is too long to be saved", e->name);
    json_t *object = json_pack("{s:s, s:s, s:I, s:s%}", "tenant", e->tenant ? e->tenant : "", "name", e->name,
                               "changed", (json_int_t)e->changed, "pml", e->text, e->n);
    int rc = object ? path_of(f, e->tenant, e->name, &path, err) : base_fail_memory(err, e->n, "a schema");
    char *text = rc ? NULL : json_dumps(object, JSON_COMPACT);
    if (!rc) rc = text ? base_io_write_whole(path, text, strlen(text), err) : base_fail_memory(err, 0, "a schema");
    base_free(text);
    json_decref(object);
    base_free(path);
    return rc;
}

int schema_folder_remove(const schema_folder *f, const char *tenant, const char *name, rp_error *err) {
    char *path = NULL;
    int rc = path_of(f, tenant, name, &path, err);
    if (!rc) rc = base_io_unlink(path, err);
    if (!rc) rc = base_io_sync_folder(f->path, err);
    base_free(path);
    return rc;
}

/* ---- reading ---- */

typedef struct visit {
    const schema_folder *folder;
    void (*found)(void *user, const schema_entry *e);
    void (*bad)(void *user, const rp_error *err);
    void *user;
} visit;

static int visit_parse(const visit *v, const char *path, const base_buffer *bytes, rp_error *err) {
    json_t *object = json_loadb(bytes->data ? bytes->data : "", bytes->len, 0, NULL);
    schema_entry e = {0};
    json_int_t changed = 1;
    int rc = RP_OK;
    const int bad = json_unpack(object, "{s:s, s:s, s?I, s:s%}", "tenant", &e.tenant, "name", &e.name, "changed",
                                &changed, "pml", &e.text, &e.n);
    if (!bad && changed > 0) {
        e.changed = (uint64_t)changed;
        if (!e.tenant[0]) e.tenant = NULL;
        v->found(v->user, &e);
    } else rc = base_fail(err, RP_ERR_FORMAT, "%s: is corrupt: remove it, and send the schema again", path);
    json_decref(object);
    return rc;
}

static int read_one(const visit *v, const char *file, rp_error *err) {
    base_buffer bytes = {0};
    char *path = NULL;
    int rc = path_to(v->folder, file, &path, err);
    if (!rc) rc = base_io_make_private(path, err); /* versions before 0.3 wrote them with the umask's mode */
    if (!rc) rc = base_file_read(path, MAX_FILE_BYTES, &bytes, err);
    if (!rc) rc = visit_parse(v, path, &bytes, err);
    base_buffer_free(&bytes);
    base_free(path);
    return rc;
}

int schema_folder_visit(const schema_folder *f, void (*found)(void *user, const schema_entry *e),
                        void (*bad)(void *user, const rp_error *err), void *user, rp_error *err) {
    visit v = {f, found, bad, user};
    DIR *folder = opendir(f->path);
    if (!folder) return base_fail_errno(err, "cannot read the folder", f->path);
    for (struct dirent *entry; (entry = readdir(folder));) {
        rp_error one;
        const char *file = entry->d_name;
        /* Others are not ours: files that are being written, and what people put there. */
        const bool is_ours = strspn(file, "0123456789abcdef") == DIGITS && strcmp(file + DIGITS, SUFFIX) == 0;
        if (is_ours && read_one(&v, file, &one)) bad(user, &one);
    }
    closedir(folder);
    return RP_OK;
}
