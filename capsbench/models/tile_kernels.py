"""A convolution and its gradients on a CPU's matrix unit (AMX), in C: no patches, no sums in bf16.

The unit multiplies tiles of 16 rows: C [16, 16] float32 += A [16, 32] B [32, 16], A and B in bf16, the rows of B in
pairs. Each of the three products of a convolution is so arranged that a block of 32x32 results runs through its
factors in memory order, two tiles of each a step. With images b, inputs c and outputs o (letters of `sizes` below):

    y [b, o]  = sum over the taps of a place and c of  x [b, c] W [c, o]      `forward`
    dx [b, c] = sum over a pixel's places and o of     g [b, o] W [o, c]      `of_images`
    dW [o, c] = sum over the places of a tap and b of  g [o, b] x [b, c]      `of_weight`

Loops are nested so that what a thread reads again and again is some 1.5 MB at the paper's sizes, as a level-2 cache
holds. Each result is a sum in one order, whatever the number of threads and whatever stands beside an image.
"""

KERNELS = r"""
#include <string.h>

typedef unsigned short bf16;  // its bits
enum { STEP = 32, BLOCK = 32, TILE = 512, PAIR = 2 * TILE };  // numbers of a product, a block's side, a tile, two tiles

// images, their channels and size, outputs and their size, side and stride of the kernels
typedef struct { long B, C, H, W, O, h, w, k, s; } sizes;

static inline long least(long a, long b) { return a < b ? a : b; }
static inline long most(long a, long b) { return a > b ? a : b; }
static inline long parts(long n, long size) { return (n + size - 1) / size; }

#if defined(__AMX_BF16__) && !defined(PORTABLE)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

// Linux hands tiles to a process that asks for them
int allowed(void) { return !syscall(SYS_arch_prctl, 0x1023, 18); }

typedef struct { unsigned char palette, start, none[14]; unsigned short bytes[16]; unsigned char rows[16]; } shapes;

// gcc is not told that loads of tiles read memory: what was written to it before shall be there
#define WRITTEN(place) __asm__ volatile("" : : "r"(place) : "memory")

static void begin(shapes *before) {
    shapes all = {.palette = 1};
    for (int n = 0; n < 8; n++) all.bytes[n] = 64, all.rows[n] = 16;
    _tile_storeconfig(before);
    WRITTEN(&all);
    _tile_loadconfig(&all);
}
static void end(const shapes *before) { _tile_loadconfig(before); }  // another library's, if there was one

// a block of sums: tiles 0, 1 / 2, 3
static inline void clear(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}
static inline void load(const float *from) {
    WRITTEN(from);
    _tile_loadd(0, from, 64);
    _tile_loadd(1, from + 256, 64);
    _tile_loadd(2, from + 512, 64);
    _tile_loadd(3, from + 768, 64);
}
static inline void store(float *to) {
    _tile_stored(0, to, 64);
    _tile_stored(1, to + 256, 64);
    _tile_stored(2, to + 512, 64);
    _tile_stored(3, to + 768, 64);
}
static inline void run(const bf16 *a, const bf16 *b, long steps) {
    for (; steps > 0; steps--, a += PAIR, b += PAIR) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}
#else  // the same in plain C, slowly, so that tests can try the loops below on any CPU
int allowed(void) { return -1; }

typedef struct { int none; } shapes;
static void begin(shapes *before) {}
static void end(const shapes *before) {}

static _Thread_local float held[4][16][16];
static void clear(void) { memset(held, 0, sizeof held); }
static void load(const float *from) { memcpy(held, from, sizeof held); }
static void store(float *to) { memcpy(to, held, sizeof held); }
static float number(bf16 bits) {
    const unsigned wide = (unsigned)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}
static void run(const bf16 *a, const bf16 *b, long steps) {
    for (; steps > 0; steps--, a += PAIR, b += PAIR)
        for (int n = 0; n < 4; n++)
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < 16; j++)
                    for (int e = 0; e < STEP; e++)
                        held[n][i][j] += number(a[n / 2 * TILE + i * STEP + e]) *
                                         number(b[n % 2 * TILE + e / 2 * 32 + j * 2 + e % 2]);
}
#endif

static inline bf16 rounded(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// a block's rows, as many as there are, `stride` apart
static void round_to(bf16 *to, long stride, long rows, const float *block) {
    for (long m = 0; m < least(BLOCK, rows); m++)
        for (long half = 0; half < 2; half++)
            for (long n = 0; n < 16; n++)
                to[m * stride + half * 16 + n] = rounded(block[(m / 16 * 2 + half) * 256 + m % 16 * 16 + n]);
}

// images' rows of channels to tiles: [B/32, height, width, C/32, 2, 16 images, 32 channels]; zero, where there is none
static void images_to_tiles(long B, long C, long height, long width, const bf16 *x, const long *strides, bf16 *tiles) {
#pragma omp parallel for collapse(2) schedule(static)
    for (long b = 0; b < parts(B, BLOCK); b++)
        for (long i = 0; i < height; i++)
            for (long j = 0; j < width; j++) {
                bf16 *out = tiles + ((b * height + i) * width + j) * C * BLOCK;
                for (long m = 0; m < BLOCK; m++) {
                    const long image = b * BLOCK + m;
                    const bf16 *row = x + image * strides[0] + i * strides[1] + j * strides[2];
                    for (long c = 0; c < C; c += STEP)
                        if (image < B) memcpy(out + c * BLOCK + m * STEP, row + c, STEP * sizeof(bf16));
                        else memset(out + c * BLOCK + m * STEP, 0, STEP * sizeof(bf16));
                }
            }
}

// y [B, h, w, O] of images as tiles, weights [O, k, k, C] and bias [O]. Room: of weights as tiles [k, O/32, k, C/32, 2,
// 16 pairs of inputs, 16 outputs, 2], and of sums [B/32, h, O/32, w, 4, 16, 16], to which a row of taps adds at a time
void forward(const sizes *of, const bf16 *x, const long *strides, const float *weight, const float *bias, bf16 *x_tiles,
             bf16 *w_tiles, float *sums, bf16 *y) {
    const long B = of->B, C = of->C, H = of->H, W = of->W, O = of->O, h = of->h, w = of->w, k = of->k, s = of->s;
    images_to_tiles(B, C, H, W, x, strides, x_tiles);
#pragma omp parallel for collapse(2) schedule(static)
    for (long row = 0; row < k; row++)
        for (long o = 0; o < O; o += 16)
            for (long tap = 0; tap < k; tap++)
                for (long c = 0; c < C; c += STEP) {
                    bf16 *out = w_tiles + ((row * O + o / 32 * 32) * k + tap * 32) * C + c * 32 + o % 32 / 16 * TILE;
                    for (long n = 0; n < 16; n++) {
                        const float *from = weight + (((o + n) * k + row) * k + tap) * C + c;
                        bf16 some[STEP];
                        for (long e = 0; e < STEP; e++) some[e] = rounded(from[e]);
                        for (long e = 0; e < STEP; e += 2) memcpy(out + e * 16 + n * 2, some + e, 2 * sizeof(bf16));
                    }
                }
#pragma omp parallel
    {
        shapes before;
        begin(&before);
        for (long row = 0; row < k; row++)
#pragma omp for collapse(2) schedule(static) nowait
            for (long b = 0; b < parts(B, BLOCK); b++)
                for (long i = 0; i < h; i++)
                    for (long o = 0; o < O; o += BLOCK)
                        for (long j = 0; j < w; j++) {
                            float *sum = sums + (((b * h + i) * O + o) * w + j * BLOCK) * BLOCK;
                            if (!row)
                                for (long n = 0; n < BLOCK * BLOCK; n++)
                                    sum[n] = bias[o + n / 256 % 2 * 16 + n % 16];
                            load(sum);
                            run(x_tiles + ((b * H + i * s + row) * W + j * s) * C * BLOCK,
                                w_tiles + (row * O + o) * k * C, k * C / STEP);
                            store(sum);
                            if (row == k - 1)
                                round_to(y + ((b * BLOCK * h + i) * w + j) * O + o, h * w * O, B - b * BLOCK, sum);
                        }
        end(&before);
    }
}

// where tap t of a row of k lies among those of its remainder, the last one first, remainders one after another
static inline long turned(long t, long k, long s) {
    long before = 0;
    for (long first = 0; first < t % s; first++) before += parts(k - first, s);
    return before + parts(k - t % s, s) - 1 - t / s;
}

// dx, laid out as x, of g [B, h, w, O] and weights [O, k, k, C]. Room: of g as tiles, and of weights as tiles [C/32, k,
// k turned, O/32, 2, 16 pairs of outputs, 16 inputs, 2]
void of_images(const sizes *of, const bf16 *g, const long *strides, const float *weight, bf16 *g_tiles, bf16 *w_tiles,
               bf16 *dx) {
    const long B = of->B, C = of->C, H = of->H, W = of->W, O = of->O, h = of->h, w = of->w, k = of->k, s = of->s;
    const long of_g[] = {h * w * O, w * O, O};
    images_to_tiles(B, O, h, w, g, of_g, g_tiles);
#pragma omp parallel for collapse(2) schedule(static)
    for (long row = 0; row < k; row++)
        for (long tap = 0; tap < k; tap++)
            for (long o = 0; o < O; o += 2)
                for (long c = 0; c < C; c += 16) {
                    bf16 *out = w_tiles + ((c / 32 * k + row) * k + turned(tap, k, s)) * 32 * O + o / 32 * PAIR +
                                c % 32 / 16 * TILE + o % 32 / 2 * 32;
                    const float *one = weight + ((o * k + row) * k + tap) * C + c, *two = one + k * k * C;
                    for (long n = 0; n < 16; n++) out[n * 2] = rounded(one[n]), out[n * 2 + 1] = rounded(two[n]);
                }
#pragma omp parallel
    {
        shapes before;
        float sum[BLOCK * BLOCK];
        begin(&before);
        for (long c = 0; c < C; c += BLOCK)
            for (long first = 0; first < s; first++)
#pragma omp for collapse(2) schedule(static) nowait
                for (long b = 0; b < parts(B, BLOCK); b++)
                    for (long i = first; i < H; i += s)
                        for (long j = 0; j < W; j++) {
                            // place p takes pixel i = p * s + row with its `row`; so does q with column j
                            const long low = most(0, j / s - parts(k - j % s, s) + 1), high = least(w - 1, j / s);
                            clear();
                            for (long p = most(0, i / s - parts(k - first, s) + 1); p <= least(h - 1, i / s); p++)
                                run(g_tiles + ((b * h + p) * w + low) * O * BLOCK,
                                    w_tiles + ((c / 32 * k + i - p * s) * k + turned(j - low * s, k, s)) * 32 * O,
                                    (high - low + 1) * O / STEP);
                            store(sum);
                            round_to(dx + b * BLOCK * strides[0] + i * strides[1] + j * strides[2] + c, strides[0],
                                     B - b * BLOCK, sum);
                        }
        end(&before);
    }
}

// dW [O, k, k, C] of x and g [B, h, w, O]; `more` adds to it. Room: of x as tiles [C/32, s, s, H/s, W/s, B/32, 2, 16
// pairs of images, 16 inputs, 2], a place's neighbours beside each other, and of g [O/32, h, w, B/32, 2, 16, 32 images]
void of_weight(const sizes *of, const bf16 *x, const long *strides, const bf16 *g, bf16 *x_tiles, bf16 *g_tiles,
               int more, float *dW) {
    const long B = of->B, C = of->C, H = of->H, W = of->W, O = of->O, h = of->h, w = of->w, k = of->k, s = of->s;
    const long blocks = parts(B, BLOCK), tall = parts(H, s), wide = parts(W, s), size = blocks * BLOCK * 32;
#pragma omp parallel for collapse(2) schedule(static)
    for (long i = 0; i < H; i++)
        for (long b = 0; b < blocks * BLOCK; b += 2)
            for (long j = 0; j < W; j++) {
                const bf16 none[16] = {0}, *from = x + b * strides[0] + i * strides[1] + j * strides[2];
                for (long c = 0; c < C; c += 16) {
                    const bf16 *one = b < B ? from + c : none, *two = b + 1 < B ? from + strides[0] + c : none;
                    bf16 *out = x_tiles + ((((c / 32 * s + i % s) * s + j % s) * tall + i / s) * wide + j / s) * size +
                                b / 32 * PAIR + c % 32 / 16 * TILE + b % 32 / 2 * 32;
                    for (long n = 0; n < 16; n++) out[n * 2] = one[n], out[n * 2 + 1] = two[n];
                }
            }
#pragma omp parallel for schedule(static)
    for (long p = 0; p < h * w; p++)
        for (long o = 0; o < O; o++)
            for (long b = 0; b < blocks * BLOCK; b++)
                g_tiles[(o / 32 * h * w + p) * size + b / 32 * PAIR + o % 32 / 16 * TILE + o % 16 * 32 + b % 32] =
                    b < B ? g[(b * h * w + p) * O + o] : 0;
#pragma omp parallel
    {
        shapes before;
        float sum[BLOCK * BLOCK];
        begin(&before);
        for (long outer = 0; outer < O; outer += 2 * BLOCK)
#pragma omp for collapse(2) schedule(static) nowait
            for (long c = 0; c < C; c += BLOCK)
                for (long first = 0; first < s * s; first++)
                    for (long row = first / s; row < k; row += s)
                        for (long tap = first % s; tap < k; tap += s)
                            for (long o = outer; o < least(O, outer + 2 * BLOCK); o += BLOCK) {
                                const bf16 *from = x_tiles + (c / 32 * s * s + first) * tall * wide * size;
                                clear();
                                for (long p = 0; p < h; p++)
                                    run(g_tiles + (o / 32 * h + p) * w * size,
                                        from + ((p + row / s) * wide + tap / s) * size, w * blocks);
                                store(sum);
                                for (long m = 0; m < BLOCK; m++)
                                    for (long half = 0; half < 2; half++) {
                                        float *out = dW + (((o + m) * k + row) * k + tap) * C + c + half * 16;
                                        const float *row = sum + (m / 16 * 2 + half) * 256 + m % 16 * 16;
                                        for (long n = 0; n < 16; n++) out[n] = more ? out[n] + row[n] : row[n];
                                    }
                            }
        end(&before);
    }
}
"""
