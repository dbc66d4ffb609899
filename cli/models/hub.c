/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c: see hub.h. Owns nothing between calls. */
#define _POSIX_C_SOURCE 200809L

#include "models/hub.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command.h"
#include "common/text.h"
#include "models/model_list.h"
#include "pull/pull_check.h"
#include "pull/pull_parts.h"

#define LIST_BYTES ((size_t)8 << 20) /* of the reply about a repository: 300 bytes a file */
#define MAX_FILES 20000
#define MAX_SIZE ((json_int_t)1 << 46) /* of a file */
#define RETRIES 8
#define SUMS_FROM "the hub"
#define TOKEN_ADVICE ": the repository needs a token: set HF_TOKEN, and accept the repository's terms at the hub"

typedef struct hub_file {
    const char *path; /* borrowed from the reply */
    uint64_t size;
    char blob[65]; /* its name in the cache: the SHA-256, or of a small file git's SHA-1 */
    bool has_sha256;
} hub_file;

/* A repository as the hub lists it. */
typedef struct hub_repo {
    hub_name name;
    const char *text; /* the name as it was given */
    char *endpoint, *key;
    char folder[MODEL_PATH_BYTES]; /* of the repository, in the cache */
    json_t *reply;
    char commit[65];
    hub_file *files; /* by path */
    const char **paths;
    size_t n;
} hub_repo;

/* ---- the environment ---- */

static bool hub_is_on(const char *variable) {
    const char *value = getenv(variable);
    if (value == NULL) return false;
    return strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 || strcasecmp(value, "yes") == 0 ||
           strcasecmp(value, "on") == 0;
}

/* Without the slashes at its end. */
static int hub_read_endpoint(const char *text, char **out) {
    const char *given = getenv("HF_ENDPOINT");
    if (given == NULL || given[0] == '\0')
        return cli_fail(
            CLI_FAILED,
            "'%s' is not in the cache, and HF_ENDPOINT is not set: set it to the URL of the hub (https://HOST)", text);
    size_t n = strlen(given);
    bool is_url = strncmp(given, "https://", 8) == 0 || strncmp(given, "http://", 7) == 0;
    for (const char *p = given; *p != '\0'; p++)
        is_url &= (unsigned char)*p > ' ' && *p != 0x7f && *p != '?' && *p != '#';
    if (!is_url)
        return cli_fail(CLI_FAILED,
                        "HF_ENDPOINT '%s' is no http or https URL: set it to that of the hub (https://HOST)", given);
    while (given[n - 1] == '/') n--;
    *out = cli_alloc(n + 1);
    memcpy(*out, given, n);
    return CLI_OK;
}

