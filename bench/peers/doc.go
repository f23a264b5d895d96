// Command peers runs collectives of goshmem beside the same ones of Open MPI and
// of its OSHMEM, one after the other and again, so that all see the same machine,
// and compares the medians. What of the peers cannot be built or run is listed
// with the reason. `make bench-peers` runs it.
//
// The peers' programs are in src; they are built with the compilers that MPICC and
// OSHCC name (mpicc, oshcc) and started with MPIRUN and OSHRUN (mpirun, oshrun).
package main
