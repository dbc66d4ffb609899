/* SPDX-License-Identifier: Apache-2.0 */
/* pull_file.c: see pull_file.h. Owns the part, its description and the handle of libcurl. */
#define _GNU_SOURCE /* renameat2 */

#include "pull/pull_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/command.h"
#include "reprise_tools.h"

#define STALL_S 30L /* without a byte: the connection counts as lost */
#define MAX_REDIRECTS 8L
#define MAX_DELAY_S 60.0
#define HASH_BYTES ((size_t)1 << 20)
#define MIB_SHIFT 20
#define INFO_BYTES ((size_t)64 << 10) /* of FILE.part.json */
#define FIRST_MEASURE ((uint64_t)4 << 10)

/* One request and its reply. */
typedef struct attempt {
    pull_file *f;
    CURL *handle;
    struct curl_slist *headers;
    char why[CURL_ERROR_SIZE];
    bool has_begun; /* the reply's body: its bytes go into the part */
    char etag[256], modified[128];
    uint64_t length, from; /* of the whole file; of the first byte of a 206 */
    bool has_range, is_encoded;
    int fatal; /* an exit status after a printed error, or CLI_OK */
} attempt;

static char *pull_join(const char *a, const char *b) {
    size_t n = strlen(a) + strlen(b) + 1;
    char *both = cli_alloc(n);
    snprintf(both, n, "%s%s", a, b);
    return both;
}

/* ---- the part and its description ---- */

/* Why a file that has the name of one of ours is not used; NULL: it is a regular file of this user, under one name. */
static const char *pull_foreign(const struct stat *st) {
    if (!S_ISREG(st->st_mode)) return "it is not a regular file";
    if (st->st_uid != geteuid()) return "it belongs to another user";
    return st->st_nlink > 1 ? "it has other names (hard links)" : NULL;
}

/* Opens a file that may exist. -1: it does not; *why is NULL, or the reason why it is not used. */
static int pull_open_own(const char *path, int flags, const char **why) {
    struct stat st;
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* a pipe must not stop us */
    *why = NULL;
    if (fd >= 0) *why = fstat(fd, &st) == 0 ? pull_foreign(&st) : strerror(errno);
    else if (errno != ENOENT)
        *why = errno == ELOOP ? "it is a symbolic link" : errno == ENXIO ? "it is not a regular file"
                                                                         : strerror(errno);
    if (fd < 0 || *why == NULL) return fd;
    close(fd);
    return -1;
}

static bool pull_info_read(pull_file *f) {
    const char *why;
    int fd = pull_open_own(f->info, O_RDONLY, &why);
    char *text = cli_alloc(INFO_BYTES);
    ssize_t n = fd >= 0 ? pread(fd, text, INFO_BYTES, 0) : 0;
    json_t *root = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    if (fd >= 0) close(fd);
    free(text);
    const char *url = json_string_value(json_object_get(root, "url"));
    const char *validator = json_string_value(json_object_get(root, "validator"));
    const json_t *length = json_object_get(root, "length");
    bool fits = url != NULL && validator != NULL && validator[0] != '\0' && strlen(validator) < sizeof f->validator &&
                strcmp(url, f->url) == 0;
    if (fits) {
        memcpy(f->validator, validator, strlen(validator) + 1);
        f->length = json_is_integer(length) && json_integer_value(length) >= 0 ? (uint64_t)json_integer_value(length)
                                                                               : PULL_UNKNOWN;
    }
    json_decref(root);
    return fits;
}

static int pull_info_write(pull_file *f) {
    char *temporary = pull_join(f->info, ".new");
    json_t *root = json_pack("{s:s, s:s, s:o}", "url", f->url, "validator", f->validator, "length",
                             f->length == PULL_UNKNOWN ? json_null() : json_integer((json_int_t)f->length));
    errno = 0;
    unlink(temporary); /* of a killed process; of a link, the link */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool is_written = fd >= 0 && root != NULL && json_dumpfd(root, fd, JSON_INDENT(1)) == 0;
    int why = errno;
    if (fd >= 0) close(fd);
    if (is_written) is_written = rename(temporary, f->info) == 0, why = errno;
    if (!is_written) unlink(temporary);
    json_decref(root);
    free(temporary);
    return is_written ? CLI_OK : cli_fail(CLI_FAILED, "cannot write '%s': %s", f->info, strerror(why != 0 ? why : EIO));
}

