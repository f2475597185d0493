// Kernels of cross-validation over folds, behind those of regression.cu.

// A block of threads takes a column's rows that a fold leaves out, `rows` of `from`, less the mean of the others, which are
// `train`; the columns of `from` sum to zero over all its rows. Those behind the first `held` are multiplied with `sign`,
// and one row more is the mean of the others times the root of the number of all rows.
extern "C" __global__ void fold_rows(const double *from, Long from_rows, const Long *rows, Long held, Long out, Long train,
                                     double sign, double *into, Long into_rows) {
    const Long column = blockIdx.x;
    from += column * from_rows;
    into += column * into_rows;
    double sum = 0;
    for (Long i = threadIdx.x; i < out; i += blockDim.x) sum += from[rows[i]];
    const double mean = -over_block(sum, Add()) / train;
    for (Long i = threadIdx.x; i < out; i += blockDim.x) {
        const double value = from[rows[i]] - mean;
        into[i] = i < held ? value : sign * value;
    }
    if (threadIdx.x == 0) into[out] = sqrt((double)from_rows) * mean;
}

// The lower triangle of a fold's Gram matrix: that of all samples, which is diagonal, less what is left out. `means`: the
// training mean times the root of the number of samples, `stride` apart.
extern "C" __global__ void remaining(const double *lambdas, const double *means, Long stride, double *square, Long size) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size * size) return;
    const Long i = at % size, j = at / size;
    if (i < j) return;
    square[at] = (i == j ? lambdas[i] : 0) + means[i * stride] * means[j * stride] - square[at];
}

// Of the lower triangle G what is close: of row j the columns from first[j] on, at offsets[j] of `values`.
extern "C" __global__ void close_values(const double *lower, const Long *first, const Long *offsets, double *values,
                                        Long size) {
    const Long j = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= size) return;
    for (Long at = offsets[j]; at < offsets[j + 1]; at++) {
        const Long k = first[j] + at - offsets[j];
        values[at] = k <= j ? lower[j + k * size] : lower[k + j * size];
    }
}

// G[j, k] / (lambda[k] - lambda[j]) of the lower triangle G in its place, whole; zero where values are close, or not of use.
extern "C" __global__ void apart(double *square, const double *lambdas, const Long *first, const Long *offsets, Long size) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size * size) return;
    const Long i = at % size, j = at / size;
    if (i < j) return;
    // A value that is of no use is close to none, not even to itself.
    const bool none = offsets[i] == offsets[i + 1] || offsets[j] == offsets[j + 1];
    const double value = none || first[i] <= j ? 0 : square[at] / (lambdas[j] - lambdas[i]);
    square[i + j * size] = value;
    square[j + i * size] = -value;
}

// into = C M with the values of C that are close.
extern "C" __global__ void close_products(const double *values, const Long *first, const Long *offsets, const double *m,
                                          double *into, Long size, Long columns) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size * columns) return;
    const Long j = at % size;
    const double *own = m + (at - j);
    double sum = 0;
    for (Long i = offsets[j]; i < offsets[j + 1]; i++) sum += values[i] * own[first[j] + i - offsets[j]];
    into[at] = sum;
}

extern "C" __global__ void subtract(const double *from, double *into, Long count) {
    const Long at = (Long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) into[at] -= from[at];
}

// A block of threads scores a target in a fold with every penalty and adds that to its scores, and 1 to the number behind them,
// unless it can have no score there: R² asks for samples that vary, r for a fit to such samples besides. y: what fold_rows gave
// of `rows` samples, the first `held` of them predicted, `out` left out; m, b, p, q: the target in the fold's basis, its products
// with what is held out, and both parts of the squares; shrink: 1 / (lambda + alpha), penalty by penalty, and behind them the same
// up to a number for each penalty, with digits that are left when they are subtracted. all, flat: of the whole target, see centre;
// part: of its variance, up to which samples count as constant.
extern "C" __global__ void fold_scores(const double *y, Long y_rows, Long held, Long out, Long rows, const double *m,
                                       const double *b, const double *p, const double *q, const double *z,
                                       const double *shrink, Long size, Long alphas, int score, const double *all,
                                       const double *flat, double part, double *scores) {
    const Long target = blockIdx.x;
    y += target * y_rows;
    m += target * size;
    b += target * size;
    p += target * size;
    q += target * size;
    scores += target * (alphas + 1);
    double ys = 0, yys = 0, besides = 0;
    for (Long i = threadIdx.x; i < held; i += blockDim.x) {
        ys += y[i];
        yys += y[i] * y[i];
    }
    for (Long i = held + threadIdx.x; i < out; i += blockDim.x) besides += y[i] * y[i];
    ys = over_block(ys, Add());
    yys = over_block(yys, Add());
    besides = over_block(besides, Add());
    const double variance = yys - ys * ys / held, whole = all[target];
    const double least = fmax(flat[target], part * whole / rows), left = whole + y[out] * y[out] - yys - besides;
    if (score > 0 && !(variance > held * least)) return;
    if (score == 2 && !(left > (rows - out) * least)) return;
    if (threadIdx.x == 0) scores[alphas] += 1;
    const int together = 4;
    for (Long from = 0; from < alphas; from += together) {
        double sum[together] = {}, cross[together] = {}, square[together] = {};
        for (Long j = threadIdx.x; j < size; j += blockDim.x) {
            const double v = m[j], vz = v * z[j], vb = v * b[j], vp = 2 * v * p[j], vq = v * q[j];
#pragma unroll
            for (int a = 0; a < together; a++) {
                if (from + a >= alphas) break;
                const double d = shrink[(from + a) * size + j], differing = shrink[(alphas + from + a) * size + j];
                sum[a] += d * vz;
                cross[a] += d * vb;
                square[a] += differing * vp + d * d * vq;
            }
        }
#pragma unroll
        for (int a = 0; a < together; a++) {
            if (from + a >= alphas) break;
            const double s = over_block(sum[a], Add()), yp = over_block(cross[a], Add());
            const double pp = over_block(square[a], Add());
            if (threadIdx.x != 0) continue;
            const double residual = yys - 2 * yp + pp;
            double found = -residual / held;
            if (score == 1) found = 1 - residual / variance;
            if (score == 2) found = (yp - ys * s / held) / sqrt(variance * (pp - s * s / held));
            scores[from + a] += found;
        }
    }
}
