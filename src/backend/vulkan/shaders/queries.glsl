// SPDX-License-Identifier: Apache-2.0
// queries.glsl: queries of attention, rotated to a row's position and for a view's shift. Included after the arguments:
//
//   queries, angles, shifts, weights   [rows of the step][n_heads][key_dim]; tables of attention.glsl, 0: none
//   n_heads, key_dim, rot_dim
shared float query[QUERY_FLOATS]; // [QUERIES][key_dim]

// The pair (x, y) rotated by an angle.
vec2 rotated(vec2 x, float c, float s) {
    precise const float p = x.x * c;
    precise const float q = x.y * s;
    precise const float r = x.y * c;
    precise const float t = x.x * s;
    precise vec2 y;
    y.x = p - q;
    y.y = r + t;
    return y;
}

vec2 rotated_pair(uint row, uint i, uint at, uint second, uint shift, vec2 x) {
    const uint64_t own = a.angles + 4ul * a.rot_dim * row, moved = a.shifts + 4ul * a.rot_dim * shift;
    const float c = get(own, 2u * i), s = get(own, 2u * i + 1u);
    if (a.weights != 0ul) { // they belong to the row's own position: rotated there, weighed, rotated back
        vec2 y = rotated(x, c, s);
        precise vec2 w = vec2(y.x * get(a.weights, at), y.y * get(a.weights, second));
        return shift == 0u ? w : rotated(w, get(moved, 2u * i), -get(moved, 2u * i + 1u));
    }
    if (shift == 0u) return rotated(x, c, s);
    const float mc = get(moved, 2u * i), ms = get(moved, 2u * i + 1u);
    precise const float c_both = c * mc + s * ms; // of the difference of the angles
    precise const float s_both = s * mc - c * ms;
    return rotated(x, c_both, s_both);
}

// query = the queries of heads [first, first + n), rotated for a shift; for keys of int8 transformed as these are.
void load_queries(uint row, uint first, uint n, uint shift, bool transformed) {
    const uint rot = a.angles == 0ul ? 0u : a.rot_dim, pairs = rot / 2u;
    const uint64_t x = a.queries + 4ul * a.key_dim * (uint64_t(row) * a.n_heads + first);
    barrier();
    for (uint j = gl_LocalInvocationID.x; j < n * pairs; j += 64u) {
        const uint h = j / pairs, i = j % pairs;
        const uint at = HALVES != 0u ? i : 2u * i, second = HALVES != 0u ? i + pairs : 2u * i + 1u;
        const vec2 y = rotated_pair(row, i, at, second, shift, vec2(get(x, h * a.key_dim + at), get(x, h * a.key_dim + second)));
        query[h * a.key_dim + at] = y.x;
        query[h * a.key_dim + second] = y.y;
    }
    for (uint j = gl_LocalInvocationID.x; j < n * (a.key_dim - rot); j += 64u) {
        const uint h = j / (a.key_dim - rot), d = rot + j % (a.key_dim - rot);
        precise float y = get(x, h * a.key_dim + d);
        if (a.weights != 0ul) y = y * get(a.weights, d);
        query[h * a.key_dim + d] = y;
    }
    const uint size = transformed ? hadamard_size(a.key_dim) : 1u;
    HADAMARD(query, n * a.key_dim, size)
}
