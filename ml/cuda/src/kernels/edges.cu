// The first and the last convolution, from one channel and to one: too thin for matrix products. Lanes are channels.

#define RUN 16 // points that a thread computes at once

// series [samples][length] f32 * weight [kernel][C] + bias -> nonlinearity -> maxima of windows of W (1 or 2)
// [samples][to.stride][C] and where they were. Blocks: (32, warps), one for RUN * warps points of a sample.
template <class T, int W>
__device__ void first_forward(const float* series, const float* weight, const float* bias, T* out, u8* switches,
                              int length, Level to, int kernel, int before, int channels, int tiles, int activation) {
    extern __shared__ float x[];
    int tile = blockDim.y * RUN, n = blockIdx.x / tiles, start = (blockIdx.x % tiles) * tile;
    int taps = (kernel + 7) / 8 * 8, threads = 32 * blockDim.y;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < tile + taps; i += threads) {
        int t = start - before + i;
        x[i] = t >= 0 && t < length ? series[(size_t)n * length + t] : 0.f;
    }
    __syncthreads();
    int first = threadIdx.y * RUN;
    if (start + first >= length) return;
    for (int c = threadIdx.x; c < channels; c += 32) {
        float y[RUN], b = bias[c];
#pragma unroll
        for (int i = 0; i < RUN; i++) y[i] = b;
#pragma unroll 1
        for (int k = 0; k < taps; k += 8) {
            float w[8], v[24];
#pragma unroll
            for (int j = 0; j < 8; j++) w[j] = k + j < kernel ? weight[(size_t)(k + j) * channels + c] : 0.f;
#pragma unroll
            for (int j = 0; j < 6; j++) {
                float4 q = *(const float4*)(x + first + k + 4 * j);
                v[4 * j] = q.x, v[4 * j + 1] = q.y, v[4 * j + 2] = q.z, v[4 * j + 3] = q.w;
            }
#pragma unroll
            for (int i = 0; i < RUN; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) y[i] += v[i + j] * w[j];
        }
#pragma unroll
        for (int i = 0; i < RUN; i += W) {
            int t = start + first + i, p = t / W;
            if (t >= length) break;
            float best = activate(activation, y[i]);
            int where = 0;
#pragma unroll
            for (int q = 1; q < W; q++) {
                float v = activate(activation, y[i + q]);
                if (t + q < length && v > best) best = v, where = q;
            }
            narrow(best, out + ((size_t)n * to.stride + p) * channels + c);
            if (W > 1) switches[((size_t)n * to.length + p) * channels + c] = (u8)where;
        }
    }
}

