/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_pull.c: `reprise pull`: downloads a model. Owns the command's options, the names of its files and the order of
 * the steps; one file is downloaded in pull_file.c.
 *
 *   URL -> names of its parts -> each: FILE.part, its checksum -> all: readable GGUF? -> rename, the first part last
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/command.h"
#include "common/console.h"
#include "models/hub.h"
#include "pull/pull_check.h"
#include "pull/pull_parts.h"

#define BASE_VARIABLE "REPRISE_MODELS_URL"
#define PATH_BYTES 4096

typedef struct pull_options {
    const char *url, *output, *sha256, *key_file, *ca_file;
    int32_t retries;
    float retry_delay;
    uint64_t max_size;
    bool unchecked;
} pull_options;

#define AT(field) offsetof(pull_options, field)
static const cli_option options[] = {
    {.name = "url",
     .kind = CLI_TEXT,
     .value = "URL",
     .offset = AT(url),
     .required = true,
     .positional = true,
     .help =
         "http or https URL of the file, of a split model any of its files; its path below the URL in " BASE_VARIABLE
         "; or "
         "hf:OWNER/REPO[:QUANT], a model of the hub in HF_ENDPOINT"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(output),
     .help = "file to write, or an existing folder (a file of ~/.local/share/reprise/models, named as in the URL)"},
    {.name = "sha256",
     .kind = CLI_TEXT,
     .value = "HEX",
     .offset = AT(sha256),
     .help = "SHA-256 of the file (that of " PULL_SUMS_NAME " beside it at the server, if there is one)"},
    {.name = "key-file",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(key_file),
     .help = "file with a key to send as bearer token to the URL's host; '-': standard input"},
    {.name = "ca-file", .kind = CLI_TEXT, .value = "FILE", .offset = AT(ca_file), .help = HTTP_CA_FILE_HELP},
    {.name = "retries",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(retries),
     .min = 0,
     .max = 1000000,
     .help = "number of retries without progress (8)"},
    {.name = "retry-delay",
     .kind = CLI_REAL,
     .value = "S",
     .offset = AT(retry_delay),
     .min = 0,
     .max = 3600,
     .help = "delay before the first retry in seconds; doubled for each further one, up to a minute (1)"},
    {.name = "max-size",
     .kind = CLI_BYTES,
     .value = "BYTES",
     .offset = AT(max_size),
     .help = "maximum size of a file; suffixes: K, M, G, T (none; 1G where neither the server nor a GGUF header gives "
             "a size)"},
    {.name = "unchecked",
     .kind = CLI_FLAG,
     .offset = AT(unchecked),
     .help = "keep a file that is not a readable GGUF model, such as an adapter"},
    {.name = NULL},
};
#undef AT

static int pull_main(int argc, char **argv);

const cli_command cli_command_pull = {
    .name = "pull",
    .summary = "download a model over HTTP, resuming interrupted downloads",
    .synopsis = "URL [-o FILE] [OPTIONS]",
    .notes =
        "Prints the path of the file: reprise run -m \"$(reprise pull URL)\" ...\n"
        "A model of a hub is checked for a newer version; reprise run -m hf:OWNER/REPO uses the one that is here.\n"
        "An interrupted download stays as FILE.part, and the same command resumes it.\n"
        "exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (Ctrl-C)\n",
    .options = options,
    .main = pull_main,
};

typedef struct pull_job {
    const pull_options *options;
    pull_settings settings;
    char folder[PATH_BYTES], name[PATH_BYTES]; /* of the output; name: as in the URL, or of -o */
    const char *sums_from;                     /* where checksums come from, for the summary */
    pull_part *parts;
    int32_t n;
} pull_job;

/* ---- URLs and names ---- */

static int pull_wrong_url(const char *url, const char *why) {
    return cli_fail(CLI_WRONG_USE, "'%s': %s: give an http or https URL of a file", url, why);
}