/* NULL: none. */
static int hub_read_token(char **out) {
    const char *token = getenv("HF_TOKEN"), *file = getenv("HF_TOKEN_PATH");
    char path[MODEL_PATH_BYTES];
    *out = NULL;
    if (token != NULL && token[0] != '\0') {
        for (const char *p = token; *p != '\0'; p++)
            if (*p <= ' ' || *p == 0x7f)
                return cli_fail(CLI_FAILED, "HF_TOKEN has spaces or control characters: set it to the token alone");
        *out = cli_alloc(strlen(token) + 1);
        strcpy(*out, token);
        return CLI_OK;
    }
    if (hub_is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return CLI_OK;
    if (file == NULL && model_folder(path, "HF_HOME", "token", NULL)) file = path;
    if (file == NULL && model_folder(path, "XDG_CACHE_HOME", "huggingface/token", ".cache/huggingface/token"))
        file = path;
    return file != NULL && access(file, R_OK) == 0 ? cli_read_key(file, out) : CLI_OK;
}

/* ---- the list of files ---- */

static int compare_files(const void *a, const void *b) {
    const hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static bool is_hex(const char *text, size_t min, size_t max) {
    const size_t n = text != NULL ? strlen(text) : 0;
    return n >= min && n <= max && strspn(text, "0123456789abcdef") == n;
}

/* What is not well formed is left out: it is not offered. */
static void take_file(hub_repo *r, const json_t *sibling) {
    const json_t *lfs = json_object_get(sibling, "lfs"), *size = json_object_get(sibling, "size");
    const char *path = json_string_value(json_object_get(sibling, "rfilename")),
               *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const char *blob = sha256 != NULL ? sha256 : json_string_value(json_object_get(sibling, "blobId"));
    if (!json_is_integer(size)) size = json_object_get(lfs, "size");
    if (path == NULL || !hub_is_path(path) || !cli_is_model_file(path) ||
        !is_hex(blob, sha256 != NULL ? 64 : 40, sha256 != NULL ? 64 : 40))
        return;
    if (json_is_object(lfs) && sha256 == NULL) return;
    if (!json_is_integer(size) || json_integer_value(size) <= 0 || json_integer_value(size) > MAX_SIZE) return;
    hub_file *f = &r->files[r->n++];
    *f = (hub_file){.path = path, .size = (uint64_t)json_integer_value(size), .has_sha256 = sha256 != NULL};
    memcpy(f->blob, blob, strlen(blob) + 1);
}

static int hub_parse(hub_repo *r, const char *text) {
    r->reply = json_loads(text, 0, NULL);
    const json_t *siblings = json_object_get(r->reply, "siblings");
    const char *commit = json_string_value(json_object_get(r->reply, "sha"));
    if (!json_is_array(siblings) || json_array_size(siblings) > MAX_FILES || !is_hex(commit, 40, 64))
        return cli_fail(CLI_FAILED, "'%s': the reply of %s is not that of a hub: HF_ENDPOINT is its URL", r->text,
                        r->endpoint);
    memcpy(r->commit, commit, strlen(commit) + 1);
    r->files = cli_alloc((json_array_size(siblings) + 1) * sizeof *r->files);
    r->paths = cli_alloc((json_array_size(siblings) + 1) * sizeof *r->paths);
    for (size_t i = 0; i < json_array_size(siblings); i++) take_file(r, json_array_get(siblings, i));
    qsort(r->files, r->n, sizeof *r->files, compare_files);
    for (size_t i = 0; i < r->n; i++) r->paths[i] = r->files[i].path;
    return CLI_OK;
}

static int hub_list(hub_repo *r, const pull_settings *settings) {
    char why[PULL_FAULT_BYTES], *url = cli_alloc(strlen(r->endpoint) + sizeof r->name + 64), *text = NULL;
    sprintf(url, "%s/api/models/%s/%s?blobs=true", r->endpoint, r->name.owner, r->name.repo);
    const long http = pull_text(settings, url, LIST_BYTES, &text, why);
    free(url);
    int status = CLI_OK;
    if (http == 401 || http == 403)
        status =
            cli_fail(CLI_FAILED, "'%s': the hub has no such repository, or it needs a token: set HF_TOKEN", r->text);
    else if (http == 404) status = cli_fail(CLI_FAILED, "'%s': the hub has no such repository", r->text);
    else if (text == NULL && cli_interrupted()) status = CLI_INTERRUPTED;
    else if (text == NULL)
        status = cli_fail(CLI_FAILED, "'%s': cannot list its files at %s: %s", r->text, r->endpoint, why);
    else status = hub_parse(r, text);
    free(text);
    return status;
}

/* What the repository has, for an error: the quantizations of its files, or their names. */
static int hub_fail_choice(const hub_repo *r) {
    char all[512] = "", quant[HUB_QUANT_BYTES];
    size_t n_models = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (!hub_is_model(r->paths[i])) continue;
        const char *shown = hub_quant_of(r->paths[i], quant) ? quant : r->paths[i];
        const size_t used = strlen(all);
        n_models++;
        if (used + strlen(shown) + 8 < sizeof all && !hub_has_quant(all, shown))
            snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? ", " : "", shown);
    }
    if (n_models == 0) return cli_fail(CLI_FAILED, "'%s': the repository has no GGUF file: give one that has", r->text);
    return cli_fail(CLI_FAILED, "'%s': no GGUF file of the repository has '%s' in its name: it has %s", r->text,
                    r->name.quant, all);
}

