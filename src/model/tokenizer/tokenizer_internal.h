/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_internal.h: declarations shared by the files of the tokenizer. Other files must not include it, except unit
 * tests.
 *
 *   tokenizer.c            opening: vocabulary, ids, the bytes of every token; look-ups
 *   tokenizer_encode.c     text to tokens, by the functions of the vocabulary's kind
 *   tokenizer_special.c    control and user-defined tokens in a text; end-of-turn tokens
 *   tokenizer_infill.c     fill-in-the-middle tokens
 *   tokenizer_merge.c      strings -> ids, pairs of ids -> ranks; merging adjacent pieces
 *   tokenizer_prefix.c     texts of a list that are a prefix of a text
 *   tokenizer_characters.c SentencePiece: characters, and those that no piece covers
 *   tokenizer_spm.c        SentencePiece: spaces, and BPE by score or by rank
 *   tokenizer_charsmap.c   SentencePiece: normalisation by the model's table
 *   tokenizer_unigram.c    SentencePiece: the most probable pieces
 *   tokenizer_bpe.c        byte-level BPE: merges by rank
 *   tokenizer_pre.c        byte-level BPE: the table of pre-tokenizers, and splitting a text into words
 *   tokenizer_nfc.c        byte-level BPE: Unicode's composed form
 *   tokenizer_wordpiece.c  WordPiece: normalisation, words, the longest pieces
 *   tokenizer_embedding.c  special tokens around texts for embeddings
 */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buffer.h"
#include "base/check.h"
#include "model/tokenizer/tokenizer.h"

#define TOKENIZER_MAX_VOCAB (1 << 24)
#define TOKENIZER_MAX_TOKEN_BYTES (1 << 16)
#define TOKENIZER_MAX_NORMAL_BYTES (TOKENIZER_MAX_TOKENS * 4) /* of a text after normalisation */
#define PRE_MAX_PATTERNS 6

typedef enum tokenizer_kind { TOKENIZER_SPM,
                              TOKENIZER_UNIGRAM,
                              TOKENIZER_BPE,
                              TOKENIZER_WORDPIECE } tokenizer_kind;

/* Fill-in-the-middle tokens; the last three are ends of an infill. */
enum { TOKENIZER_INFILL_PREFIX,
       TOKENIZER_INFILL_SUFFIX,
       TOKENIZER_INFILL_MIDDLE,
       TOKENIZER_INFILL_PAD,
       TOKENIZER_INFILL_REPOSITORY,
       TOKENIZER_INFILL_FILE,
       TOKENIZER_N_INFILL };

typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
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
    /* values of tokenizer.ggml.pre, separated by spaces; messages show the first */
    const char *names;
    /* applied in order, each to the pieces of the previous one; NULL ends them */
    const char *patterns[PRE_MAX_PATTERNS];
    bool nfc;           /* the text is normalised to NFC first */
    bool ignore_merges; /* a word that is a token is not split and merged */
    bool adds_bos;
} pre_tokenizer;

/* See tokenizer_prefix.c. */
typedef struct prefix_text {
    const char *bytes; /* borrowed */
    uint32_t n;        /* > 0 */
    int32_t id;
} prefix_text;

typedef struct prefix_list {
    prefix_text *texts; /* owned; sorted by bytes, a prefix before longer texts, equal ones by id */
    int32_t n;
} prefix_list;

typedef struct prefix_walk {
    int32_t low, high; /* range of the texts that start with the bytes walked */
    size_t depth;      /* bytes walked */
} prefix_walk;

/* See tokenizer_charsmap.c. */
typedef struct charsmap {
    uint32_t *units; /* owned; NULL: no normalisation */
    size_t n_units;
    const char *texts; /* in the file's map; each ends with a NUL */
    size_t texts_bytes;
} charsmap;

