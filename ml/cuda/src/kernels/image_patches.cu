// Convolutions of images on Hopper, forward and backward.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// How a tile of the output is summed.
struct Walk {
    int kernel_lines, kernel_columns, above, left;
    int groups, chunks; // of the filter's lines that a patch serves; of 128 bytes of the channels that are read
    int tile_lines, tile_columns, tile_samples, down, across; // points of a tile, tiles of an image
    int slices, pairs; // of the channels that are written; of tiles and slices
    int patches, stages; // in shared memory, of the weights too
    int patch_bytes, patch_room, block_rows; // rows from one block of 64 points to the next
    int output_at; // bytes of shared memory before the output
    int to, relu;
};

// The tile of one block of a pair.
struct Tile {
    int slice, column, line, sample;
    __device__ Tile(const Walk& walk, int pair, int rank) {
        int tile = pair / walk.slices * 2 + rank;
        slice = pair % walk.slices;
        column = tile % walk.across * walk.tile_columns;
        line = tile / walk.across % walk.down * walk.tile_lines;
        sample = tile / walk.across / walk.down * walk.tile_samples;
    }
};

// y = max(b + sum of taps and channels of x * w, 0): 2 warpgroups of B x 64 points each, WIDE filters, LINES lines of the
// filter from a patch; one warp more that has patches and weights copied. Blocks come in pairs that take the same weights:
// each has one half of every slice copied to both. They go on to other tiles if their output has a place of its own.
template <bool HALF, int B, int WIDE, int LINES>
__device__ void patches(const Map* x, const Map* w, const Map* y, const float* bias, const Walk& walk) {
    constexpr int CHANNELS = HALF ? 64 : 32, POINTS = 2 * B * 64, SLICE = WIDE * 128;
    __shared__ unsigned long long barriers[2 * MOST_PATCHES + 2 * MOST_STAGES];
    unsigned patch_full = shared_address(barriers), patch_empty = patch_full + 8 * MOST_PATCHES;
    unsigned full = patch_empty + 8 * MOST_PATCHES, empty = full + 8 * MOST_STAGES;
    unsigned base = (shared_address(dynamic) + 1023) & ~1023u, slices = base + walk.patches * walk.patch_room;
    unsigned rank = rank_in_pair();
    int steps = walk.kernel_columns * walk.groups * walk.chunks;
    if (threadIdx.x == 0) {
        for (int patch = 0; patch < walk.patches; patch++) {
            barrier_init(patch_full + 8 * patch, 1);
            barrier_init(patch_empty + 8 * patch, 8);
        }
        for (int stage = 0; stage < walk.stages; stage++) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, 16);
        }
        barrier_visible();
    }
    meet_pair();
    if (threadIdx.x >= 256) {
        if (threadIdx.x == 256) {
            int stage = 0, round = 0, patch = 0, patch_round = 0;
            for (int pair = blockIdx.x / 2; pair < walk.pairs; pair += gridDim.x / 2) {
                Tile tile(walk, pair, rank);
                int chunk = 0, group = 0, column = 0;
                for (int step = 0; step < steps; step++) {
                    barrier_wait(patch_empty + 8 * patch, (patch_round & 1) ^ 1);
                    barrier_expect(patch_full + 8 * patch, walk.patch_bytes);
                    load_box(base + patch * walk.patch_room, x, patch_full + 8 * patch, chunk * CHANNELS,
                             tile.column + column - walk.left, tile.line + group * LINES - walk.above, tile.sample);
                    if (++patch == walk.patches) patch = 0, patch_round++;
                    for (int line = 0; line < LINES; line++) {
                        barrier_wait(empty + 8 * stage, (round & 1) ^ 1);
                        barrier_expect(full + 8 * stage, SLICE);
                        load_box_for_both(slices + stage * SLICE + rank * (SLICE / 2), w, full + 8 * stage,
                                          chunk * CHANNELS, tile.slice * WIDE + rank * (WIDE / 2),
                                          column * walk.kernel_lines + group * LINES + line);
                        if (++stage == walk.stages) stage = 0, round++;
                    }
                    if (++chunk == walk.chunks) {
                        chunk = 0;
                        if (++group == walk.groups) group = 0, column++;
                    }
                }
            }
        }
        __syncwarp();
        meet_pair();
        return;
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = (warp >> 2) * B;
    int stage = 0, round = 0, patch = 0, patch_round = 0;
    for (int pair = blockIdx.x / 2; pair < walk.pairs; pair += gridDim.x / 2) {
        float sums[B][WIDE / 2];
#pragma unroll
        for (int b = 0; b < B; b++)
#pragma unroll
            for (int i = 0; i < WIDE / 2; i++) sums[b][i] = 0.f;
        int before = 0, patch_before = 0;
        for (int step = 0; step < steps; step++) {
            barrier_wait(patch_full + 8 * patch, patch_round & 1);
#pragma unroll
            for (int line = 0; line < LINES; line++) {
                barrier_wait(full + 8 * stage, round & 1);
                products_begin();
                unsigned rows = first * walk.block_rows + line * walk.tile_columns;
                unsigned long long a = rows_at(base + patch * walk.patch_room + rows * 128);
                unsigned long long b = rows_at(slices + stage * SLICE);
#pragma unroll
                for (int k = 0; k < 4; k++)
#pragma unroll
                    for (int block = 0; block < B; block++)
                        product<HALF>(sums[block], a + block * (walk.block_rows * 128 >> 4) + 2 * k, b + 2 * k);
                products_end();
                products_wait<1>(); // those before are done
                if (step + line > 0) {
                    if (lane < 2) barrier_arrive_at(empty + 8 * before, lane);
                    if (line == 0 && lane == 0) barrier_arrive(patch_empty + 8 * patch_before);
                }
                before = stage;
                if (++stage == walk.stages) stage = 0, round++;
            }
            patch_before = patch;
            if (++patch == walk.patches) patch = 0, patch_round++;
        }
        products_wait<0>();
        if (lane < 2) barrier_arrive_at(empty + 8 * before, lane);
        if (lane == 0) barrier_arrive(patch_empty + 8 * patch_before);
        if (threadIdx.x == 0) stores_read();
        meet(1, 256); // the output's place is free
        Tile tile(walk, pair, rank);
        unsigned output = base + walk.output_at;
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) {
            int column = 8 * j + (lane & 3) * 2, o = tile.slice * WIDE + column, byte = column % CHANNELS * (HALF ? 2 : 4);
            float b0 = 0.f, b1 = 0.f;
            if (bias && o < walk.to) b0 = bias[o], b1 = bias[o + 1];
#pragma unroll
            for (int block = 0; block < B; block++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int row = (first + block) * 64 + (warp & 3) * 16 + half * 8 + (lane >> 2);
                    float v = sums[block][4 * j + 2 * half] + b0, u = sums[block][4 * j + 2 * half + 1] + b1;
                    if (walk.relu) v = v > 0.f ? v : 0.f, u = u > 0.f ? u : 0.f;
                    unsigned at = output + column / CHANNELS * (POINTS * 128) + row * 128;
                    at += (((byte >> 4) ^ (row & 7)) << 4) + (byte & 15);
                    if constexpr (HALF)
                        put_shared(at, two(v, u));
                    else
                        put_shared(at, v, u);
                }
        }
        seen_by_engine();
        meet(1, 256);
        if (threadIdx.x == 0) {
            for (int box = 0; box < WIDE / CHANNELS; box++) {
                int o = tile.slice * WIDE + box * CHANNELS;
                if (o < walk.to) store_box(y, output + box * (POINTS * 128), o, tile.column, tile.line, tile.sample);
            }
            stores_end();
        }
        __syncwarp();
    }
    if (threadIdx.x == 0) stores_done();
    __syncwarp();
    meet_pair(); // the other block may still arrive at barriers of this one
}

