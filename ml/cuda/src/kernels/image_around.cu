// Around the convolutions of images: weights as the kernels read them, sums of parts, ReLU's gradient, pooling.

// Weights [filter][channel][line][column] as [tap][r][s], where filters and channels are `by_r` and `by_s` values apart.
// Taps are counted line by line, or column by column, or backwards.
template <class T>
__device__ void lay(const float* weights, T* out, int lines, int columns, int r_size, int s_size, int by_r, int by_s,
                    int by_columns, int backwards, int round) {
    long long total = (long long)lines * columns * r_size * s_size;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total; i += (long long)gridDim.x * blockDim.x) {
        int s = i % s_size, r = i / s_size % r_size, tap = i / s_size / r_size;
        int line = by_columns ? tap % lines : tap / columns, column = by_columns ? tap / lines : tap % columns;
        if (backwards) line = lines - 1 - line, column = columns - 1 - column;
        float v = weights[(long long)r * by_r + (long long)s * by_s + line * columns + column];
        narrow(round ? rounded(v) : v, out + i);
    }
}
extern "C" __global__ void __launch_bounds__(256) image_lay_f32(const float* w, float* out, int lines, int columns, int r,
                                                               int s, int by_r, int by_s, int by_columns, int backwards,
                                                               int round) {
    lay(w, out, lines, columns, r, s, by_r, by_s, by_columns, backwards, round);
}
extern "C" __global__ void __launch_bounds__(256) image_lay_bf16(const float* w, bf16* out, int lines, int columns, int r,
                                                                int s, int by_r, int by_s, int by_columns,
                                                                int backwards, int round) {
    lay(w, out, lines, columns, r, s, by_r, by_s, by_columns, backwards, 0);
}

// The sums of parts [part][tap][r][s], in a fixed order, to out[r * by_r + s * by_s + tap]. Blocks of 32 x 8, for 32 pairs
// (r, s) each: the taps of a pair are written side by side.
extern "C" __global__ void __launch_bounds__(256) image_sum(const float* parts, float* out, int count, int taps, int r_size,
                                                            int s_size, int by_r, int by_s) {
    constexpr int TAPS = 16;
    __shared__ float lanes[TAPS][8][33];
    int pairs = r_size * s_size, first = blockIdx.x * 32, pair = first + threadIdx.x;
    // Of 8 rows of threads, `across` sum parts of the same tap.
    int across = count >= 8 ? 8 : count >= 4 ? 4 : count >= 2 ? 2 : 1, own_part = threadIdx.y % across;
    for (int tap0 = 0; tap0 < taps; tap0 += TAPS) {
        int now = min(TAPS, taps - tap0);
        for (int tap = threadIdx.y / across; tap < now; tap += 8 / across) {
            float sum = 0.f;
            if (pair < pairs) {
#pragma unroll 8
                for (int part = own_part; part < count; part += across)
                    sum += parts[((long long)part * taps + tap0 + tap) * pairs + pair];
            }
            lanes[tap][own_part][threadIdx.x] = sum;
        }
        __syncthreads();
        for (int i = threadIdx.y * 32 + threadIdx.x; i < 32 * now; i += 256) {
            int own = first + i / now, tap = i % now;
            float sum = 0.f;
            for (int lane = 0; lane < across; lane++) sum += lanes[tap][lane][i / now];
            if (own < pairs) out[(long long)(own / s_size) * by_r + (long long)(own % s_size) * by_s + tap0 + tap] = sum;
        }
        __syncthreads();
    }
}

// The windows of all points, [point][pitch]: tap by tap its channels, then zeros. For few channels; pitch is a multiple of 8.
template <class T>
__device__ void windows(const T* x, T* out, const Geometry& g, int pitch) {
    int depth = g.lines.taps * g.columns.taps * g.from;
    unsigned vectors = pitch / 8, total = (unsigned)g.samples * g.lines.to * g.columns.to * vectors;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        unsigned point = at / vectors, first = at % vectors * 8;
        int j = point % g.columns.to, i = point / g.columns.to % g.lines.to, n = point / g.columns.to / g.lines.to;
        int channel = first % g.from, tap = first / g.from, column = tap % g.columns.taps, line = tap / g.columns.taps;
        int above = i * g.lines.mul + g.lines.off, left = j * g.columns.mul + g.columns.off;
        const T* image = x + (long long)n * g.lines.from * g.columns.from * g.from;
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int p = above + line, q = left + column;
            bool there = first + k < depth && (unsigned)p < (unsigned)g.lines.from && (unsigned)q < (unsigned)g.columns.from;
            v[k] = there ? wide(image[((long long)p * g.columns.from + q) * g.from + channel]) : 0.f;
            if (++channel == g.from) {
                channel = 0;
                if (++column == g.columns.taps) column = 0, line++;
            }
        }
        store<8>(out + (size_t)at * 8, v);
    }
}
extern "C" __global__ void __launch_bounds__(256) image_windows_f32(const float* x, float* out, const Geometry g, int pitch) {
    windows(x, out, g, pitch);
}
extern "C" __global__ void __launch_bounds__(256) image_windows_bf16(const bf16* x, bf16* out, const Geometry g, int pitch) {
    windows(x, out, g, pitch);
}

