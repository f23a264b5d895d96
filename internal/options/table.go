package options

// Option is one row of the table.
type Option struct {
	Name    string   // the field of Values and, unless EnvOnly, of pe.Config
	Env     string   // the environment variable
	Type    string   // one of the Type constants
	Default string   // as one would write it in the environment; empty: none
	Min     int64    // of numbers and sizes
	Max     int64    // the same
	Choices []string // of a choice
	EnvOnly bool     // pe.Config has no field for it
	Text    string   // what it does, in a sentence or two
	field   func(*Values) any
}

// Types of options.
const (
	TypeBytes    = "bytes"
	TypeInt      = "integer"
	TypeDuration = "duration"
	TypeBool     = "boolean"
	TypeChoice   = "choice"
	TypeText     = "text"
	TypeSecret   = "secret"
)

// Prefix begins every environment variable of the runtime.
const Prefix = "GOSHMEM_"

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	tib = int64(1) << 40
)

// Table is all options, in the order in which they are printed.
func Table() []Option {
	return []Option{
		{
			Name: "HeapSize", Env: "GOSHMEM_HEAP_SIZE", Type: TypeBytes, Default: "64MiB", Min: 4 * kib, Max: 64 * tib,
			Text:  "Size of each PE's symmetric heap. The same on every PE.",
			field: func(v *Values) any { return &v.HeapSize },
		},
		{
			Name: "Sparse", Env: "GOSHMEM_SPARSE", Type: TypeBool, Default: "false",
			Text:  "Do not pre-allocate the heap: pages come into being when touched, and running out of memory is then no error but a killed process. For tests of large offsets.",
			field: func(v *Values) any { return &v.Sparse },
		},
		{
			Name: "Path", Env: "GOSHMEM_PATH", Type: TypeChoice, Default: string(PathAuto),
			Choices: Paths(),
			Text:    "How operations reach a peer: auto takes the best there is: loads and stores within a host, between hosts RDMA where both ends have a usable port, else TCP. The others force one. A path that cannot reach a peer is an error at join.",
			field:   func(v *Values) any { return &v.Path },
		},
		{
			Name: "RingCapacity", Env: "GOSHMEM_RING_CAPACITY", Type: TypeInt, Default: "1024", Min: 1, Max: 16 * mib,
			Text:  "Slots of the process's request ring.",
			field: func(v *Values) any { return &v.RingCapacity },
		},
		{
			Name: "Window", Env: "GOSHMEM_WINDOW", Type: TypeInt, Default: "1024", Min: 1, Max: mib,
			Text:  "Requests that may be in flight in one lane (a context and a peer).",
			field: func(v *Values) any { return &v.Window },
		},
		{
			Name: "Backlog", Env: "GOSHMEM_BACKLOG", Type: TypeInt, Default: "1024", Min: 1, Max: 16 * mib,
			Text:  "Operations that may be pending in one lane: queued, set aside while its window is full, or in flight. One more waits for room.",
			field: func(v *Values) any { return &v.Backlog },
		},
		{
			Name: "Contexts", Env: "GOSHMEM_CONTEXTS", Type: TypeInt, Default: "64", Min: 1, Max: 64 * kib,
			Text:  "Contexts that a world has room for, those of its teams included. The same on every PE.",
			field: func(v *Values) any { return &v.Contexts },
		},
		{
			Name: "FailureDeadline", Env: "GOSHMEM_FAILURE_DEADLINE", Type: TypeDuration, Default: "10s",
			Text:  "A PE that gave no sign of life for so long is lost. Who holds the rendezvous decides, and its value counts for all: under goshmem run its environment, else rank 0.",
			field: func(v *Values) any { return &v.FailureDeadline },
		},
		{
			Name: "Heartbeat", Env: "GOSHMEM_HEARTBEAT", Type: TypeDuration, Default: "1s",
			Text:  "Time between two signs of life. Less than the failure deadline; if unset, at most a tenth of that.",
			field: func(v *Values) any { return &v.Heartbeat },
		},
		{
			Name: "JoinTimeout", Env: "GOSHMEM_JOIN_TIMEOUT", Type: TypeDuration, Default: "1m",
			Text:  "How long a PE waits for all others to join.",
			field: func(v *Values) any { return &v.JoinTimeout },
		},
		{
			Name: "Timeout", Env: "GOSHMEM_TIMEOUT", Type: TypeDuration, Default: "10m",
			Text:  "Deadline of every wait that has none of its own.",
			field: func(v *Values) any { return &v.Timeout },
		},
		{
			Name: "CloseTimeout", Env: "GOSHMEM_CLOSE_TIMEOUT", Type: TypeDuration, Default: "10s",
			Text:  "How long Close drains, and waits for the others' goodbye.",
			field: func(v *Values) any { return &v.CloseTimeout },
		},
		{
			Name: "InlineMax", Env: "GOSHMEM_INLINE_MAX", Type: TypeBytes, Default: "256KiB", Min: 1, Max: 64 * tib,
			Text:  "Non-blocking operations of this size and more go through the ring, smaller ones are done by the caller.",
			field: func(v *Values) any { return &v.InlineMax },
		},
		{
			Name: "SpinTurns", Env: "GOSHMEM_SPIN_TURNS", Type: TypeInt, Default: "0", Min: 0, Max: mib,
			Text:  "Turns that a wait spins before it yields the processor. 0 is automatic: 150 if the host has a core for each of its PEs, else 2.",
			field: func(v *Values) any { return &v.SpinTurns },
		},
		{
			Name: "SleepAfter", Env: "GOSHMEM_SLEEP_AFTER", Type: TypeDuration, Default: "200us",
			Text:  "How long a wait spins and yields before it sleeps.",
			field: func(v *Values) any { return &v.SleepAfter },
		},
		{
			Name: "DeviceHeap", Env: "GOSHMEM_DEVICE_HEAP", Type: TypeBytes, Default: "0B", Min: 0, Max: 64 * tib,
			Text:  "Size of each PE's symmetric heap in device memory, beside the one in host memory. The same on every PE. 0: none, and no device is used.",
			field: func(v *Values) any { return &v.DeviceHeap },
		},
		{
			Name: "DeviceDriver", Env: "GOSHMEM_DEVICE_DRIVER", Type: TypeChoice, Default: "cuda", Choices: []string{"cuda", "host"},
			Text:  "Whose devices: cuda are NVIDIA's GPUs, host simulates devices in host memory.",
			field: func(v *Values) any { return &v.DeviceDriver },
		},
		{
			Name: "Device", Env: "GOSHMEM_DEVICE", Type: TypeText,
			Text:  "Number of the device that holds this PE's device heap. Unset: the PE's rank on its host, modulo the number of devices.",
			field: func(v *Values) any { return &v.Device },
		},
		{
			Name: "DeviceShare", Env: "GOSHMEM_DEVICE_SHARE", Type: TypeChoice, Default: "auto", Choices: []string{"auto", "vmm", "ipc"},
			Text:  "How device memory is shared between processes: vmm by descriptors of physical memory mapped in one range, ipc by handles of whole allocations; auto takes vmm where the device has it.",
			field: func(v *Values) any { return &v.DeviceShare },
		},
		{
			Name: "DeviceMap", Env: "GOSHMEM_DEVICE_MAP", Type: TypeChoice, Default: "auto", Choices: []string{"auto", "off"},
			Text:  "Whether PEs map each other's device memory: auto where the devices can; off never, and what is for a peer's device passes through host memory. The same on every PE.",
			field: func(v *Values) any { return &v.DeviceMap },
		},
		{
			Name: "DeviceStreams", Env: "GOSHMEM_DEVICE_STREAMS", Type: TypeInt, Default: "8", Min: 1, Max: 16,
			Text:  "Streams of a process that its lanes share for copies.",
			field: func(v *Values) any { return &v.DeviceStreams },
		},
		{
			Name: "DeviceEngine", Env: "GOSHMEM_DEVICE_ENGINE", Type: TypeBool, Default: "false",
			Text:  "Puts and gets of device memory up to 64 KiB by a resident kernel: sooner there, but it needs a multiprocessor, and a synchronisation of the whole context waits until nothing came for 200 us.",
			field: func(v *Values) any { return &v.DeviceEngine },
		},
		{
			Name: "Nodes", Env: "GOSHMEM_NODES", Type: TypeInt, Default: "0", Min: 0, Max: 64 * kib,
			Text:  "Simulates that many nodes on one host: PEs are dealt to them in blocks, and those of different nodes reach each other through a transport, by default a simulated link. 0: the real ones. The same on every PE.",
			field: func(v *Values) any { return &v.Nodes },
		},
		{
			Name: "Net", Env: "GOSHMEM_NET", Type: TypeChoice, Default: string(PathAuto),
			Choices: []string{string(PathAuto), string(PathTCP), string(PathRDMA), string(PathSim)},
			Text:    "The transport between nodes: auto is the simulated link between simulated nodes, and between hosts RDMA where both ends have a usable port, else TCP. The same on every PE.",
			field:   func(v *Values) any { return &v.Net },
		},
		{
			Name: "TCPListen", Env: "GOSHMEM_TCP_LISTEN", Type: TypeText,
			Text:  "Address (host or host:port) at which this process takes TCP connections of other PEs, and which it tells them. Default: the loopback interface if all PEs are on one host, else the address by which the host reaches the rendezvous (GOSHMEM_INTERFACE).",
			field: func(v *Values) any { return &v.TCPListen },
		},
		{
			Name: "TCPTLS", Env: "GOSHMEM_TCP_TLS", Type: TypeBool, Default: "false",
			Text:  "Encrypt TCP connections between PEs. The same on every PE.",
			field: func(v *Values) any { return &v.TCPTLS },
		},
		{
			Name: "RDMAGIDIndex", Env: "GOSHMEM_RDMA_GID_INDEX", Type: TypeInt, Default: "-1", Min: -1, Max: 255, EnvOnly: true,
			Text:  "Index in the port's GID table. -1: RoCE v2 before v1, IPv4 before IPv6, and never a link-local one.",
			field: func(v *Values) any { return &v.RDMAGIDIndex },
		},
		{
			Name: "RDMAGID", Env: "GOSHMEM_RDMA_GID", Type: TypeText, EnvOnly: true,
			Text:  "IP address that the GID must have.",
			field: func(v *Values) any { return &v.RDMAGID },
		},
		{
			Name: "RDMAPkey", Env: "GOSHMEM_RDMA_PKEY", Type: TypeInt, Default: "-1", Min: -1, Max: 65535, EnvOnly: true,
			Text:  "Partition key, membership bit aside. -1: the port's first.",
			field: func(v *Values) any { return &v.RDMAPkey },
		},
		{
			Name: "RDMAMTU", Env: "GOSHMEM_RDMA_MTU", Type: TypeInt, Default: "0", Min: 0, Max: 4096, EnvOnly: true,
			Text:  "Path MTU in bytes: 256, 512, 1024, 2048 or 4096. 0: the lower of the two ports' active ones.",
			field: func(v *Values) any { return &v.RDMAMTU },
		},
		{
			Name: "RDMATC", Env: "GOSHMEM_RDMA_TC", Type: TypeInt, Default: "0", Min: 0, Max: 255, EnvOnly: true,
			Text:  "Traffic class of RDMA packets.",
			field: func(v *Values) any { return &v.RDMATC },
		},
		{
			Name: "RDMASL", Env: "GOSHMEM_RDMA_SL", Type: TypeInt, Default: "0", Min: 0, Max: 15, EnvOnly: true,
			Text:  "Service level of RDMA packets.",
			field: func(v *Values) any { return &v.RDMASL },
		},
		{
			Name: "RDMATimeout", Env: "GOSHMEM_RDMA_TIMEOUT", Type: TypeInt, Default: "18", Min: 1, Max: 31, EnvOnly: true,
			Text:  "A packet without acknowledgement is sent again after 4.096 us x 2^n; adapters take up to four times as long.",
			field: func(v *Values) any { return &v.RDMATimeout },
		},
		{
			Name: "RDMARetries", Env: "GOSHMEM_RDMA_RETRIES", Type: TypeInt, Default: "6", Min: 0, Max: 7, EnvOnly: true,
			Text:  "How often it is sent again before the peer counts as lost. On some devices 7 is for ever.",
			field: func(v *Values) any { return &v.RDMARetries },
		},
		{
			Name: "RDMARNRRetries", Env: "GOSHMEM_RDMA_RNR_RETRIES", Type: TypeInt, Default: "7", Min: 0, Max: 7, EnvOnly: true,
			Text:  "How often a message is sent again that finds no receive. 7 is for ever.",
			field: func(v *Values) any { return &v.RDMARNRRetries },
		},
		{
			Name: "RDMASQDepth", Env: "GOSHMEM_RDMA_SQ_DEPTH", Type: TypeInt, Default: "256", Min: 1, Max: 65536, EnvOnly: true,
			Text:  "Work requests under way in one queue pair. Less where the device has less.",
			field: func(v *Values) any { return &v.RDMASQDepth },
		},
		{
			Name: "RDMACQDepth", Env: "GOSHMEM_RDMA_CQ_DEPTH", Type: TypeInt, Default: "4096", Min: 1, Max: 4 * mib, EnvOnly: true,
			Text:  "Work requests under way in all queue pairs of a process. Less where the device has less.",
			field: func(v *Values) any { return &v.RDMACQDepth },
		},
		{
			Name: "RDMAInline", Env: "GOSHMEM_RDMA_INLINE", Type: TypeInt, Default: "256", Min: 8, Max: 1024, EnvOnly: true,
			Text:  "Bytes that a work request carries itself. Less where the device grants less.",
			field: func(v *Values) any { return &v.RDMAInline },
		},
		{
			Name: "SimLatency", Env: "GOSHMEM_SIM_LATENCY", Type: TypeDuration, Default: "2us",
			Text:  "Time that a message on the simulated link travels.",
			field: func(v *Values) any { return &v.SimLatency },
		},
		{
			Name: "SimBandwidth", Env: "GOSHMEM_SIM_BANDWIDTH", Type: TypeBytes, Default: "25000000000B", Min: kib, Max: 64 * tib,
			Text:  "Bytes a second of each PE's port to the simulated link, each way.",
			field: func(v *Values) any { return &v.SimBandwidth },
		},
		{
			Name: "SimPost", Env: "GOSHMEM_SIM_POST", Type: TypeDuration, Default: "300ns",
			Text:  "Time between two messages that a PE posts to the simulated link.",
			field: func(v *Values) any { return &v.SimPost },
		},
		{
			Name: "Rendezvous", Env: "GOSHMEM_RENDEZVOUS", Type: TypeText,
			Text:  "Where the PEs meet: unix:/path or unix:@name on one host, host:port of rank 0's host for several. The launcher sets it.",
			field: func(v *Values) any { return &v.Rendezvous },
		},
		{
			Name: "NICs", Env: "GOSHMEM_NICS", Type: TypeText,
			Text:  "RDMA ports that may be chosen: devices, or ports of them, such as mlx5_0,mlx5_1:2; with ^ in front, all but those. Unset: all. Of these a PE uses the nearest, of those the fastest, and equal ones in turn with its host's other PEs; goshmem info tells the choice and its reasons. In a world over several hosts it is an error at join if none of those named is usable; that all are excluded is a reason for TCP.",
			field: func(v *Values) any { return &v.NICs },
		},
		{
			Name: "Interface", Env: "GOSHMEM_INTERFACE", Type: TypeText,
			Text:  "The network interface that a host:port rendezvous listens on, and each PE for TCP connections of other hosts: its name, an address, a subnet such as 10.0.0.0/8, or any for all of them. Unset: the one that has the address of the rendezvous, or that leads to it.",
			field: func(v *Values) any { return &v.Interface },
		},
		{
			Name: "HostID", Env: "GOSHMEM_HOST_ID", Type: TypeText,
			Text:  "Tells hosts apart that the kernel does not: PEs that have different values share no memory. To play several hosts on one.",
			field: func(v *Values) any { return &v.HostID },
		},
		{
			Name: "Secret", Env: "GOSHMEM_SECRET", Type: TypeSecret,
			Text:  "What a PE must know to join, in hex. The launcher sets it. Goes before the secret file.",
			field: func(v *Values) any { return &v.Secret },
		},
		{
			Name: "SecretFile", Env: "GOSHMEM_SECRET_FILE", Type: TypeText,
			Text:  "File that holds the secret, in hex.",
			field: func(v *Values) any { return &v.SecretFile },
		},
	}
}

// Variable is an environment variable of the runtime that is no option: it says
// which PE a process is, not how the world behaves.
type Variable struct{ Env, Text string }

// LaunchVariables is what a launcher tells a process.
func LaunchVariables() []Variable {
	return []Variable{
		{"GOSHMEM_RANK", "The PE's rank in the world, from 0."},
		{"GOSHMEM_SIZE", "The number of PEs in the world."},
		{"GOSHMEM_LOCAL_RANK", "The PE's rank among those of its host."},
		{"GOSHMEM_LOCAL_SIZE", "The number of PEs on its host."},
		{"GOSHMEM_HUB", "Who holds the rendezvous: launcher, or rank0 (the default)."},
	}
}

// TestPrefix begins variables that the runtime's own tests use.
const TestPrefix = Prefix + "TEST_"
