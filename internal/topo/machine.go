package topo

// Machine is what could be read of a machine at one time.
type Machine struct {
	Hostname string
	Kernel   string // release, as in uname -r
	CPUModel string
	Packages int // sockets
	Cores    int
	CPUs     int   // hardware threads that are online
	Usable   []int // CPUs that this process may run on, ascending; nil if unknown
	Memory   int64 // bytes that the kernel manages; 0 if unknown

	Nodes  []Node  // NUMA nodes by number; none where the kernel shows none
	Caches []Cache // one entry for each distinct kind, nearest first
	GPUs   []Device
	NICs   []Device
	Ports  []Port // of RDMA devices, by name and number

	Notes []string // what could not be read, and why
}

// Node is one NUMA node.
type Node struct {
	ID        int
	CPUs      []int // ascending
	Memory    int64 // bytes; 0 if unknown
	Distances []int // to the nodes in order; the node itself is 10
}

// Cache is a kind of cache and how many of it there are.
type Cache struct {
	Level  int
	Type   string // "Data", "Instruction", "Unified"
	Size   int64  // bytes of each
	Shared int    // CPUs that share each
	Count  int
}

// DeviceKind tells what a PCI device is to the runtime.
type DeviceKind uint8

// Kinds of devices.
const (
	OtherDevice DeviceKind = iota
	GPU                    // display controller or processing accelerator
	Ethernet
	InfiniBand
)

// String names the kind.
func (k DeviceKind) String() string {
	switch k {
	case GPU:
		return "GPU"
	case Ethernet:
		return "Ethernet"
	case InfiniBand:
		return "InfiniBand"
	}
	return "other"
}

// Device is one PCI function.
type Device struct {
	Kind      DeviceKind
	Address   string   // "0000:17:00.0"
	Vendor    string   // four hexadecimal digits
	Product   string   // four hexadecimal digits
	Class     string   // class and subclass, four hexadecimal digits
	Driver    string   // empty: none bound
	Node      int      // NUMA node; -1 if unknown
	Names     []string // network interfaces and RDMA devices of the function: "eth0", "mlx5_0"
	Ancestors []string // bridges above, nearest first
}

// Distance is how far apart two devices are; smaller is nearer.
type Distance uint8

// Distances.
const (
	SameDevice   Distance = iota // the same function, or functions of one device
	SameSwitch                   // a common bridge above: traffic stays below the root
	SameNode                     // through the root complex of one NUMA node
	OtherNode                    // across nodes
	UnknownPlace                 // no common bridge, and no node known for one of them
)

// String names the distance.
func (d Distance) String() string {
	switch d {
	case SameDevice:
		return "same device"
	case SameSwitch:
		return "same PCI switch"
	case SameNode:
		return "same NUMA node"
	case OtherNode:
		return "other NUMA node"
	}
	return "unknown"
}

// Distance compares two devices of one machine: by the nearest common bridge,
// else by NUMA node. On a machine with at most one node every device is near it.
func (m *Machine) Distance(a, b Device) Distance {
	if function(a.Address) == function(b.Address) {
		return SameDevice
	}
	above := make(map[string]bool, len(a.Ancestors))
	for _, x := range a.Ancestors {
		above[x] = true
	}
	for _, x := range b.Ancestors {
		if above[x] {
			return SameSwitch
		}
	}
	switch {
	case len(m.Nodes) <= 1:
		return SameNode
	case a.Node < 0 || b.Node < 0:
		return UnknownPlace
	case a.Node == b.Node:
		return SameNode
	}
	return OtherNode
}

// function strips the function number from an address.
func function(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == '.' {
			return address[:i]
		}
	}
	return address
}
