package kernels

import (
	_ "embed"
	"unsafe"
)

const slotBytes = int64(unsafe.Sizeof(Slot{}))

// PTX is kernels.cu, compiled.
//
//go:embed kernels.ptx
var PTX []byte

// Source is what PTX was made of.
//
//go:embed kernels.cu
var Source []byte

// Kernel is a kernel of kernels.cu.
type Kernel int

// The kernels.
const (
	Dispatch Kernel = iota
	Await
	Offer
	Seen
	Combine
	Pack
	Sent
	Unpack
	Hand
	Moved
	Take
	Back
	Sum
	Fill
	ToFP8
	FromFP8
	Kernels
)

func (k Kernel) String() string {
	return [Kernels]string{
		"moe_dispatch", "moe_await", "moe_offer", "moe_seen", "moe_combine",
		"moe_pack", "moe_sent", "moe_unpack", "moe_hand", "moe_move", "moe_take", "moe_back", "moe_sum", "moe_fill", "moe_to_fp8", "moe_from_fp8",
	}[k]
}

// Params is how many parameters it has.
func (k Kernel) Params() int {
	return [Kernels]int{17, 5, 9, 2, 7, 5, 4, 4, 14, 5, 3, 9, 6, 3, 5, 5}[k]
}

// MaxParams is the most parameters of a kernel.
const MaxParams = 17

// Runner is a device: where kernels run and memory is. Streams and events are the
// vendor's handles. Calls that enqueue are made between Enter and Leave and do not
// wait.
type Runner interface {
	Enter() error
	Leave()

	// Name tells devices apart, in every process.
	Name() string
	// Multiprocessors is how many blocks run at the same time, one on each.
	Multiprocessors() int
	// Bulk reports whether kernels may use bulk copies.
	Bulk() bool

	// Alloc is zeroed device memory, Pinned zeroed host memory and its address on the
	// device. Both wait for nothing but may make the device wait; so does Free.
	Alloc(n int64) (addr uint64, err error)
	Free(addr uint64) error
	Pinned(n int64) (p unsafe.Pointer, addr uint64, err error)
	FreePinned(p unsafe.Pointer) error

	// Register makes host memory reachable, Unregister undoes it. known says that
	// somebody may have done so already, who keeps it so for longer.
	Register(p unsafe.Pointer, n int64, known bool) (addr uint64, err error)
	Unregister(p unsafe.Pointer) error

	// Export names memory of Alloc to other processes and the devices of this one,
	// Import makes it reachable.
	Export(addr uint64) ([]byte, error)
	Import(name []byte) (addr uint64, err error)
	Forget(addr uint64) error

	NewStream() (uintptr, error)
	CloseStream(s uintptr) error
	NewEvent(timing bool) (uintptr, error)
	CloseEvent(e uintptr) error

	Launch(k Kernel, blocks, threads, shared uint32, stream uintptr, params ...uint64) error
	Copy(dst, src uint64, n int64, stream uintptr) error
	Record(event, stream uintptr) error
	WaitEvent(stream, event uintptr) error
	// Query is nil when the event was passed, ErrWouldBlock when not yet.
	Query(event uintptr) error
	// Elapsed is the time between two passed events in seconds.
	Elapsed(from, to uintptr) (float64, error)
	Capturing(stream uintptr) (bool, error)
}
