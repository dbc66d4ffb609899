/* SPDX-License-Identifier: Apache-2.0 */
/* model_list.c: see model_list.h. Owns nothing. */
#define _POSIX_C_SOURCE 200809L

#include "models/model_list.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/console.h"
#include "models/hub_name.h"
#include "pull/pull_check.h"

#define MAX_NAMES 50000           /* in all folders together */
#define MAX_DEPTH 6               /* of folders in folders */
#define MANIFEST_BYTES (1L << 20) /* of Ollama and of llama.cpp: a few KB */

/* ---- folders ---- */

bool model_folder(char out[MODEL_PATH_BYTES], const char *variable, const char *below, const char *below_home) {
    const char *base = variable != NULL ? getenv(variable) : NULL, *home = getenv("HOME");
    int n = -1;
    if (base != NULL && base[0] == '/')
        n = snprintf(out, MODEL_PATH_BYTES, "%s%s%s", base, below[0] != '\0' ? "/" : "", below);
    else if (below_home != NULL && home != NULL && home[0] == '/')
        n = snprintf(out, MODEL_PATH_BYTES, "%s/%s", home, below_home);
    return n > 0 && n < MODEL_PATH_BYTES;
}

bool model_hub_folder(char out[MODEL_PATH_BYTES]) {
    if (model_folder(out, "HF_HUB_CACHE", "", NULL) || model_folder(out, "HF_HOME", "hub", NULL)) return true;
    return model_folder(out, "XDG_CACHE_HOME", "huggingface/hub", ".cache/huggingface/hub");
}

bool model_own_folder(char out[MODEL_PATH_BYTES]) {
    return model_folder(out, "XDG_DATA_HOME", "reprise/models", ".local/share/reprise/models");
}

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *copy_text(const char *text) {
    const size_t n = strlen(text) + 1;
    return memcpy(cli_alloc(n), text, n);
}

/* The names in a folder without those that begin with '.', sorted; of what cannot be read, none. Freed with
   free_names. */
static char **folder_names(model_list *l, const char *folder, size_t *n) {
    char **names = NULL;
    size_t capacity = 0;
    *n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && l->n_left > 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        if (*n == capacity) names = cli_realloc(names, (capacity = 2 * capacity + 16) * sizeof *names);
        names[(*n)++] = copy_text(e->d_name);
        l->n_left--;
    }
    if (d != NULL) closedir(d);
    if (*n > 0) qsort(names, *n, sizeof *names, compare_text);
    return names;
}

static void free_names(char **names, size_t n) {
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
}

typedef void (*model_visit)(model_list *l, void *user, const char *below, const char *path);

/* Calls visit for every regular file in the folder and in its folders. below: its path from `root` on; links are
   followed. */
static void walk_below(model_list *l, const char *root, const char *below, int depth, model_visit visit, void *user) {
    char path[MODEL_PATH_BYTES], inner[MODEL_PATH_BYTES];
    size_t n;
    struct stat st;
    if (snprintf(path, sizeof path, "%s%s%s", root, below[0] != '\0' ? "/" : "", below) >= MODEL_PATH_BYTES) return;
    char **names = folder_names(l, path, &n);
    for (size_t i = 0; i < n; i++) {
        if (snprintf(inner, sizeof inner, "%s%s%s", below, below[0] != '\0' ? "/" : "", names[i]) >= MODEL_PATH_BYTES)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", root, inner) >= MODEL_PATH_BYTES || stat(path, &st) != 0) continue;
        if (S_ISREG(st.st_mode)) visit(l, user, inner, path);
        else if (S_ISDIR(st.st_mode) && depth + 1 < MAX_DEPTH) walk_below(l, root, inner, depth + 1, visit, user);
    }
    free_names(names, n);
}

/* A place that is looked at, for messages. */
static void list_add_place(model_list *l, const char *root) {
    const size_t used = l->places != NULL ? strlen(l->places) : 0;
    l->places = cli_realloc(l->places, used + strlen(root) + 3);
    sprintf(l->places + used, "%s%s", used > 0 ? ", " : "", root);
}

static void walk(model_list *l, const char *root, model_visit visit, void *user) {
    list_add_place(l, root);
    walk_below(l, root, "", 0, visit, user);
}

/* ---- entries ---- */

