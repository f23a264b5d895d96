package pe

import (
	"log/slog"
	"time"

	"goshmem/internal/options"
)

// Config says how a PE joins a world, or how Run makes one. Zero fields are
// taken from the environment (GOSHMEM_*, see docs/options.md) and then from the
// defaults.
type Config struct {
	// Rank and Size identify this process in an explicit Join; with Size 0 they
	// come from the launcher's environment. For Run, Size is the number of PEs
	// to start as goroutines.
	Rank, Size int

	HeapSize        int64         // bytes of a PE's symmetric heap
	Sparse          bool          // do not pre-allocate it: pages come when touched
	Path            string        // "auto", "direct", "proxy", …: how operations reach a peer
	RingCapacity    int           // slots of the request ring
	Window          int           // requests in flight per lane
	Backlog         int           // operations pending per lane
	Contexts        int           // context slots of the world
	FailureDeadline time.Duration // silence after which a PE is lost; the launcher's counts, or rank 0's
	Heartbeat       time.Duration // interval of heartbeats; as FailureDeadline
	JoinTimeout     time.Duration // for all PEs to join
	Timeout         time.Duration // deadline of a wait whose context has none
	CloseTimeout    time.Duration // for Close to drain and say goodbye
	InlineMax       int64         // NBI of this size and more go through the ring
	SpinTurns       int           // turns of spinning before a waiter yields; 0: by the number of cores
	SleepAfter      time.Duration // time of yielding before a waiter sleeps
	Rendezvous      string        // where the PEs meet: "unix:@name", "unix:/path"; "host:port" of rank 0's host
	Interface       string        // where a host:port rendezvous listens: a name, an address, a subnet, "any"
	NICs            string        // RDMA ports that may be chosen: "mlx5_0,mlx5_1:2", "^mlx5_2"
	HostID          string        // tells hosts apart that the kernel does not
	Secret          string        // the job's secret, in hex
	SecretFile      string        // a file that holds it

	DeviceHeap    int64  // bytes of a PE's symmetric heap in device memory; 0: none
	DeviceDriver  string // "cuda", or "host": devices simulated in host memory
	Device        string // number of the device; empty: by the PE's rank on its host
	DeviceShare   string // "auto", "vmm", "ipc": how device memory is shared between processes
	DeviceMap     string // "auto", "off": whether PEs map each other's device memory
	DeviceStreams int    // streams that lanes share
	DeviceEngine  bool   // small puts and gets by a resident kernel

	// Nodes simulates that many nodes on this machine: PEs are dealt to them in
	// blocks, and those of different nodes do not use the mappings but the
	// transport that Remote makes. 0: the real ones.
	Nodes int
	// Remote makes the transport to PEs of other nodes. nil: what Net says, which is
	// by default the simulated link between simulated nodes, described by the three
	// Sim options below, and between hosts RDMA where both ends have it, else TCP.
	Remote       TransportFactory
	Net          string        // "auto", "tcp", "rdma", "sim": the transport between nodes
	TCPListen    string        // address of this process for TCP between PEs
	TCPTLS       bool          // encrypt it
	SimLatency   time.Duration // that a message travels
	SimBandwidth int64         // bytes a second of a PE's port
	SimPost      time.Duration // between two messages of a PE

	// Logger gets the runtime's rare messages; nil: none.
	Logger *slog.Logger
}

func (c *Config) values() options.Values {
	return options.Values{
		HeapSize:        c.HeapSize,
		Sparse:          c.Sparse,
		Path:            options.Path(c.Path),
		RingCapacity:    c.RingCapacity,
		Window:          c.Window,
		Backlog:         c.Backlog,
		Contexts:        c.Contexts,
		FailureDeadline: c.FailureDeadline,
		Heartbeat:       c.Heartbeat,
		JoinTimeout:     c.JoinTimeout,
		Timeout:         c.Timeout,
		CloseTimeout:    c.CloseTimeout,
		InlineMax:       c.InlineMax,
		SpinTurns:       c.SpinTurns,
		SleepAfter:      c.SleepAfter,
		DeviceHeap:      c.DeviceHeap,
		DeviceDriver:    options.Choice(c.DeviceDriver),
		Device:          c.Device,
		DeviceShare:     options.Choice(c.DeviceShare),
		DeviceEngine:    c.DeviceEngine,
		DeviceMap:       options.Choice(c.DeviceMap),
		DeviceStreams:   c.DeviceStreams,
		Nodes:           c.Nodes,
		Net:             options.Path(c.Net),
		TCPListen:       c.TCPListen,
		TCPTLS:          c.TCPTLS,
		SimLatency:      c.SimLatency,
		SimBandwidth:    c.SimBandwidth,
		SimPost:         c.SimPost,
		Rendezvous:      c.Rendezvous,
		NICs:            c.NICs,
		Interface:       c.Interface,
		HostID:          c.HostID,
		Secret:          options.Secret(c.Secret),
		SecretFile:      c.SecretFile,
	}
}
