package main

import (
	"fmt"
	"slices"
)

// suite is what is compared in one job: an operation at some sizes among so many
// PEs.
type suite struct {
	op, path string // path "": the same host
	pes      int
	sizes    []int64
	metrics  []string
}

func (s suite) String() string { return fmt.Sprintf("%s of %d PEs", s.op, s.pes) }

// group is a table: suites and whom they are compared with.
type group struct {
	name, title string
	suites      []suite
	peers       []peer
	notes       []note
}

func groups(getenv func(string) string) []group {
	const kib, mib = 1 << 10, 1 << 20
	latency := []string{"latency"}
	atomics := []string{"fetch-add", "compare-swap"}
	three := []string{"latency", "rate", "bandwidth"}
	tcp := func(op string, metrics []string, sizes ...int64) suite { return suite{op, "tcp", 2, sizes, metrics} }
	return []group{
		{
			name: "host", title: "Point to point and barrier, two processes of one host (8: on the cores there are)",
			suites: []suite{
				{"put", "", 2, []int64{8, 4 * kib, 64 * kib, mib, 16 * mib}, three},
				{"get", "", 2, []int64{8, 4 * kib, 64 * kib, mib}, []string{"latency", "bandwidth"}},
				{"put-signal", "", 2, []int64{8, 4 * kib, 64 * kib}, latency},
				{"amo", "", 2, []int64{8}, atomics},
				{"barrier", "", 2, nil, latency},
				{"barrier", "", 8, nil, latency},
			},
			peers: hostPeers(getenv), notes: slices.Concat(oneSidedNotes(), hostNotes()),
		},
		{
			name: "tcp", title: "Point to point, two processes over TCP (loopback)",
			suites: []suite{
				tcp("put", three, 8, 64*kib, mib),
				tcp("get", latency, 8),
				tcp("put-signal", latency, 8),
				tcp("amo", atomics, 8),
			},
			peers: tcpPeers(getenv), notes: slices.Concat(oneSidedNotes(), tcpNotes()),
		},
		{
			name: "coll", title: "Collectives, processes of one host",
			suites: []suite{
				{"alltoallv", "", 2, []int64{kib, 64 * kib, mib}, []string{"latency", "used"}},
				{"alltoallv", "", 8, []int64{kib, 64 * kib, mib}, []string{"latency", "used"}},
				{"allreduce", "", 2, []int64{8, mib}, latency},
				{"allreduce", "", 8, []int64{8, mib}, latency},
			},
			peers: collPeers(getenv), notes: collNotes(),
		},
	}
}

// note says what a side of a comparison does, and what it does not.
type note struct{ of, side, text string }

func oneSidedNotes() []note {
	return []note{
		{"put latency", ours, "rma.PutMem and rma.Quiet: checks bounds, peer and close; remotely complete after it"},
		{"put latency", "openmpi, mpich", "MPI_Put and MPI_Win_flush in an epoch of MPI_Win_lock_all; a window, no symmetric addresses"},
		{"put latency", "oshmem", "shmem_putmem and shmem_quiet, out of private memory"},
		{"put rate", ours, "rma.PutMemNBI, one Quiet a batch"},
		{"put rate", "openmpi, mpich", "MPI_Put, one flush a batch"},
		{"put rate", "oshmem", "shmem_putmem_nbi, one quiet a batch"},
		{"put rate", "ucx", "what ucp_put_bw issues, of one fixed buffer; a mean, not a median"},
		{"put bandwidth", "all", "puts of one buffer to one place, completion once a batch; up to 1 MiB it stays in caches"},
		{"get latency", ours, "rma.GetMem, blocking"},
		{"get latency", "openmpi, mpich", "MPI_Get and MPI_Win_flush"},
		{"get latency", "oshmem", "shmem_getmem"},
		{"get latency", "ucx", "ucp_get with one outstanding; a mean"},
		{"put-signal", ours, "rma.PutMemSignal; the waiter sleeps if it takes long, sees loss, deadline and close; then reads the payload"},
		{"put-signal", "openmpi, mpich", "has none: MPI_Put, flush, MPI_Accumulate(REPLACE) of the flag, flush; the waiter spins on its window, calls MPI_Iprobe every eighth turn, then reads the payload"},
		{"put-signal", "oshmem", "OpenSHMEM 1.4 has none: shmem_putmem, shmem_fence, shmem_uint64_p; shmem_uint64_wait_until, then reads the payload"},
		{"put-signal", "ucx", "ucp_put_lat: a put whose last byte the target spins on; no separate signal, and the payload is not read; a mean"},
		{"amo", ours, "amo.FetchAdd, CompareSwap; atomic with everybody's, the owner's included"},
		{"amo", "openmpi, mpich", "MPI_Fetch_and_op, MPI_Compare_and_swap, each with a flush; atomic with other accumulates only"},
		{"amo", "oshmem", "shmem_long_atomic_fetch_add, compare_swap"},
		{"amo", "ucx", "ucp_fadd, ucp_cswap with one outstanding; a mean"},
	}
}

func hostNotes() []note {
	return []note{
		{"all", "floor", "C without a library between two bound processes: a copy and a full fence (latency), stores (rate), memcpy (bandwidth), a copy and a flag (put-signal), a locked instruction (amo), a counter and a word to wait on (barrier)"},
		{"all", "openmpi", "--mca osc ucx; openmpi-sm: --mca osc sm, which works inside one host only"},
		{"barrier", "all", "every PE; goshmem's and OSHMEM's also complete all operations, MPI's does not"},
	}
}

func tcpNotes() []note {
	return []note{
		{"all", "floor", "C sockets that both sides spin on: the payload there and a byte back (put latency), there and back (get, amo), one way (put-signal), a stream (bandwidth)"},
		{"all", "openmpi", "--mca pml ob1 --mca btl self,tcp --mca osc pt2pt: one-sided by messages that the target must see to"},
		{"all", "mpich, oshmem, ucx", "UCX_TLS=tcp; MPICH with MPIR_CVAR_NOLOCAL=1; the target must see to it too"},
		{"put latency, put rate, get latency", ours, "no floor of its own over TCP: compare with C"},
		{"all", ours, "-path tcp: the target's proxy sees to it, whatever the target does"},
	}
}

func collNotes() []note {
	return []note{
		{"alltoallv", ours, "coll.AllToAllV: counts at each member, places need not be known to senders; checks them"},
		{"alltoallv", "openmpi, mpich", "MPI_Alltoallv with counts and places at both sides, known beforehand"},
		{"alltoallv", "oshmem", "shmem_alltoall32: one fixed size for all, symmetric places: no v"},
		{"alltoallv used", "all", "as latency, but each PE writes a byte of each cache line of its source before a call, and reads one of what it got after it"},
		{"alltoallv used", "oshmem", "two destinations in turns: others write there again, and to see that this PE has read by then is the caller's part (OpenSHMEM 1.4, 9.9.7)"},
		{"allreduce", ours, "coll.AllReduce, float32 sum, the same bits at every PE"},
		{"allreduce", "openmpi, mpich", "MPI_Allreduce"},
		{"allreduce", "oshmem", "shmem_float_sum_to_all and a barrier, without which its work array cannot be used again"},
		{"all", "-free, -vader", "not bound to cores; --mca pml ob1 --mca btl self,vader"},
		{"all", "floor", "of the same run as goshmem's (column \"own floor\"): copies and flags between the same PEs"},
	}
}
