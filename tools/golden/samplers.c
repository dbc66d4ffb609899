/* SPDX-License-Identifier: Apache-2.0 */
/* samplers.c: tokens that remain after llama.cpp's samplers.
 *
 *   samplers > tests/golden/samplers.txt     in the lab (tools/lab.sh samplers)
 *
 * A line is a case: top_k typical top_p min_p repeat frequency presence last and the history; logits; the remaining
 * tokens, in rising order; separated by tabs. The samplers run in llama.cpp's default order: penalties, top_k, typical,
 * top_p, min_p.
 */
#include <llama.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CASES 250
#define MOST 24
#define HISTORY 40

static uint64_t state =
    2; /* with seed 1, penalties bring two logits within a last bit: their order would depend on rounding */

static uint32_t below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 32) * n >> 32);
}

/* Rounded to a few decimals, so that the printed text is exact. */
static float put(double v, int decimals) {
    char text[32];
    snprintf(text, sizeof text, "%.*f", decimals, v);
    printf("%s ", text);
    return strtof(text, NULL);
}

/* Disabled in half of the cases. */
static float put_share(double off) { return put(below(2) ? off : below(1000) / 1000.0, 3); }

static void add(struct llama_sampler *chain, struct llama_sampler *s) { llama_sampler_chain_add(chain, s); }

/* Prints the options; the chain has accepted the history. */
static struct llama_sampler *new_chain(int n) {
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    int top_k = below(2) ? 0 : 1 + (int)below((uint32_t)n + 2);
    printf("%d ", top_k);
    float typical = put_share(1), top_p = put_share(1), min_p = put_share(0);
    bool penalties = below(2);
    float repeat = put(penalties ? 0.5 + below(100) / 100.0 : 1, 2);
    float frequency = put(penalties ? below(100) / 100.0 - 0.3 : 0, 2),
          presence = put(penalties ? below(100) / 100.0 - 0.3 : 0, 2);
    int last = (int)below(HISTORY), n_history = (int)below(HISTORY);
    printf("%d", last);
    add(chain, llama_sampler_init_penalties(n, last, repeat, frequency, presence));
    if (top_k > 0) add(chain, llama_sampler_init_top_k(top_k));
    add(chain, llama_sampler_init_typical(typical, 1));
    add(chain, llama_sampler_init_top_p(top_p, 1));
    add(chain, llama_sampler_init_min_p(min_p, 1));
    for (int i = 0; i < n_history; i++) {
        llama_token token = (llama_token)below((uint32_t)n);
        printf(" %d", token);
        llama_sampler_accept(chain, token);
    }
    printf("\t");
    return chain;
}

static int by_id(const void *a, const void *b) {
    return ((const llama_token_data *)a)->id - ((const llama_token_data *)b)->id;
}

int main(void) {
    for (int i = 0; i < CASES; i++) {
        llama_token_data data[MOST];
        int n = 2 + (int)below(MOST - 1), spread = 1 + (int)below(8);
        struct llama_sampler *chain = new_chain(n);
        for (int k = 0; k < n; k++) {
            double v = spread * ((below(10000) + below(10000) + below(10000)) / 10000.0 - 1.5);
            data[k] = (llama_token_data){.id = k, .logit = put(v, 4)};
        }
        llama_token_data_array left = {data, (size_t)n, -1, false};
        llama_sampler_apply(chain, &left);
        qsort(left.data, left.size, sizeof *left.data, by_id);
        printf("\t");
        for (size_t k = 0; k < left.size; k++) printf("%d ", left.data[k].id);
        printf("\n");
        llama_sampler_free(chain);
    }
    return 0;
}