/* Sets u to the URL, or to a path below that of the environment. */
static int pull_read_url(CURLU *u, const char *given) {
    const char *base = getenv(BASE_VARIABLE);
    char *scheme = NULL;
    CURLUcode rc = CURLUE_OK;
    if (strstr(given, "://") == NULL) {
        if (base == NULL || base[0] == '\0')
            return cli_fail(CLI_WRONG_USE,
                            "'%s' is not a URL, and " BASE_VARIABLE " is not set: give an http or https URL, or set it",
                            given);
        char *joined = cli_alloc(strlen(base) + strlen(given) + 2);
        sprintf(joined, "%s%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/", given);
        rc = curl_url_set(u, CURLUPART_URL, joined, 0);
        free(joined);
    } else rc = curl_url_set(u, CURLUPART_URL, given, 0);
    if (rc == CURLUE_OK) rc = curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
    if (rc != CURLUE_OK) return pull_wrong_url(given, curl_url_strerror(rc));
    bool is_http = strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0;
    curl_free(scheme);
    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
    return is_http ? CLI_OK : pull_wrong_url(given, "unsupported URL scheme");
}

/* The decoded last segment of a URL's path. Returns false if it is no name of a file. */
static bool pull_name_of(CURLU *u, char name[PATH_BYTES]) {
    char *path = NULL;
    if (curl_url_get(u, CURLUPART_PATH, &path, CURLU_URLDECODE) != CURLUE_OK) return false;
    const char *slash = strrchr(path, '/'), *last = slash != NULL ? slash + 1 : path;
    bool is_name = last[0] != '\0' && strlen(last) < 256 && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
    for (const char *p = last; *p != '\0'; p++) is_name &= (unsigned char)*p >= ' ' && *p != 0x7f;
    snprintf(name, PATH_BYTES, "%s", last);
    curl_free(path);
    return is_name;
}

