// Convolutions of images on Hopper: patches of images and slices of weights are copied to shared memory by the copy engine,
// which puts zeros where a patch lies outside the image, and multiplied from there by a warpgroup at a time.
//
// In shared memory everything lies in rows of 128 bytes: a point's (or filter's) channels of one chunk, 64 in bfloat16 and 32
// in float32; the 16-byte pieces of row r are in the order that r % 8 says, as engine and multipliers both have it. Rows of
// a patch are its points, line by line, so that with lines of 8 or 16 points a patch that begins one line lower is the
// same patch some whole kilobytes on: one patch serves several lines of the filter. The blocks of 64 points of such a patch
// follow each other line by line, or are 8 x 8 points of a sample each.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The driver's description of an array and of the boxes that are copied of it.
struct alignas(64) Map {
    unsigned long long words[16];
};

// Instructions.
extern __shared__ unsigned char dynamic[];

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
}
// A box of an array whose coordinates are given, innermost first, to shared memory.
__device__ __forceinline__ void load_box(unsigned to, const Map* map, unsigned barrier, int a, int b, int c, int d) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
        ::"r"(to), "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}
__device__ __forceinline__ void load_box(unsigned to, const Map* map, unsigned barrier, int a, int b, int c) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(to), "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c)
        : "memory");
}
// The same, to the same place of both blocks of a pair, and both are told.
__device__ __forceinline__ void load_box_for_both(unsigned to, const Map* map, unsigned barrier, int a, int b, int c) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;"
        ::"r"(to), "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "h"((unsigned short)3)
        : "memory");
}
__device__ __forceinline__ unsigned rank_in_pair() {
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
// All threads of both blocks. It orders nothing but barriers that were made visible: a fence of all memory is slow.
__device__ __forceinline__ void meet_pair() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// At a barrier of the block `rank` of the pair, by who has only read; it orders no more than that either.
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}"
        ::"r"(barrier), "r"(rank)
        : "memory");
}
// And back, but for what lies outside the array.
__device__ __forceinline__ void store_box(const Map* map, unsigned from, int a, int b, int c, int d) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 ::"l"(map), "r"(from), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
__device__ __forceinline__ void stores_end() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Shared memory may be written again; all is written.
__device__ __forceinline__ void stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// What this thread wrote to shared memory is seen by the copy engine.
__device__ __forceinline__ void seen_by_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void meet(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void put_shared(unsigned at, unsigned v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
__device__ __forceinline__ void put_shared(unsigned at, float v, float w) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v), "f"(w) : "memory");
}
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
#define F8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define F32(d, i) F8(d, i), F8(d, i + 8), F8(d, i + 16), F8(d, i + 24)
#define NUMBERS_32 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define NUMBERS_64 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define NUMBERS_96 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}"
#define NUMBERS_128 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
// Adds the product of 64 rows and N columns over 32 bytes of depth to a warpgroup's sums. HALF: bfloat16.
template <bool HALF>
__device__ __forceinline__ void product(float (&d)[32], unsigned long long a, unsigned long long b) {
    if constexpr (HALF)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NUMBERS_32 ", %32, %33, 1, 1, 1, 0, 0;"
                     : F32(d, 0) : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " NUMBERS_32 ", %32, %33, 1, 1, 1;"
                     : F32(d, 0) : "l"(a), "l"(b));
}
template <bool HALF>
__device__ __forceinline__ void product(float (&d)[64], unsigned long long a, unsigned long long b) {
    if constexpr (HALF)
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NUMBERS_64 ", %64, %65, 1, 1, 1, 0, 0;"
                     : F32(d, 0), F32(d, 32) : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 " NUMBERS_64 ", %64, %65, 1, 1, 1;"
                     : F32(d, 0), F32(d, 32) : "l"(a), "l"(b));
}
template <bool HALF>
__device__ __forceinline__ void product(float (&d)[128], unsigned long long a, unsigned long long b) {
    if constexpr (HALF)
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " NUMBERS_128 ", %128, %129, 1, 1, 1, 0, 0;"
                     : F32(d, 0), F32(d, 32), F32(d, 64), F32(d, 96) : "l"(a), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 " NUMBERS_128 ", %128, %129, 1, 1, 1;"
                     : F32(d, 0), F32(d, 32), F32(d, 64), F32(d, 96) : "l"(a), "l"(b));
}
// The same of bfloat16 whose rows in shared memory are the depth: 64 rows, 3 x 64 columns, 16 points.
__device__ __forceinline__ void product_of_points(float (&d)[96], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 " NUMBERS_96 ", %96, %97, 1, 1, 1, 1, 1;"
                 : F32(d, 0), F32(d, 32), F32(d, 64) : "l"(a), "l"(b));
}
__device__ __forceinline__ float shared_float(unsigned at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
// End of instructions.

// What the multipliers are told of rows from `address` on: 8 rows are a kilobyte, and so is what else they step by.
__device__ __forceinline__ unsigned long long rows_at(unsigned address) {
    const unsigned long long kilobyte = 1024 >> 4, order_of_128_bytes = 1;
    return (unsigned long long)((address & 0x3ffff) >> 4) | kilobyte << 16 | kilobyte << 32 | order_of_128_bytes << 62;
}

// Patches, and slices of weights or stages of strips, that are in shared memory at once, at most.
constexpr int MOST_PATCHES = 8, MOST_STAGES = 10;

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

#define IMAGE_STRIPS(HALF, end)                                                                                     \
    extern "C" __global__ void __launch_bounds__(416, 1)                                                            \
        image_strips_##end(const __grid_constant__ Map x, const __grid_constant__ Map dy, float* parts,             \
                           const __grid_constant__ Strips walk) {                                                   \
        strips<HALF>(&x, &dy, parts, walk);                                                                         \
    }
IMAGE_STRIPS(true, bf16)
IMAGE_STRIPS(false, tf32)
#endif
