/* SPDX-License-Identifier: Apache-2.0 */
/* route_sign.c: settings and signature headers of every request to a node (cluster/signature.h). Any thread. */
#include <string.h>

#include <sodium.h>

#include "server/http/http_stream.h"
#include "server/route/route_internal.h"

#define IDLE_S 60L /* greatest idle time of a reused connection: nodes close them after --idle-timeout (75) */

void route_curl_settings(CURL *easy, const char *url) {
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ROUTE_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
}

struct curl_slist *route_add_line(struct curl_slist *list, const char *line) {
    struct curl_slist *longer = curl_slist_append(list, line);
    if (!longer) curl_slist_free_all(list);
    return longer;
}

struct curl_slist *route_add_header(struct curl_slist *list, const char *name, const char *value) {
    base_buffer line = BASE_BUFFER(HTTP_MAX_HEAD);
    const bool is_written = !strpbrk(value, "\r\n") && base_buffer_printf(&line, "%s: %s", name, value) == 0;
    if (is_written) list = route_add_line(list, line.data);
    else curl_slist_free_all(list);
    base_buffer_free(&line);
    return is_written ? list : NULL;
}

struct curl_slist *route_sign(const route *t, struct curl_slist *list, const char *method, const char *target,
                              const char *to, const char *resume, const route_part *body, int n_parts,
                              const uint8_t *nonce) {
    uint8_t tag[CLUSTER_BODY_TAG_BYTES], own[CLUSTER_NONCE_BYTES];
    char mac[CLUSTER_SIGNATURE_BYTES];
    cluster_body b;
    randombytes_buf(own, sizeof(own));
    if (!nonce) nonce = own;
    cluster_body_init(&b, t->secret, nonce);
    for (int i = 0; i < n_parts; i++) cluster_body_add(&b, body[i].bytes, body[i].n);
    cluster_body_final(&b, tag);
    const cluster_signed what = {.method = method, .target = target, .route = to, .resume = resume, .body_tag = tag};
    cluster_sign(mac, t->secret, nonce, &what);
    list = route_add_header(list, CLUSTER_SIGNATURE_HEADER, mac);
    if (list && to) list = route_add_header(list, CLUSTER_ROUTE_HEADER, to);
    if (list && resume) list = route_add_header(list, CLUSTER_RESUME_HEADER, resume);
    return list;
}
