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
#endif