// Names: blocks of 64 points of a warpgroup, filters, lines of the filter from a patch, precision.
#define IMAGE_PATCHES(B, WIDE, LINES, HALF, end, blocks)                                                                \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(288, blocks) image_patches_##B##_##WIDE##_##LINES##_##end(             \
        const __grid_constant__ Map x, const __grid_constant__ Map w, const __grid_constant__ Map y, const float* bias, \
        const __grid_constant__ Walk walk) {                                                                            \
        patches<HALF, B, WIDE, LINES>(&x, &w, &y, bias, walk);                                                          \
    }
#define IMAGE_PATCHES_OF(LINES)                  \
    IMAGE_PATCHES(1, 64, LINES, true, bf16, 2)   \
    IMAGE_PATCHES(1, 128, LINES, true, bf16, 2)  \
    IMAGE_PATCHES(2, 128, LINES, true, bf16, 1)  \
    IMAGE_PATCHES(1, 256, LINES, true, bf16, 1)  \
    IMAGE_PATCHES(1, 64, LINES, false, tf32, 2)  \
    IMAGE_PATCHES(1, 128, LINES, false, tf32, 2) \
    IMAGE_PATCHES(2, 128, LINES, false, tf32, 1) \
    IMAGE_PATCHES(1, 256, LINES, false, tf32, 1)
IMAGE_PATCHES_OF(1)
IMAGE_PATCHES_OF(3)
#endif