/* Empties the part. */
static int pull_file_restart(pull_file *f) {
    f->bytes = f->measure_at = 0;
    f->model_bytes = PULL_UNKNOWN;
    crypto_hash_sha256_init(&f->hash);
    if (ftruncate(f->fd, 0) == 0) return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot truncate '%s': %s", f->part, strerror(errno));
}

static int pull_file_hash_part(pull_file *f) {
    unsigned char *bytes = cli_alloc(HASH_BYTES);
    ssize_t n = 0;
    crypto_hash_sha256_init(&f->hash);
    for (f->bytes = 0; (n = pread(f->fd, bytes, HASH_BYTES, (off_t)f->bytes)) > 0 && !cli_interrupted();
         f->bytes += (uint64_t)n)
        crypto_hash_sha256_update(&f->hash, bytes, (unsigned long long)n);
    int why = errno;
    free(bytes);
    if (n < 0) return cli_fail(CLI_FAILED, "cannot read '%s': %s", f->part, strerror(why));
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

/* A new part, or that of an earlier run. */
static int pull_open_part(pull_file *f) {
    const char *why = NULL;
    for (int i = 0; i < 2; i++) { /* a second time: another process made or removed it in between */
        f->fd = open(f->part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EEXIST)
            return cli_fail(CLI_FAILED, "cannot write '%s': %s", f->part, strerror(errno));
        if (f->fd < 0) f->fd = pull_open_own(f->part, O_RDWR, &why);
        if (f->fd >= 0) return CLI_OK;
        if (why != NULL) break;
    }
    return cli_fail(CLI_FAILED, "'%s' is not used: %s: remove it, or give another file with -o", f->part,
                    why != NULL ? why : "it keeps being replaced");
}

/* Does the name still lead to the open part? */
static bool pull_is_named(const pull_file *f) {
    struct stat own, named;
    return fstat(f->fd, &own) == 0 && lstat(f->part, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

int pull_file_open(pull_file *f, const pull_settings *settings, const char *url, const char *path, const char *label) {
    *f = (pull_file){.settings = settings, .url = url, .label = label, .length = PULL_UNKNOWN, .fd = -1};
    f->model_bytes = PULL_UNKNOWN;
    f->part = pull_join(path, ".part");
    f->info = pull_join(path, ".part.json");
    int status = pull_open_part(f);
    if (status != CLI_OK) return status;
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0)
        return cli_fail(CLI_FAILED, "'%s': another process is downloading this file: wait for its end", f->part);
    f->is_ours = true;
    if (!pull_info_read(f)) return pull_file_restart(f);
    status = pull_file_hash_part(f);
    if (status == CLI_OK && f->length != PULL_UNKNOWN && f->bytes > f->length) status = pull_file_restart(f);
    return status;
}

void pull_file_digest(pull_file *f, char hex[65]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&f->hash, digest);
    sodium_bin2hex(hex, 65, digest, sizeof digest);
}

void pull_file_discard(pull_file *f) {
    unlink(f->part);
    unlink(f->info);
    f->is_ours = false;
}

int pull_file_publish(pull_file *f, const char *path) {
    struct stat st;
    if (fsync(f->fd) != 0) return cli_fail(CLI_FAILED, "cannot write '%s': %s", f->part, strerror(errno));
    if (!pull_is_named(f))
        return cli_fail(CLI_FAILED, "'%s' was replaced during the download: download again, into a folder of your own",
                        f->part);
    int rc = renameat2(AT_FDCWD, f->part, AT_FDCWD, path, RENAME_NOREPLACE);
    if (rc != 0 && errno == EINVAL) { /* a file system without this flag */
        bool exists = lstat(path, &st) == 0;
        rc = exists ? -1 : rename(f->part, path);
        if (exists) errno = EEXIST;
    }
    if (rc != 0) return cli_fail(CLI_FAILED, "cannot rename '%s' to '%s': %s", f->part, path, strerror(errno));
    unlink(f->info);
    f->is_ours = false;
    return CLI_OK;
}

void pull_file_close(pull_file *f) {
    cli_progress_clear(&f->progress);
    if (f->is_ours && f->bytes == 0) pull_file_discard(f); /* nothing to resume */
    if (f->part != NULL && f->fd >= 0) close(f->fd);
    free(f->part);
    free(f->info);
    *f = (pull_file){.fd = -1};
}

/* ---- replies ---- */

/* The value of a header field, trimmed, if the line is of this field. */
static bool pull_header(const char *line, size_t n, const char *name, char *out, size_t size) {
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0) return false;
    const char *from = line + k + 1, *end = line + n;
    while (from < end && (*from == ' ' || *from == '\t')) from++;
    while (end > from && strchr(" \t\r\n", end[-1]) != NULL) end--;
    if ((size_t)(end - from) >= size) return false;
    memcpy(out, from, (size_t)(end - from));
    out[end - from] = '\0';
    return true;
}

