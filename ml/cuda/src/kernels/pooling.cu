// Between convolutions: bias, nonlinearity, max-pooling with switches, un-pooling, and their gradients.

// raw [samples][in.stride][C] + bias -> nonlinearity -> maxima of windows [samples][out.stride][C] and where they were
// [samples][out.length][C]; the first of equal values wins. Without pooling the window is 1, and no switches are kept.
template <class T, int V>
__device__ void pool_forward(const T* raw, const float* bias, T* out, u8* switches, int samples, Level in, Level to,
                             int channels, int window, int activation) {
    unsigned vectors = channels / V, total = samples * to.length * vectors;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        unsigned c = (i % vectors) * V, row = i / vectors, p = row % to.length, n = row / to.length;
        float b[V], best[V];
        int where[V];
#pragma unroll
        for (int j = 0; j < V; j++) b[j] = bias ? bias[c + j] : 0.f, where[j] = 0;
        const T* from = raw + ((size_t)n * in.stride + p * window) * channels + c;
        load<V>(from, best);
#pragma unroll
        for (int j = 0; j < V; j++) best[j] = activate(activation, best[j] + b[j]);
        int points = min(window, in.length - (int)p * window);
        for (int q = 1; q < points; q++) {
            float v[V];
            load<V>(from + (size_t)q * channels, v);
#pragma unroll
            for (int j = 0; j < V; j++) {
                float y = activate(activation, v[j] + b[j]);
                if (y > best[j]) best[j] = y, where[j] = q;
            }
        }
        store<V>(out + ((size_t)n * to.stride + p) * channels + c, best);
        if (switches) store<V>(switches + (size_t)row * channels + c, where);
    }
}

// raw [samples][in.stride][C] + bias -> nonlinearity -> each value at its switch, or at all points of its window if
// there are no switches [samples][out.stride][C].
template <class T, int V>
__device__ void unpool_forward(const T* raw, const float* bias, const u8* switches, T* out, int samples, Level in,
                               Level to, int channels, int window, int activation) {
    unsigned vectors = channels / V, total = samples * in.length * vectors;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        unsigned c = (i % vectors) * V, row = i / vectors, p = row % in.length, n = row / in.length;
        float v[V];
        int where[V];
        load<V>(raw + ((size_t)n * in.stride + p) * channels + c, v);
        if (switches) load<V>(switches + (size_t)row * channels + c, where);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = activate(activation, v[j] + (bias ? bias[c + j] : 0.f));
        T* into = out + ((size_t)n * to.stride + p * window) * channels + c;
        int points = min(window, to.length - (int)p * window);
        for (int q = 0; q < points; q++) {
            float u[V];
#pragma unroll
            for (int j = 0; j < V; j++) u[j] = !switches || where[j] == q ? v[j] : 0.f;
            store<V>(into + (size_t)q * channels, u);
        }
    }
}

// The gradient of pool_forward: that of its output [samples][out.stride][C], plus lambda * (y - mirror) where there is a
// mirror, to that of what entered the nonlinearity [samples][in.stride][C]. y is pool_forward's output. Sums over rows,
// the bias's gradient, go to partial [blocks][C]. Blocks have 256 threads, in y one for each `columns` vectors.
template <class T, int V>
__device__ void pool_backward(const T* gradient, const T* y, const T* mirror, const u8* switches, T* out, float* partial,
                              const Control* control, float lambda, int samples, Level in, Level to, int channels,
                              int window, int activation, int columns) {
    __shared__ float shared[256 * V];
    int c = (blockIdx.y * columns + threadIdx.x % columns) * V, lanes = 256 / columns, own = threadIdx.x / columns;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    unsigned total = samples * to.length;
    int valid = control->samples;
    if (own < lanes && c < channels)
        for (unsigned row = blockIdx.x * lanes + own; row < total; row += gridDim.x * lanes) {
            unsigned p = row % to.length, n = row / to.length;
            size_t at = ((size_t)n * to.stride + p) * channels + c;
            float g[V], v[V];
            int where[V];
            load<V>(gradient + at, g);
            load<V>(y + at, v);
            if (switches) load<V>(switches + (size_t)row * channels + c, where);
            if (mirror && n < valid) {
                float m[V];
                load<V>(mirror + at, m);
#pragma unroll
                for (int j = 0; j < V; j++) g[j] += lambda * (v[j] - m[j]);
            }
#pragma unroll
            for (int j = 0; j < V; j++) g[j] *= slope(activation, v[j]), sum[j] += g[j];
            T* into = out + ((size_t)n * in.stride + p * window) * channels + c;
            int points = min(window, in.length - (int)p * window);
            for (int q = 0; q < points; q++) {
                float u[V];
#pragma unroll
                for (int j = 0; j < V; j++) u[j] = window == 1 || where[j] == q ? g[j] : 0.f;
                store<V>(into + (size_t)q * channels, u);
            }
        }
    add_columns<V>(sum, partial, channels, c, columns, shared);
}