/* ---- the cache ---- */

/* Creates the folders of a path; with is_file those before its last name. */
static int make_folders(const char *path, bool is_file) {
    char folder[MODEL_PATH_BYTES + 1200];
    int status = CLI_OK;
    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = folder + 1; status == CLI_OK; p++) {
        const char kept = *p;
        if (kept != '/' && kept != '\0') continue;
        if (kept == '\0' && is_file) break;
        *p = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            status = cli_fail(CLI_FAILED, "cannot create the folder '%s': %s", folder, strerror(errno));
        *p = kept;
        if (kept == '\0') break;
    }
    return status;
}

/* snapshots/COMMIT/FILE, freed by the caller. */
static char *snapshot_path(const hub_repo *r, const char *file) {
    char *path = cli_alloc(strlen(r->folder) + strlen(r->commit) + strlen(file) + 16);
    sprintf(path, "%s/snapshots/%s/%s", r->folder, r->commit, file);
    return path;
}

/* Makes a name complete at once: a new file or link under another name is renamed to it. */
static int put_in_place(const char *temporary, const char *path, bool is_made) {
    if (is_made && rename(temporary, path) == 0) return CLI_OK;
    const int why = errno;
    unlink(temporary);
    return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(why));
}

static int link_snapshot(const hub_repo *r, const hub_file *f) {
    char target[128] = "../../", *path = snapshot_path(r, f->path), *temporary = cli_alloc(strlen(path) + 32);
    struct stat st, blob;
    int status = make_folders(path, true);
    for (const char *p = f->path; *p != '\0'; p++)
        if (*p == '/') strcat(target, "../"); /* 8 segments at most */
    snprintf(target + strlen(target), sizeof target - strlen(target), "blobs/%s", f->blob);
    sprintf(temporary, "%s/blobs/%s", r->folder, f->blob);
    const bool is_there =
        stat(path, &st) == 0 && stat(temporary, &blob) == 0 && st.st_dev == blob.st_dev && st.st_ino == blob.st_ino;
    sprintf(temporary, "%s.%ld.new", path, (long)getpid());
    if (status == CLI_OK && !is_there) {
        unlink(temporary);
        status = put_in_place(temporary, path, symlink(target, temporary) == 0);
    }
    free(temporary);
    free(path);
    return status;
}

static int write_ref(const hub_repo *r) {
    char path[MODEL_PATH_BYTES + 16], temporary[MODEL_PATH_BYTES + 48];
    snprintf(path, sizeof path, "%s/refs/main", r->folder);
    snprintf(temporary, sizeof temporary, "%s.%ld.new", path, (long)getpid());
    int status = make_folders(path, true);
    if (status != CLI_OK) return status;
    unlink(temporary);
    FILE *f = fopen(temporary, "wbx");
    bool is_made = f != NULL && fputs(r->commit, f) >= 0;
    if (f != NULL) is_made = fclose(f) == 0 && is_made;
    return put_in_place(temporary, path, is_made);
}

/* ---- download ---- */