// The gradient of the first layer's parameters: of pooled [samples][to.stride][C], the layer's output, and the gradient
// of it (plus lambda * (pooled - mirror), where there is a mirror), to partial [blocks][kernel + 1][C], the last row the
// bias's. blockIdx.y: 24 taps; blockIdx.z: 32 channels.
template <class T, int KT>
__device__ void first_backward(const float* series, const T* gradient, const T* pooled, const T* mirror,
                               const u8* switches, float* partial, const Control* control, float lambda, int samples,
                               int length, Level to, int kernel, int before, int channels, int window, int activation) {
    extern __shared__ float shared[];
    float* x = shared;
    int pad = (kernel + KT - 1) / KT * KT, lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    float* sums = shared + (length + 2 * pad + 3) / 4 * 4;
    int tap = blockIdx.y * KT, c = blockIdx.z * 32 + lane, valid = control->samples;
    float acc[KT], bias = 0.f;
#pragma unroll
    for (int k = 0; k < KT; k++) acc[k] = 0.f;
    for (int n = blockIdx.x; n < samples; n += gridDim.x) {
        __syncthreads();
        for (int i = warp * 32 + lane; i < length + 2 * pad; i += 32 * warps) {
            int t = i - pad;
            x[i] = t >= 0 && t < length ? series[(size_t)n * length + t] : 0.f;
        }
        __syncthreads();
        float y_next = 0.f, g_next = 0.f, m_next = 0.f;
        int s_next = 0;
        auto read = [&](int p) {
            size_t at = ((size_t)n * to.stride + p) * channels + c;
            y_next = wide(pooled[at]), g_next = wide(gradient[at]);
            if (mirror) m_next = wide(mirror[at]);
            if (window > 1) s_next = switches[((size_t)n * to.length + p) * channels + c];
        };
        if (c < channels && warp < to.length) read(warp);
        if (c < channels)
            for (int p = warp; p < to.length; p += warps) {
                // What the next point needs is on its way while this one is computed.
                float y = y_next, g = g_next, m = m_next;
                int s = s_next;
                if (p + warps < to.length) read(p + warps);
                if (mirror && n < valid) g += lambda * (y - m);
                g *= slope(activation, y);
                int r = p * window + s;
                const float* v = x + pad + r - before + tap;
#pragma unroll
                for (int k = 0; k < KT; k++) acc[k] += g * v[k];
                bias += g;
            }
    }
    for (int w = 0; w < warps; w++) {
        __syncthreads();
        if (warp == w) {
#pragma unroll
            for (int k = 0; k < KT; k++) sums[k * 32 + lane] = w ? sums[k * 32 + lane] + acc[k] : acc[k];
            sums[KT * 32 + lane] = w ? sums[KT * 32 + lane] + bias : bias;
        }
    }
    __syncthreads();
    float* into = partial + (size_t)blockIdx.x * (kernel + 1) * channels;
    if (c < channels)
        for (int k = warp; k <= KT; k += warps) {
            int row = k < KT ? tap + k : kernel;
            if ((k < KT && row < kernel) || (k == KT && blockIdx.y == 0))
                into[(size_t)row * channels + c] = sums[k * 32 + lane];
        }
}

// Lanes with bit O keep the upper HALF of y, the others the lower one, each summed with its partner's.
template <int HALF, int O>
__device__ __forceinline__ void exchange(float* y, int lane) {
    bool upper = lane & O;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float keep = upper ? y[i + HALF] : y[i], give = upper ? y[i] : y[i + HALF];
        y[i] = keep + __shfl_xor_sync(~0u, give, O);
    }
}

