package verbs

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"goshmem/internal/dl"
	"goshmem/internal/errs"
)

// Lib is the loaded library.
type Lib struct {
	lib *dl.Library

	getDeviceList, freeDeviceList, getDeviceName, openDevice, closeDevice uintptr
	queryDevice, queryPort, queryGIDTable, queryPkey                      uintptr
	allocPD, deallocPD, regMR, regMRIova2, regDmabufMR, deregMR           uintptr
	createCompChannel, destroyCompChannel, getCQEvent, ackCQEvents        uintptr
	createCQ, destroyCQ, createQP, modifyQP, queryQP, destroyQP           uintptr
	getAsyncEvent, ackAsyncEvent, wcStatusStr, eventTypeStr               uintptr
}

// libraryName is what the dynamic linker looks for.
const libraryName = "libibverbs.so.1"

// Load opens the library. The error is ErrUnsupported if there is none, or one
// too old (before rdma-core 32).
func Load() (*Lib, error) {
	lib, err := dl.Open(libraryName)
	if err != nil {
		return nil, fmt.Errorf("verbs: no RDMA library: %w", err)
	}
	l := &Lib{lib: lib}
	for _, s := range []struct {
		fn   *uintptr
		name string
	}{
		{&l.getDeviceList, "ibv_get_device_list"}, {&l.freeDeviceList, "ibv_free_device_list"},
		{&l.getDeviceName, "ibv_get_device_name"}, {&l.openDevice, "ibv_open_device"}, {&l.closeDevice, "ibv_close_device"},
		{&l.queryDevice, "ibv_query_device"}, {&l.queryPort, "ibv_query_port"},
		{&l.queryGIDTable, "_ibv_query_gid_table"}, {&l.queryPkey, "ibv_query_pkey"},
		{&l.allocPD, "ibv_alloc_pd"}, {&l.deallocPD, "ibv_dealloc_pd"},
		{&l.regMR, "ibv_reg_mr"}, {&l.regMRIova2, "ibv_reg_mr_iova2"}, {&l.deregMR, "ibv_dereg_mr"},
		{&l.createCompChannel, "ibv_create_comp_channel"}, {&l.destroyCompChannel, "ibv_destroy_comp_channel"},
		{&l.getCQEvent, "ibv_get_cq_event"}, {&l.ackCQEvents, "ibv_ack_cq_events"},
		{&l.createCQ, "ibv_create_cq"}, {&l.destroyCQ, "ibv_destroy_cq"},
		{&l.createQP, "ibv_create_qp"}, {&l.modifyQP, "ibv_modify_qp"}, {&l.queryQP, "ibv_query_qp"}, {&l.destroyQP, "ibv_destroy_qp"},
		{&l.getAsyncEvent, "ibv_get_async_event"}, {&l.ackAsyncEvent, "ibv_ack_async_event"},
		{&l.wcStatusStr, "ibv_wc_status_str"}, {&l.eventTypeStr, "ibv_event_type_str"},
	} {
		if *s.fn, err = lib.Sym(s.name); err != nil {
			return nil, fmt.Errorf("verbs: %s is too old: %w", libraryName, err)
		}
	}
	l.regDmabufMR, _ = lib.Sym("ibv_reg_dmabuf_mr") // absent: RegDmabufMR says so
	return l, nil
}

// sysClass is where the kernel shows RDMA devices.
const sysClass = "/sys/class/infiniband"

// withDevices calls fn with the library's list of devices.
func (l *Lib) withDevices(fn func(devices []unsafe.Pointer, names []string) error) error {
	var n int32
	r, errno := dl.Call(l.getDeviceList, uintptr(unsafe.Pointer(&n)))
	list := pointer(r)
	if list == nil {
		if errno == syscall.ENOSYS { // the kernel has no RDMA subsystem
			return fn(nil, nil)
		}
		return &Error{Verb: "ibv_get_device_list", Errno: errno}
	}
	defer dl.Call(l.freeDeviceList, uintptr(list))
	devices := unsafe.Slice((*unsafe.Pointer)(list), n)
	names := make([]string, n)
	for i, d := range devices {
		name, _ := dl.Call(l.getDeviceName, uintptr(d))
		names[i] = dl.String(pointer(name))
	}
	return fn(devices, names)
}

// Devices names the RDMA devices of the machine. None is no error.
func (l *Lib) Devices() (names []string, err error) {
	err = l.withDevices(func(_ []unsafe.Pointer, all []string) error { names = all; return nil })
	return names, err
}

// noDevice says what was looked for and what there is.
func (l *Lib) noDevice(names []string, want string) error {
	looked := "any RDMA device"
	if want != "" {
		looked = "RDMA device " + want
	}
	found := "none"
	if len(names) > 0 {
		found = strings.Join(names, ", ")
	} else if entries, err := os.ReadDir(sysClass); err != nil || len(entries) == 0 {
		found = "none (" + sysClass + " is absent or empty)"
	} else {
		kernel := make([]string, len(entries))
		for i, e := range entries {
			kernel[i] = e.Name()
		}
		found = "none that " + l.lib.Name() + " has a driver for, of the kernel's " + strings.Join(kernel, ", ")
	}
	return fmt.Errorf("verbs: looked for %s, found %s: %w", looked, found, errs.ErrUnsupported)
}

// Open opens a device; the first one if no name is given.
func (l *Lib) Open(name string) (*Context, error) {
	var c *Context
	err := l.withDevices(func(devices []unsafe.Pointer, names []string) error {
		for i, d := range devices {
			if name != "" && names[i] != name {
				continue
			}
			r, errno := dl.Call(l.openDevice, uintptr(d))
			if r == 0 {
				return &Error{Verb: "ibv_open_device", Errno: errno, Detail: names[i]}
			}
			c = &Context{lib: l, Name: names[i], head: (*contextHead)(pointer(r))}
			return nil
		}
		return l.noDevice(names, name)
	})
	return c, err
}

// StatusText is the library's text for a status.
func (l *Lib) StatusText(s WCStatus) string {
	r, _ := dl.Call(l.wcStatusStr, uintptr(s))
	return dl.String(pointer(r))
}

// EventText is the library's text for an event.
func (l *Lib) EventText(e EventType) string {
	r, _ := dl.Call(l.eventTypeStr, uintptr(e))
	return dl.String(pointer(r))
}

// pointer is an address that C returned.
func pointer(r uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&r)) }
