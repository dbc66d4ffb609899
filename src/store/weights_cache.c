/* SPDX-License-Identifier: Apache-2.0 */
/* weights_cache.c: see weights_cache.h. Owns the folder's names, the budget and the map of one file. */
#include "store/weights_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk/fingerprints.h"
#include "store/weights_file.h"

#define DIR_BYTES 3800
#define PATH_BYTES 4096
#define NAME_END ".rpw"
#define KEY_DIGITS (2 * BASE_KEY_BYTES)
#define MAX_FILES 65536 /* of a folder; the others are not looked at */

struct weights_cache {
    rp_model *model;
    char dir[DIR_BYTES];
    uint64_t budget_bytes, min_bytes;
    bool read_only;
    int n_threads;
    base_map map;
    backend_weights interface;
    const char *state;
};

/* ---- the folder ---- */

typedef struct weights_entry {
    char name[KEY_DIGITS + 64];
    bool is_temporary;
    uint64_t bytes;
    int64_t mtime_ns;
} weights_entry;

typedef struct weights_listing {
    weights_entry *items;
    size_t n, cap;
    uint64_t bytes;
} weights_listing;

/* {64 digits}.rpw, or {64 digits}.rpw.PID-TIME.tmp */
static bool weights_name_is_own(const char *name, bool *is_temporary) {
    base_key key;
    if (strlen(name) >= sizeof(((weights_entry *)0)->name) || !base_key_parse(&key, name)) return false;
    const char *rest = name + KEY_DIGITS;
    if (strncmp(rest, NAME_END, strlen(NAME_END)) != 0) return false;
    rest += strlen(NAME_END);
    *is_temporary = *rest != '\0';
    if (!*is_temporary) return true;
    if (*rest++ != '.') return false;
    size_t pid = strspn(rest, "0123456789");
    if (pid == 0 || rest[pid] != '-') return false;
    rest += pid + 1;
    size_t time = strspn(rest, "0123456789");
    return time > 0 && strcmp(rest + time, BASE_IO_TEMPORARY) == 0;
}

static void entry_path(const char *dir, const weights_entry *e, char *out) {
    const int n = snprintf(out, PATH_BYTES, "%s/%s", dir, e->name);
    BASE_ASSERT(e->name[0] && n < PATH_BYTES); /* a cut or empty name would be another file */
}

static int listing_add(weights_listing *l, const char *dir, const char *name, bool is_temporary, rp_error *err) {
    char path[PATH_BYTES];
    base_io_sizes sizes;
    if (base_grow((void **)&l->items, &l->cap, l->n + 1, MAX_FILES, sizeof(*l->items)))
        return base_fail_memory(err, (l->n + 1) * sizeof(*l->items), "a folder of repacked weights");
    BASE_ASSERT(strlen(name) < sizeof(l->items->name)); /* weights_name_is_own */
    weights_entry *e = &l->items[l->n];
    *e = (weights_entry){.is_temporary = is_temporary};
    memcpy(e->name, name, strlen(name) + 1);
    entry_path(dir, e, path);
    if (base_io_stat(path, &sizes, NULL) || !sizes.is_file) return RP_OK; /* removed meanwhile; or a link */
    e->bytes = sizes.bytes;
    e->mtime_ns = sizes.mtime_ns;
    l->bytes += e->bytes;
    l->n++;
    return RP_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const weights_entry *)a)->name, ((const weights_entry *)b)->name);
}

static int compare_ages(const void *a, const void *b) {
    const weights_entry *x = a, *y = b;
    if (x->mtime_ns != y->mtime_ns) return x->mtime_ns < y->mtime_ns ? -1 : 1;
    return compare_names(a, b);
}

/* Owned by the caller: base_free(items). A missing folder is empty. */
static int folder_list(const char *dir, weights_listing *out, rp_error *err) {
    DIR *d;
    rp_error why;
    *out = (weights_listing){0};
    int rc = base_io_open_folder(&d, dir, &why);
    if (rc && errno == ENOENT) return RP_OK;
    if (rc && err) *err = why;
    if (rc) return rc;
    for (const struct dirent *e; !rc && (e = readdir(d));) {
        bool is_temporary;
        if (weights_name_is_own(e->d_name, &is_temporary)) rc = listing_add(out, dir, e->d_name, is_temporary, err);
    }
    closedir(d);
    if (rc == RP_OK && out->n > 1) qsort(out->items, out->n, sizeof(*out->items), compare_names);
    if (rc) base_free(out->items);
    return rc;
}