static bool pull_number(const char *text, uint64_t *out) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || *end == '-' || *end == '/');
}

/* "bytes 5-9/10", "bytes *\/10" */
static void pull_take_range(attempt *a, const char *value) {
    const char *slash = strchr(value, '/');
    if (strncmp(value, "bytes ", 6) != 0 || slash == NULL) return;
    a->has_range = pull_number(value + 6, &a->from);
    if (!pull_number(slash + 1, &a->length)) a->length = PULL_UNKNOWN;
}

/* Called for each line of the headers of each reply, redirects included: a status line begins the next one. */
static size_t pull_on_header(char *line, size_t size, size_t count, void *user) {
    attempt *a = user;
    size_t n = size * count;
    char value[256];
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) {
        a->etag[0] = a->modified[0] = '\0';
        a->length = PULL_UNKNOWN;
        a->has_range = a->is_encoded = false;
    } else if (pull_header(line, n, "Content-Range", value, sizeof value)) pull_take_range(a, value);
    else if (pull_header(line, n, "Content-Length", value, sizeof value)) {
        if (!a->has_range && !pull_number(value, &a->length)) a->length = PULL_UNKNOWN;
    } else if (pull_header(line, n, "Content-Encoding", value, sizeof value))
        a->is_encoded = strcasecmp(value, "identity") != 0;
    else if (!pull_header(line, n, "ETag", a->etag, sizeof a->etag))
        pull_header(line, n, "Last-Modified", a->modified, sizeof a->modified);
    return n;
}

/* ---- sizes ---- */

/* The most bytes that the file may have. */
static uint64_t pull_limit(const pull_file *f) {
    uint64_t most = f->settings->max_bytes;
    if (f->size > 0 && (most == 0 || f->size < most)) most = f->size;
    if (most == 0)
        most = f->length == PULL_UNKNOWN && f->model_bytes == PULL_UNKNOWN ? PULL_UNSIZED_BYTES : PULL_UNKNOWN;
    return f->model_bytes < most ? f->model_bytes : most;
}

static int pull_refuse_size(pull_file *f, uint64_t most) {
    cli_progress_clear(&f->progress);
    if (most == f->model_bytes) {
        pull_file_discard(f);
        return cli_fail(CLI_FAILED,
                        "'%s' has more bytes than the %llu of the GGUF model in it: the download is deleted; "
                        "give --unchecked to keep such a file",
                        f->url, (unsigned long long)most);
    }
    if (most == f->size)
        return cli_fail(CLI_FAILED, "'%s' has more bytes than the %llu that the hub lists: try again later", f->url,
                        (unsigned long long)most);
    return cli_fail(
        CLI_FAILED, "'%s' has more than %llu bytes%s: give a larger --max-size; the same command resumes it", f->url,
        (unsigned long long)most,
        f->settings->max_bytes == 0 ? ", and the server does not give its size" : ", the limit of --max-size");
}

/* Reads the size in the GGUF header, if enough of it is there. */
static void pull_measure(pull_file *f) {
    uint64_t bytes, padded;
    rp_error err;
    if (!f->settings->is_model || f->model_bytes != PULL_UNKNOWN || f->bytes < f->measure_at) return;
    f->measure_at = f->bytes < FIRST_MEASURE ? FIRST_MEASURE : 2 * f->bytes;
    if (rp_model_measure(f->part, &bytes, &padded, &err) == RP_OK) f->model_bytes = padded;
}