/* The URL with another last segment; freed by the caller. */
static char *pull_url_beside(CURLU *u, const char *name) {
    char *path = NULL, *url = NULL, *escaped = curl_easy_escape(NULL, name, 0), *copy = NULL;
    CURLU *other = curl_url_dup(u);
    if (other == NULL || escaped == NULL || curl_url_get(u, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        exit(cli_fail(CLI_FAILED, "out of memory"));
    char *changed = cli_alloc(strlen(path) + strlen(escaped) + 2);
    const char *slash = strrchr(path, '/');
    sprintf(changed, "%.*s/%s", slash != NULL ? (int)(slash - path) : 0, path, escaped);
    curl_url_set(other, CURLUPART_PATH, changed, 0);
    if (curl_url_get(other, CURLUPART_URL, &url, 0) != CURLUE_OK) exit(cli_fail(CLI_FAILED, "out of memory"));
    copy = memcpy(cli_alloc(strlen(url) + 1), url, strlen(url) + 1);
    free(changed);
    curl_free(path);
    curl_free(url);
    curl_free(escaped);
    curl_url_cleanup(other);
    return copy;
}

/* ---- where files go ---- */

static bool pull_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Creates ~/.local/share/reprise/models, or that of XDG_DATA_HOME. */
static int pull_default_folder(char folder[PATH_BYTES]) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n = -1;
    if (data != NULL && data[0] == '/') n = snprintf(folder, PATH_BYTES, "%s/reprise/models", data);
    else if (home != NULL && home[0] == '/') n = snprintf(folder, PATH_BYTES, "%s/.local/share/reprise/models", home);
    if (n < 0 || n >= PATH_BYTES)
        return cli_fail(CLI_FAILED, "no folder for models: set HOME or XDG_DATA_HOME, or give -o FILE");
    for (char *p = folder + 1;; p++) {
        char kept = *p;
        if (kept != '/' && kept != '\0') continue;
        *p = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return cli_fail(CLI_FAILED, "cannot create the folder '%s': %s", folder, strerror(errno));
        *p = kept;
        if (kept == '\0') return CLI_OK;
    }
}

/* Sets folder and name from -o and the URL's name. */
static int pull_place(pull_job *job) {
    const char *output = job->options->output;
    if (output == NULL) return pull_default_folder(job->folder);
    size_t n = strlen(output);
    if (n == 0 || n >= PATH_BYTES - 300) return cli_fail(CLI_WRONG_USE, "--output '%s': not a file name", output);
    if (pull_is_folder(output) || output[n - 1] == '/') {
        snprintf(job->folder, PATH_BYTES, "%s", output);
        return CLI_OK;
    }
    const char *slash = strrchr(output, '/');
    snprintf(job->folder, PATH_BYTES, "%.*s", slash != NULL && slash > output ? (int)(slash - output) : 1,
             slash != NULL ? output : ".");
    snprintf(job->name, PATH_BYTES, "%s", slash != NULL ? slash + 1 : output);
    return CLI_OK;
}

/* The parts: their URLs and paths. */
static int pull_list_parts(pull_job *job, CURLU *u) {
    char url_name[PATH_BYTES];
    size_t n_url_stem = 0, n_stem = 0;
    if (!pull_name_of(u, url_name)) return pull_wrong_url(job->options->url, "it ends without the name of a file");
    snprintf(job->name, PATH_BYTES, "%s", url_name);
    int status = pull_place(job);
    if (status != CLI_OK) return status;
    size_t n_name = strlen(job->name); /* only names that end in ".gguf" claim to be models */
    job->settings.is_model = !job->options->unchecked && n_name >= 5 && strcmp(job->name + n_name - 5, ".gguf") == 0;
    int32_t n = pull_split_parts(url_name, &n_url_stem);
    if (n > 0 && pull_split_parts(job->name, &n_stem) != n)
        return cli_fail(CLI_WRONG_USE,
                        "--output '%s': the model has %d files, NAME-00001-of-%05d.gguf and so on: give a folder",
                        job->name, (int)n, (int)n);
    if (n > 1 && job->options->sha256 != NULL)
        return cli_fail(CLI_WRONG_USE, "--sha256: the model has %d files, and a checksum is that of one: leave it out",
                        (int)n);
    job->n = n > 0 ? n : 1;
    job->parts = cli_alloc((size_t)job->n * sizeof *job->parts);
    for (int32_t i = 0; i < job->n; i++) {
        pull_part *p = &job->parts[i];
        char suffix[48] = "", other[PATH_BYTES + 48];
        if (n > 0) snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)i + 1, (int)n);
        snprintf(other, sizeof other, "%.*s%s", (int)(n > 0 ? n_url_stem : strlen(url_name)), url_name, suffix);
        p->url = pull_url_beside(u, other);
        p->name = cli_alloc(strlen(job->name) + 1);
        snprintf(p->name, strlen(job->name) + 1, "%.*s%s", (int)(n > 0 ? n_stem : strlen(job->name)), job->name,
                 suffix);
        p->path = cli_alloc(strlen(job->folder) + strlen(p->name) + 2);
        sprintf(p->path, "%s/%s", job->folder, p->name);
        if (job->n > 1) snprintf(p->label, sizeof p->label, "downloading %d of %d", (int)i + 1, (int)n);
        else snprintf(p->label, sizeof p->label, "downloading");
    }
    return CLI_OK;
}

/* ---- steps ---- */

/* Expected checksums, from --sha256 or the server. Names in SHA256SUMS are those of the URLs. */
static int pull_expect(pull_job *job, CURLU *u) {
    const char *given = job->options->sha256;
    if (given != NULL) {
        job->sums_from = "--sha256";
        return pull_digest_read(given, job->parts[0].expected)
                   ? CLI_OK
                   : cli_fail(CLI_WRONG_USE, "--sha256 '%s': give 64 hexadecimal digits", given);
    }
    char *url = pull_url_beside(u, PULL_SUMS_NAME);
    char *sums = NULL, why[PULL_FAULT_BYTES];
    pull_text(&job->settings, url, PULL_SUMS_MAX_BYTES, &sums, why);
    job->sums_from = PULL_SUMS_NAME;
    for (int32_t i = 0; i < job->n && sums != NULL; i++) {
        const char *slash = strrchr(job->parts[i].url, '/');
        size_t n = slash != NULL ? strcspn(slash + 1, "?") : 0;
        char *name = n > 0 ? curl_easy_unescape(NULL, slash + 1, (int)n, NULL) : NULL;
        if (name != NULL) pull_sums_find(sums, name, job->parts[i].expected);
        curl_free(name);
    }
    free(sums);
    free(url);
    return CLI_OK;
}