// The gradient of unpool_forward: of its output [samples][out.stride][C] to that of what entered the nonlinearity
// [samples][in.stride][C]. u is unpool_forward's output; if it is null, there was no nonlinearity.
template <class T, int V>
__device__ void unpool_backward(const T* gradient, const T* u, const u8* switches, T* out, float* partial, int samples,
                                Level in, Level to, int channels, int window, int activation, int columns) {
    __shared__ float shared[256 * V];
    int c = (blockIdx.y * columns + threadIdx.x % columns) * V, lanes = 256 / columns, own = threadIdx.x / columns;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    unsigned total = samples * in.length;
    if (own < lanes && c < channels)
        for (unsigned row = blockIdx.x * lanes + own; row < total; row += gridDim.x * lanes) {
            unsigned p = row % in.length, n = row / in.length;
            size_t from = ((size_t)n * to.stride + p * window) * channels + c;
            int where[V];
            if (switches) load<V>(switches + (size_t)row * channels + c, where);
            float g[V], y[V];
#pragma unroll
            for (int j = 0; j < V; j++) g[j] = 0.f, y[j] = 0.f;
            int points = min(window, to.length - (int)p * window);
            for (int q = 0; q < points; q++) {
                float d[V], v[V];
                load<V>(gradient + from + (size_t)q * channels, d);
                if (u) load<V>(u + from + (size_t)q * channels, v);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    bool here = !switches || where[j] == q;
                    g[j] += here ? d[j] : 0.f;
                    if (u && here) y[j] = v[j];
                }
            }
#pragma unroll
            for (int j = 0; j < V; j++) g[j] *= u ? slope(activation, y[j]) : 1.f, sum[j] += g[j];
            store<V>(out + ((size_t)n * in.stride + p) * channels + c, g);
        }
    add_columns<V>(sum, partial, channels, c, columns, shared);
}

#define POOLING(V)                                                                                                      \
    PAIR(pool_forward, V, (const T* raw, const float* bias, T* out, u8* switches, int samples, Level in, Level to,      \
                           int channels, int window, int activation),                                                   \
         (raw, bias, out, switches, samples, in, to, channels, window, activation))                                     \
    PAIR(unpool_forward, V, (const T* raw, const float* bias, const u8* switches, T* out, int samples, Level in,        \
                             Level to, int channels, int window, int activation),                                       \
         (raw, bias, switches, out, samples, in, to, channels, window, activation))                                     \
    PAIR(pool_backward, V, (const T* gradient, const T* y, const T* mirror, const u8* switches, T* out, float* partial, \
                            const Control* control, float lambda, int samples, Level in, Level to, int channels,        \
                            int window, int activation, int columns),                                                   \
         (gradient, y, mirror, switches, out, partial, control, lambda, samples, in, to, channels, window, activation,  \
          columns))                                                                                                     \
    PAIR(unpool_backward, V, (const T* gradient, const T* u, const u8* switches, T* out, float* partial, int samples,   \
                              Level in, Level to, int channels, int window, int activation, int columns),               \
         (gradient, u, switches, out, partial, samples, in, to, channels, window, activation, columns))
POOLING(1)
POOLING(8)