int pull_file_check_size(pull_file *f) {
    f->measure_at = 0;
    pull_measure(f);
    return f->model_bytes != PULL_UNKNOWN && f->bytes > f->model_bytes ? pull_refuse_size(f, f->model_bytes) : CLI_OK;
}

static int pull_check_space(const attempt *a) {
    const pull_file *f = a->f;
    struct statvfs fs;
    if (f->length == PULL_UNKNOWN || fstatvfs(f->fd, &fs) != 0) return CLI_OK;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize, needed = f->length - f->bytes;
    if (needed <= free_bytes) return CLI_OK;
    return cli_fail(CLI_FAILED,
                    "'%s': not enough space on its file system: %llu MiB more are needed, %llu MiB are free", f->part,
                    (unsigned long long)(needed >> MIB_SHIFT) + 1, (unsigned long long)(free_bytes >> MIB_SHIFT));
}

/* A 206 continues the part if it begins at its end and is of the same version: some servers ignore If-Range. */
static bool pull_continues(const attempt *a) {
    const pull_file *f = a->f;
    if (!a->has_range || a->from != f->bytes || f->bytes == 0) return false;
    if (f->length != PULL_UNKNOWN && a->length != f->length) return false;
    const char *now = f->validator[0] == '"' ? a->etag : a->modified;
    return now[0] == '\0' || strcmp(now, f->validator) == 0;
}

/* The part becomes empty, and of the version of this reply. */
static int pull_begin_part(attempt *a) {
    pull_file *f = a->f;
    if (f->bytes > 0) {
        cli_progress_clear(&f->progress);
        cli_warn("'%s' changed at the server, or the server cannot resume: downloading it from the start", f->url);
    }
    int status = pull_file_restart(f);
    f->length = a->length;
    snprintf(f->validator, sizeof f->validator, "%s", a->etag[0] == '"' ? a->etag : a->modified);
    return status == CLI_OK ? pull_info_write(f) : status;
}

/* At the first byte of a body. Returns false if it cannot go into the part. */
static bool pull_begin_body(attempt *a, int status) {
    pull_file *f = a->f;
    if (status == 206 && !pull_continues(a)) {
        a->fatal = pull_file_restart(f); /* the next attempt asks for the whole file */
        return false;
    }
    if (status != 206) a->fatal = pull_begin_part(a);
    else if (f->length == PULL_UNKNOWN) f->length = a->length;
    if (a->fatal == CLI_OK && f->length != PULL_UNKNOWN && f->length > pull_limit(f))
        a->fatal = pull_refuse_size(f, pull_limit(f));
    if (a->fatal == CLI_OK) a->fatal = pull_check_space(a);
    a->has_begun = true;
    return a->fatal == CLI_OK;
}

static bool pull_write(attempt *a, const char *bytes, size_t n) {
    pull_file *f = a->f;
    const uint64_t most = pull_limit(f);
    if (n > most || f->bytes > most - n) {
        a->fatal = pull_refuse_size(f, most);
        return false;
    }
    for (size_t done = 0; done < n;) {
        ssize_t part = pwrite(f->fd, bytes + done, n - done, (off_t)(f->bytes + done));
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) {
            int why = part == 0 ? ENOSPC : errno;
            cli_progress_clear(&f->progress);
            a->fatal = cli_fail(CLI_FAILED, "cannot write '%s': %s: the part stays, and the same command resumes it",
                                f->part, strerror(why));
            return false;
        }
        done += (size_t)part;
    }
    crypto_hash_sha256_update(&f->hash, (const unsigned char *)bytes, n);
    f->bytes += n;
    pull_measure(f);
    if (f->model_bytes == PULL_UNKNOWN ||
        (f->bytes <= f->model_bytes && (f->length == PULL_UNKNOWN || f->length <= f->model_bytes)))
        return true;
    a->fatal = pull_refuse_size(f, f->model_bytes);
    return false;
}

static size_t pull_on_body(char *bytes, size_t size, size_t count, void *user) {
    attempt *a = user;
    size_t n = size * count;
    long status = 0;
    curl_easy_getinfo(a->handle, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) return n; /* of an error */
    if (a->is_encoded) return CURL_WRITEFUNC_ERROR;
    if (!a->has_begun && !pull_begin_body(a, (int)status)) return CURL_WRITEFUNC_ERROR;
    return pull_write(a, bytes, n) ? n : CURL_WRITEFUNC_ERROR;
}

