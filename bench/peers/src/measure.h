// What the peers' programs share: batches of calls are timed on rank 0, as
// goshmem bench does, and a line of JSON of the same form is printed a figure.
// Arguments: operation, time for a figure and for a batch in ns, sizes in bytes.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BATCHES = 20000, MIN_BATCHES = 5, MAX_CALLS = 4096 };
enum { RATE_UP_TO = 4096, BANDWIDTH_FROM = 4096 };

// way is a figure of an operation.
struct way {
    const char *op, *metric, *unit;
    int alone;                  // rank 0 works, the others wait for it
    double per;                 // operations that a call counts as
    size_t from, to;            // sizes that have this figure
    void (*call)(size_t);       // one operation
    void (*finish)(size_t);     // behind the calls of a batch; or NULL
    void (*fill)(size_t);       // before and, with other data, for the check
    int (*right)(size_t);       // whether the data is there
};

// The program's part.
static int rank, pes;
static long rank0(long v); // rank 0's number, for all
static int all(int yes);   // whether every rank says yes

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

static double batch(const struct way *w, size_t size, long calls) {
    if (w->alone && rank != 0)
        return 0;
    double start = now();
    for (long i = 0; i < calls; i++)
        w->call(size);
    if (w->finish)
        w->finish(size);
    return now() - start;
}

// figure turns ns an operation into the unit's.
static double figure(const struct way *w, size_t size, double ns) {
    if (strcmp(w->unit, "GB/s") == 0)
        return size / ns;
    return strcmp(w->unit, "M/s") == 0 ? 1e3 / ns : ns;
}

// check looks when all are through with their operations.
static int check(const struct way *w, size_t size) {
    all(1);
    return all(w->right(size));
}

// measure prints a figure; 0 if the data was wrong.
static int measure(const char *impl, const struct way *w, size_t size, double time, double least) {
    static double took[MAX_BATCHES];
    long calls = 1;
    w->fill(size);
    batch(w, size, 1);
    for (;;) {
        double t = batch(w, size, calls);
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
    double t = batch(w, size, calls);
    double fit = time / (t > 1 ? t : 1);
    long n = rank0((long)(fit < MIN_BATCHES ? MIN_BATCHES : fit > MAX_BATCHES ? MAX_BATCHES : fit));
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += took[i] = batch(w, size, calls) / calls / w->per;
    int ok = check(w, size);
    w->fill(size);
    batch(w, size, 1);
    ok &= check(w, size);
    if (rank == 0) {
        qsort(took, n, sizeof took[0], ascending);
        printf("{\"bench\":\"%s\",\"metric\":\"%s\",\"path\":\"\",\"mem\":\"host\",\"algo\":\"\",\"nodes\":1,\"impl\":\"%s\","
               "\"pes\":%d,\"size\":%zu,\"unit\":\"%s\",\"p50\":%.4f,\"p99\":%.4f,\"mean\":%.4f,\"floor\":0,"
               "\"calib_before_ns\":0,\"calib_after_ns\":0,\"flipped\":false,\"verified\":%s}\n",
               w->op, w->metric, impl, pes, size, w->unit, figure(w, size, quantile(took, n, 0.5)),
               figure(w, size, quantile(took, n, 0.99)), figure(w, size, sum / n), ok ? "true" : "false");
        fflush(stdout);
    }
    return ok;
}

// run measures every way of the operation at every size; without sizes, at 0.
static int run(const char *impl, const struct way *ways, int argc, char **argv) {
    int ok = 1, found = 0;
    for (int i = 4; i < argc || i == 4; i++) {
        size_t size = i < argc ? strtoul(argv[i], NULL, 10) : 0;
        for (const struct way *w = ways; w->op; w++)
            if (strcmp(w->op, argv[1]) == 0 && size >= w->from && size <= w->to) {
                found = 1;
                ok &= measure(impl, w, size, atof(argv[2]), atof(argv[3]));
            }
    }
    if (!found && rank == 0)
        fprintf(stderr, "no %s here\n", argv[1]);
    return !ok || !found;
}

static size_t largest(int argc, char **argv) {
    size_t most = 64;
    for (int i = 4; i < argc; i++) {
        size_t n = strtoul(argv[i], NULL, 10);
        most = n > most ? n : most;
    }
    return most;
}

static size_t pages(size_t n) { return (n + 4095) / 4096 * 4096; }

// Blocks are told apart by round, source, target and place.
static int filled;
static unsigned char byte_of(int from, int to, size_t i) { return (unsigned char)(filled * 3 + from * 31 + to * 7 + i * 13 + 1); }

static void fill_block(unsigned char *b, int from, int to, size_t size) {
    for (size_t i = 0; i < size; i++)
        b[i] = byte_of(from, to, i);
}

static int right_block(const unsigned char *b, int from, int to, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (b[i] != byte_of(from, to, i))
            return 0;
    return 1;
}

// A message of a put with signal carries its number in front.
static void stamp(unsigned char *b, size_t size, uint64_t seq) { memcpy(b, &seq, size < 8 ? size : 8); }
static int stamped(const unsigned char *b, size_t size, uint64_t seq) { return memcmp(b, &seq, size < 8 ? size : 8) == 0; }