// values [samples][in.stride][C], un-pooled by switches (or repeated) to `length` points, * weight [kernel][C] + bias ->
// decoded [samples][length] (if asked for), and with the series: the loss, and gradient [samples][length] of it.
// Blocks: (32, warps), one for RUN * warps points of a sample; losses has one entry a block. V is 8 where windows are of
// 2 points and channels come in eights, else 1.
template <class T, int V>
__device__ void last_forward(const T* values, const u8* switches, const float* weight, const float* bias,
                             const float* series, float* decoded, float* gradient, float* losses,
                             const Control* control, int length, Level in, int kernel, int before, int channels,
                             int window, int tiles) {
    extern __shared__ float u[];
    __shared__ float few[32];
    int lane = threadIdx.x, tile = blockDim.y * RUN, n = blockIdx.x / tiles, start = (blockIdx.x % tiles) * tile;
    int taps = (kernel + 7) / 8 * 8, first = threadIdx.y * RUN;
    float y[RUN];
#pragma unroll
    for (int i = 0; i < RUN; i++) y[i] = 0.f;
    for (int block = 0; block < channels; block += 32) {
        int c = block + lane;
        __syncthreads();
        if constexpr (V == 8) {
            // Windows of 2 and channels in eights: a thread takes eight of one pooled point.
            int from = start - before, low = from >> 1, points = ((from + tile + taps) >> 1) - low + 1;
            for (int i = threadIdx.y * 32 + lane; i < points * 4; i += blockDim.y * 32) {
                int p = low + i / 4, e = block + (i % 4) * 8, row = 2 * p - from;
                float v[8];
                int where[8];
                bool inside = p >= 0 && p < in.length && e < channels;
                if (inside) {
                    load<8>(values + ((size_t)n * in.stride + p) * channels + e, v);
                    if (switches) load<8>(switches + ((size_t)n * in.length + p) * channels + e, where);
                }
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    if (row + q < 0 || row + q >= tile + taps) continue;
                    bool used = inside && 2 * p + q < length;
                    float y[8];
#pragma unroll
                    for (int j = 0; j < 8; j++) y[j] = used && (!switches || where[j] == q) ? v[j] : 0.f;
                    store<8>(u + (row + q) * 32 + (i % 4) * 8, y);
                }
            }
        } else {
            for (int i = threadIdx.y; i < tile + taps; i += blockDim.y) {
                int r = start - before + i;
                float v = 0.f;
                if (r >= 0 && r < length && c < channels) {
                    int p = r / window;
                    bool here = !switches || switches[((size_t)n * in.length + p) * channels + c] == r - p * window;
                    if (here) v = wide(values[((size_t)n * in.stride + p) * channels + c]);
                }
                u[i * 32 + lane] = v;
            }
        }
        __syncthreads();
        for (int k = 0; k < taps; k += 8) {
            float w[8], v[RUN + 7];
#pragma unroll
            for (int j = 0; j < 8; j++)
                w[j] = k + j < kernel && c < channels ? weight[(size_t)(k + j) * channels + c] : 0.f;
#pragma unroll
            for (int j = 0; j < RUN + 7; j++) v[j] = u[(first + k + j) * 32 + lane];
#pragma unroll
            for (int i = 0; i < RUN; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) y[i] += v[i + j] * w[j];
        }
    }
    // Sums over lanes: halves are exchanged, so that lane l ends with point l / 2.
    exchange<RUN / 2, 16>(y, lane);
    exchange<RUN / 4, 8>(y, lane);
    exchange<RUN / 8, 4>(y, lane);
    exchange<RUN / 16, 2>(y, lane);
    float sum = y[0] + __shfl_xor_sync(~0u, y[0], 1) + bias[0], loss = 0.f;
    int t = start + first + lane / 2;
    if ((lane & 1) == 0 && t < length) {
        size_t at = (size_t)n * length + t;
        if (decoded) decoded[at] = sum;
        float d = n < control->samples ? sum - series[at] : 0.f;
        if (gradient) gradient[at] = d;
        loss = 0.5f * d * d;
    }
    loss = block_sum(loss, few);
    if (threadIdx.x == 0 && threadIdx.y == 0) losses[blockIdx.x] = loss;
}