/* Does a process write this temporary file? */
static bool is_being_written(const char *path) {
    base_io_file f;
    if (base_io_open(&f, path, NULL)) return errno != ENOENT;
    bool is_held = !base_io_lock(&f);
    base_io_close(&f);
    return is_held;
}

static int entry_remove(const char *dir, weights_listing *l, weights_entry *e, rp_error *err) {
    char path[PATH_BYTES];
    entry_path(dir, e, path);
    int rc = base_io_unlink(path, err);
    if (rc) return rc;
    BASE_ASSERT(l->bytes >= e->bytes);
    l->bytes -= e->bytes;
    e->bytes = 0;
    e->name[0] = '\0';
    return RP_OK;
}

/* Removes the temporary files of killed processes. *is_busy: another process writes a file of this key (may be
 * NULL). */
static int remove_leftovers(const char *dir, weights_listing *l, const char *key, bool *is_busy, rp_error *err) {
    for (size_t i = 0; i < l->n; i++) {
        weights_entry *e = &l->items[i];
        char path[PATH_BYTES];
        if (!e->is_temporary || !e->name[0]) continue;
        entry_path(dir, e, path);
        if (is_being_written(path)) {
            if (is_busy && strncmp(e->name, key, KEY_DIGITS) == 0) *is_busy = true;
            continue;
        }
        int rc = entry_remove(dir, l, e, err);
        if (rc) return rc;
    }
    return RP_OK;
}

/* Removes the least recently used files until `need` more bytes fit. false: they do not. */
static bool make_room(const char *dir, weights_listing *l, uint64_t budget, uint64_t need) {
    if (l->n > 1) qsort(l->items, l->n, sizeof(*l->items), compare_ages);
    for (size_t i = 0; i < l->n && l->bytes + need > budget; i++) {
        weights_entry *e = &l->items[i];
        const uint64_t bytes = e->bytes;
        BASE_DCHECK(i == 0 || l->items[i - 1].mtime_ns <= e->mtime_ns); /* the oldest first */
        char name[sizeof(e->name)];
        if (e->is_temporary || !e->name[0]) continue;
        memcpy(name, e->name, sizeof(name));
        if (entry_remove(dir, l, e, NULL) == RP_OK)
            base_log(BASE_LOG_INFO, "weights cache: removed %s/%.16s..., %" PRIu64 " bytes, for another model", dir,
                     name, bytes);
    }
    return l->bytes + need <= budget;
}

/* ---- one model ---- */

static bool cache_find_digest(void *user, const base_key *files, base_key *digest) {
    const weights_cache *c = user;
    return fingerprints_find(c->dir, NULL, files, digest);
}

static void cache_keep_digest(void *user, const base_key *files, const base_key *digest) {
    const weights_cache *c = user;
    rp_error err;
    if (fingerprints_keep(c->dir, NULL, files, digest, &err))
        base_log(BASE_LOG_WARN,
                 "weights cache: the model's fingerprint was not saved and is computed again at the next start: %s",
                 err.message);
}

/* 64 digits: the name of the file. */
static void cache_key(const weights_cache *c, const backend_packed *packed, char out[KEY_DIGITS + 1]) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise packed weights 1");
    base_hash_key(&h, &c->model->digest);
    base_hash_u64(&h, packed->side);
    base_hash_u64(&h, packed->version);
    base_hash_final(&h, &key);
    base_key_hex(&key, out, KEY_DIGITS);
}

static const char *cache_set_state(weights_cache *c, const char *state) {
    c->state = state;
    return NULL;
}

/* ---- opening a file ---- */

static weights_fault map_file(weights_cache *c, const char *path, const backend_packed *packed, uint64_t *data_begin,
                              rp_error *err) {
    base_io_file f;
    weights_header h;
    if (base_io_open(&f, path, err)) return errno == ENOENT || errno == ENOTDIR ? WEIGHTS_ABSENT : WEIGHTS_IO;
    weights_fault fault = weights_file_read(&f, &h, err);
    if (!fault) fault = weights_file_match(&h, &c->model->digest, packed);
    if (!fault && h.file_bytes > SIZE_MAX) fault = WEIGHTS_IO;
    if (!fault && base_io_map(&c->map, &f, (size_t)h.file_bytes, err)) fault = WEIGHTS_IO;
    if (!fault && !c->read_only) (void)base_io_touch(&f, NULL); /* the order of eviction only */
    *data_begin = h.data_begin;
    weights_header_free(&h);
    base_io_close(&f);
    return fault;
}

