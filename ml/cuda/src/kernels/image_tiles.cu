// Convolutions of images on any card: implicit products of matrices, whose first factor is gathered from the image while
// it is multiplied. Images lie as [sample][line][column][channel], without a border.

// How the points of one axis of what is written meet those of what is read: point i is i * every + phase of the image, and
// its tap t reads point i * mul + off + t * step, with line first + t * stride of the filter.
struct Axis {
    int from, to;     // points of the image that is read; points i
    int all;          // points of the image that is written
    int every, phase;
    int mul, off, step;
    int taps, first, stride;
};
struct Geometry {
    Axis lines, columns;
    int samples, from, to; // channels of what is read and of what is written
    int kernel;            // columns of the filter
};

constexpr int ROWS = 128, COLUMNS = 64, DEPTH = 16, THREADS = 128;

// A step of a sum, [depth][rows] and [depth][columns], twice. The rows' ends keep the reads of `multiply` apart.
struct Tiles {
    float a[2][DEPTH][ROWS + 8];
    float b[2][DEPTH][COLUMNS + 8];
};

// Instructions.
__device__ __forceinline__ float rounded(float v) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return __uint_as_float(r);
}
__device__ __forceinline__ void mma(float* c, const float* a, const float* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
// End of instructions.

// Adds the product of the tiles to this thread's 64 sums. M: by the matrix units, factors with 10 bits of mantissa.
template <bool M>
__device__ __forceinline__ void multiply(const Tiles& tiles, int now, float* sums) {
    int tid = threadIdx.x;
    if constexpr (M) {
        int lane = tid & 31, g = lane >> 2, t = lane & 3, row = (tid >> 6) * 64 + g, column = ((tid >> 5) & 1) * 32 + g;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 8) {
            float b[4][2];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                b[j][0] = tiles.b[now][k + t][column + 8 * j];
                b[j][1] = tiles.b[now][k + t + 4][column + 8 * j];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float a[4] = {tiles.a[now][k + t][row + 16 * i], tiles.a[now][k + t][row + 16 * i + 8],
                              tiles.a[now][k + t + 4][row + 16 * i], tiles.a[now][k + t + 4][row + 16 * i + 8]};
#pragma unroll
                for (int j = 0; j < 4; j++) mma(sums + (4 * i + j) * 4, a, b[j]);
            }
        }
    } else {
        int row = (tid >> 3) * 4, column = (tid & 7) * 4;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float a[8], b[8];
            *(float4*)a = *(const float4*)&tiles.a[now][k][row];
            *(float4*)(a + 4) = *(const float4*)&tiles.a[now][k][row + 64];
            *(float4*)b = *(const float4*)&tiles.b[now][k][column];
            *(float4*)(b + 4) = *(const float4*)&tiles.b[now][k][column + 32];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sums[8 * i + j] += a[i] * b[j];
        }
    }
}

// Where the sums of this thread are: runs of RUN neighbours in a row. `put(row, column, first of the run)`.
template <bool M, class Put>
__device__ __forceinline__ void each(Put put) {
    int tid = threadIdx.x;
    if constexpr (M) {
        int lane = tid & 31, row = (tid >> 6) * 64 + (lane >> 2), column = ((tid >> 5) & 1) * 32 + (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) put(row + 8 * i, column + 8 * j, ((i >> 1) * 4 + j) * 4 + (i & 1) * 2);
    } else {
        int row = (tid >> 3) * 4, column = (tid & 7) * 4;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) put(row + (i >> 2) * 64 + (i & 3), column + 32 * j, 8 * i + 4 * j);
    }
}
template <bool M>
constexpr int RUN = M ? 2 : 4;

// 2 or 4 neighbours at once.
template <int N>
__device__ __forceinline__ void put(const float* v, float* to) {
    if constexpr (N == 4)
        *(float4*)to = make_float4(v[0], v[1], v[2], v[3]);
    else
        *(float2*)to = make_float2(v[0], v[1]);
}
template <int N>
__device__ __forceinline__ void put(const float* v, bf16* to) {
    if constexpr (N == 4)
        *(uint2*)to = make_uint2(two(v[0], v[1]), two(v[2], v[3]));
    else
        *(unsigned*)to = two(v[0], v[1]);
}