/* The sizes of a model's files. false: one is missing. */
static bool measure(const char *path, uint64_t *bytes, int32_t *n_files) {
    char part[MODEL_PATH_BYTES + 48];
    size_t n_stem = 0;
    struct stat st;
    const int32_t n = pull_split_parts(path, &n_stem);
    *n_files = n > 0 ? n : 1;
    *bytes = 0;
    for (int32_t i = 0; i < *n_files; i++) {
        if (n > 0) snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", (int)n_stem, path, (int)i + 1, (int)n);
        if (stat(n > 0 ? part : path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
        *bytes += (uint64_t)st.st_size;
    }
    return true;
}

static void list_add(model_list *l, const char *where, const char *prefix, const char *name, const char *path) {
    model_entry e = {.where = where};
    if (l->n == MODEL_LIST_MAX || !measure(path, &e.bytes, &e.n_files)) return;
    if (l->n == l->capacity) l->items = cli_realloc(l->items, (l->capacity = 2 * l->capacity + 16) * sizeof *l->items);
    e.name = cli_alloc(strlen(prefix) + strlen(name) + 1);
    sprintf(e.name, "%s%s", prefix, name);
    e.path = copy_text(path);
    l->items[l->n++] = e;
}

static bool list_has(const model_list *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].name, name) == 0) return true;
    return false;
}

void model_list_free(model_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->items[i].name);
        free(l->items[i].path);
    }
    free(l->items);
    free(l->places);
    *l = (model_list){0};
}

/* ---- folders of files ---- */

typedef struct plain_folder {
    const char *where, *prefix;
} plain_folder;

static void visit_plain(model_list *l, void *user, const char *below, const char *path) {
    const plain_folder *f = user;
    if (hub_is_model(below)) list_add(l, f->where, f->prefix, below, path);
}

/* ---- the hub's cache ---- */

/* {"sha": ...} of a revision: the text of refs/main. */
static bool read_ref(const char *repo, char out[65]) {
    char path[MODEL_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/refs/main", repo) >= MODEL_PATH_BYTES) return false;
    FILE *f = fopen(path, "rb");
    const size_t n = f != NULL ? fread(out, 1, 64, f) : 0;
    if (f != NULL) fclose(f);
    out[n] = '\0';
    out[strspn(out, "0123456789abcdef")] = '\0';
    return out[0] != '\0';
}

static void visit_snapshot(model_list *l, void *user, const char *below, const char *path) {
    (void)user;
    if (hub_is_path(below) && hub_is_model(below) && !list_has(l, below)) list_add(l, "hub", "", below, path);
}

static void find_in_repo(model_list *l, const char *repo) {
    char path[MODEL_PATH_BYTES + 80], ref[65] = "";
    size_t n;
    if (read_ref(repo, ref)) {
        snprintf(path, sizeof path, "%s/snapshots/%s", repo, ref);
        walk_below(l, path, "", 0, visit_snapshot, NULL);
    }
    snprintf(path, sizeof path, "%s/snapshots", repo);
    char **names = folder_names(l, path, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], ref) == 0 ||
            snprintf(path, sizeof path, "%s/snapshots/%s", repo, names[i]) >= MODEL_PATH_BYTES)
            continue;
        walk_below(l, path, "", 0, visit_snapshot, NULL);
    }
    free_names(names, n);
}

model_list model_list_of_repo(const char *owner, const char *repo) {
    model_list l = {.n_left = MAX_NAMES};
    char root[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES + 224];
    if (!model_hub_folder(root)) return l;
    snprintf(path, sizeof path, "%s/models--%s--%s", root, owner, repo);
    if (strlen(path) < MODEL_PATH_BYTES) find_in_repo(&l, path);
    return l;
}

/* A name that chooses the file: by its quantization, or, where that chooses another one, by its path. */
static void name_hub_entry(const model_list *of_repo, size_t i, const char *repo, char *out, size_t size) {
    const char *paths[MODEL_LIST_MAX];
    char quant[HUB_QUANT_BYTES];
    for (size_t k = 0; k < of_repo->n; k++) paths[k] = of_repo->items[k].name;
    const bool is_named = hub_quant_of(paths[i], quant) && hub_choose(paths, of_repo->n, quant, NULL) == (int32_t)i;
    snprintf(out, size, "%s:%s", repo, is_named ? quant : paths[i]);
}

