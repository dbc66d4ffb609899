/* SPDX-License-Identifier: Apache-2.0 */
/* redis_tls.c: see redis_tls.h. */
#include "store/remote/redis_tls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#ifdef REPRISE_HAS_GNUTLS
#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <string.h>

#define WHY_BYTES 160
#define OLD_VERSIONS "-VERS-TLS1.0:-VERS-TLS1.1" /* taken from the system's policy */

struct redis_tls {
    gnutls_certificate_credentials_t credentials;
};

struct redis_tls_session {
    gnutls_session_t gnutls;
    char why[WHY_BYTES];
};

static int load_files(redis_tls *t, const char *ca, const char *cert, const char *key, rp_error *err) {
    BASE_ASSERT(!cert == !key);
    int n = ca ? gnutls_certificate_set_x509_trust_file(t->credentials, ca, GNUTLS_X509_FMT_PEM)
               : gnutls_certificate_set_x509_system_trust(t->credentials);
    if (ca && n <= 0)
        return base_fail(err, RP_ERR_IO, "'%s' has no certificates in PEM form: %s", ca,
                         n < 0 ? gnutls_strerror(n) : "it is empty");
    if (cert) n = gnutls_certificate_set_x509_key_file(t->credentials, cert, key, GNUTLS_X509_FMT_PEM);
    if (cert && n < 0)
        return base_fail(err, RP_ERR_IO, "'%s' and '%s' are not a certificate and its key in PEM form: %s", cert, key,
                         gnutls_strerror(n));
    return RP_OK;
}

int redis_tls_open(redis_tls **out, const char *ca, const char *cert, const char *key, rp_error *err) {
    redis_tls *t = base_calloc(1, sizeof(*t));
    if (!t || gnutls_certificate_allocate_credentials(&t->credentials) != GNUTLS_E_SUCCESS)
        return base_free(t), base_fail_memory(err, sizeof(*t), "TLS");
    const int rc = load_files(t, ca, cert, key, err);
    if (rc) redis_tls_close(t);
    else *out = t;
    return rc;
}

void redis_tls_close(redis_tls *t) {
    if (!t) return;
    gnutls_certificate_free_credentials(t->credentials);
    base_free(t);
}

static bool is_address(const char *host) {
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

int redis_tls_begin(redis_tls_session **out, const redis_tls *t, int fd, const char *host, rp_error *err) {
    redis_tls_session *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "TLS");
    int failed = gnutls_init(&s->gnutls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    if (failed) return base_free(s), base_fail_memory(err, sizeof(*s), "TLS");
    failed = gnutls_set_default_priority_append(s->gnutls, OLD_VERSIONS, NULL, 0);
    if (!failed) failed = gnutls_credentials_set(s->gnutls, GNUTLS_CRD_CERTIFICATE, t->credentials);
    if (!failed && !is_address(host)) failed = gnutls_server_name_set(s->gnutls, GNUTLS_NAME_DNS, host, strlen(host));
    if (failed) {
        gnutls_deinit(s->gnutls);
        base_free(s);
        return base_fail_memory(err, sizeof(*s), "TLS");
    }
    gnutls_session_set_verify_cert(s->gnutls, host, 0);
    gnutls_transport_set_int(s->gnutls, fd);
    *out = s;
    return RP_OK;
}

void redis_tls_end(redis_tls_session *s) {
    if (!s) return;
    (void)gnutls_bye(s->gnutls, GNUTLS_SHUT_WR);
    gnutls_deinit(s->gnutls);
    base_free(s);
}

/* The reason of a failed step, in errno and s->why. */
static int step_failed(redis_tls_session *s, ssize_t failed) {
    BASE_ASSERT(failed < 0);
    const int code = (int)failed;
    if (code == GNUTLS_E_AGAIN || code == GNUTLS_E_INTERRUPTED) return errno = EAGAIN, -1;
    snprintf(s->why, sizeof(s->why), "%s", gnutls_strerror(code));
    const bool is_lost =
        code == GNUTLS_E_PUSH_ERROR || code == GNUTLS_E_PULL_ERROR || code == GNUTLS_E_PREMATURE_TERMINATION;
    errno = is_lost ? ECONNRESET : EPROTO;
    if (code == GNUTLS_E_MEMORY_ERROR) errno = ENOMEM;
    if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
        gnutls_datum_t text = {0};
        if (!gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(s->gnutls),
                                                          gnutls_certificate_type_get(s->gnutls), &text, 0))
            snprintf(s->why, sizeof(s->why), "%s", (const char *)text.data);
        gnutls_free(text.data);
        errno = EACCES;
    }
    if (code == GNUTLS_E_FATAL_ALERT_RECEIVED) { /* of our certificate, as a rule */
        snprintf(s->why, sizeof(s->why), "the server refuses: %s",
                 gnutls_alert_get_name(gnutls_alert_get(s->gnutls)));
        errno = EACCES;
    }
    return -1;
}

