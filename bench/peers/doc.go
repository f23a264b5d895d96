// Command peers runs goshmem beside other libraries and beside plain C, one after
// the other and again, so that all see the same machine, and compares the medians.
// What of the peers cannot be built or run is listed with the reason, and every
// comparison says what each side does. `make bench-peers` runs it.
//
// The peers' programs are in src; they are built with the compilers that MPICC,
// MPICH_CC, OSHCC and CC name and started with MPIRUN, MPICH_RUN and OSHRUN;
// UCX_PERFTEST is UCX's own program.
package main