struct tokenizer {
    tokenizer_kind kind;
    bool space_prefix;                 /* SentencePiece's dummy space */
    bool merges_spaces;                /* SentencePiece: runs of spaces become one space; spaces at both ends are
                                          removed */
    bool is_ranked;                    /* SentencePiece: merges are listed, by rank; lines are words */
    bool strips_right;                 /* white space after a special token belongs to it */
    bool adds_bos, adds_eos, adds_sep; /* eos and sep: to texts for embeddings */
    int32_t n_vocab, bos, eos, eot, unk, pad, sep;
    int32_t infill[TOKENIZER_N_INFILL]; /* -1: none */
    bool suffix_first;                  /* in an infill */
    gguf_string *texts;                 /* [n_vocab], in the file's map */
    uint8_t *types;                     /* [n_vocab] token_type */
    float *scores;                      /* [n_vocab], SentencePiece */
    bool *ends;                         /* [n_vocab] */
    token_map by_text;

    char *bytes;        /* the bytes of all tokens, NUL-terminated, concatenated */
    size_t *byte_start; /* [n_vocab + 1] */
    int32_t byte_tokens[256];

    prefix_list specials;       /* texts of control, user-defined and unknown tokens */
    int32_t special_first[257]; /* by first byte: index of its first special token */

    /* SentencePiece */
    charsmap map;
    prefix_list pieces; /* of a unigram vocabulary */
    float unknown_score;

    bool has_case; /* WordPiece: capital letters and accents stay */

    /* byte-level BPE */
    size_t longest; /* bytes of the longest token's text */
    const pre_tokenizer *pre;
    pcre2_general_context *pcre_memory;
    pcre2_code *codes[PRE_MAX_PATTERNS];
    bool is_jit[PRE_MAX_PATTERNS]; /* compiled to machine code */
    int n_codes;
    token_pair *merges; /* by rank; of is_ranked, too */
    int32_t n_merges;
    token_map by_pair; /* -> rank */
};

/* The bytes of a token, of a control token its name. Borrowed. */
static inline gguf_string token_bytes(const tokenizer *t, int32_t id) {
    BASE_DCHECK(id >= 0 && id < t->n_vocab && t->byte_start[id] < t->byte_start[id + 1]);
    return (gguf_string){t->bytes + t->byte_start[id], t->byte_start[id + 1] - t->byte_start[id] - 1};
}

int token_map_init(token_map *m, size_t n_entries);                         /* RP_ERR_MEMORY */
int32_t tokenizer_map_find(const tokenizer *t, const char *text, size_t n); /* id or -1 */
/* Adds ids in order; of equal texts the first is kept. */
void tokenizer_map_fill(tokenizer *t);
int32_t tokenizer_pair_rank(const tokenizer *t, int32_t left, int32_t right); /* -1: no merge */
void tokenizer_pairs_fill(tokenizer *t);

void prefix_sort(prefix_list *l);
prefix_walk prefix_begin(const prefix_list *l);
/* Advances by a byte. Returns false if no text continues with it. */
bool prefix_step(const prefix_list *l, prefix_walk *w, char next);
/* Number of texts that equal the bytes walked; they are adjacent, from *first on. The last step must have returned
 * true. */
int prefix_whole(const prefix_list *l, const prefix_walk *w, const prefix_text **first);

/* Finds the fill-in-the-middle tokens, and makes them control tokens: before the vocabulary's kind is opened. */
void infill_open(tokenizer *t, const gguf_file *f);

/* Needs the bytes of tokens. RP_ERR_MEMORY. */
int special_open(tokenizer *t, const gguf_file *f, rp_error *err);
/* The longest special token at the start of text, or -1. control: all special tokens, else user-defined ones only. */
int32_t special_at(const tokenizer *t, const char *text, size_t n, bool control);
static inline bool special_may_begin(const tokenizer *t, char first) {
    const unsigned char byte = (unsigned char)first;
    return t->special_first[byte] < t->special_first[byte + 1];
}
/* Number of bytes after a special token that belong to it. */
size_t special_strip(const tokenizer *t, int32_t id, const char *text, size_t n);

/* RP_ERR_FORMAT, RP_ERR_MEMORY. */
int spm_open(tokenizer *t, const gguf_file *f, rp_error *err);
void spm_close(tokenizer *t);
/* beginning: insert the dummy space before the text, if the vocabulary has one. */
int spm_encode(const tokenizer *t, const char *text, size_t n, bool beginning, token_list *out, rp_error *err);

