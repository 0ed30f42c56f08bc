"""What fused routing does on a CPU, in C: every vote is made from u and W where it is used, as in `kernels`.

A vector (`vec`) holds one number of each of LANES images, so nothing is summed inside of one; J, d and D are constants
that the compiler is told. Threads divide blocks of images and slices of the inputs for the sums, and inputs for the
gradient of W: each sum is added in the same order whatever their number. Letters are those of `fused`: u [B, I, d],
W [I, J, d, D], V and s [B, J, D]. Names that begin with `of_` are gradients.
"""

ROUTED_SUMS = r"""
#include <math.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
enum { J = OUTPUTS, d = CHILD, D = DIM };
// dimensions of votes that are made at a time, in registers
enum { ROW = D % LANES == 0 ? LANES : D % 8 == 0 ? 8 : D % 4 == 0 ? 4 : D % 2 == 0 ? 2 : 1 };

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline long least(long a, long b) { return a < b ? a : b; }

// rows of LANES images, `stride` numbers apart, to a vector for each of `count` numbers; zero where there is no image
static inline void turn(const float *rows, long stride, long images, int count, vec *out) {
    for (int l = 0; l < LANES; l++)
        for (int k = 0; k < count; k++) ((float *)out)[k * LANES + l] = l < images ? rows[l * stride + k] : 0;
}

// u_hat_ij = W_ij u_i [D]; returns its product with V_j
static inline vec vote(const vec *u, const float *W, const vec *V, vec *out) {
    vec along = {0};
    for (int e = 0; e < D; e += ROW) {
        vec sum[ROW];
#pragma GCC unroll 64
        for (int n = 0; n < ROW; n++) sum[n] = u[0] * W[e + n];
#pragma GCC unroll 64
        for (int k = 1; k < d; k++)
#pragma GCC unroll 64
            for (int n = 0; n < ROW; n++) sum[n] += u[k] * W[k * D + e + n];
#pragma GCC unroll 64
        for (int n = 0; n < ROW; n++) along += sum[n] * V[e + n], out[e + n] = sum[n];
    }
    return along;
}

// e^x for x <= 0, to a unit in the last place or two; NaN stays NaN. (The library's takes one number at a time.)
static inline float exponential(float x) {
    const float n = rintf((x > -87 ? x : -87) * 1.44269504f);  // of NaN too a number that an int holds
    x = x < -87 ? -87 : x;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;  // x - n ln 2, in two steps
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345191e-3f;
    p = p * r + 4.16657959e-2f;
    p = p * r + 1.66666665e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * r * r + r + 1;
    const int bits = ((int)n + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, 4);
    return p * power;
}

// over the J outputs, in place; leaky: and over one more logit that is always 0
static inline void softmax(vec *logits, int leaky) {
    float *b = (float *)logits, most[LANES], sum[LANES];
    for (int l = 0; l < LANES; l++) most[l] = leaky ? 0 : b[l];
    for (int j = 0; j < J; j++)
        for (int l = 0; l < LANES; l++) most[l] = b[j * LANES + l] > most[l] ? b[j * LANES + l] : most[l];
    for (int l = 0; l < LANES; l++) sum[l] = leaky ? exponential(-most[l]) : 0;
    for (int j = 0; j < J; j++)
        for (int l = 0; l < LANES; l++) sum[l] += b[j * LANES + l] = exponential(b[j * LANES + l] - most[l]);
    for (int l = 0; l < LANES; l++) sum[l] = 1 / sum[l];
    for (int j = 0; j < J; j++) logits[j] *= *(vec *)sum;
}

// s_j = sum_i c_ij u_hat_ij with c_ij = softmax_j <u_hat_ij, V_j>, of each slice of the inputs: s [slices, B, J, D].
// c [B, I, J] may be NULL
void sums(long images, long inputs, long slices, int leaky, const float *u, const float *W, const float *V, float *s,
          float *c) {
    const long each = (inputs + slices - 1) / slices;
#pragma omp parallel for collapse(2) schedule(static)
    for (long first = 0; first < images; first += LANES)
        for (long slice = 0; slice < slices; slice++) {
            const long some = least(LANES, images - first);
            vec V_b[J * D], s_b[J * D], votes[J * D], u_i[d], c_i[J];
            turn(V + first * J * D, J * D, some, J * D, V_b);
            memset(s_b, 0, sizeof s_b);
            for (long i = slice * each; i < least(inputs, (slice + 1) * each); i++) {
                turn(u + (first * inputs + i) * d, inputs * d, some, d, u_i);
                for (int j = 0; j < J; j++) c_i[j] = vote(u_i, W + (i * J + j) * d * D, V_b + j * D, votes + j * D);
                softmax(c_i, leaky);
                if (c)
                    for (long l = 0; l < some; l++)
                        for (int j = 0; j < J; j++) c[((first + l) * inputs + i) * J + j] = c_i[j][l];
                for (int j = 0; j < J; j++)
                    for (int e = 0; e < D; e++) s_b[j * D + e] += c_i[j] * votes[j * D + e];
            }
            for (long l = 0; l < some; l++)
                for (int n = 0; n < J * D; n++) s[((slice * images + first + l) * J * D) + n] = s_b[n][l];
        }
}

// of_V_j = sum_i of_b_ij u_hat_ij, where of_b is the gradient of the logits, of each slice of the inputs; of_u is added
// to. What the gradient of W needs is left in c and of_b [blocks of images, I, J, LANES].
void gradients(long images, long inputs, long slices, int leaky, const float *u, const float *W, const float *V,
               const float *of_s, float *of_u, float *of_V, float *c, float *of_b) {
    const long each = (inputs + slices - 1) / slices;
#pragma omp parallel for collapse(2) schedule(static)
    for (long first = 0; first < images; first += LANES)
        for (long slice = 0; slice < slices; slice++) {
            const long some = least(LANES, images - first);
            vec V_b[J * D], s_b[J * D], of_V_b[J * D], votes[J * D], u_i[d], c_i[J], of_b_i[J];
            turn(V + first * J * D, J * D, some, J * D, V_b);
            turn(of_s + first * J * D, J * D, some, J * D, s_b);
            memset(of_V_b, 0, sizeof of_V_b);
            for (long i = slice * each; i < least(inputs, (slice + 1) * each); i++) {
                const float *W_i = W + i * J * d * D;
                turn(u + (first * inputs + i) * d, inputs * d, some, d, u_i);
                for (int j = 0; j < J; j++) {
                    c_i[j] = vote(u_i, W_i + j * d * D, V_b + j * D, votes + j * D);
                    vec of_c = {0};
                    for (int e = 0; e < D; e++) of_c += votes[j * D + e] * s_b[j * D + e];
                    of_b_i[j] = of_c;
                }
                softmax(c_i, leaky);
                vec mean = {0}, of_u_i[d];
                for (int j = 0; j < J; j++) mean += c_i[j] * of_b_i[j];
                for (int j = 0; j < J; j++) of_b_i[j] = c_i[j] * (of_b_i[j] - mean);
#pragma GCC unroll 64
                for (int k = 0; k < d; k++) of_u_i[k] = (vec){0};
                for (int j = 0; j < J; j++)
                    for (int e = 0; e < D; e++) {
                        const int n = j * D + e;
                        const vec of_vote = c_i[j] * s_b[n] + of_b_i[j] * V_b[n];
                        of_V_b[n] += of_b_i[j] * votes[n];
#pragma GCC unroll 64
                        for (int k = 0; k < d; k++) of_u_i[k] += of_vote * W_i[(j * d + k) * D + e];
                    }
                memcpy(c + (first * inputs + i * LANES) * J, c_i, sizeof c_i);
                memcpy(of_b + (first * inputs + i * LANES) * J, of_b_i, sizeof of_b_i);
                for (long l = 0; l < some; l++)
                    for (int k = 0; k < d; k++) of_u[((first + l) * inputs + i) * d + k] += of_u_i[k][l];
            }
            for (long l = 0; l < some; l++)
                for (int n = 0; n < J * D; n++) of_V[((slice * images + first + l) * J * D) + n] = of_V_b[n][l];
        }
}

// of_W_ij = sum over the images of u_i times the gradient of the vote, c ds + db V; added to. Here a number of a vector
// is a dimension.
void gradient_of_W(long images, long inputs, const float *u, const float *V, const float *of_s, const float *c,
                   const float *of_b, float *of_W) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < inputs; i++)
        for (int j = 0; j < J; j++) {
            float sum[d][D];
            memset(sum, 0, sizeof sum);
            for (long b = 0; b < images; b++) {
                const float *u_i = u + (b * inputs + i) * d, *s_j = of_s + (b * J + j) * D, *V_j = V + (b * J + j) * D;
                const long first = b / LANES * LANES, pair = (first * inputs + i * LANES) * J + j * LANES + b - first;
                const float c_b = c[pair], of_b_b = of_b[pair];
                float of_vote[D];
                for (int e = 0; e < D; e++) of_vote[e] = c_b * s_j[e] + of_b_b * V_j[e];
#pragma GCC unroll 64
                for (int k = 0; k < d; k++)
                    for (int e = 0; e < D; e++) sum[k][e] += u_i[k] * of_vote[e];
            }
            for (int k = 0; k < d; k++)
                for (int e = 0; e < D; e++) of_W[((i * J + j) * d + k) * D + e] += sum[k][e];
        }
}
"""