// The sum over `steps` steps of products of tiles: `fetch(step)` reads a step into registers, `keep(which)` puts it into
// the tiles; they alternate, so that a step is read while the one before is multiplied.
template <bool M, class Fetch, class Keep>
__device__ __forceinline__ void sum_of_products(const Tiles& tiles, int steps, float* sums, Fetch fetch, Keep keep) {
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i] = 0.f;
    if (steps <= 0) return;
    fetch(0);
    keep(0);
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        multiply<M>(tiles, step & 1, sums);
        if (step + 1 < steps) keep((step + 1) & 1);
        __syncthreads();
    }
}

// `V` values from `p`, or zeros; V is 8 or 1. Values that the matrix units shall take are rounded to what they take.
template <class T, int V, bool M>
__device__ __forceinline__ void take(const T* p, bool there, float* v) {
    if (there) {
        load<V>(p, v);
#pragma unroll
        for (int j = 0; j < V; j++)
            if constexpr (M && sizeof(T) == 4) v[j] = rounded(v[j]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = 0.f;
    }
}

// y[n, i, j, o] = max(b[o] + sum of taps and channels of x * w, 0), for the points of `g`; weights lie as
// [line][column][channel read][channel written]. A, B: values that are read at once of x and of weights and y.
template <class T, int A, int B, bool M>
__device__ void points(const T* x, const T* weights, const float* bias, T* y, Geometry g, int relu) {
    __shared__ Tiles tiles;
    __shared__ long long places[ROWS];
    int tid = threadIdx.x, first_column = blockIdx.y * COLUMNS;
    unsigned point = blockIdx.x * ROWS + tid, total = (unsigned)g.samples * g.lines.to * g.columns.to;
    bool valid = point < total;
    int j = point % g.columns.to, i = point / g.columns.to % g.lines.to, n = point / g.columns.to / g.lines.to;
    places[tid] = valid ? (((long long)n * g.lines.all + i * g.lines.every + g.lines.phase) * g.columns.all +
                           j * g.columns.every + g.columns.phase) * g.to
                        : -1;
    const T* image = x + (long long)n * g.lines.from * g.columns.from * g.from;
    int line = i * g.lines.mul + g.lines.off, column = j * g.columns.mul + g.columns.off;
    int depth = g.lines.taps * g.columns.taps * g.from;
    int tap_line = 0, tap_column = 0, channel = 0; // of the next value of this thread's point
    float a[DEPTH], b[DEPTH * COLUMNS / THREADS];

    auto fetch = [&](int step) {
#pragma unroll
        for (int v = 0; v < DEPTH; v += A) {
            int at = line + tap_line * g.lines.step, beside = column + tap_column * g.columns.step;
            bool there = valid && tap_line < g.lines.taps && (unsigned)at < (unsigned)g.lines.from &&
                         (unsigned)beside < (unsigned)g.columns.from;
            take<T, A, M>(image + ((long long)at * g.columns.from + beside) * g.from + channel, there, a + v);
            channel += A;
            if (channel == g.from) {
                channel = 0;
                if (++tap_column == g.columns.taps) tap_column = 0, tap_line++;
            }
        }
#pragma unroll
        for (int v = 0; v < DEPTH * COLUMNS / THREADS; v += B) {
            int place = v * THREADS + tid * B, k = step * DEPTH + place / COLUMNS, o = first_column + place % COLUMNS;
            int tap = k / g.from, l = tap / g.columns.taps;
            int line_of_filter = g.lines.first + l * g.lines.stride;
            int column_of_filter = g.columns.first + (tap - l * g.columns.taps) * g.columns.stride;
            bool there = k < depth && o < g.to;
            const T* p = weights + ((long long)(line_of_filter * g.kernel + column_of_filter) * g.from + k % g.from) * g.to + o;
            take<T, B, false>(p, there, b + v);
        }
    };
    auto keep = [&](int which) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) tiles.a[which][k][tid] = a[k];
#pragma unroll
        for (int v = 0; v < DEPTH * COLUMNS / THREADS; v++) {
            int place = v / B * B * THREADS + tid * B + v % B;
            tiles.b[which][place / COLUMNS][place % COLUMNS] = b[v];
        }
    };
    float sums[64];
    sum_of_products<M>(tiles, (depth + DEPTH - 1) / DEPTH, sums, fetch, keep);
    __syncthreads(); // without steps: places
    each<M>([&](int row, int o, int at) {
        long long place = places[row];
        o += first_column;
        if (place < 0) return;
        float v[4];
#pragma unroll
        for (int r = 0; r < RUN<M>; r++) {
            v[r] = sums[at + r] + (bias && o + r < g.to ? bias[o + r] : 0.f);
            if (relu && !(v[r] > 0.f)) v[r] = 0.f;
        }
        if constexpr (B == 8) { // the run is there whole
            if (o < g.to) put<RUN<M>>(v, y + place + o);
        } else {
#pragma unroll
            for (int r = 0; r < RUN<M>; r++)
                if (o + r < g.to) narrow(v[r], y + place + o + r);
        }
    });
}