/* The matrices of the model's file, mapped; or NULL. */
static const char *cache_open(weights_cache *c, const backend_packed *packed) {
    char key[KEY_DIGITS + 1], path[PATH_BYTES];
    uint64_t data_begin;
    rp_error err = {0};
    cache_key(c, packed, key);
    snprintf(path, sizeof(path), "%s/%s" NAME_END, c->dir, key);
    weights_fault fault = map_file(c, path, packed, &data_begin, &err);
    if (!fault) {
        BASE_ASSERT(c->map.data && data_begin <= c->map.bytes);
        base_log(BASE_LOG_DEBUG, "weights cache: mapped %s", path);
        c->state = "mapped";
        return (const char *)c->map.data + data_begin;
    }
    base_log(fault == WEIGHTS_ABSENT ? BASE_LOG_DEBUG : BASE_LOG_WARN,
             "weights cache: %s is not used (%s)%s%s: weights are repacked", path, weights_fault_name(fault),
             err.message[0] ? ": " : "", err.message);
    return NULL;
}

/* Is half of the disk's free space enough? Files that the budget would evict count as free. */
static bool has_space(const weights_cache *c, uint64_t need, rp_error *err) {
    uint64_t free_bytes;
    weights_listing l;
    if (base_io_free_bytes(c->dir, &free_bytes, err) || folder_list(c->dir, &l, err)) return false;
    const uint64_t freed = l.bytes + need > c->budget_bytes ? l.bytes + need - c->budget_bytes : 0;
    base_free(l.items);
    if (free_bytes + freed >= 2 * need) return true;
    base_fail_at(err, RP_ERR_IO, c->dir, 0,
                 "%" PRIu64 " bytes are free, and the file takes %" PRIu64
                 ": a file gets at most half of the free space",
                 free_bytes + freed, need);
    return false;
}

/* May a file of these matrices be written? Logs why not. */
static bool may_keep(weights_cache *c, const backend_packed *packed) {
    const uint64_t need = weights_file_bytes(packed);
    rp_error err = {0};
    if (c->read_only) cache_set_state(c, "read_only");
    else if (packed->total < c->min_bytes) cache_set_state(c, "small");
    else if (need > c->budget_bytes) cache_set_state(c, "budget");
    else if (base_io_mkdirs(c->dir, &err)) cache_set_state(c, "io");
    else if (!has_space(c, need, &err)) cache_set_state(c, "space");
    else return true;
    base_log(err.message[0] ? BASE_LOG_WARN : BASE_LOG_DEBUG,
             "weights cache: repacked weights, %" PRIu64 " bytes, are not kept (%s)%s%s", need, c->state,
             err.message[0] ? ": " : "", err.message);
    return false;
}

static const char *cache_find(void *user, const backend_packed *packed, bool *keeps, rp_on_progress on_progress,
                              void *progress_user) {
    weights_cache *c = user;
    const model_digests known = {cache_find_digest, cache_keep_digest, c};
    rp_error err = {0};
    *keeps = false;
    if (packed->total < c->min_bytes) return cache_set_state(c, "small");
    if (model_fingerprint_cached(c->model, &known)) {
        const char *data = cache_open(c, packed);
        *keeps = !data && may_keep(c, packed);
        return data;
    }
    if (!may_keep(c, packed)) return NULL; /* a model is hashed only for a file */
    if (model_fingerprint(c->model, &known, c->n_threads, on_progress, progress_user, &err)) {
        base_log(BASE_LOG_WARN, "weights cache: %s", err.message);
        return cache_set_state(c, "changed");
    }
    const char *data = cache_open(c, packed);
    *keeps = !data;
    return data;
}

/* ---- writing a file ---- */

/* Called with the temporary file locked: the budget holds even if other processes write meanwhile. */
static bool is_within_budget(const weights_cache *c) {
    weights_listing l;
    if (folder_list(c->dir, &l, NULL)) return false;
    base_free(l.items);
    return l.bytes <= c->budget_bytes;
}