static void find_hub(model_list *l) {
    char root[MODEL_PATH_BYTES], repo[256], name[1536];
    size_t n;
    if (!model_hub_folder(root)) return;
    list_add_place(l, root);
    char **folders = folder_names(l, root, &n);
    for (size_t i = 0; i < n; i++) {
        const char *owner = folders[i] + strlen("models--"),
                   *dashes = strncmp(folders[i], "models--", 8) == 0 ? strstr(owner, "--") : NULL;
        if (dashes == NULL || !hub_is_word(owner, (size_t)(dashes - owner)) ||
            !hub_is_word(dashes + 2, strlen(dashes + 2)))
            continue;
        snprintf(repo, sizeof repo, "%.*s/%s", (int)(dashes - owner), owner, dashes + 2);
        char owner_name[97];
        snprintf(owner_name, sizeof owner_name, "%.*s", (int)(dashes - owner), owner);
        model_list of_repo = model_list_of_repo(owner_name, dashes + 2);
        for (size_t k = 0; k < of_repo.n; k++) {
            name_hub_entry(&of_repo, k, repo, name, sizeof name);
            list_add(l, "hub", HUB_PREFIX, name, of_repo.items[k].path);
        }
        model_list_free(&of_repo);
    }
    free_names(folders, n);
}

/* ---- JSON of other programs ---- */

static json_t *read_json(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = cli_alloc((size_t)MANIFEST_BYTES);
    const size_t n = f != NULL ? fread(text, 1, (size_t)MANIFEST_BYTES, f) : 0;
    json_t *root = n > 0 && n < (size_t)MANIFEST_BYTES ? json_loadb(text, n, 0, NULL) : NULL;
    if (f != NULL) fclose(f);
    free(text);
    return root;
}

/* ---- llama.cpp ---- */

/* manifest=OWNER=REPO=TAG.json names the repository's file; the cache has it as OWNER_REPO_FILE. */
static void visit_llama_manifest(model_list *l, void *user, const char *below, const char *path) {
    const char *root = user;
    char owner[97], repo[97], tag[97], file[MODEL_PATH_BYTES], name[512];
    int end = 0;
    if (sscanf(below, "manifest=%96[^=/]=%96[^=/]=%96[^=/]%n", owner, repo, tag, &end) != 3 || below[end] != '\0')
        return;
    const size_t n_tag = strlen(tag);
    if (n_tag <= 5 || strcmp(tag + n_tag - 5, ".json") != 0) return;
    tag[n_tag - 5] = '\0';
    json_t *root_json = read_json(path);
    const char *in_repo = json_string_value(json_object_get(json_object_get(root_json, "ggufFile"), "rfilename"));
    if (in_repo != NULL && hub_is_path(in_repo) && hub_is_word(owner, strlen(owner)) &&
        hub_is_word(repo, strlen(repo)) && hub_is_word(tag, strlen(tag))) {
        const size_t n_root = strlen(root) + 1;
        if (snprintf(file, sizeof file, "%s/%s_%s_%s", root, owner, repo, in_repo) < MODEL_PATH_BYTES) {
            for (char *p = file + n_root; *p != '\0'; p++)
                if (*p == '/') *p = '_';
            snprintf(name, sizeof name, "%s/%s:%s", owner, repo, tag);
            list_add(l, "llama.cpp", "llama.cpp:", name, file);
        }
    }
    json_decref(root_json);
}

static void visit_llama_file(model_list *l, void *user, const char *below, const char *path) {
    (void)user;
    if (!hub_is_model(below)) return;
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].path, path) == 0) return; /* by its manifest */
    list_add(l, "llama.cpp", "llama.cpp:", below, path);
}

static void find_llama(model_list *l) {
    char root[MODEL_PATH_BYTES];
    if (!model_folder(root, "LLAMA_CACHE", "", NULL) &&
        !model_folder(root, "XDG_CACHE_HOME", "llama.cpp", ".cache/llama.cpp"))
        return;
    size_t n_root = strlen(root);
    while (n_root > 1 && root[n_root - 1] == '/') root[--n_root] = '\0';
    walk(l, root, visit_llama_manifest, root);
    walk_below(l, root, "", 0, visit_llama_file, NULL);
}

/* ---- Ollama ---- */

/* The digest "sha256:HEX" of a manifest's model, as the name of its blob. */
static bool ollama_blob(const json_t *manifest, char out[80]) {
    const json_t *layers = json_object_get(manifest, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *type = json_string_value(json_object_get(layer, "mediaType")),
                   *digest = json_string_value(json_object_get(layer, "digest"));
        char hex[65];
        if (type == NULL || digest == NULL || strcmp(type, "application/vnd.ollama.image.model") != 0) continue;
        if (strncmp(digest, "sha256:", 7) != 0 || !pull_digest_read(digest + 7, hex)) return false;
        snprintf(out, 80, "sha256-%s", hex);
        return true;
    }
    return false;
}

