// The gradient of the weights on Hopper.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// How a part of the weights' gradient is summed: over tiles of tile_lines x 8 points.
struct Strips {
    int kernel_lines, kernel_columns, above, left;
    int tile_lines, down, across, tiles, share; // tiles of an image, of all images, of a part
    int filter_slices, chunks, line_groups;
    int stages, patch_room;
    int channels, filters;
};

// The sums of one tile of bfloat16: 64 filters, 3 x 64 channels. The patch is read a line lower for each of the 3.
__device__ __forceinline__ void add_strip(float (&sums)[96], unsigned gradient, unsigned patch, int tile_lines) {
    products_begin();
    unsigned long long a = rows_at(gradient), b = rows_at(patch);
    for (int k = 0; k < tile_lines / 2; k++) product_of_points(sums, a + 128 * k, b + 128 * k);
    products_end();
}

// The same of float32, which the warpgroup's instruction takes along the depth only, by a warp: 16 filters, 3 x 32 channels.
// A line of the patch meets 3 lines of the gradient, which stay in registers. Points 2t and 2t + 1 of a line are the depths
// t and t + 4, so that no two lanes read the same bank.
__device__ __forceinline__ void add_strip(float (&sums)[48], unsigned gradient, unsigned patch, int tile_lines, int filter) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, f = filter % 32 + g;
    auto piece = [&](unsigned line, int channel, int point) {
        return shared_float(line + point * 128 + (((channel >> 2) ^ point) << 4) + (channel & 3) * 4);
    };
    gradient += filter / 32 * tile_lines * 1024;
    float a[3][4]; // of the gradient's line that meets this line of the patch by tap 0, 1, 2
#pragma unroll
    for (int i = 0; i < 12; i++) a[i / 4][i % 4] = 0.f;
    for (int line = 0; line < tile_lines + 2; line++) {
        unsigned from = gradient + line * 1024;
        bool there = line < tile_lines;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[2][i] = a[1][i], a[1][i] = a[0][i];
            a[0][i] = there ? piece(from, f + 8 * (i & 1), 2 * t + (i >> 1)) : 0.f;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            unsigned of_patch = patch + line * 1024;
            float b[2] = {piece(of_patch, 8 * j + g, 2 * t), piece(of_patch, 8 * j + g, 2 * t + 1)};
#pragma unroll
            for (int tap = 0; tap < 3; tap++)
                if (line >= tap && line < tile_lines + tap) mma(sums + (tap * 4 + j) * 4, a[tap], b);
        }
    }
}

// Parts of the weights' gradient, [part][line][column][filter][channel], of a block's 64 filters, 64 channels in bfloat16 or
// 32 in float32, and 3 x 3 taps. A warpgroup has a column of the filter.
template <bool HALF>
__device__ void strips(const Map* x, const Map* dy, float* parts, const Strips& walk) {
    constexpr int FILTERS = 64, CHANNELS = HALF ? 64 : 32;
    __shared__ unsigned long long barriers[2 * MOST_STAGES];
    unsigned full = shared_address(barriers), empty = full + 8 * MOST_STAGES;
    unsigned base = (shared_address(dynamic) + 1023) & ~1023u;
    unsigned gradient_room = FILTERS / CHANNELS * walk.tile_lines * 1024, room = gradient_room + 3 * walk.patch_room;
    int filter0 = blockIdx.x % walk.filter_slices * FILTERS, rest = blockIdx.x / walk.filter_slices;
    int channel0 = rest % walk.chunks * CHANNELS, taps = rest / walk.chunks;
    int tap_line = taps % walk.line_groups * 3, tap_column = taps / walk.line_groups * 3;
    int columns = min(3, walk.kernel_columns - tap_column);
    int start = blockIdx.y * walk.share, end = min(start + walk.share, walk.tiles);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < walk.stages; stage++) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, 12);
        }
        barrier_visible();
    }
    __syncthreads();
    if (threadIdx.x >= 384) {
        if (threadIdx.x == 384) {
            int stage = 0, round = 0;
            for (int tile = start; tile < end; tile++) {
                unsigned to = base + stage * room, ready = full + 8 * stage;
                int column = tile % walk.across * 8, over = tile / walk.across;
                int line = over % walk.down * walk.tile_lines, sample = over / walk.down;
                barrier_wait(empty + 8 * stage, (round & 1) ^ 1);
                barrier_expect(ready, gradient_room + columns * (walk.tile_lines + 2) * 1024);
                for (int f = 0; f < FILTERS / CHANNELS; f++)
                    load_box(to + f * walk.tile_lines * 1024, dy, ready, filter0 + f * CHANNELS, column, line, sample);
                for (int l = 0; l < columns; l++)
                    load_box(to + gradient_room + l * walk.patch_room, x, ready, channel0,
                             column + tap_column + l - walk.left, line + tap_line - walk.above, sample);
                if (++stage == walk.stages) stage = 0, round++;
            }
        }
        return;
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, own = warp >> 2;
    float sums[HALF ? 96 : 48];
#pragma unroll
    for (int i = 0; i < sizeof(sums) / 4; i++) sums[i] = 0.f;
    int stage = 0, round = 0, before = 0;
    for (int tile = start; tile < end; tile++) {
        unsigned gradient = base + stage * room, patch = gradient + gradient_room + own * walk.patch_room;
        barrier_wait(full + 8 * stage, round & 1);
        if constexpr (HALF) {
            if (own < columns) {
                add_strip(sums, gradient, patch, walk.tile_lines);
                products_wait<1>(); // the tile before is done
            }
            if (tile > start && lane == 0) barrier_arrive(empty + 8 * before);
            before = stage;
        } else {
            if (own < columns) add_strip(sums, gradient, patch, walk.tile_lines, (warp & 3) * 16);
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * stage);
        }
        if (++stage == walk.stages) stage = 0, round++;
    }
    if constexpr (HALF) products_wait<0>();
    if (own >= columns) return;
    auto keep = [&](int tap, int filter, int channel, const float* two_sums) {
        int line = tap_line + tap;
        channel += channel0 + (lane & 3) * 2, filter += filter0 + (lane >> 2);
        if (line >= walk.kernel_lines || channel >= walk.channels || filter >= walk.filters) return;
        long long at = ((long long)blockIdx.y * walk.kernel_lines + line) * walk.kernel_columns + tap_column + own;
        *(float2*)(parts + (at * walk.filters + filter) * walk.channels + channel) = make_float2(two_sums[0], two_sums[1]);
    };
#pragma unroll
    for (int tap = 0; tap < 3; tap++)
#pragma unroll
        for (int j = 0; j < CHANNELS / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                keep(tap, (warp & 3) * 16 + half * 8, 8 * j, sums + (tap * (CHANNELS / 8) + j) * 4 + half * 2);
}

#define IMAGE_STRIPS(HALF, end)                                                                                     \
    extern "C" __global__ void __launch_bounds__(416, 1)                                                            \
        image_strips_##end(const __grid_constant__ Map x, const __grid_constant__ Map dy, float* parts,             \
                           const __grid_constant__ Strips walk) {                                                   \
        strips<HALF>(&x, &dy, parts, walk);                                                                         \
    }
IMAGE_STRIPS(true, bf16)
IMAGE_STRIPS(false, tf32)
#endif
