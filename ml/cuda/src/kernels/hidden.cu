// Around the two fully connected layers.

// raw [rows][C] f32 + bias -> out [rows][C].
template <class T, int V>
__device__ void add_bias(const float* raw, const float* bias, T* out, int rows, int channels) {
    unsigned total = rows * channels;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x)
        narrow(raw[i] + bias[i % channels], out + i);
}

// Z' in place: [samples][stride][C], its first `values` = length * C of each sample + bias [values]; the loss
// lambda / 2 |Z - Z'|^2 of the samples that count, one entry of `losses` a block.
template <class T, int V>
__device__ void top_forward(T* decoded, const float* bias, const T* top, float* losses, const Control* control,
                            float lambda, int samples, int values, int pitch) {
    __shared__ float few[32];
    unsigned vectors = values / V, total = samples * vectors;
    int valid = control->samples;
    float loss = 0.f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        unsigned at = (i % vectors) * V, n = i / vectors;
        size_t p = (size_t)n * pitch + at;
        float v[V], z[V], b[V];
        load<V>(decoded + p, v);
        load<V>(top + p, z);
        load<V>(bias + at, b);
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[j] += b[j];
            sum += (z[j] - v[j]) * (z[j] - v[j]);
        }
        if (n < valid) loss += sum;
        store<V>(decoded + p, v);
    }
    loss = block_sum(0.5f * lambda * loss, few);
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

// The gradient of Z', in place: what came through the decoder, less lambda * (Z - Z'); sums over samples, the bias's
// gradient, to partial [gridDim.y][values].
template <class T, int V>
__device__ void top_backward(T* gradient, const T* top, const T* decoded, float* partial, const Control* control,
                             float lambda, int samples, int values, int pitch) {
    int at = (blockIdx.x * blockDim.x + threadIdx.x) * V, valid = control->samples;
    if (at >= values) return;
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = 0.f;
    for (int n = blockIdx.y; n < samples; n += gridDim.y) {
        size_t p = (size_t)n * pitch + at;
        float g[V], z[V], d[V];
        load<V>(gradient + p, g);
        if (n < valid) {
            load<V>(top + p, z);
            load<V>(decoded + p, d);
#pragma unroll
            for (int j = 0; j < V; j++) g[j] -= lambda * (z[j] - d[j]);
            store<V>(gradient + p, g);
        }
#pragma unroll
        for (int j = 0; j < V; j++) sum[j] += g[j];
    }
#pragma unroll
    for (int j = 0; j < V; j++) partial[(size_t)blockIdx.y * values + at + j] = sum[j];
}

// Sums over rows of [rows][C], to partial [gridDim.y][C].
template <class T, int V>
__device__ void column_sums(const T* x, float* partial, int rows, int channels) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float sum = 0.f;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) sum += wide(x[(size_t)row * channels + c]);
    partial[(size_t)blockIdx.y * channels + c] = sum;
}

PAIR(add_bias, 1, (const float* raw, const float* bias, T* out, int rows, int channels), (raw, bias, out, rows, channels))
PAIR(column_sums, 1, (const T* x, float* partial, int rows, int channels), (x, partial, rows, channels))
#define TOP(V)                                                                                                           \
    PAIR(top_forward, V, (T* decoded, const float* bias, const T* top, float* losses, const Control* control,            \
                          float lambda, int samples, int values, int pitch),                                             \
         (decoded, bias, top, losses, control, lambda, samples, values, pitch))                                          \
    PAIR(top_backward, V, (T* gradient, const T* top, const T* decoded, float* partial, const Control* control,          \
                           float lambda, int samples, int values, int pitch),                                            \
         (gradient, top, decoded, partial, control, lambda, samples, values, pitch))
TOP(1)
TOP(8)
