// MPI_Alltoallv and MPI_Allreduce. See measure.h.
#include <mpi.h>

#include "measure.h"

static unsigned char *src, *dst;
static int *counts, *places;

static long rank0(long v) {
    MPI_Bcast(&v, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return v;
}

static int all(int yes) {
    int every;
    MPI_Allreduce(&yes, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return every;
}

static int vector(const char *op) { return strcmp(op, "alltoallv") == 0; }

static void call(const char *op, size_t size) {
    if (vector(op))
        MPI_Alltoallv(src, counts, places, MPI_BYTE, dst, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    else
        MPI_Allreduce(src, dst, size / sizeof(float), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void fill(const char *op, size_t size) {
    for (int q = 0; q < pes; q++) {
        counts[q] = size;
        places[q] = q * size;
    }
    if (vector(op))
        fill_bytes(src, dst, size);
    else
        fill_floats((float *)src, (float *)dst, size / sizeof(float));
}

static int right(const char *op, size_t size) {
    return vector(op) ? right_bytes(dst, size) : right_floats((float *)dst, size / sizeof(float));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &pes);
    size_t room = largest(argc, argv) * pes;
    src = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    dst = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    counts = calloc(pes, sizeof *counts);
    places = calloc(pes, sizeof *places);
    int status = !src || !dst || !counts || !places || run("openmpi", argc, argv);
    MPI_Finalize();
    return status;
}
