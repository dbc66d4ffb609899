/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_open.c: opens the files of a model: one, or the parts of a split one.
 *
 * A split model is cut into NAME-00001-of-00003.gguf, NAME-00002-of-00003.gguf, ... Each part is a complete GGUF file
 * with split.no (from 0), split.count and split.tensors.count (of all parts) in its metadata; the first has all other
 * metadata. gguf.c reads and checks each part. This file locates the parts, rejects parts of other models, and joins
 * the tensors to one list.
 *
 * Owns: the maps and names. Threads: immutable after opening.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/gguf/gguf_internal.h"

#define SUFFIX_BYTES 64 /* "-00001-of-00003.gguf", with numbers of any size */

/* The source of parts: files, or bytes of the caller. */
typedef struct source {
    const char *path; /* of the requested part; NULL: memory */
    const gguf_bytes *parts;
    size_t n_parts;
    const char *name;
} source;

/* A file's place in a split model, from its metadata. A model in one file is part 0 of 1. */
typedef struct place {
    uint64_t no, count, tensors;
} place;

/* ---- one file -------------------------------------------------------------------------------------------------- */

static int new_file(gguf_file **out, const char *name, rp_error *err) {
    *out = NULL;
    gguf_file *f = base_calloc(1, sizeof *f);
    if (!f || !(f->name = base_strdup(name))) {
        base_free(f);
        return base_fail_memory(err, sizeof *f, "a model file");
    }
    *out = f;
    return RP_OK;
}

static int open_map(gguf_file **out, const char *path, rp_error *err) {
    int rc = new_file(out, path, err);
    if (rc) return rc;
    gguf_file *f = *out;
    if ((rc = base_map_open(&f->map, path, err))) {
        struct stat st;
        const bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if (!is_folder) return rc;
        return base_fail(err, RP_ERR_IO, "cannot read '%s': it is a directory: give a model file (GGUF) in it", path);
    }
    f->data = f->map.data;
    f->bytes = f->map.bytes;
    return RP_OK;
}

static int open_path(gguf_file **out, const char *path, rp_error *err) {
    int rc = open_map(out, path, err);
    return rc ? rc : gguf_read(*out, err);
}

static int open_bytes(gguf_file **out, const gguf_bytes *b, const char *name, rp_error *err) {
    int rc = new_file(out, name, err);
    if (rc) return rc;
    (*out)->data = b->data;
    (*out)->bytes = b->n;
    return gguf_read(*out, err);
}

/* ---- names of parts -------------------------------------------------------------------------------------------- */

