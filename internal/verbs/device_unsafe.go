package verbs

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/dl"
)

// Context is an open device.
type Context struct {
	lib  *Lib
	Name string
	head *contextHead
}

// DeviceAttr is what a device can do.
type DeviceAttr struct {
	Ports      int // numbered from 1
	MaxQPWR    int // work requests of a send queue
	MaxCQE     int // entries of a completion queue
	MaxSGE     int
	MaxRdAtom  int // READs and atomics a queue pair takes as target
	InitRdAtom int // and has under way as initiator
	Atomic     AtomicCap
	MaxMRSize  uint64
	Firmware   string
}

// PortAttr is a port's state.
type PortAttr struct {
	State      PortState
	Link       LinkLayer
	ActiveMTU  MTU
	MaxMessage uint32 // bytes
	LID        uint16
	GIDs       int // length of the GID table
	Pkeys      int
}

// GIDEntry is a valid entry of a port's GID table.
type GIDEntry struct {
	GID   GID
	Index int
	Type  GIDType
	Iface int // index of the network interface; 0: none
}

// Close closes the device. Everything made from it is closed before.
func (c *Context) Close() error {
	r, _ := dl.Call(c.lib.closeDevice, uintptr(unsafe.Pointer(c.head)))
	return fail("ibv_close_device", r, c.Name)
}

// fail is the error of a verb that returns errno; nil for 0. Some return -1.
func fail(verb string, r uintptr, detail string) error {
	switch n := int32(r); {
	case n == 0:
		return nil
	case n < 0:
		return &Error{Verb: verb, Errno: syscall.Errno(-n), Detail: detail}
	default:
		return &Error{Verb: verb, Errno: syscall.Errno(n), Detail: detail}
	}
}

// QueryDevice asks what the device can do.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	a := new(deviceAttr)
	r, _ := dl.Call(c.lib.queryDevice, uintptr(unsafe.Pointer(c.head)), uintptr(unsafe.Pointer(a)))
	if err := fail("ibv_query_device", r, c.Name); err != nil {
		return DeviceAttr{}, err
	}
	return DeviceAttr{
		Ports: int(a.physPortCnt), MaxQPWR: int(a.maxQPWR), MaxCQE: int(a.maxCQE), MaxSGE: int(a.maxSGE),
		MaxRdAtom: int(a.maxQPRdAtom), InitRdAtom: int(a.maxQPInitRd), Atomic: AtomicCap(a.atomicCap),
		MaxMRSize: a.maxMRSize, Firmware: unix.ByteSliceToString(a.fwVer[:]),
	}, nil
}

// QueryPort asks for a port's state. (The function fills the old structure only;
// the rest stays zero.)
func (c *Context) QueryPort(port int) (PortAttr, error) {
	a := new(portAttr)
	r, _ := dl.Call(c.lib.queryPort, uintptr(unsafe.Pointer(c.head)), uintptr(port), uintptr(unsafe.Pointer(a)))
	if err := fail("ibv_query_port", r, fmt.Sprintf("%s port %d", c.Name, port)); err != nil {
		return PortAttr{}, err
	}
	return PortAttr{
		State: PortState(a.state), Link: LinkLayer(a.linkLayer), ActiveMTU: MTU(a.activeMTU), MaxMessage: a.maxMsgSz,
		LID: a.lid, GIDs: int(a.gidTblLen), Pkeys: int(a.pkeyTblLen),
	}, nil
}

// GIDs lists the valid entries of a port's GID table.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	p, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	// The table is the device's: all ports at once.
	d, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	all := make([]gidEntry, max(1, p.GIDs*max(1, d.Ports)))
	r, errno := dl.Call(c.lib.queryGIDTable, uintptr(unsafe.Pointer(c.head)), uintptr(unsafe.Pointer(&all[0])),
		uintptr(len(all)), 0, unsafe.Sizeof(all[0]))
	n := int64(r)
	if n < 0 {
		if n > -4096 && n != -1 {
			errno = syscall.Errno(-n)
		}
		return nil, &Error{Verb: "ibv_query_gid_table", Errno: errno, Detail: c.Name}
	}
	var out []GIDEntry
	for _, e := range all[:n] {
		if int(e.portNum) == port {
			out = append(out, GIDEntry{GID: e.gid, Index: int(e.gidIndex), Type: GIDType(e.gidType), Iface: int(e.ndevIfindex)})
		}
	}
	return out, nil
}

// Pkey is an entry of a port's partition key table.
func (c *Context) Pkey(port, index int) (uint16, error) {
	key := new([2]byte)
	r, errno := dl.Call(c.lib.queryPkey, uintptr(unsafe.Pointer(c.head)), uintptr(port), uintptr(index), uintptr(unsafe.Pointer(key)))
	if int32(r) != 0 {
		return 0, &Error{Verb: "ibv_query_pkey", Errno: errno, Detail: fmt.Sprintf("%s port %d index %d", c.Name, port, index)}
	}
	return uint16(key[0])<<8 | uint16(key[1]), nil
}

// Event is an asynchronous event.
type Event struct {
	Type EventType
	QPN  uint32 // of events about a queue pair
	Port int    // of events about a port
}

// SetNonblock makes Event return at once when there is none.
func (c *Context) SetNonblock() error {
	if err := unix.SetNonblock(int(c.head.asyncFD), true); err != nil {
		return fmt.Errorf("verbs: %s: event descriptor: %w", c.Name, err)
	}
	return nil
}

// Event takes an asynchronous event and acknowledges it; ok is false if there is
// none (see SetNonblock).
func (c *Context) Event() (ev Event, ok bool, err error) {
	e := new(asyncEvent)
	r, errno := dl.Call(c.lib.getAsyncEvent, uintptr(unsafe.Pointer(c.head)), uintptr(unsafe.Pointer(e)))
	if int32(r) != 0 {
		if errno == syscall.EAGAIN {
			return Event{}, false, nil
		}
		return Event{}, false, &Error{Verb: "ibv_get_async_event", Errno: errno, Detail: c.Name}
	}
	ev.Type = EventType(e.eventType)
	switch {
	case ev.Type.OfQP():
		ev.QPN = (*qpHead)(pointer(uintptr(e.element))).qpNum
	case ev.Type >= EventPortActive && ev.Type != EventCQErr:
		ev.Port = int(int32(e.element))
	}
	_, _ = dl.Call(c.lib.ackAsyncEvent, uintptr(unsafe.Pointer(e)))
	return ev, true, nil
}