static int pull_on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now) {
    attempt *a = user;
    pull_file *f = a->f;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (f->length != PULL_UNKNOWN)
        cli_progress_draw(&f->progress, f->label, "MiB", f->bytes >> MIB_SHIFT, f->length >> MIB_SHIFT);
    return cli_interrupted();
}

/* ---- requests ---- */

static void pull_add_header(struct curl_slist **to, const char *name, const char *value) {
    char *line = pull_join(name, value);
    struct curl_slist *longer = curl_slist_append(*to, line);
    free(line);
    if (longer == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    *to = longer;
}

/* Redirects are followed, from https to https only; libcurl sends the key to the URL's own host alone. Proxies of the
 * environment are used. */
static CURL *pull_handle_new(const pull_settings *settings, const char *url, struct curl_slist **headers,
                             char why[CURL_ERROR_SIZE]) {
    CURL *h = http_handle_new(why);
    pull_add_header(headers, "Accept-Encoding: ", "identity");
    if (settings->key != NULL) pull_add_header(headers, "Authorization: Bearer ", settings->key);
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, strncasecmp(url, "https:", 6) == 0 ? "https" : "http,https");
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, STALL_S);
    if (settings->ca_file != NULL) {
        curl_easy_setopt(h, CURLOPT_CAINFO, settings->ca_file);
        curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
    }
    return h;
}