/* Length of the path without its suffix; 0 if `path` does not have the suffix of part `no`. */
static size_t stem_bytes(const char *path, const place *p, char suffix[SUFFIX_BYTES]) {
    BASE_ASSERT(p->no < p->count);
    snprintf(suffix, SUFFIX_BYTES, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", p->no + 1, p->count);
    size_t n = strlen(path), end = strlen(suffix);
    return n > end && strcmp(path + n - end, suffix) == 0 ? n - end : 0;
}

/* The path of part `no` in the folder of another part. NULL: out of memory. */
static char *path_of_part(const char *path, size_t stem, uint64_t no, uint64_t count) {
    size_t bytes = stem + SUFFIX_BYTES;
    char *out = base_alloc(bytes);
    if (out) snprintf(out, bytes, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)stem, path, no + 1, count);
    return out;
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static int gguf_open_damaged(const gguf_file *f, rp_error *err, const char *what) {
    return base_fail_at(err, RP_ERR_FORMAT, f->name, 0, "%s", what);
}

static int read_place(const gguf_file *f, place *p, rp_error *err) {
    *p = (place){0, 1, f->n_tensors};
    if (!gguf_has(f, "split.count")) return RP_OK;
    uint64_t count;
    if (!gguf_get_u64(f, "split.count", &count))
        return gguf_open_damaged(f, err, "metadata 'split.count' is not a number");
    if (count <= 1) return RP_OK;
    if (count > GGUF_MAX_PARTS)
        return base_fail_at(err, RP_ERR_FORMAT, f->name, 0, "a model in %" PRIu64 " files, more than the limit of %d",
                            count, GGUF_MAX_PARTS);
    p->count = count;
    if (!gguf_get_u64(f, "split.no", &p->no) || p->no >= count)
        return gguf_open_damaged(f, err, "metadata 'split.no' is missing or not below 'split.count'");
    if (!gguf_get_u64(f, "split.tensors.count", &p->tensors) || p->tensors > GGUF_MAX_TENSORS)
        return gguf_open_damaged(f, err, "metadata 'split.tensors.count' is missing or larger than a model can have");
    return RP_OK;
}

/* Opens part `no` of the model with first part f. */
static int open_part(gguf_file **out, const source *s, const gguf_file *f, uint64_t no, uint64_t count, rp_error *err) {
    BASE_ASSERT(no > 0 && no < count);
    char suffix[SUFFIX_BYTES];
    if (!s->path) {
        if (no < s->n_parts) return open_bytes(out, &s->parts[no], s->name, err);
        return base_fail_at(err, RP_ERR_IO, f->name, 0, "part %" PRIu64 " of %" PRIu64 " is missing", no + 1, count);
    }
    const place first = {0, count, 0};
    size_t stem = stem_bytes(s->path, &first, suffix);
    if (!stem)
        return base_fail_at(err, RP_ERR_IO, f->name, 0,
                            "is the first of the %" PRIu64
                            " files of a model; the others can be found only if its name ends "
                            "in '%s'",
                            count, suffix);
    char *path = path_of_part(s->path, stem, no, count);
    if (!path) return base_fail_memory(err, stem, "a file's name");
    rp_error why = {0};
    int rc = open_path(out, path, &why);
    base_free(path);
    if (rc && err) *err = why;
    if (rc != RP_ERR_IO) return rc;
    return base_fail(err, RP_ERR_IO, "part %" PRIu64 " of %" PRIu64 " of the model is missing: %s", no + 1, count,
                     why.message);
}

static int check_part(const gguf_file *part, const place *first, uint64_t no, const char *of, rp_error *err) {
    place p;
    int rc = read_place(part, &p, err);
    if (rc) return rc;
    if (p.no == no && p.count == first->count && p.tensors == first->tensors) return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, part->name, 0,
                        "does not belong to '%s': it is part %" PRIu64 " of %" PRIu64 " of a model of %" PRIu64
                        " tensors, expected part %" PRIu64 " of %" PRIu64 " of %" PRIu64 " tensors",
                        of, p.no + 1, p.count, p.tensors, no + 1, first->count, first->tensors);
}

/* ---- one list of tensors ---------------------------------------------------------------------------------------- */

/* Replaces f's tensors by those of all parts, in their order. */
static int join_tensors(gguf_file *f, const place *first, rp_error *err) {
    size_t n = f->n_tensors, at = 0;
    for (size_t i = 0; i < f->n_others; i++) n += f->others[i]->n_tensors;
    if (n != first->tensors)
        return base_fail_at(err, RP_ERR_FORMAT, f->name, 0,
                            "the %" PRIu64 " files of the model have %zu tensors, 'split.tensors.count' says %" PRIu64,
                            first->count, n, first->tensors);
    gguf_tensor *tensors = base_calloc(n + 1, sizeof *tensors);
    gguf_name_entry *index = base_calloc(n + 1, sizeof *index);
    int rc = RP_OK;
    if (!tensors || !index) rc = base_fail_memory(err, n * (sizeof *tensors + sizeof *index), "a model's tensor table");
    for (size_t i = 0; !rc && i <= f->n_others; i++) {
        const gguf_file *part = i ? f->others[i - 1] : f;
        for (size_t k = 0; k < part->n_tensors; k++) tensors[at++] = part->tensors[k];
    }
    BASE_ASSERT(rc || at == n);
    for (size_t i = 0; !rc && i < n; i++) index[i] = (gguf_name_entry){tensors[i].name, i};
    const size_t twice = rc ? n : gguf_sort_names(index, n);
    if (twice != n)
        rc = base_fail_at(err, RP_ERR_FORMAT, f->name, 0, "tensor '%.*s' is in two files of the model",
                          (int)BASE_MIN(index[twice].name.n, 80), index[twice].name.bytes);
    if (rc) {
        base_free(tensors);
        base_free(index);
        return rc;
    }
    base_free(f->tensors);
    base_free(f->tensor_index);
    f->tensors = tensors;
    f->tensor_index = index;
    f->n_tensors = n;
    return RP_OK;
}

