// MPI: one-sided operations, and MPI_Barrier, MPI_Alltoallv, MPI_Allreduce. See
// measure.h. IMPL is the name in the results.
#include <mpi.h>

#include "measure.h"
#include "vectors.h"

#ifndef IMPL
#define IMPL "mpi"
#endif

static long rank0(long v) {
    MPI_Bcast(&v, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return v;
}

static int all(int yes) {
    int every;
    MPI_Allreduce(&yes, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return every;
}

// Collectives.
static unsigned char *src, *dst;
static int *counts, *places;

static void vector_call(size_t size) {
    (void)size;
    MPI_Alltoallv(src, counts, places, MPI_BYTE, dst, counts, places, MPI_BYTE, MPI_COMM_WORLD);
}

static void vector_used(size_t size) {
    use_src(src, size);
    vector_call(size);
    use_dst(dst, size);
}

static void vector_fill(size_t size) {
    filled++;
    for (int q = 0; q < pes; q++) {
        counts[q] = size;
        places[q] = q * size;
    }
    fill_bytes(src, dst, size);
}

static int vector_right(size_t size) { return right_bytes(dst, size); }

static void sum_call(size_t size) { MPI_Allreduce(src, dst, size / sizeof(float), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static void sum_fill(size_t size) {
    filled++;
    fill_floats((float *)src, (float *)dst, size / sizeof(float));
}

static int sum_right(size_t size) { return right_floats((float *)dst, size / sizeof(float)); }

static void barrier_call(size_t size) {
    (void)size;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void nothing(size_t size) { (void)size; }

static int fine(size_t size) {
    (void)size;
    return 1;
}

// One-sided, from rank 0 to rank 1, in an epoch of MPI_Win_lock_all that lasts.
// A window's first line is its signal and its counter.
static MPI_Win win;
static unsigned char *window; // own memory of it
static int64_t adds;
static uint64_t seq;
static int bad;
enum { FLAG, COUNT = 8, BOX = 4096 };

static void flush(size_t size) {
    (void)size;
    MPI_Win_flush(1, win);
}

static void put_only(size_t size) { MPI_Put(src, size, MPI_BYTE, 1, BOX, size, MPI_BYTE, win); }

static void put_call(size_t size) {
    put_only(size);
    flush(size);
}

static void get_only(size_t size) { MPI_Get(dst, size, MPI_BYTE, 1, BOX, size, MPI_BYTE, win); }

static void get_call(size_t size) {
    get_only(size);
    flush(size);
}

// progress lets the library see to what arrives, and this process see its window.
static void progress(void) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Win_sync(win);
}

static void box_fill(size_t size) {
    filled++;
    fill_block(src, 0, 1, size);
    if (rank == 1)
        memset(window + BOX, 0, size);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int box_right(size_t size) {
    MPI_Win_sync(win);
    return rank != 1 || right_block(window + BOX, 0, 1, size);
}

static void own_fill(size_t size) {
    filled++;
    memset(dst, 0, size);
    if (rank == 1)
        fill_block(window + BOX, 0, 1, size);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int own_right(size_t size) { return rank != 0 || right_block(dst, 0, 1, size); }

// There is no put with signal: a put, a flush that makes it arrive first, and an
// atomic replacement of the flag.
static void notify(size_t size) {
    int to = 1 - rank;
    stamp(src, size, seq);
    MPI_Put(src, size, MPI_BYTE, to, BOX, size, MPI_BYTE, win);
    MPI_Win_flush(to, win);
    MPI_Accumulate(&seq, 1, MPI_UINT64_T, to, FLAG, 1, MPI_UINT64_T, MPI_REPLACE, win);
    MPI_Win_flush(to, win);
}

static void await(size_t size) {
    volatile uint64_t *flag = (volatile uint64_t *)(window + FLAG);
    for (int i = 0; *flag < seq; i++)
        if (i % 8 == 7)
            progress();
    MPI_Win_sync(win);
    memcpy(dst, window + BOX, size);
    bad += !stamped(dst, size, seq);
}

#include "exchange.h"

static void signal_fill(size_t size) {
    filled++;
    fill_block(src, rank, 1 - rank, size);
}

static int signal_right(size_t size) {
    size_t at = size < 8 ? size : 8;
    unsigned char want[8];
    fill_block(want, 1 - rank, rank, at);
    memcpy(dst, want, at); // the stamp was looked at
    return rank > 1 || (!bad && right_block(dst, 1 - rank, rank, size));
}

static void add_call(size_t size) {
    static const int64_t one = 1;
    int64_t old;
    MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 1, COUNT, MPI_SUM, win);
    flush(size);
    bad += old != adds++;
}

static void swap_call(size_t size) {
    int64_t next = adds + 1, old;
    MPI_Compare_and_swap(&next, &adds, &old, MPI_INT64_T, 1, COUNT, win);
    flush(size);
    bad += old != adds++;
}

static int count_right(size_t size) {
    (void)size;
    int64_t want = rank0(adds);
    MPI_Win_sync(win);
    return !bad && (rank != 1 || *(volatile int64_t *)(window + COUNT) == want);
}

static const struct way ways[] = {
    {"put", "latency", "ns", 1, 1, 1, SIZE_MAX, put_call, NULL, box_fill, box_right},
    {"put", "rate", "M/s", 1, 1, 1, RATE_UP_TO, put_only, flush, box_fill, box_right},
    {"put", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, put_only, flush, box_fill, box_right},
    {"get", "latency", "ns", 1, 1, 1, SIZE_MAX, get_call, NULL, own_fill, own_right},
    {"get", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, get_only, flush, own_fill, own_right},
    {"put-signal", "latency", "ns", 0, 2, 1, SIZE_MAX, signal_call, NULL, signal_fill, signal_right},
    {"amo", "fetch-add", "ns", 1, 1, 8, 8, add_call, NULL, nothing, count_right},
    {"amo", "compare-swap", "ns", 1, 1, 8, 8, swap_call, NULL, nothing, count_right},
    {"barrier", "latency", "ns", 0, 1, 0, SIZE_MAX, barrier_call, NULL, nothing, fine},
    {"alltoallv", "latency", "ns", 0, 1, 1, SIZE_MAX, vector_call, NULL, vector_fill, vector_right},
    {"alltoallv", "used", "ns", 0, 1, 1, SIZE_MAX, vector_used, NULL, vector_fill, vector_right},
    {"allreduce", "latency", "ns", 0, 1, 1, SIZE_MAX, sum_call, NULL, sum_fill, sum_right},
    {0},
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &pes);
    size_t most = pages(largest(argc, argv)), room = most * pes;
    src = aligned_alloc(4096, room);
    dst = aligned_alloc(4096, room);
    counts = calloc(pes, sizeof *counts);
    places = calloc(pes, sizeof *places);
    const char *collective[] = {"barrier", "alltoallv", "allreduce"};
    int one_sided = 1;
    for (int i = 0; i < 3; i++)
        one_sided &= strcmp(argv[1], collective[i]) != 0;
    if (one_sided) {
        MPI_Win_allocate(BOX + most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
        memset(window, 0, BOX);
        MPI_Win_lock_all(0, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int status = !src || !dst || !counts || !places || run(IMPL, ways, argc, argv);
    if (one_sided) {
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    }
    MPI_Finalize();
    return status;
}
