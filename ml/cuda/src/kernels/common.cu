// Numbers, vectors of channels, nonlinearities. Series lie as rows [time][channel]; rows between samples stay zero, since
// no kernel here writes them.

typedef unsigned char u8;
typedef unsigned short bf16;

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ float wide(bf16 v) { return __uint_as_float((unsigned)v << 16); }

__device__ __forceinline__ void narrow(float v, float* to) { *to = v; }
__device__ __forceinline__ void narrow(float v, bf16* to) {
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    *to = r;
}

__device__ __forceinline__ unsigned two(float low, float high) {
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// V neighbouring channels, as floats. V is 8, all aligned to 16 bytes, or 1.
template <int V>
__device__ __forceinline__ void load(const bf16* p, float* v) {
    if constexpr (V == 8) {
        uint4 q = *(const uint4*)p;
        unsigned w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = __uint_as_float(w[i] << 16);
            v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    } else {
        v[0] = wide(*p);
    }
}
template <int V>
__device__ __forceinline__ void load(const float* p, float* v) {
    if constexpr (V == 8) {
        float4 a = ((const float4*)p)[0], b = ((const float4*)p)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        v[0] = *p;
    }
}
template <int V>
__device__ __forceinline__ void store(bf16* p, const float* v) {
    if constexpr (V == 8) {
        *(uint4*)p = make_uint4(two(v[0], v[1]), two(v[2], v[3]), two(v[4], v[5]), two(v[6], v[7]));
    } else {
        narrow(v[0], p);
    }
}
template <int V>
__device__ __forceinline__ void store(float* p, const float* v) {
    if constexpr (V == 8) {
        ((float4*)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4*)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        *p = v[0];
    }
}
template <int V>
__device__ __forceinline__ void load(const u8* p, int* v) {
    if constexpr (V == 8) {
        uint2 q = *(const uint2*)p;
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = (q.x >> (8 * i)) & 255, v[4 + i] = (q.y >> (8 * i)) & 255;
    } else {
        v[0] = *p;
    }
}
template <int V>
__device__ __forceinline__ void store(u8* p, const int* v) {
    if constexpr (V == 8) {
        uint2 q = make_uint2(0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) q.x |= (unsigned)v[i] << (8 * i), q.y |= (unsigned)v[4 + i] << (8 * i);
        *(uint2*)p = q;
    } else {
        *p = (u8)v[0];
    }
}

// 0 ReLU, 1 leaky ReLU, 2 tanh, 3 none.
__device__ __forceinline__ float activate(int kind, float v) {
    switch (kind) {
        case 0: return v > 0.f ? v : 0.f;
        case 1: return v > 0.f ? v : 0.01f * v;
        case 2: return tanhf(v);
        default: return v;
    }
}

// The slope where the output is y.
__device__ __forceinline__ float slope(int kind, float y) {
    switch (kind) {
        case 0: return y > 0.f ? 1.f : 0.f;
        case 1: return y > 0.f ? 1.f : 0.01f;
        case 2: return 1.f - y * y;
        default: return 1.f;
    }
}

// What changes from step to step; it comes with the minibatch.
struct Control {
    int samples;          // of this card that count; the others bring nothing
    float divisor;        // of the gradient of all cards: their samples, or 1 for the sum; 0 if there are none
    float learning_rate;
    float epsilon;
    float momentum;
    float beta_2;
    float corrected_rate; // Adam: rate / (1 - beta_1^t)
    float corrected_root; // Adam: sqrt(1 - beta_2^t)
};

// Rows and columns of one level of the network.
struct Level {
    int length; // points of a sample
    int stride; // rows from one sample to the next
};

// The sum over a block, in thread 0. `shared` holds 32 floats.
__device__ __forceinline__ float block_sum(float v, float* shared) {
    int tid = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if ((tid & 31) == 0) shared[tid >> 5] = v;
    __syncthreads();
    float sum = 0.f;
    if (tid == 0)
        for (int i = 0; i < (threads + 31) / 32; i++) sum += shared[i];
    return sum;
}

// A block's sums over rows of V channels in each thread, to partial[blockIdx.x][C]. Threads with the same channels are
// `columns` apart. `shared` holds 256 * V floats.
template <int V>
__device__ void add_columns(const float* sum, float* partial, int channels, int c, int columns, float* shared) {
    if (!partial) return;
    int tid = threadIdx.x;
#pragma unroll
    for (int j = 0; j < V; j++) shared[tid * V + j] = sum[j];
    __syncthreads();
    if (tid < columns && c < channels) {
        float total[V];
#pragma unroll
        for (int j = 0; j < V; j++) total[j] = 0.f;
        for (int other = tid; other < blockDim.x; other += columns)
#pragma unroll
            for (int j = 0; j < V; j++) total[j] += shared[other * V + j];
#pragma unroll
        for (int j = 0; j < V; j++) partial[(size_t)blockIdx.x * channels + c + j] = total[j];
    }
}

// A kernel for both kinds of values: name_bf16 and name_f32, with T for the kind in its parameters.
#define KIND(name, V, end, of, bounds, parameters, arguments)                                            \
    namespace of_##end##_##name##V {                                                                     \
    typedef of T;                                                                                        \
    extern "C" __global__ void __launch_bounds__ bounds name##V##_##end parameters { name<T, V> arguments; } \
    }
#define PAIR(name, V, parameters, arguments)                       \
    KIND(name, V, bf16, bf16, (512), parameters, arguments)        \
    KIND(name, V, f32, float, (512), parameters, arguments)
// The same with registers for so many blocks of so many threads a multiprocessor.
#define BOUND(threads, blocks, name, V, parameters, arguments)          \
    KIND(name, V, bf16, bf16, (threads, blocks), parameters, arguments) \
    KIND(name, V, f32, float, (threads, blocks), parameters, arguments)