int redis_tls_handshake(redis_tls_session *s) {
    const int failed = gnutls_handshake(s->gnutls);
    if (!failed) return 0;
    if (!gnutls_error_is_fatal(failed)) return errno = EAGAIN, -1; /* a warning: once more */
    return step_failed(s, failed);
}

ssize_t redis_tls_read(redis_tls_session *s, void *bytes, size_t n) {
    BASE_ASSERT(n > 0); /* 0 is the end */
    const ssize_t got = gnutls_record_recv(s->gnutls, bytes, n);
    if (got == GNUTLS_E_PREMATURE_TERMINATION) return 0;
    if (got < 0 && !gnutls_error_is_fatal((int)got)) return errno = EAGAIN, -1;
    return got < 0 ? step_failed(s, got) : got;
}

ssize_t redis_tls_write(redis_tls_session *s, const void *bytes, size_t n) {
    BASE_ASSERT(n > 0);
    const ssize_t sent = gnutls_record_send(s->gnutls, bytes, n);
    return sent < 0 ? step_failed(s, sent) : sent;
}

short redis_tls_events(const redis_tls_session *s) {
    return gnutls_record_get_direction(s->gnutls) ? POLLOUT : POLLIN;
}

const char *redis_tls_why(const redis_tls_session *s) { return s->why; }

#else

int redis_tls_open(redis_tls **out, const char *ca, const char *cert, const char *key, rp_error *err) {
    (void)out, (void)ca, (void)cert, (void)key;
    return base_fail(err, RP_ERR_UNSUPPORTED,
                     "this build has no TLS to Redis: install libgnutls28-dev and build again, or "
                     "use redis:// through stunnel");
}

/* Without credentials there are no sessions. */
void redis_tls_close(redis_tls *t) { BASE_ASSERT(!t); }
int redis_tls_begin(redis_tls_session **out, const redis_tls *t, int fd, const char *host, rp_error *err) {
    (void)out, (void)t, (void)fd, (void)host;
    return base_fail(err, RP_ERR_UNSUPPORTED, "this build has no TLS to Redis");
}
void redis_tls_end(redis_tls_session *s) { BASE_ASSERT(!s); }
int redis_tls_handshake(redis_tls_session *s) { return (void)s, errno = EPROTO, -1; }
ssize_t redis_tls_read(redis_tls_session *s, void *bytes, size_t n) {
    return (void)s, (void)bytes, (void)n, errno = EPROTO, -1;
}
ssize_t redis_tls_write(redis_tls_session *s, const void *bytes, size_t n) {
    return (void)s, (void)bytes, (void)n, errno = EPROTO, -1;
}
short redis_tls_events(const redis_tls_session *s) { return (void)s, POLLIN; }
const char *redis_tls_why(const redis_tls_session *s) { return (void)s, ""; }
#endif