// dy becomes zero where y is not above zero (y null: it stays); sums over points go to partial [gridDim.x][channels].
// Blocks have 256 threads, in y one for each `columns` vectors.
template <class T, int V>
__device__ void gate(T* dy, const T* y, float* partial, unsigned points, int channels, int columns) {
    __shared__ float shared[256 * V];
    int c = (blockIdx.y * columns + threadIdx.x % columns) * V, lanes = 256 / columns, own = threadIdx.x / columns;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    if (own < lanes && c < channels)
        for (unsigned point = blockIdx.x * lanes + own; point < points; point += gridDim.x * lanes) {
            size_t at = (size_t)point * channels + c;
            float g[V], v[V];
            load<V>(dy + at, g);
            if (y) {
                load<V>(y + at, v);
#pragma unroll
                for (int j = 0; j < V; j++) g[j] = v[j] > 0.f ? g[j] : 0.f;
                store<V>(dy + at, g);
            }
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += g[j];
        }
    add_columns<V>(sum, partial, channels, c, columns, shared);
}

// Windows on an image: lines and columns of the window and of its steps, of the image, and of what it is pooled to.
struct Windows {
    int window[2], stride[2], size[2], pooled[2];
    int samples, channels;
};

// Splits a vector's number into channel, column, line and sample.
template <int V>
struct Spot {
    unsigned c, j, i, n;
    __device__ Spot(unsigned at, const int* size, int channels) {
        unsigned vectors = channels / V, point = at / vectors;
        c = (at - point * vectors) * V;
        j = point % size[1], i = point / size[1] % size[0], n = point / size[1] / size[0];
    }
};

// Maxima of windows, and their places within them, line by line; the first of equal values wins, and what is no number
// wins over all before it.
template <class T, int V>
__device__ void image_max(const T* x, T* y, u8* switches, Windows w) {
    unsigned total = w.samples * w.pooled[0] * w.pooled[1] * (w.channels / V);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        Spot<V> spot(at, w.pooled, w.channels);
        int line = spot.i * w.stride[0], column = spot.j * w.stride[1];
        int lines = min(w.window[0], w.size[0] - line), columns = min(w.window[1], w.size[1] - column);
        const T* from = x + (((size_t)spot.n * w.size[0] + line) * w.size[1] + column) * w.channels + spot.c;
        float best[V];
        int where[V];
        load<V>(from, best);
#pragma unroll
        for (int j = 0; j < V; j++) where[j] = 0;
        for (int k = 0; k < lines; k++)
            for (int l = 0; l < columns; l++) {
                float v[V];
                load<V>(from + ((size_t)k * w.size[1] + l) * w.channels, v);
#pragma unroll
                for (int j = 0; j < V; j++)
                    if (v[j] > best[j] || (v[j] != v[j] && best[j] == best[j])) best[j] = v[j], where[j] = k * w.window[1] + l;
            }
        store<V>(y + (size_t)at * V, best);
        store<V>(switches + (size_t)at * V, where);
    }
}

