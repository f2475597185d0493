// Kernels of streamed ridge: what lies between its products. Matrices are column by column; sums are in double precision
// and in a fixed order, so that a result does not depend on how blocks were scheduled.

typedef long long Long;



// The sum (or the extreme) over a block's threads, for all of them.
template <typename F>
__device__ double over_block(double value, F of) {
    __shared__ double parts[32];
    for (int step = 16; step > 0; step /= 2) value = of(value, __shfl_down_sync(0xffffffffu, value, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    double all = parts[0];
    for (int i = 1; i < blockDim.x / 32; i++) all = of(all, parts[i]);
    return all;
}

struct Add { __device__ double operator()(double a, double b) const { return a + b; } };
struct Least { __device__ double operator()(double a, double b) const { return fmin(a, b); } };
struct Most { __device__ double operator()(double a, double b) const { return fmax(a, b); } };

// A block of threads centres a column. One that is constant or not finite becomes zero: it must not spread. flat: the variance
// that rounding alone may make.
template <typename T>
__device__ void centre(const T *from, double *into, Long rows, double *means, double *squares, double *scales, double *flat,
                       int by_variance, double epsilon) {
    const Long column = blockIdx.x;
    from += column * rows;
    into += column * rows;
    const double endless = __longlong_as_double(0x7ff0000000000000LL); // no header, so no INFINITY
    double sum = 0, low = endless, high = -endless;
    for (Long i = threadIdx.x; i < rows; i += blockDim.x) {
        const double value = from[i];
        sum += value;
        low = fmin(low, value);
        high = fmax(high, value);
    }
    const double mean = over_block(sum, Add()) / rows;
    low = over_block(low, Least());
    high = over_block(high, Most());
    double square = 0;
    for (Long i = threadIdx.x; i < rows; i += blockDim.x) {
        const double value = from[i] - mean;
        square += value * value;
    }
    square = over_block(square, Add());
    const double largest = fmax(fabs(low), fabs(high)) * epsilon;
    const bool unfit = low == high || !isfinite(square) || square <= rows * largest * largest;
    const double scale = by_variance && !unfit ? 1 / sqrt(square) : 1;
    for (Long i = threadIdx.x; i < rows; i += blockDim.x) into[i] = unfit ? 0 : (from[i] - mean) * scale;
    if (threadIdx.x == 0) {
        means[column] = mean;
        squares[column] = unfit ? 0 : square;
        scales[column] = scale;
        flat[column] = largest * largest;
    }
}

extern "C" __global__ void centre_f32(const float *from, double *into, Long rows, double *means, double *squares,
                                      double *scales, double *flat, int by_variance, double epsilon) {
    centre(from, into, rows, means, squares, scales, flat, by_variance, epsilon);
}

extern "C" __global__ void centre_f64(const double *from, double *into, Long rows, double *means, double *squares,
                                      double *scales, double *flat, int by_variance, double epsilon) {
    centre(from, into, rows, means, squares, scales, flat, by_variance, epsilon);
}

extern "C" __global__ void narrow_f64(const double *from, double *into, Long count) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) into[at] = from[at];
}

extern "C" __global__ void narrow_f32(const double *from, float *into, Long count) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) into[at] = (float)from[at];
}

// sums += squares of a row.
extern "C" __global__ void add_row_squares(const double *from, double *sums, Long rows, Long columns) {
    const Long i = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    double sum = 0;
    for (Long j = 0; j < columns; j++) sum += from[i + j * rows] * from[i + j * rows];
    sums[i] += sum;
}

// columns of `into` times `scales`.
extern "C" __global__ void scale_columns(double *into, const double *scales, Long rows, Long columns) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < rows * columns) into[at] *= scales[at / rows];
}

// M / (lambda + alpha), of targets that were scaled.
extern "C" __global__ void shrink(const double *from, double *into, const double *lambdas, const double *alphas,
                                  const double *scales, Long rows, Long columns) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * columns) return;
    const Long i = at % rows, j = at / rows;
    into[at] = from[at] / (lambdas[i] + alphas[j]) / scales[j];
}

// Squared errors of leave-one-out of the rows from `first` on, summed over targets, with every penalty: a thread a row. apart:
// products of these rows with squares over differences of eigenvalues, `stride` apart; near, starts, offsets: squares of values
// that are close (see close_values); shrink: see fold_scores.
extern "C" __global__ void row_errors(const double *z, const double *apart, const double *cross, const double *squares,
                                      const double *near, const Long *starts, const Long *offsets, const double *shrink,
                                      double *errors, Long rows, Long size, Long alphas, Long first, Long count,
                                      Long stride) {
    const Long i = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Long row = first + i;
    const int together = 8;
    for (Long from = 0; from < alphas; from += together) {
        double leverage[together] = {}, shared[together] = {}, fitted[together] = {};
        for (Long j = 0; j < size; j++) {
            double q = 0;
            for (Long at = offsets[j]; at < offsets[j + 1]; at++) {
                q += near[at] * z[row + (starts[j] + at - offsets[j]) * rows];
            }
            const double v = z[row + j * rows];
            const double vv = v * v, vb = v * cross[row + j * rows], vp = 2 * v * apart[i + j * stride], vq = v * q;
#pragma unroll
            for (int a = 0; a < together; a++) {
                if (from + a >= alphas) break;
                const double d = shrink[(from + a) * size + j], differing = shrink[(alphas + from + a) * size + j];
                leverage[a] += d * vv;
                shared[a] += d * vb;
                fitted[a] += differing * vp + d * d * vq;
            }
        }
#pragma unroll
        for (int a = 0; a < together; a++) {
            if (from + a >= alphas) break;
            // The intercept takes 1/n.
            const double kept = 1 - 1.0 / rows - leverage[a];
            errors[(from + a) * rows + row] = (squares[row] - 2 * shared[a] + fitted[a]) / (kept * kept);
        }
    }
}

// A block of threads correlates a column with its prediction.
template <typename T>
__device__ void correlate(const T *actual, const double *predicted, double *into, Long rows) {
    actual += blockIdx.x * rows;
    predicted += blockIdx.x * rows;
    double y = 0, p = 0;
    for (Long i = threadIdx.x; i < rows; i += blockDim.x) {
        y += actual[i];
        p += predicted[i];
    }
    y = over_block(y, Add()) / rows;
    p = over_block(p, Add()) / rows;
    double yy = 0, pp = 0, yp = 0;
    for (Long i = threadIdx.x; i < rows; i += blockDim.x) {
        const double dy = actual[i] - y, dp = predicted[i] - p;
        yy += dy * dy;
        pp += dp * dp;
        yp += dy * dp;
    }
    yy = over_block(yy, Add());
    pp = over_block(pp, Add());
    yp = over_block(yp, Add());
    // A constant varies by the rounding of its mean.
    const double least = 2.220446049250313e-16 * y;
    if (threadIdx.x == 0) into[blockIdx.x] = yy > rows * least * least ? yp / sqrt(yy * pp) : nan("");
}

extern "C" __global__ void correlate_f32(const float *actual, const double *predicted, double *into, Long rows) {
    correlate(actual, predicted, into, rows);
}

extern "C" __global__ void correlate_f64(const double *actual, const double *predicted, double *into, Long rows) {
    correlate(actual, predicted, into, rows);
}