static int pull_refuse_existing(const pull_job *job) {
    struct stat st;
    if (!pull_is_folder(job->folder)) return cli_fail(CLI_FAILED, "'%s' is not a folder: create it first", job->folder);
    for (int32_t i = 0; i < job->n; i++)
        if (lstat(job->parts[i].path, &st) == 0)
            return cli_fail(CLI_FAILED, "'%s' exists, and is not overwritten: remove it, or give another file with -o",
                            job->parts[i].path);
    return CLI_OK;
}

/* The first part is renamed last: all others exist when it can be opened. */
static int pull_publish(pull_job *job) {
    int status = CLI_OK;
    for (int32_t i = job->n - 1; i >= 0 && status == CLI_OK; i--)
        status = pull_file_publish(&job->parts[i].file, job->parts[i].path);
    return status;
}

static void pull_print_summary(const pull_job *job) {
    uint64_t bytes = 0;
    int32_t n_expected = 0;
    for (int32_t i = 0; i < job->n; i++) {
        bytes += job->parts[i].file.bytes;
        n_expected += job->parts[i].expected[0] != '\0';
    }
    fprintf(stderr, "%s: %.1f MiB", job->parts[0].name, (double)bytes / 1048576.0);
    if (n_expected == job->n) fprintf(stderr, ", SHA-256 as in %s\n", job->sums_from);
    else if (job->n == 1) fprintf(stderr, ", SHA-256 %s, compared with nothing\n", job->parts[0].digest);
    else fprintf(stderr, ", SHA-256 of %d of %d files compared\n", (int)n_expected, (int)job->n);
    printf("%s\n", job->parts[0].path);
}

static int pull_run(pull_job *job, CURLU *u) {
    int status = pull_read_url(u, job->options->url);
    if (status == CLI_OK) status = pull_list_parts(job, u);
    if (status == CLI_OK) status = pull_refuse_existing(job);
    if (status == CLI_OK) status = pull_expect(job, u);
    if (status == CLI_OK)
        status = pull_parts_download(job->parts, job->n, &job->settings, job->sums_from, job->options->url);
    if (status == CLI_OK) status = pull_publish(job);
    if (status != CLI_OK) return status;
    pull_print_summary(job);
    return cli_finish_output();
}

/* The hub's own variables say where files go and which token is sent. */
static int pull_from_hub(const pull_options *o) {
    char *path = NULL;
    if (o->output != NULL || o->sha256 != NULL || o->key_file != NULL || o->unchecked)
        return cli_fail(
            CLI_WRONG_USE,
            "-o, --sha256, --key-file and --unchecked are for URLs: a hub has its cache, checksums and HF_TOKEN");
    pull_settings settings = {.ca_file = o->ca_file, .retries = o->retries, .retry_delay = o->retry_delay};
    int status = hub_pull(o->url, &settings, o->max_size, &path);
    if (status == CLI_OK) {
        printf("%s\n", path);
        status = cli_finish_output();
    }
    free(path);
    return status;
}

static int pull_main(int argc, char **argv) {
    pull_options o = {.retries = 8, .retry_delay = 1};
    char *key = NULL;
    cli_parsed parsed = cli_options_parse(&cli_command_pull, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (hub_is_name(o.url)) return pull_from_hub(&o);
    int status = cli_read_key(o.key_file, &key);
    if (status != CLI_OK) return status;
    CURLU *u = curl_url();
    pull_job *job = cli_alloc(sizeof *job);
    if (u == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    *job =
        (pull_job){.options = &o,
                   .settings = {.key = key,
                                .ca_file = o.ca_file,
                                .retries = o.retries,
                                .retry_delay = o.retry_delay,
                                .max_bytes = o.max_size}};
    cli_interrupt_catch();
    status = pull_run(job, u);
    pull_parts_free(job->parts, job->n);
    free(job);
    free(key);
    curl_url_cleanup(u);
    return status;
}
