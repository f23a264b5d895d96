package verbs

import (
	"fmt"
	"net/netip"
)

const qptRC = 2

// Opcode of a work request.
type Opcode uint32

// The opcodes used.
const (
	WRRDMAWrite   Opcode = 0
	WRSend        Opcode = 2
	WRRDMARead    Opcode = 4
	WRCompareSwap Opcode = 5
	WRFetchAdd    Opcode = 6
)

// SendFlags of a work request.
type SendFlags uint32

// The flags used.
const (
	SendFence    SendFlags = 1 << 0
	SendSignaled SendFlags = 1 << 1
	SendInline   SendFlags = 1 << 3
)

// WCStatus of a work completion; [Lib.StatusText] has the library's text.
type WCStatus uint32

// The statuses that are told apart.
const (
	WCSuccess      WCStatus = 0
	WCFlushErr     WCStatus = 5
	WCRemAccessErr WCStatus = 10
	WCRetryExcErr  WCStatus = 12
)

// WCOpcode of a work completion.
type WCOpcode uint32

// WCRecv is the bit of completions of receives.
const WCRecv WCOpcode = 1 << 7

// Access to a memory region or through a queue pair.
type Access uint32

// The rights. AccessRelaxedOrdering is a wish that old libraries ignore.
const (
	AccessLocalWrite      Access = 1 << 0
	AccessRemoteWrite     Access = 1 << 1
	AccessRemoteRead      Access = 1 << 2
	AccessRemoteAtomic    Access = 1 << 3
	AccessRelaxedOrdering Access = 1 << 20

	optionalAccess Access = 0x3ff00000
)

// QPState is a queue pair's state.
type QPState int32

// The states.
const (
	QPSReset QPState = iota
	QPSInit
	QPSRTR
	QPSRTS
	QPSSQD
	QPSSQE
	QPSErr
)

func (s QPState) String() string {
	return name(int(s), "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
}

// The bits of ibv_modify_qp's mask.
const (
	qpState           = 1 << 0
	qpAccessFlags     = 1 << 3
	qpPkeyIndex       = 1 << 4
	qpPort            = 1 << 5
	qpAV              = 1 << 7
	qpPathMTU         = 1 << 8
	qpTimeout         = 1 << 9
	qpRetryCnt        = 1 << 10
	qpRNRRetry        = 1 << 11
	qpRQPSN           = 1 << 12
	qpMaxRdAtomic     = 1 << 13
	qpMinRNRTimer     = 1 << 15
	qpSQPSN           = 1 << 16
	qpMaxDestRdAtomic = 1 << 17
	qpDestQPN         = 1 << 20
)

// PortState is a port's logical state.
type PortState int32

// PortActive is the state in which a port can be used.
const PortActive PortState = 4

func (s PortState) String() string {
	return name(int(s), "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
}

// LinkLayer of a port.
type LinkLayer uint8

// The link layers. LinkUnspecified means InfiniBand (old drivers).
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

func (l LinkLayer) String() string { return name(int(l), "unspecified", "InfiniBand", "Ethernet") }

// AtomicCap says with what a device's atomics are atomic.
type AtomicCap int32

// The capabilities: nothing, what goes through the same device, the CPU too.
const (
	AtomicNone AtomicCap = iota
	AtomicHCA
	AtomicGlobal
)

func (a AtomicCap) String() string { return name(int(a), "none", "HCA", "global") }

// GIDType is what a GID speaks.
type GIDType uint32

// The types.
const (
	GIDIB GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
)

func (g GIDType) String() string { return name(int(g), "IB", "RoCE v1", "RoCE v2") }

// MTU is a path MTU as verbs numbers it: 1 is 256 bytes, 5 is 4096.
type MTU int32

// Bytes is the MTU in bytes; 0 for none.
func (m MTU) Bytes() int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}

// MTUOf is the MTU of so many bytes.
func MTUOf(bytes int) (MTU, bool) {
	for m := MTU(1); m <= 5; m++ {
		if m.Bytes() == bytes {
			return m, true
		}
	}
	return 0, false
}

// EventType of an asynchronous event; [Lib.EventText] has the library's text.
type EventType int32

// The events that are told apart.
const (
	EventCQErr       EventType = 0
	EventQPFatal     EventType = 1
	EventQPReqErr    EventType = 2
	EventQPAccessErr EventType = 3
	EventDeviceFatal EventType = 8
	EventPortActive  EventType = 9
	EventPortErr     EventType = 10
	EventGIDChange   EventType = 18
)

// OfQP reports whether the event is about one queue pair.
func (e EventType) OfQP() bool {
	return e >= EventQPFatal && e <= 7 || e == 16
}

func name(i int, names ...string) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%d", i)
}

// GID is a port's address, in network byte order.
type GID [16]byte

// Addr is the GID as an IP address; IPv4 where it is mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// LinkLocal reports whether the GID has the link-local prefix: with RoCE it is
// reachable on its own link alone.
func (g GID) LinkLocal() bool { return g.Addr().IsLinkLocalUnicast() }

func (g GID) String() string { return netip.AddrFrom16(g).Unmap().String() }