// Parts of the gradient of the weights, [part][line][column][channel of x][channel of dy]: sums over `share` points each.
template <class T, int A, int B, bool M>
__device__ void weights(const T* x, const T* dy, float* parts, Geometry g, int share) {
    __shared__ Tiles tiles;
    int tid = threadIdx.x, first_row = blockIdx.x * ROWS, first_column = blockIdx.y * COLUMNS;
    int rows = g.lines.taps * g.columns.taps * g.from;
    int total = g.samples * g.lines.to * g.columns.to;
    int start = blockIdx.z * share, end = min(start + share, total);
    // All that this thread reads of x is of one tap and the same channels.
    int row = first_row + tid % (ROWS / A) * A, tap = row / g.from, channel = row - tap * g.from;
    int tap_line = tap / g.columns.taps, tap_column = tap - tap_line * g.columns.taps;
    int above = g.lines.off + tap_line, left = g.columns.off + tap_column;
    float a[DEPTH], b[DEPTH * COLUMNS / THREADS];

    auto fetch = [&](int step) {
        int point = start + step * DEPTH + tid * A / ROWS;
        int j = point % g.columns.to, over = point / g.columns.to, i = over % g.lines.to, n = over / g.lines.to;
#pragma unroll
        for (int v = 0; v < DEPTH; v += A) {
            int at = i * g.lines.mul + above, beside = j * g.columns.mul + left;
            bool there = row < rows && point < end && (unsigned)at < (unsigned)g.lines.from &&
                         (unsigned)beside < (unsigned)g.columns.from;
            take<T, A, M>(x + (((long long)n * g.lines.from + at) * g.columns.from + beside) * g.from + channel, there, a + v);
            point += A, j += A; // 8 values at once are 8 points on
            while (j >= g.columns.to) {
                j -= g.columns.to;
                if (++i == g.lines.to) i = 0, n++;
            }
        }
#pragma unroll
        for (int v = 0; v < DEPTH * COLUMNS / THREADS; v += B) {
            int place = v * THREADS + tid * B, point = start + step * DEPTH + place / COLUMNS;
            int o = first_column + place % COLUMNS;
            take<T, B, M>(dy + (long long)point * g.to + o, point < end && o < g.to, b + v);
        }
    };
    auto keep = [&](int which) {
#pragma unroll
        for (int v = 0; v < DEPTH; v++) {
            int place = v / A * A * THREADS + tid * A + v % A;
            tiles.a[which][place / ROWS][place % ROWS] = a[v];
        }
#pragma unroll
        for (int v = 0; v < DEPTH * COLUMNS / THREADS; v++) {
            int place = v / B * B * THREADS + tid * B + v % B;
            tiles.b[which][place / COLUMNS][place % COLUMNS] = b[v];
        }
    };
    float sums[64];
    sum_of_products<M>(tiles, (end - start + DEPTH - 1) / DEPTH, sums, fetch, keep);
    float* part = parts + (long long)blockIdx.z * rows * g.to;
    each<M>([&](int r, int o, int at) {
        r += first_row, o += first_column;
#pragma unroll
        for (int next = 0; next < RUN<M>; next++)
            if (r < rows && o + next < g.to) part[(long long)r * g.to + o + next] = sums[at + next];
    });
}

// Names: what, values read at once of either factor, precision.
#define IMAGE_TILES(T, A, B, M, end)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) image_points_##A##B##_##end(                               \
        const T* x, const T* w, const float* bias, T* y, const Geometry g, int relu) {                                  \
        points<T, A, B, M>(x, w, bias, y, g, relu);                                                                     \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) image_weights_##A##B##_##end(                              \
        const T* x, const T* dy, float* parts, const Geometry g, int share) {                                           \
        weights<T, A, B, M>(x, dy, parts, g, share);                                                                    \
    }
#define IMAGE_TILES_OF(A, B)                  \
    IMAGE_TILES(float, A, B, false, f32)      \
    IMAGE_TILES(float, A, B, true, tf32)      \
    IMAGE_TILES(bf16, A, B, true, bf16)
IMAGE_TILES_OF(8, 8)
IMAGE_TILES_OF(1, 8)
IMAGE_TILES_OF(1, 1)