/* Length of the character at s; 1 for invalid UTF-8, so that these bytes stay separate and are reproduced unchanged. */
size_t character_bytes(const char *s, size_t n);
/* Appends a character that no piece covers: as byte tokens if the vocabulary has them, else as the unknown token, once
 * per run of unknown characters. *after_unknown: the previous character was unknown; updated. */
int character_add_unknown(const tokenizer *t, const char *text, size_t n, bool *after_unknown, token_list *out);

/* Absent: no normalisation. RP_ERR_FORMAT, RP_ERR_MEMORY. */
int charsmap_open(charsmap *m, const gguf_file *f, rp_error *err);
void charsmap_close(charsmap *m);
/* Normalises the start of text (n > 0) into *out. Returns the number of bytes of text consumed. */
size_t charsmap_step(const charsmap *m, const char *text, size_t n, gguf_string *out);

int unigram_open(tokenizer *t, rp_error *err); /* RP_ERR_MEMORY */
int unigram_encode(const tokenizer *t, const char *text, size_t n, token_list *out);

int bpe_open(tokenizer *t, const gguf_file *f, rp_error *err);
void bpe_close(tokenizer *t);
int bpe_read_merges(tokenizer *t, const gguf_file *f, rp_error *err); /* RP_ERR_FORMAT, RP_ERR_MEMORY */
int bpe_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err);
/* Bytes of a vocabulary text written in printable stand-ins for bytes; returns their number (at most n). */
size_t bpe_text_to_bytes(const char *text, size_t n, char *out);
/* The stand-in of a byte as UTF-8; returns its length (1 or 2). */
int bpe_byte_to_text(uint8_t byte, char out[2]);

/* Needs the ids of special tokens, and types. */
void wordpiece_open(tokenizer *t);
int wordpiece_encode(const tokenizer *t, const char *text, size_t n, token_list *out,
                     rp_error *err); /* RP_ERR_MEMORY, RP_ERR_LIMIT */

/* RP_ERR_UNSUPPORTED (the message lists the supported pre-tokenizers), RP_ERR_MEMORY. */
int pre_open(tokenizer *t, const gguf_file *f, rp_error *err);
void pre_close(tokenizer *t);
/* Calls `word` for the words of a text, in order; their concatenation is the text. Stops at the first result other than
 * 0 and returns it. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int pre_cut(const tokenizer *t, const char *text, size_t n, int (*word)(void *user, const char *text, size_t n),
            void *user);

/* Appends text in normal form C; invalid UTF-8 is copied unchanged. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int nfc_append(base_buffer *out, const char *text, size_t n);
bool nfc_is_plain(const char *text, size_t n); /* true: already in NFC, judged by its bytes */

/* ---- merging ----
 * A text as a list of pieces; the best adjacent pair is merged until none is left. */
typedef struct merge_piece {
    int32_t prev, next;
    size_t start, n; /* bytes; n 0: merged into its left neighbour */
    int32_t id;
} merge_piece;

typedef struct merge_candidate {
    double priority; /* the greatest is merged first; among equals the leftmost */
    int32_t left, right, id;
    size_t n; /* bytes of both pieces when it was proposed; a different length means that it is stale */
} merge_candidate;

typedef struct merge_work {
    const tokenizer *t;
    const char *text;
    merge_piece *pieces;
    size_t n_pieces, cap_pieces;
    merge_candidate *heap;
    size_t n_heap, cap_heap;
    /* Returns true if two adjacent pieces can be merged, and fills in priority and id. */
    bool (*propose)(const struct merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c);
} merge_work;

/* A merge_work.propose: pairs that the vocabulary lists, the first of them first. */
bool bpe_propose(const merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c);
int merge_add_piece(merge_work *w, size_t start, size_t n, int32_t id);
int merge_run(merge_work *w); /* RP_ERR_MEMORY */
void merge_free(merge_work *w);

#endif
