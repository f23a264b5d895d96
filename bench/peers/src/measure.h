// What the peers' programs share: batches of calls are timed on rank 0, as
// goshmem bench does, and a line of JSON of the same form is printed a size.
// Arguments: operation, time for a figure and for a batch in ns, sizes in bytes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BATCHES = 20000, MIN_BATCHES = 5, MAX_CALLS = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int n, double q) {
    int i = (int)ceil(q * n) - 1;
    return sorted[i < 0 ? 0 : i];
}

// The program's part.
static int rank, pes;
static long rank0(long v);                     // rank 0's number, for all
static int all(int yes);                       // whether every rank says yes
static void call(const char *op, size_t size); // one operation
static void fill(const char *op, size_t size);
static int right(const char *op, size_t size);

static double batch(const char *op, size_t size, long calls) {
    double start = now();
    for (long i = 0; i < calls; i++)
        call(op, size);
    return now() - start;
}

// measure prints the figures of one size; 0 if the data was wrong.
static int measure(const char *impl, const char *op, size_t size, double time, double least) {
    static double took[MAX_BATCHES];
    long calls = 1;
    fill(op, size);
    batch(op, size, 1);
    for (;;) {
        double t = batch(op, size, calls);
        long next = calls;
        if (t < least && calls < MAX_CALLS) {
            double factor = t > 0 ? 1.1 * least / t : 10;
            next = (long)(calls * (factor < 10 ? factor : 10)) + 1;
        }
        next = rank0(next < MAX_CALLS ? next : MAX_CALLS);
        if (next == calls)
            break;
        calls = next;
    }
    double t = batch(op, size, calls);
    double fit = time / (t > 1 ? t : 1);
    long n = rank0((long)(fit < MIN_BATCHES ? MIN_BATCHES : fit > MAX_BATCHES ? MAX_BATCHES : fit));
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += took[i] = batch(op, size, calls) / calls;
    int ok = all(right(op, size));
    if (rank == 0) {
        qsort(took, n, sizeof took[0], ascending);
        printf("{\"bench\":\"%s\",\"metric\":\"latency\",\"path\":\"\",\"mem\":\"host\",\"algo\":\"\",\"nodes\":1,\"impl\":\"%s\","
               "\"pes\":%d,\"size\":%zu,\"unit\":\"ns\",\"p50\":%.1f,\"p99\":%.1f,\"mean\":%.1f,\"floor\":0,"
               "\"calib_before_ns\":0,\"calib_after_ns\":0,\"flipped\":false,\"verified\":%s}\n",
               op, impl, pes, size, quantile(took, n, 0.5), quantile(took, n, 0.99), sum / n, ok ? "true" : "false");
        fflush(stdout);
    }
    return ok;
}

static int run(const char *impl, int argc, char **argv) {
    int ok = 1;
    for (int i = 4; i < argc; i++)
        ok &= measure(impl, argv[1], strtoul(argv[i], NULL, 10), atof(argv[2]), atof(argv[3]));
    return !ok;
}

static size_t largest(int argc, char **argv) {
    size_t most = 64;
    for (int i = 4; i < argc; i++) {
        size_t n = strtoul(argv[i], NULL, 10);
        most = n > most ? n : most;
    }
    return most;
}

// Blocks are told apart by source, target and place; vectors have whole numbers.
static unsigned char byte_of(int from, int to, size_t i) { return (unsigned char)(from * 31 + to * 7 + i * 13 + 1); }
static float term(int from, size_t i) { return (float)((from + 1) * (int)(i % 61)); }

static void fill_bytes(unsigned char *src, unsigned char *dst, size_t size) {
    for (int q = 0; q < pes; q++)
        for (size_t i = 0; i < size; i++)
            src[q * size + i] = byte_of(rank, q, i);
    memset(dst, 0, pes * size);
}

static int right_bytes(const unsigned char *dst, size_t size) {
    for (int q = 0; q < pes; q++)
        for (size_t i = 0; i < size; i++)
            if (dst[q * size + i] != byte_of(q, rank, i))
                return 0;
    return 1;
}

static void fill_floats(float *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        src[i] = term(rank, i);
    memset(dst, 0, n * sizeof *dst);
}

static int right_floats(const float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (dst[i] != pes * (pes + 1) / 2 * term(0, i))
            return 0;
    return 1;
}