/* ENDPOINT/OWNER/REPO/resolve/COMMIT/FILE, freed by the caller. */
static char *file_url(const hub_repo *r, const char *file) {
    char *escaped = curl_easy_escape(NULL, file, 0);
    if (escaped == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    char *url = cli_alloc(strlen(r->endpoint) + sizeof r->name + strlen(escaped) + 96);
    int n = sprintf(url, "%s/%s/%s/resolve/%s/", r->endpoint, r->name.owner, r->name.repo, r->commit);
    for (const char *p = escaped; *p != '\0';) { /* slashes stay */
        const bool is_slash = strncmp(p, "%2F", 3) == 0;
        url[n++] = is_slash ? '/' : *p;
        p += is_slash ? 3 : 1;
    }
    url[n] = '\0';
    curl_free(escaped);
    return url;
}

static int set_part(const hub_repo *r, const hub_file *f, int32_t i, int32_t n, pull_part *p) {
    const char *slash = strrchr(f->path, '/');
    struct stat st;
    p->url = file_url(r, f->path);
    p->path = cli_alloc(strlen(r->folder) + strlen(f->blob) + 8);
    sprintf(p->path, "%s/blobs/%s", r->folder, f->blob);
    p->name = cli_alloc(strlen(f->path) + 1);
    strcpy(p->name, slash != NULL ? slash + 1 : f->path);
    p->size = f->size;
    if (f->has_sha256) memcpy(p->expected, f->blob, sizeof p->expected);
    if (n > 1) snprintf(p->label, sizeof p->label, "downloading %d of %d", (int)i + 1, (int)n);
    else snprintf(p->label, sizeof p->label, "downloading");
    if (lstat(p->path, &st) != 0) return CLI_OK;
    p->is_here = S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->size;
    if (p->is_here) return CLI_OK;
    return cli_fail(CLI_FAILED, "'%s' is not the file of %llu bytes that the hub lists: remove it", p->path,
                    (unsigned long long)f->size);
}

static const hub_file *find_file(const hub_repo *r, const char *path) {
    const hub_file wanted = {.path = path};
    return bsearch(&wanted, r->files, r->n, sizeof *r->files, compare_files);
}

/* The files of the model that begins with this one. */
static int collect(const hub_repo *r, const hub_file *first, const hub_file ***out, int32_t *n) {
    size_t n_stem = 0;
    const int32_t parts = pull_split_parts(first->path, &n_stem);
    char *path = cli_alloc(strlen(first->path) + 1);
    int status = CLI_OK;
    *n = parts > 0 ? parts : 1;
    *out = cli_alloc((size_t)*n * sizeof **out);
    (*out)[0] = first;
    for (int32_t i = 1; i < *n && status == CLI_OK; i++) {
        sprintf(path, "%.*s-%05d-of-%05d.gguf", (int)n_stem, first->path, (int)i + 1, (int)parts);
        (*out)[i] = find_file(r, path);
        if ((*out)[i] == NULL)
            status = cli_fail(CLI_FAILED, "'%s': the repository lacks '%s', a file of the split model", r->text, path);
    }
    free(path);
    return status;
}

static void print_begin(const hub_repo *r, const pull_part *parts, int32_t n) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += parts[i].is_here ? 0 : parts[i].size;
    if (bytes == 0) return;
    fprintf(stderr, "downloading ");
    cli_print_safe(stderr, parts[0].name, strlen(parts[0].name));
    fprintf(stderr, ", %.1f MiB, to ", (double)bytes / 1048576.0);
    cli_print_safe(stderr, r->folder, strlen(r->folder));
    fputc('\n', stderr);
}

/* The first file is linked last: all others exist when it can be opened. */
static int hub_publish(const hub_repo *r, const hub_file **files, pull_part *parts, int32_t n) {
    int status = CLI_OK;
    for (int32_t i = n - 1; i >= 0 && status == CLI_OK; i--) {
        if (!parts[i].is_here) status = pull_file_publish(&parts[i].file, parts[i].path);
        if (status == CLI_OK) status = link_snapshot(r, files[i]);
    }
    return status == CLI_OK ? write_ref(r) : status;
}

static int hub_download(hub_repo *r, const pull_settings *settings, char **path) {
    const int32_t first = hub_choose(r->paths, r->n, r->name.quant, NULL);
    const hub_file **files = NULL;
    int32_t n = 0, n_here = 0;
    char blobs[MODEL_PATH_BYTES + 8];
    if (first < 0) return hub_fail_choice(r);
    int status = collect(r, &r->files[first], &files, &n);
    pull_part *parts = cli_alloc((size_t)n * sizeof *parts);
    for (int32_t i = 0; i < n && status == CLI_OK; i++) {
        status = set_part(r, files[i], i, n, &parts[i]);
        n_here += parts[i].is_here;
    }
    snprintf(blobs, sizeof blobs, "%s/blobs", r->folder);
    if (status == CLI_OK) status = make_folders(blobs, false);
    if (status == CLI_OK && n_here < n) {
        print_begin(r, parts, n);
        status = pull_parts_download(parts, n, settings, SUMS_FROM, r->text);
    }
    if (status == CLI_OK) status = hub_publish(r, files, parts, n);
    if (status == CLI_OK) *path = snapshot_path(r, files[0]->path);
    pull_parts_free(parts, n);
    free(files);
    return status;
}