static int write_file(weights_cache *c, const char *key, const backend_packed *packed, const char *data,
                      rp_on_progress on_progress, void *user, rp_error *err) {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    base_io_file f;
    const char *name = c->model->name[0] ? c->model->name : gguf_name(c->model->file);
    snprintf(path, sizeof(path), "%s/%s" NAME_END, c->dir, key);
    snprintf(temporary, sizeof(temporary), "%s/%s" NAME_END ".%ld-%" PRIu64 BASE_IO_TEMPORARY, c->dir, key,
             (long)getpid(), base_clock_us());
    int rc = base_io_create(&f, temporary, err);
    if (rc) return rc;
    (void)base_io_lock(&f); /* where there are no locks, another process may remove the file: the rename fails then */
    rc = weights_file_write(&f, &c->model->digest, packed, name, data, on_progress, user, err);
    if (!rc && !is_within_budget(c))
        rc = base_fail_at(err, RP_ERR_BUDGET, c->dir, 0, "other processes write repacked weights, too");
    if (!rc) rc = model_check_files(c->model, err);
    if (!rc) rc = base_io_rename(temporary, path, err);
    if (rc) base_io_unlink(temporary, NULL);
    base_io_close(&f);
    return rc ? rc : base_io_sync_folder(c->dir, err);
}

static int cache_write(weights_cache *c, const backend_packed *packed, const char *data, rp_on_progress on_progress,
                       void *user, rp_error *err) {
    char key[KEY_DIGITS + 1], old[PATH_BYTES];
    weights_listing l;
    bool is_busy = false;
    cache_key(c, packed, key);
    int rc = folder_list(c->dir, &l, err);
    if (rc) return rc;
    rc = remove_leftovers(c->dir, &l, key, &is_busy, err);
    snprintf(old, sizeof(old), "%s" NAME_END, key);
    for (size_t i = 0; i < l.n && !rc && !is_busy;
         i++) /* a file that was a miss does not count against its replacement */
        if (strcmp(l.items[i].name, old) == 0) rc = entry_remove(c->dir, &l, &l.items[i], err);
    if (!rc && !is_busy && !make_room(c->dir, &l, c->budget_bytes, weights_file_bytes(packed)))
        rc = base_fail_at(err, RP_ERR_BUDGET, c->dir, 0, "files that are being written leave too little of the budget");
    base_free(l.items);
    c->state = is_busy ? "busy" : rc == RP_ERR_BUDGET ? "budget"
                                                      : "io";
    if (rc || is_busy) return rc;
    BASE_ASSERT(!c->read_only && weights_file_bytes(packed) <= c->budget_bytes); /* may_keep */
    rc = write_file(c, key, packed, data, on_progress, user, err);
    c->state = rc ? "io" : "written";
    return rc;
}

static void cache_keep(void *user, const backend_packed *packed, const char *data, rp_on_progress on_progress,
                       void *progress_user) {
    weights_cache *c = user;
    rp_error err = {0};
    uint64_t start = base_clock_us();
    if (cache_write(c, packed, data, on_progress, progress_user, &err))
        base_log(BASE_LOG_WARN,
                 "weights cache: the file was not written, and weights are repacked at the next start, too: %s",
                 err.message);
    else
        base_log(BASE_LOG_INFO, "weights cache: %s, %" PRIu64 " bytes in %.1f s: %s", c->state,
                 weights_file_bytes(packed), (double)(base_clock_us() - start) / 1e6, c->dir);
}

/* ---- opening ---- */

int weights_cache_new(weights_cache **out, rp_model *model, const weights_cache_options *o, rp_error *err) {
    *out = NULL;
    if (strlen(o->dir) >= DIR_BYTES)
        return base_fail(err, RP_ERR_INVALID, "weights_dir: the path has more than %d bytes", DIR_BYTES - 1);
    weights_cache *c = base_calloc(1, sizeof(*c));
    if (!c) return base_fail_memory(err, sizeof(*c), "a weights cache");
    memcpy(c->dir, o->dir, strlen(o->dir) + 1);
    c->model = model;
    c->budget_bytes = o->budget_bytes;
    c->min_bytes = o->min_bytes;
    c->read_only = o->read_only;
    c->n_threads = o->n_threads;
    c->state = "off";
    c->interface = (backend_weights){cache_find, cache_keep, c};
    *out = c;
    return RP_OK;
}