SQUASH = r"""
#include <math.h>

#define SMALL 1e-30f  // as in `squash`
#define LARGE 1e15f
#define TINY 1e-37f

// v = f(n) x with f(n) = n / (a + n^2) of vectors x of length n; or, of dv, f dv + n f'(n) <dv, x/n> x/n
static inline __attribute__((always_inline)) void squash_of(long count, int D, float a, const float *x,
                                                            const float *of_v, float *out) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < count; row++) {
        const float *s = x + row * D, *dv = of_v ? of_v + row * D : s;
        float *v = out + row * D, most = 0, sum = 0, along = 0;
        for (int e = 0; e < D; e++) most = fabsf(s[e]) > most || s[e] != s[e] ? fabsf(s[e]) : most;
        const float scale = 1 / (most < TINY ? TINY : most);
#pragma omp simd reduction(+ : sum, along)
        for (int e = 0; e < D; e++) sum += (s[e] * scale) * (s[e] * scale), along += dv[e] * (s[e] * scale);
        const float r = sqrtf(sum < 0.5f ? 0.5f : sum), n = most * r;
        const float inside = n < SMALL ? SMALL : n > LARGE ? LARGE : n;
        const float f = inside / (a + inside * inside) * (n > LARGE ? LARGE / n : 1);
        const float slope = n < SMALL ? 0 : f * (a - inside * inside) / (a + inside * inside);
        const float share = slope * along / (r * r) * scale;
        if (of_v)
            for (int e = 0; e < D; e++) v[e] = f * dv[e] + share * s[e];
        else
            for (int e = 0; e < D; e++) v[e] = f * s[e];
    }
}

void squash(long count, int D, float a, const float *x, const float *of_v, float *out) {
    if (D == 8) squash_of(count, 8, a, x, of_v, out);
    else if (D == 16) squash_of(count, 16, a, x, of_v, out);
    else squash_of(count, D, a, x, of_v, out);
}
"""
