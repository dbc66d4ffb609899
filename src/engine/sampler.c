/* sampler.c: the next token from its logits. */
#include <math.h>

#include "engine/engine_internal.h"

/* splitmix64 (Steele, Lea, Flood 2014): one multiplication-free state, any seed is good. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int32_t most_likely(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

int32_t sampler_draw(sampler *s, const float *logits, int32_t n) {
    int32_t best = most_likely(logits, n);
    if (!(s->temperature > 0)) return best;
    double sum = 0, top = logits[best], scale = 1.0 / s->temperature;
    for (int32_t i = 0; i < n; i++) sum += exp((logits[i] - top) * scale);
    double left = (double)(next_random(&s->state) >> 11) * 0x1p-53 * sum;
    for (int32_t i = 0; i < n; i++) {
        left -= exp((logits[i] - top) * scale);
        if (left < 0) return i;
    }
    return best; /* rounding used up the sum */
}