static int not_the_first(const source *s, const gguf_file *f, const place *p, rp_error *err) {
    char suffix[SUFFIX_BYTES];
    size_t stem = s->path ? stem_bytes(s->path, p, suffix) : 0;
    char *path = stem ? path_of_part(s->path, stem, 0, p->count) : NULL;
    int rc = base_fail_at(err, RP_ERR_INVALID, f->name, 0,
                          "is part %" PRIu64 " of %" PRIu64 " of a model: open the first%s%s%s", p->no + 1, p->count,
                          path ? ", '" : "", path ? path : "", path ? "'" : "");
    base_free(path);
    return rc;
}

static int gguf_open_join(gguf_file *f, const source *s, rp_error *err) {
    place first;
    int rc = read_place(f, &first, err);
    if (rc || first.count == 1) return rc;
    if (first.no != 0) return not_the_first(s, f, &first, err);
    f->others = base_calloc((size_t)first.count - 1, sizeof *f->others);
    if (!f->others) return base_fail_memory(err, first.count * sizeof *f->others, "the files of a model");
    for (uint64_t no = 1; no < first.count; no++) {
        gguf_file **part = &f->others[f->n_others++];
        if ((rc = open_part(part, s, f, no, first.count, err)) || (rc = check_part(*part, &first, no, f->name, err)))
            return rc;
    }
    BASE_ASSERT(f->n_others == first.count - 1);
    return join_tensors(f, &first, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int gguf_open_all(gguf_file **out, const source *s, rp_error *err) {
    BASE_ASSERT(s->path || s->n_parts > 0);
    gguf_file *f;
    *out = NULL;
    int rc = s->path ? open_path(&f, s->path, err) : open_bytes(&f, &s->parts[0], s->name, err);
    if (!rc) rc = gguf_open_join(f, s, err);
    if (rc) gguf_close(f);
    else *out = f;
    return rc;
}

int gguf_open(gguf_file **out, const char *path, rp_error *err) {
    return gguf_open_all(out, &(source){.path = path}, err);
}

int gguf_open_parts(gguf_file **out, const gguf_bytes *parts, size_t n_parts, const char *name, rp_error *err) {
    return gguf_open_all(out, &(source){.parts = parts, .n_parts = n_parts, .name = name}, err);
}

int gguf_open_memory(gguf_file **out, const void *data, size_t bytes, const char *name, rp_error *err) {
    const gguf_bytes whole = {data, bytes};
    return gguf_open_parts(out, &whole, 1, name, err);
}

int gguf_measure(const char *path, uint64_t *bytes, uint64_t *padded_bytes, rp_error *err) {
    gguf_file *f;
    int rc = open_map(&f, path, err);
    if (!rc) rc = gguf_read_header(f, err);
    if (!rc) {
        *bytes = f->data_end;
        *padded_bytes = f->padded_end;
    }
    gguf_close(f);
    return rc;
}

void gguf_forget(const gguf_file *f, const void *data, size_t bytes) {
    base_map_forget(&f->map, data, bytes);
    for (size_t i = 0; i < f->n_others; i++) gguf_forget(f->others[i], data, bytes);
}

void gguf_close(gguf_file *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n_others; i++) gguf_close(f->others[i]);
    base_map_close(&f->map);
    base_free(f->others);
    base_free(f->name);
    base_free(f->metadata);
    base_free(f->metadata_index);
    base_free(f->tensors);
    base_free(f->tensor_index);
    base_free(f);
}
