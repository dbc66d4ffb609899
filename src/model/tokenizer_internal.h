/* tokenizer_internal.h: what the files of the tokenizer share. Nobody else includes it.
 *
 *   tokenizer.c        opening: vocabulary, ids, the bytes of every token; special tokens in a text; public functions
 *   tokenizer_map.c    strings -> ids, pairs of ids -> ranks
 *   tokenizer_spm.c    SentencePiece-style: merges by score
 *   tokenizer_bpe.c    byte-level: words by pattern, merges by rank
 */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buffer.h"
#include "model/tokenizer.h"

#define TOKENIZER_MAX_VOCAB (1 << 24)
#define TOKENIZER_MAX_TOKEN_BYTES (1 << 16)

typedef enum token_type {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5, TOKEN_BYTE = 6
} token_type;

/* Open addressing, filled once. Strings: by bytes in the file's map. Pairs: two ids. */
typedef struct token_map {
    int32_t *slots; /* index of an entry, -1: empty */
    size_t n_slots; /* a power of two */
} token_map;

typedef struct token_pair {
    int32_t left, right, merged;
} token_pair;

typedef struct pre_tokenizer {
    const char *name;
    const char *patterns[4]; /* applied one after the other: each cuts the pieces of the one before; NULL ends them */
    bool ignore_merges;      /* a word that is a token is taken whole */
    bool adds_bos;
} pre_tokenizer;

struct tokenizer {
    bool is_spm;
    bool space_prefix; /* SentencePiece's dummy space */
    bool adds_bos;
    int32_t n_vocab, bos, eos, eot, unk, pad;
    gguf_string *texts; /* [n_vocab], in the file's map */
    uint8_t *types;     /* [n_vocab] token_type */
    float *scores;      /* [n_vocab], SPM */
    bool *ends;         /* [n_vocab] */
    token_map by_text;

    char *bytes;        /* what every token stands for, NUL-terminated, one after the other */
    size_t *byte_start; /* [n_vocab + 1] */
    int32_t byte_tokens[256];

    int32_t *specials;  /* ids of control and user-defined tokens, by first byte, then longest first */
    int32_t n_specials;
    int32_t special_first[257]; /* by first byte: where its specials begin */

    /* byte-level BPE */
    const pre_tokenizer *pre;
    pcre2_general_context *pcre_memory;
    pcre2_code *codes[4];
    int n_codes;
    token_pair *merges; /* by rank */
    int32_t n_merges;
    token_map by_pair;  /* -> rank */
};

uint64_t token_hash(const void *bytes, size_t n);
int token_map_init(token_map *m, size_t n_entries); /* RP_ERR_MEMORY */
int32_t tokenizer_map_find(const tokenizer *t, const char *text, size_t n); /* id or -1 */
/* Adds ids in order; of equal texts the first stays. */
void tokenizer_map_fill(tokenizer *t);
int32_t tokenizer_pair_rank(const tokenizer *t, int32_t left, int32_t right); /* -1: no merge */
void tokenizer_pairs_fill(tokenizer *t);

int spm_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err);

int bpe_open(tokenizer *t, const gguf_file *f, rp_error *err);
void bpe_close(tokenizer *t);
int bpe_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err);
/* Bytes of a vocabulary text written in printable stand-ins for bytes; returns their number (at most n). */
size_t bpe_text_to_bytes(const char *text, size_t n, char *out);
/* The stand-in of a byte as UTF-8; returns its length (1 or 2). */
int bpe_byte_to_text(uint8_t byte, char out[2]);

/* ---- merging: shared by both families ----
 * A text as a list of pieces; the best adjacent pair is merged until none is left. */
typedef struct merge_piece {
    int32_t prev, next;
    size_t start, n; /* bytes; n 0: merged into its left neighbour */
    int32_t id;
} merge_piece;

typedef struct merge_candidate {
    double priority; /* greater goes first; among equals the leftmost */
    int32_t left, right, id;
    size_t n; /* bytes of both when it was proposed: tells whether it is still true */
} merge_candidate;

typedef struct merge_work {
    const tokenizer *t;
    const char *text;
    merge_piece *pieces;
    size_t n_pieces, cap_pieces;
    merge_candidate *heap;
    size_t n_heap, cap_heap;
    /* Proposes to merge two adjacent pieces: true, and fills in priority and id. */
    bool (*propose)(const struct merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c);
} merge_work;

int merge_add_piece(merge_work *w, size_t start, size_t n, int32_t id);
int merge_run(merge_work *w); /* RP_ERR_MEMORY */
void merge_free(merge_work *w);

#endif
