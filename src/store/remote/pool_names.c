/* SPDX-License-Identifier: Apache-2.0 */
/* pool_names.c: see pool_names.h. */
#include "store/remote/pool_names.h"

#include "base/check.h"
#include "store/record/record_header.h"

_Static_assert(POOL_NAME_CHARS == 2 * BASE_KEY_BYTES, "a name is a hash in hexadecimal digits");

static void end_name(base_hash *h, char out[POOL_NAME_CHARS + 1]) {
    base_key key;
    base_hash_final(h, &key);
    base_key_hex(&key, out, POOL_NAME_CHARS);
}

void pool_record_name(const base_key *secret, const base_key *span, char out[POOL_NAME_CHARS + 1]) {
    base_hash h;
    base_hash_init_keyed(&h, "reprise pool record 1", secret);
    base_hash_u64(&h, RECORD_FILE_VERSION);
    base_hash_key(&h, span);
    end_name(&h, out);
}

void pool_text_name(const base_key *secret, const rp_name *text, char out[POOL_NAME_CHARS + 1]) {
    base_hash h;
    base_hash_init_keyed(&h, "reprise pool text 1", secret);
    base_hash_u64(&h, RECORD_FILE_VERSION);
    base_hash_bytes(&h, text->bytes, sizeof(text->bytes));
    end_name(&h, out);
}

int pool_cipher(record_cipher **out, const base_key *secret, const base_key *salt, rp_error *err) {
    base_hash h;
    base_key key;
    base_hash_init_keyed(&h, "reprise pool tenant 1", secret);
    base_hash_key(&h, salt);
    base_hash_final(&h, &key);
    return record_cipher_of(out, &key, err);
}

void pool_pointer_seal(uint8_t out[POOL_POINTER_BYTES], const record_cipher *cipher, const char *name,
                       const base_key *span) {
    record_stream s;
    record_stream_begin(&s, cipher, out);
    record_stream_seal(&s, span->bytes, sizeof(span->bytes), name, POOL_NAME_CHARS, out + RECORD_STREAM_START_BYTES);
    record_stream_wipe(&s);
}

bool pool_pointer_open(base_key *span, const record_cipher *cipher, const char *name, const uint8_t *bytes, size_t n) {
    record_stream s;
    if (n != POOL_POINTER_BYTES) return false;
    record_stream_resume(&s, cipher, bytes);
    const bool is_whole = record_stream_open(&s, bytes + RECORD_STREAM_START_BYTES, sizeof(span->bytes), name,
                                             POOL_NAME_CHARS, span->bytes);
    record_stream_wipe(&s);
    return is_whole;
}