/* HOST/NAMESPACE/NAME/TAG; the namespace "library" and the host are left out, as Ollama does, unless the name is not
   unique then. */
static void visit_ollama(model_list *l, void *user, const char *below, const char *path) {
    const char *root = user;
    char host[128], space[128], name[128], tag[128], blob[80], file[MODEL_PATH_BYTES + 96], text[560];
    int end = 0;
    if (sscanf(below, "%127[^/]/%127[^/]/%127[^/]/%127[^/]%n", host, space, name, tag, &end) != 4 || below[end] != '\0')
        return;
    json_t *manifest = read_json(path);
    if (ollama_blob(manifest, blob)) {
        snprintf(file, sizeof file, "%s/blobs/%s", root, blob);
        if (strcmp(space, "library") == 0) snprintf(text, sizeof text, "ollama:%s:%s", name, tag);
        else snprintf(text, sizeof text, "ollama:%s/%s:%s", space, name, tag);
        if (list_has(l, text)) snprintf(text, sizeof text, "ollama:%s/%s/%s:%s", host, space, name, tag);
        if (strlen(file) < MODEL_PATH_BYTES) list_add(l, "ollama", "", text, file);
    }
    json_decref(manifest);
}

/* The user's, and that of Ollama's service. */
static void find_ollama(model_list *l) {
    static const char service[] = "/usr/share/ollama/.ollama/models";
    char root[MODEL_PATH_BYTES], manifests[MODEL_PATH_BYTES + 16];
    if (!model_folder(root, "OLLAMA_MODELS", "", ".ollama/models")) return;
    for (int i = 0; i < 2; i++) {
        snprintf(manifests, sizeof manifests, "%s/manifests", root);
        walk(l, manifests, visit_ollama, root);
        if (getenv("OLLAMA_MODELS") != NULL || strcmp(root, service) == 0) return;
        memcpy(root, service, sizeof service);
    }
}

/* ---- all ---- */

static int compare_entries(const void *a, const void *b) {
    const model_entry *x = a, *y = b;
    const int by_name = strcmp(x->name, y->name);
    return by_name != 0 ? by_name : strcmp(x->path, y->path);
}

model_list model_list_find(void) {
    model_list l = {.n_left = MAX_NAMES};
    plain_folder own = {"reprise", ""}, studio = {"lmstudio", "lmstudio:"};
    char root[MODEL_PATH_BYTES];
    if (model_own_folder(root)) walk(&l, root, visit_plain, &own);
    find_hub(&l);
    find_llama(&l);
    find_ollama(&l);
    if (model_folder(root, NULL, "", ".lmstudio/models")) walk(&l, root, visit_plain, &studio);
    if (model_folder(root, NULL, "", ".cache/lm-studio/models")) walk(&l, root, visit_plain, &studio);
    if (l.n > 0) qsort(l.items, l.n, sizeof *l.items, compare_entries);
    return l;
}

/* "ollama:llama3.2:3b" has the names "ollama:llama3.2:3b" and "llama3.2:3b"; "lmstudio:o/r/f.gguf" also "f.gguf". */
static bool entry_is_called(const model_entry *e, const char *name) {
    const size_t n = strlen(name), n_all = strlen(e->name);
    if (n > n_all || strcmp(e->name + n_all - n, name) != 0) return false;
    if (n == n_all) return true;
    const char before = e->name[n_all - n - 1];
    const char *colon = strchr(e->name, ':');
    return before == '/' || (before == ':' && colon == e->name + n_all - n - 1);
}

const model_entry *model_list_choose(const model_list *l, const char *name, size_t *n) {
    const model_entry *found = NULL;
    char *latest = cli_alloc(strlen(name) + sizeof ":latest");
    sprintf(latest, "%s:latest", name);
    *n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const model_entry *e = &l->items[i];
        if (strcmp(e->name, name) == 0) {
            found = e;
            *n = 1;
            break;
        }
        if (!entry_is_called(e, name) && !(strcmp(e->where, "ollama") == 0 && entry_is_called(e, latest))) continue;
        if (found == NULL) found = e;
        ++*n;
    }
    free(latest);
    return found;
}