void weights_cache_free(weights_cache *c) {
    if (!c) return;
    base_map_close(&c->map);
    base_free(c);
}

const backend_weights *weights_cache_interface(weights_cache *c) { return &c->interface; }

const char *weights_cache_state(const weights_cache *c) { return c->state; }

/* ---- maintenance ---- */

/* Reads a file's header, or with reads_all every byte. The header must be freed. */
static weights_fault examine(const char *path, bool reads_all, rp_on_progress on_progress, void *user,
                             weights_header *h) {
    base_io_file f;
    rp_error err;
    *h = (weights_header){0};
    if (base_io_open(&f, path, &err)) return errno == ENOENT ? WEIGHTS_ABSENT : WEIGHTS_IO;
    weights_fault fault = weights_file_read(&f, h, &err);
    if (!fault && reads_all) fault = weights_file_verify(&f, h, on_progress, user, &err);
    base_io_close(&f);
    return fault;
}

int weights_cache_each(const char *dir, bool reads_all, rp_on_progress on_progress, rp_on_weights_file fn, void *user,
                       rp_error *err) {
    weights_listing l;
    int rc = folder_list(dir, &l, err);
    if (rc) return rc;
    for (size_t i = 0; i < l.n; i++) {
        const weights_entry *e = &l.items[i];
        char path[PATH_BYTES], model[KEY_DIGITS + 1] = "";
        weights_header h = {0};
        entry_path(dir, e, path);
        weights_fault fault = e->is_temporary ? WEIGHTS_OK : examine(path, reads_all, on_progress, user, &h);
        if (fault == WEIGHTS_ABSENT) continue;
        if (h.n > 0) base_key_hex(&h.digest, model, KEY_DIGITS);
        const rp_weights_file file = {
            .struct_size = sizeof(file),
            .path = path,
            .name = h.name,
            .model = model,
            .side = (int32_t)h.side,
            .bytes = e->bytes,
            .created = h.created,
            .used = e->mtime_ns / 1000000000,
            .is_temporary = e->is_temporary,
            .fault = weights_fault_name(fault),
        };
        fn(user, &file);
        weights_header_free(&h);
    }
    base_free(l.items);
    return RP_OK;
}

static int remove_where(const char *dir, bool (*selects)(const char *path, const void *user), const void *user,
                        uint64_t *n, uint64_t *bytes, rp_error *err) {
    weights_listing l;
    *n = *bytes = 0;
    int rc = folder_list(dir, &l, err);
    if (rc) return rc;
    const uint64_t before = l.bytes;
    for (size_t i = 0; i < l.n && !rc; i++) {
        char path[PATH_BYTES];
        entry_path(dir, &l.items[i], path);
        if (l.items[i].is_temporary ? is_being_written(path) : !selects(path, user)) continue;
        rc = entry_remove(dir, &l, &l.items[i], err);
        *n += rc == RP_OK;
    }
    *bytes = before - l.bytes;
    if (*n > 0 && !rc) rc = base_io_sync_folder(dir, err);
    base_free(l.items);
    return rc;
}

/* Does the file belong to a model whose digest begins with these digits? user NULL: any model. */
static bool selects_model(const char *path, const void *user) {
    const char *digits = user;
    weights_header h;
    char model[KEY_DIGITS + 1] = "";
    if (!digits) return true;
    (void)examine(path, false, NULL, NULL, &h);
    if (h.n > 0) base_key_hex(&h.digest, model, KEY_DIGITS);
    weights_header_free(&h);
    return strncmp(model, digits, strlen(digits)) == 0;
}

int weights_cache_remove(const char *dir, const char *digits, uint64_t *n, uint64_t *bytes, rp_error *err) {
    return remove_where(dir, selects_model, digits, n, bytes, err);
}

static bool selects_bad(const char *path, const void *user) {
    weights_header h;
    (void)user;
    weights_fault fault = examine(path, false, NULL, NULL, &h);
    weights_header_free(&h);
    return fault != WEIGHTS_OK && fault != WEIGHTS_IO && fault != WEIGHTS_VERSION && fault != WEIGHTS_OWNER;
}

int weights_cache_clean(const char *dir, uint64_t *n, uint64_t *bytes, rp_error *err) {
    return remove_where(dir, selects_bad, NULL, n, bytes, err);
}