static CURLcode pull_attempt(attempt *a) {
    pull_file *f = a->f;
    a->length = PULL_UNKNOWN;
    a->handle = pull_handle_new(f->settings, f->url, &a->headers, a->why);
    if (f->bytes > 0 && f->validator[0] != '\0') {
        char range[48];
        snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)f->bytes);
        pull_add_header(&a->headers, "Range: ", range);
        pull_add_header(&a->headers, "If-Range: ", f->validator);
    }
    curl_easy_setopt(a->handle, CURLOPT_HTTPHEADER, a->headers);
    curl_easy_setopt(a->handle, CURLOPT_HEADERFUNCTION, pull_on_header);
    curl_easy_setopt(a->handle, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(a->handle, CURLOPT_WRITEFUNCTION, pull_on_body);
    curl_easy_setopt(a->handle, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(a->handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(a->handle, CURLOPT_XFERINFOFUNCTION, pull_on_progress);
    curl_easy_setopt(a->handle, CURLOPT_XFERINFODATA, a);
    return curl_easy_perform(a->handle);
}

/* ---- failures ---- */

static bool pull_is_passing(CURLcode code, long status) {
    if (code == CURLE_OK)
        return status == 408 || status == 416 || status == 429 || status == 500 || (status >= 502 && status <= 504);
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WRITE_ERROR: /* a reply that does not fit the part: pull_begin_body */
    case CURLE_HTTP2: return true;
    default: return false;
    }
}

static const char *pull_fault(const attempt *a, CURLcode code, long status, char out[PULL_FAULT_BYTES]) {
    if (code == CURLE_WRITE_ERROR)
        return a->is_encoded ? "the reply is compressed" : "the reply is not the range that was asked for";
    if (code != CURLE_OK) return http_fault(a->why, code);
    const char *advice = a->f->settings->key_advice;
    if (status == 200 || status == 206) return "the reply is empty";
    snprintf(out, PULL_FAULT_BYTES, "HTTP status %ld%s", status,
             status == 401 || status == 403 ? advice != NULL ? advice : ": the file may need a key: give --key-file"
             : status == 404                ? ": no such file at the server"
                                            : "");
    return out;
}

/* Waits before the n-th retry in a row, or as long as the server asks for. */
static void pull_wait(attempt *a, int32_t n) {
    const pull_file *f = a->f;
    double delay = (double)f->settings->retry_delay;
    curl_off_t asked = 0;
    for (int32_t i = 1; i < n && delay < MAX_DELAY_S; i++) delay *= 2;
    curl_easy_getinfo(a->handle, CURLINFO_RETRY_AFTER, &asked);
    if ((double)asked > delay) delay = (double)asked;
    if (delay > MAX_DELAY_S) delay = MAX_DELAY_S;
    double until = cli_now_ms() + delay * 1e3;
    for (double left; (left = until - cli_now_ms()) > 0 && !cli_interrupted();) {
        double ms = left < 100 ? left : 100; /* between two looks at Ctrl-C */
        nanosleep(&(struct timespec){.tv_nsec = (long)(ms * 1e6)}, NULL);
    }
}

static void attempt_free(attempt *a) {
    curl_easy_cleanup(a->handle);
    curl_slist_free_all(a->headers);
}

/* One attempt. *again: it failed in a way that may pass. Returns an exit status; CLI_OK: the part is complete. */
static int pull_file_try(pull_file *f, int32_t *failures, bool *again) {
    attempt a = {.f = f};
    char text[PULL_FAULT_BYTES];
    long http = 0;
    CURLcode code = pull_attempt(&a);
    int status = a.fatal;
    curl_easy_getinfo(a.handle, CURLINFO_RESPONSE_CODE, &http);
    *again = false;
    if (cli_interrupted()) status = CLI_INTERRUPTED;
    bool is_complete = code == CURLE_OK && a.has_begun && (f->length == PULL_UNKNOWN || f->bytes == f->length);
    if (status == CLI_OK && !is_complete) {
        if (code == CURLE_OK && http == 416)
            status = pull_file_restart(f); /* the part does not fit the file any more */
        *failures = f->bytes > f->best ? 1 : *failures + 1;
        if (f->bytes > f->best) f->best = f->bytes;
        const char *fault = pull_fault(&a, code, http, text);
        *again = status == CLI_OK && pull_is_passing(code, http) && !a.is_encoded && *failures <= f->settings->retries;
        cli_progress_clear(&f->progress);
        if (*again)
            cli_warn("'%s': %s: retry %d of %d, from byte %llu", f->url, fault, (int)*failures,
                     (int)f->settings->retries, (unsigned long long)f->bytes);
        else if (status == CLI_OK) status = cli_fail(CLI_FAILED, "'%s': %s", f->url, fault);
        if (*again) pull_wait(&a, *failures);
    }
    attempt_free(&a);
    return status;
}

int pull_file_run(pull_file *f) {
    int32_t failures = 0;
    bool again = false;
    int status = CLI_OK;
    if (f->length != PULL_UNKNOWN && f->bytes == f->length && f->bytes > 0) return CLI_OK; /* by an earlier run */
    do {
        if (f->bytes > 0 && f->validator[0] == '\0') status = pull_file_restart(f); /* nothing to compare versions by */
        if (status == CLI_OK) status = pull_file_try(f, &failures, &again);
    } while (status == CLI_OK && again && !cli_interrupted());
    cli_progress_clear(&f->progress);
    return cli_interrupted() ? CLI_INTERRUPTED : status;
}

/* ---- small texts ---- */

typedef struct small_text {
    char *bytes;
    size_t n, max;
} small_text;

static size_t pull_keep_text(char *bytes, size_t size, size_t count, void *user) {
    small_text *t = user;
    size_t n = size * count;
    if (n > t->max - t->n) return CURL_WRITEFUNC_ERROR;
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    return n;
}

long pull_text(const pull_settings *settings, const char *url, size_t max, char **text, char why[PULL_FAULT_BYTES]) {
    char fault[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    small_text t = {.bytes = cli_alloc(max + 1), .max = max};
    long status = 0;
    CURL *h = pull_handle_new(settings, url, &headers, fault);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, pull_keep_text);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &t);
    CURLcode code = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    t.bytes[t.n] = '\0';
    *text = NULL;
    if (code == CURLE_WRITE_ERROR) snprintf(why, PULL_FAULT_BYTES, "the reply has more than %zu bytes", max);
    else if (code != CURLE_OK) snprintf(why, PULL_FAULT_BYTES, "%s", http_fault(fault, code));
    else if (status != 200) snprintf(why, PULL_FAULT_BYTES, "HTTP status %ld", status);
    else if (strlen(t.bytes) != t.n) snprintf(why, PULL_FAULT_BYTES, "the reply has zero bytes in it");
    else *text = t.bytes;
    if (*text == NULL) free(t.bytes);
    return code == CURLE_OK ? status : 0;
}