/* ---- both ---- */

static int hub_open(hub_repo *r, const char *text) {
    char root[MODEL_PATH_BYTES];
    *r = (hub_repo){.text = text};
    int status = hub_name_read(&r->name, text);
    if (status != CLI_OK) return status;
    int n = model_hub_folder(root)
                ? snprintf(r->folder, sizeof r->folder, "%s/models--%s--%s", root, r->name.owner, r->name.repo)
                : -1;
    if (n < 0 || n >= MODEL_PATH_BYTES - 1200)
        return cli_fail(CLI_FAILED, "no folder for the hub's cache: set HOME or HF_HUB_CACHE");
    return CLI_OK;
}

static void hub_close(hub_repo *r) {
    json_decref(r->reply);
    free(r->endpoint);
    free(r->key);
    free(r->files);
    free(r->paths);
}

/* The settings become those of this hub. *listed: its files are known, and what fails now is the download. */
static int hub_ask(hub_repo *r, pull_settings *settings, bool *listed, char **path) {
    *listed = false;
    if (hub_is_on("HF_HUB_OFFLINE"))
        return cli_fail(CLI_FAILED,
                        "'%s' is not in the cache, and HF_HUB_OFFLINE is set: unset it to download the model", r->text);
    int status = hub_read_endpoint(r->text, &r->endpoint);
    if (status == CLI_OK) status = hub_read_token(&r->key);
    if (status != CLI_OK) return status;
    settings->key = r->key;
    settings->key_advice = TOKEN_ADVICE;
    settings->is_model = true;
    cli_interrupt_catch();
    status = hub_list(r, settings);
    *listed = status == CLI_OK;
    if (status == CLI_OK) status = hub_download(r, settings, path);
    cli_interrupt_release();
    return status;
}

int hub_pull(const char *text, const pull_settings *settings, uint64_t max_size, char **path) {
    hub_repo *r = cli_alloc(sizeof *r);
    pull_settings own = *settings;
    bool listed;
    own.max_bytes = max_size;
    int status = hub_open(r, text);
    if (status == CLI_OK) status = hub_ask(r, &own, &listed, path);
    hub_close(r);
    free(r);
    return status;
}

/* Of the cache: NULL if there is none. *is_preferred: as of hub_choose. */
static char *cached_path(const hub_name *name, bool *is_preferred) {
    model_list l = model_list_of_repo(name->owner, name->repo);
    const char **paths = cli_alloc((l.n + 1) * sizeof *paths);
    for (size_t i = 0; i < l.n; i++) paths[i] = l.items[i].name;
    const int32_t found = hub_choose(paths, l.n, name->quant, is_preferred);
    char *path = NULL;
    if (found >= 0) {
        path = l.items[found].path;
        l.items[found].path = NULL;
    }
    free(paths);
    model_list_free(&l);
    return path;
}

int hub_path(const char *text, char **path) {
    hub_repo *r = cli_alloc(sizeof *r);
    pull_settings settings = {.retries = RETRIES, .retry_delay = 1};
    bool is_preferred = false, listed = false;
    int status = hub_open(r, text);
    char *cached = status == CLI_OK ? cached_path(&r->name, &is_preferred) : NULL;
    const bool asks =
        status == CLI_OK &&
        (cached == NULL || (!is_preferred && !hub_is_on("HF_HUB_OFFLINE") && getenv("HF_ENDPOINT") != NULL));
    if (asks) status = hub_ask(r, &settings, &listed, path);
    if (asks && status == CLI_FAILED && !listed && cached != NULL) {
        cli_warn("'%s': the cached file '%s' is used", text, cached);
        status = CLI_OK;
    } else if (asks) {
        free(cached);
        cached = NULL;
    }
    if (cached != NULL) *path = cached;
    hub_close(r);
    free(r);
    return status;
}
