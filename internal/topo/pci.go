package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/pcidb"
)

const pciDevices = "sys/bus/pci/devices"

// pci lists the GPUs and network adapters.
func (r reader) pci() error {
	shown, err := r.entries(pciDevices)
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return errors.New("no devices")
	}
	// An empty database: names stay unknown, numbers are right, and no pci.ids
	// file is looked for, without which ghw fails. NUMA nodes are read below;
	// ghw leaves them out on machines with one.
	info, err := ghw.PCI(append(r.options(), ghw.WithPCIDB(&pcidb.PCIDB{}), ghw.WithDisableTopology())...)
	if err != nil {
		return err
	}
	if len(info.Devices) == 0 {
		return fmt.Errorf("none of %d devices could be read", len(shown))
	}
	for _, d := range info.Devices {
		dev := Device{
			Address: d.Address,
			Vendor:  d.Vendor.ID,
			Product: d.Product.ID,
			Class:   d.Class.ID + d.Subclass.ID,
			Driver:  d.Driver,
			Node:    r.deviceNode(d.Address),
		}
		dev.Kind = kindOf(dev.Class)
		for _, a := range d.Ancestors() {
			dev.Ancestors = append(dev.Ancestors, a.Address)
		}
		switch dev.Kind {
		case GPU:
			r.m.GPUs = append(r.m.GPUs, dev)
		case Ethernet, InfiniBand:
			dev.Names = append(r.names(dev.Address, "net"), r.names(dev.Address, "infiniband")...)
			r.m.NICs = append(r.m.NICs, dev)
		}
	}
	for _, list := range [][]Device{r.m.GPUs, r.m.NICs} {
		slices.SortFunc(list, func(a, b Device) int { return strings.Compare(a.Address, b.Address) })
	}
	return nil
}

// kindOf reads the PCI class code.
func kindOf(class string) DeviceKind {
	switch {
	case strings.HasPrefix(class, "03"), strings.HasPrefix(class, "12"):
		return GPU
	case class == "0207":
		return InfiniBand
	case strings.HasPrefix(class, "02"):
		return Ethernet
	}
	return OtherDevice
}

// deviceNode is the NUMA node; the kernel writes -1 where the firmware did not
// tell it.
func (r reader) deviceNode(address string) int {
	b, err := os.ReadFile(r.path(pciDevices, address, "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// names lists the devices of a class that the function carries. Some drivers
// (virtio) put a device of their own between.
func (r reader) names(address, class string) []string {
	var names []string
	for _, pattern := range []string{class, filepath.Join("virtio*", class)} {
		found, err := filepath.Glob(r.path(pciDevices, address, pattern, "*"))
		if err != nil {
			continue // the only error is a malformed pattern
		}
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	slices.Sort(names)
	return names
}