// The gradients behind last_forward: of what gave `values`, before its nonlinearity, to out [samples][in.stride][C]; of
// its bias to partial_before [blocks][C]; of weight and bias to partial [blocks][kernel * C + 1]. Blocks as in
// first_backward.
template <class T, int KT>
__device__ void last_backward(const float* gradient, const T* values, const u8* switches, const float* weight, T* out,
                              float* partial_before, float* partial, int samples, int length, Level in, int kernel,
                              int before, int channels, int window, int activation) {
    extern __shared__ float shared[];
    __shared__ float few[32];
    float* d = shared;
    int pad = (kernel + KT - 1) / KT * KT, lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    float* sums = shared + (length + 2 * pad + 3) / 4 * 4;
    int tap = blockIdx.y * KT, c = blockIdx.z * 32 + lane;
    float acc[KT], w[KT], bias = 0.f, bias_before = 0.f;
#pragma unroll
    for (int k = 0; k < KT; k++)
        acc[k] = 0.f, w[k] = c < channels && k < kernel ? weight[(size_t)k * channels + c] : 0.f;
    for (int n = blockIdx.x; n < samples; n += gridDim.x) {
        __syncthreads();
        for (int i = warp * 32 + lane; i < length + 2 * pad; i += 32 * warps) {
            int t = i - pad;
            float v = t >= 0 && t < length ? gradient[(size_t)n * length + t] : 0.f;
            d[i] = v;
            bias += v;
        }
        __syncthreads();
        float v_next = 0.f;
        int s_next = 0;
        auto read = [&](int p) {
            v_next = wide(values[((size_t)n * in.stride + p) * channels + c]);
            if (window > 1 && switches) s_next = switches[((size_t)n * in.length + p) * channels + c];
        };
        if (c < channels && warp < in.length) read(warp);
        if (c < channels)
            for (int p = warp; p < in.length; p += warps) {
                size_t at = ((size_t)n * in.stride + p) * channels + c;
                float v = v_next, g = 0.f;
                int from = 0, to = 1;
                if (window > 1 && switches) {
                    from = s_next, to = from + 1;
                } else {
                    to = min(window, length - p * window);
                }
                if (p + warps < in.length) read(p + warps);
                for (int q = from; q < to; q++) {
                    const float* e = d + pad + p * window + q + before;
                    if (tap == 0) {
#pragma unroll
                        for (int k = 0; k < KT; k++) g += e[-k] * w[k], acc[k] += v * e[-k];
                        for (int k = KT; k < kernel; k++) g += e[-k] * weight[(size_t)k * channels + c];
                    } else {
#pragma unroll
                        for (int k = 0; k < KT; k++) acc[k] += v * e[-(tap + k)];
                    }
                }
                if (tap == 0) {
                    g *= slope(activation, v);
                    bias_before += g;
                    narrow(g, out + at);
                }
            }
    }
    for (int other = 0; other < warps; other++) {
        __syncthreads();
        if (warp == other) {
#pragma unroll
            for (int k = 0; k < KT; k++) sums[k * 32 + lane] = other ? sums[k * 32 + lane] + acc[k] : acc[k];
            sums[KT * 32 + lane] = other ? sums[KT * 32 + lane] + bias_before : bias_before;
        }
    }
    __syncthreads();
    float* into = partial + (size_t)blockIdx.x * (kernel * channels + 1);
    if (c < channels) {
        for (int k = warp; k < KT && tap + k < kernel; k += warps)
            into[(size_t)(tap + k) * channels + c] = sums[k * 32 + lane];
        if (warp == 0 && tap == 0 && partial_before)
            partial_before[(size_t)blockIdx.x * channels + c] = sums[KT * 32 + lane];
    }
    bias = block_sum(bias, few);
    if (lane == 0 && warp == 0 && blockIdx.y == 0 && blockIdx.z == 0) into[(size_t)kernel * channels] = bias;
}

#define FIRST(V)                                                                                                       \
    BOUND(384, 2, first_forward, V, (const float* series, const float* weight, const float* bias, T* out, u8* switches,         \
                            int length, Level to, int kernel, int before, int channels, int tiles, int activation),    \
         (series, weight, bias, out, switches, length, to, kernel, before, channels, tiles, activation))
FIRST(1)
FIRST(2)
BOUND(256, 4, first_backward, 24, (const float* series, const T* gradient, const T* pooled, const T* mirror, const u8* switches,
                          float* partial, const Control* control, float lambda, int samples, int length, Level to,
                          int kernel, int before, int channels, int window, int activation),
     (series, gradient, pooled, mirror, switches, partial, control, lambda, samples, length, to, kernel, before, channels,
      window, activation))
#define LAST(V)                                                                                                        \
    PAIR(last_forward, V, (const T* values, const u8* switches, const float* weight, const float* bias,                \
                           const float* series, float* decoded, float* gradient, float* losses,                        \
                           const Control* control, int length, Level in, int kernel, int before, int channels,         \
                           int window, int tiles),                                                                     \
         (values, switches, weight, bias, series, decoded, gradient, losses, control, length, in, kernel, before,      \
          channels, window, tiles))
LAST(1)
LAST(8)
BOUND(256, 3, last_backward, 24, (const float* gradient, const T* values, const u8* switches, const float* weight, T* out,
                         float* partial_before, float* partial, int samples, int length, Level in, int kernel, int before,
                         int channels, int window, int activation),
     (gradient, values, switches, weight, out, partial_before, partial, samples, length, in, kernel, before, channels,
      window, activation))
