package options

import (
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"goshmem/internal/errs"
)

// Values holds every option. As input of Resolve a zero field is unset; as its
// output every field has its value.
type Values struct {
	HeapSize        int64         // bytes of a PE's symmetric heap
	Sparse          bool          // do not pre-allocate the heap
	Path            Path          // how operations reach a peer
	RingCapacity    int           // slots of the request ring
	Window          int           // requests in flight per lane
	Backlog         int           // operations pending per lane
	Contexts        int           // contexts a world has room for
	FailureDeadline time.Duration // silence after which a PE is lost
	Heartbeat       time.Duration // between two signs of life
	JoinTimeout     time.Duration // for all PEs to join
	Timeout         time.Duration // of a wait that has no deadline of its own
	CloseTimeout    time.Duration // for draining and the others' goodbye
	InlineMax       int64         // bytes; an NBI of this size and more goes through the ring
	SpinTurns       int           // of a wait before it yields; 0: automatic
	SleepAfter      time.Duration // of a wait before it sleeps
	DeviceHeap      int64         // bytes of a PE's symmetric heap in device memory; 0: none
	DeviceDriver    Choice        // whose devices
	Device          string        // number of the device; empty: by local rank
	DeviceShare     Choice        // how device memory is shared between processes
	DeviceMap       Choice        // whether PEs map each other's device memory
	DeviceStreams   int           // streams of a process that lanes share
	DeviceEngine    bool          // small puts by a resident kernel
	Nodes           int           // simulated nodes; 0: the real ones
	Net             Path          // the transport between nodes
	TCPListen       string        // address of this process for TCP between PEs
	TCPTLS          bool          // encrypt it
	RDMAGIDIndex    int           // in the port's table; -1: chosen
	RDMAGID         string        // address that the GID must have
	RDMAPkey        int           // partition key; -1: index 0
	RDMAMTU         int           // bytes; 0: the port's
	RDMATC          int           // traffic class
	RDMASL          int           // service level
	RDMATimeout     int           // of an acknowledgement, 4.096 us x 2^n
	RDMARetries     int           // without an answer
	RDMARNRRetries  int           // where the peer has no receive
	RDMASQDepth     int           // work requests under way in a queue pair
	RDMACQDepth     int           // and in all
	RDMAInline      int           // bytes that a work request carries itself
	SimLatency      time.Duration // of the simulated link between them
	SimBandwidth    int64         // of a PE's port to it, bytes a second
	SimPost         time.Duration // between two messages of a PE
	Rendezvous      string        // where the PEs meet
	NICs            string        // RDMA ports that may be chosen
	Interface       string        // where its host listens
	HostID          string        // tells simulated hosts apart
	Secret          Secret        // what a PE must know to join
	SecretFile      string        // the file that holds it
}

// Choice is one of an option's choices.
type Choice string

// Path is how operations reach a peer.
type Path string

// The paths.
const (
	PathAuto   Path = "auto"   // the best there is
	PathDirect Path = "direct" // the caller's loads and stores
	PathProxy  Path = "proxy"  // same host, but all through ring and proxy
	PathTCP    Path = "tcp"
	PathRDMA   Path = "rdma"
	PathSim    Path = "sim" // the simulated link, between simulated nodes
)

// Paths are those that may be asked for.
func Paths() []string {
	return []string{string(PathAuto), string(PathDirect), string(PathProxy), string(PathTCP), string(PathRDMA)}
}

// Secret is the job's secret in hex. Printing one tells only whether it is set.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return "unset"
	}
	return "set"
}

// Format keeps every verb of package fmt from showing the secret.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText keeps encoders and log handlers from showing the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Bytes is the secret itself; nil if unset. ErrConfig if it is not hex.
func (s Secret) Bytes() ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	b, err := hex.DecodeString(string(s))
	if err != nil { // err would show a part of the secret
		return nil, fmt.Errorf("options: secret: want hex digits, two a byte: %w", errs.ErrConfig)
	}
	return b, nil
}
