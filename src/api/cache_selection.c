/* SPDX-License-Identifier: Apache-2.0 */
/* cache_selection.c: see cache_selection.h. Owns nothing. Any thread. */
#include "api/cache_selection.h"

#include <string.h>

#include "base/error.h"
#include "store/record_bundle.h"

#define LEAST_DIGITS 4 /* of a key or a model: fewer would mean very many by a slip */

static int check_digits(const char *what, const char *digits, rp_error *err) {
    size_t n = digits ? strlen(digits) : LEAST_DIGITS;
    if (n >= LEAST_DIGITS && n <= CACHE_KEY_DIGITS && (!digits || strspn(digits, "0123456789abcdef") == n)) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "%s '%s': give its first %d to %d hexadecimal digits, in lower case", what, digits, LEAST_DIGITS,
                     CACHE_KEY_DIGITS);
}

int cache_selection_check(const rp_cache_selection *s, rp_error *err) {
    if (!s->all && !s->name && !s->key && !s->model && !s->expired && !s->modules && !s->texts)
        return base_fail(err, RP_ERR_INVALID, "the selection is empty: give a name, a key, a model, a kind, expired, or all");
    int rc = check_digits("the key", s->key, err);
    return rc ? rc : check_digits("the model", s->model, err);
}

static bool cache_selection_begins(const char *text, const char *with) { return !with || strncmp(text, with, strlen(with)) == 0; }

static bool is_of_kind(const rp_cache_selection *s, rp_cache_kind kind) {
    if (!s->modules && !s->texts) return true;
    return (s->modules && kind == RP_CACHE_MODULE) || (s->texts && kind == RP_CACHE_TEXT);
}

bool cache_selection_means(const rp_cache_selection *s, const rp_cache_entry *e) {
    return is_of_kind(s, e->kind) && cache_selection_begins(e->key, s->key) && cache_selection_begins(e->model, s->model) &&
           (!s->name || record_label_is_below(e->label, s->name)) && (!s->expired || e->expired);
}

bool cache_selection_is_named(const rp_cache_selection *s) { return s->name || s->key || s->model; }