// Every value of x [pooled] to the place of its switch, zero elsewhere; values that meet are added up in their order.
template <class T, int V>
__device__ void image_unpool(const T* x, const u8* switches, T* y, Windows w) {
    unsigned total = w.samples * w.size[0] * w.size[1] * (w.channels / V);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        Spot<V> spot(at, w.size, w.channels);
        int i = spot.i, j = spot.j;
        float sum[V];
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] = 0.f;
        // Windows that reach this point.
        int top = i < w.window[0] ? 0 : (i - w.window[0]) / w.stride[0] + 1;
        int left = j < w.window[1] ? 0 : (j - w.window[1]) / w.stride[1] + 1;
        int bottom = min(i / w.stride[0], w.pooled[0] - 1), right = min(j / w.stride[1], w.pooled[1] - 1);
        for (int p = top; p <= bottom; p++)
            for (int q = left; q <= right; q++) {
                size_t from = (((size_t)spot.n * w.pooled[0] + p) * w.pooled[1] + q) * w.channels + spot.c;
                int place = (i - p * w.stride[0]) * w.window[1] + j - q * w.stride[1];
                float v[V];
                int where[V];
                load<V>(x + from, v);
                load<V>(switches + from, where);
#pragma unroll
                for (int r = 0; r < V; r++) sum[r] += where[r] == place ? v[r] : 0.f;
            }
        store<V>(y + (size_t)at * V, sum);
    }
}

// The gradient of image_unpool: of every window of dy the value at its switch.
template <class T, int V>
__device__ void image_pick(const T* dy, const u8* switches, T* dx, Windows w) {
    unsigned total = w.samples * w.pooled[0] * w.pooled[1] * (w.channels / V);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        Spot<V> spot(at, w.pooled, w.channels);
        int where[V];
        float v[V];
        load<V>(switches + (size_t)at * V, where);
#pragma unroll
        for (int r = 0; r < V; r++) {
            int line = spot.i * w.stride[0] + where[r] / w.window[1], column = spot.j * w.stride[1] + where[r] % w.window[1];
            v[r] = wide(dy[(((size_t)spot.n * w.size[0] + line) * w.size[1] + column) * w.channels + spot.c + r]);
        }
        store<V>(dx + (size_t)at * V, v);
    }
}

// Every value of x [pooled] as often as its window; beyond the last window the last value again.
template <class T, int V>
__device__ void image_repeat(const T* x, T* y, Windows w) {
    unsigned total = w.samples * w.size[0] * w.size[1] * (w.channels / V);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        Spot<V> spot(at, w.size, w.channels);
        int p = min(spot.i / w.window[0], w.pooled[0] - 1), q = min(spot.j / w.window[1], w.pooled[1] - 1);
        float v[V];
        load<V>(x + (((size_t)spot.n * w.pooled[0] + p) * w.pooled[1] + q) * w.channels + spot.c, v);
        store<V>(y + (size_t)at * V, v);
    }
}

// The gradient of image_repeat: sums over all points that took a value.
template <class T, int V>
__device__ void image_gather(const T* dy, T* dx, Windows w) {
    unsigned total = w.samples * w.pooled[0] * w.pooled[1] * (w.channels / V);
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < total; at += gridDim.x * blockDim.x) {
        Spot<V> spot(at, w.pooled, w.channels);
        int top = spot.i * w.window[0], left = spot.j * w.window[1];
        int bottom = spot.i + 1 == w.pooled[0] ? w.size[0] : min(top + w.window[0], w.size[0]);
        int right = spot.j + 1 == w.pooled[1] ? w.size[1] : min(left + w.window[1], w.size[1]);
        float sum[V];
#pragma unroll
        for (int r = 0; r < V; r++) sum[r] = 0.f;
        for (int i = top; i < bottom; i++)
            for (int j = left; j < right; j++) {
                float v[V];
                load<V>(dy + (((size_t)spot.n * w.size[0] + i) * w.size[1] + j) * w.channels + spot.c, v);
#pragma unroll
                for (int r = 0; r < V; r++) sum[r] += v[r];
            }
        store<V>(dx + (size_t)at * V, sum);
    }
}

#define IMAGE_AROUND(V)                                                                                                 \
    PAIR(gate, V, (T* dy, const T* y, float* partial, unsigned points, int channels, int columns),                      \
         (dy, y, partial, points, channels, columns))                                                                   \
    PAIR(image_max, V, (const T* x, T* y, u8* switches, const Windows w), (x, y, switches, w))                          \
    PAIR(image_unpool, V, (const T* x, const u8* switches, T* y, const Windows w), (x, switches, y, w))                 \
    PAIR(image_pick, V, (const T* dy, const u8* switches, T* dx, const Windows w), (dy, switches, dx, w))               \
    PAIR(image_repeat, V, (const T* x, T* y, const Windows w), (x, y, w))                                               \
    PAIR(image_gather, V, (const T* dy, T* dx, const Windows w), (dy, dx, w))
IMAGE_AROUND(1)
IMAGE_AROUND(8)
