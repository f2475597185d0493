// From partial gradients to the next parameters.

// A part of the flat gradient as it was summed: `parts` vectors of `length`, `pitch` apart, from `from` on.
struct Segment {
    const float* from;
    long long to; // where in the flat gradient
    int length, parts;
    long long pitch;
};

// The sums of all segments: of every eighth part in a warp, then of the warps, always in the same order. Blocks are
// (32, 8), blockIdx.y is the segment.
extern "C" __global__ void gather_gradient(const Segment* segments, float* gradient) {
    __shared__ float sums[8][32];
    Segment s = segments[blockIdx.y];
    if (s.parts <= 16) {
        // Few parts: a value a thread.
        for (int i = (blockIdx.x * 8 + threadIdx.y) * 32 + threadIdx.x; i < s.length; i += gridDim.x * 256) {
            float sum = 0.f;
#pragma unroll 4
            for (int part = 0; part < s.parts; part++) sum += s.from[part * s.pitch + i];
            gradient[s.to + i] = sum;
        }
        return;
    }
    for (int at = blockIdx.x * 32; at < s.length; at += gridDim.x * 32) {
        int i = at + threadIdx.x;
        float sum = 0.f;
        if (i < s.length)
#pragma unroll 4
            for (int part = threadIdx.y; part < s.parts; part += 8) sum += s.from[part * s.pitch + i];
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && i < s.length) {
#pragma unroll
            for (int warp = 1; warp < 8; warp++) sum += sums[warp][threadIdx.x];
            gradient[s.to + i] = sum;
        }
        __syncthreads();
    }
}

// The losses of all blocks, in order, to total[0] (since it was last cleared) and to total[1] (of this step).
extern "C" __global__ void gather_losses(const float* losses, int n, double* total) {
    __shared__ double sums[256];
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += 256) sum += losses[i];
    sums[threadIdx.x] = sum;
    for (int o = 128; o > 0; o >>= 1) {
        __syncthreads();
        if (threadIdx.x < o) sums[threadIdx.x] += sums[threadIdx.x + o];
    }
    if (threadIdx.x == 0) total[0] += sums[0], total[1] = sums[0];
}

__device__ __forceinline__ void add(float4& sum, float4 v) { sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w; }

// One step of a rule over n parameters (a multiple of 4): w with its gradient g and what the rule remembers; `copy`, if
// there is one, gets the new w in bf16. 0 Adagrad, 1 SGD, 2 momentum, 3 Nesterov, 4 Adam. The gradients of other replicas,
// `count` runs of n, are added in the order of all: `before` of them come before g.
extern "C" __global__ void update(int rule, float* w, const float* g, const float* others, int before, int count,
                                  float* first, float* second, bf16* copy, int n, const Control* control) {
    Control c = *control;
    if (c.divisor == 0.f) return;
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 w4 = *(float4*)(w + i), zero = make_float4(0.f, 0.f, 0.f, 0.f), g4 = zero;
    for (int k = 0; k < before; k++) add(g4, *(const float4*)(others + (long long)k * n + i));
    add(g4, *(const float4*)(g + i));
    for (int k = before; k < count; k++) add(g4, *(const float4*)(others + (long long)k * n + i));
    float4 m4 = rule != 1 ? *(float4*)(first + i) : zero, v4 = rule == 4 ? *(float4*)(second + i) : zero;
    float *wv = &w4.x, *gv = &g4.x, *mv = &m4.x, *vv = &v4.x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float d = __fdiv_rn(gv[j], c.divisor), m = mv[j];
        if (rule == 0) {
            m += d * d;
            // Where nothing has come yet nothing moves, also if epsilon is 0: layouts are padded.
            if (m > 0.f) wv[j] -= c.learning_rate * d / (sqrtf(m) + c.epsilon);
        } else if (rule == 1) {
            wv[j] -= c.learning_rate * d;
        } else if (rule == 2) {
            m = c.momentum * m + d;
            wv[j] -= c.learning_rate * m;
        } else if (rule == 3) {
            m = c.momentum * m + d;
            wv[j] -= c.learning_rate * (d + c.momentum * m);
        } else {
            m = c.momentum * m + (1.f - c.momentum) * d;
            float v = c.beta_2 * vv[j] + (1.f - c.beta_2) * d * d;
            vv[j] = v;
            float root = sqrtf(v) / c.corrected_root + c.epsilon;
            if (root > 0.f) wv[j] -= c.corrected_rate * m / root;
        }
        mv[j] = m;
    }
    *(float4*)(w + i) = w4;
    if (rule != 1) *(float4*)(first + i) = m4;
    if (rule == 4) *(float4*)(second + i) = v4;
    if (copy) *(uint2*)(copy + i) = make_uint2(two(w4.x, w4.y), two(w4.z, w4.w));
}

// All parameters to bf16, n a multiple of 4.
extern "C" __global__ void copy_bf16(const float* w, bf16* copy, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 v = *(const float4*)(w + i);
    *(uint2*)(copy + i) = make_uint2(two(v.x, v.y), two(v.z, v.w));
}

// A convolution's weights [K][C][O] as a product takes them that gives `together` neighbouring points in a row: [K +
// together - 1][from][together][to], tap k of point j in row k + j, zeros elsewhere. From C to O, or, for the gradient of
// its input, from O to C, the last tap first.
struct Spread {
    long long at, to;
    int kernel, in, out;
    short together, turned;
};

template <class T, int V>
__device__ void spread_weights(const Spread* all, const float* w, T* spread) {
    Spread s = all[blockIdx.y];
    int from = s.turned ? s.out : s.in, to = s.turned ? s.in : s.out;
    int total = (s.kernel + s.together - 1) * from * s.together * to;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int b = i % to, rest = i / to, j = rest % s.together, row = rest / s.together, a = row % from;
        int k = row / from - j;
        float v = 0.f;
        if (k >= 0 && k < s.kernel)
            v = s.turned ? w[s.at + ((long long)(s.kernel - 1 - k) * s.in + b) * s.out + a]
                         : w[s.at + ((long long)k * s.in + a) * s.out + b];
        narrow(v, spread + s.to + i);
    }
}
PAIR(spread_weights, 1, (const Spread* all, const float* w, T* spread), (all, w, spread))

// From the order of a flat vector as files have it to that on the card, and back: place[i] is where value i lies here.
extern "C" __global__ void scatter(const float* from, const unsigned* place, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[place[i]] = from[i];
}
extern "C" __global__ void gather(const float* from, const unsigned* place, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[place[i]];
}
