package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"goshmem/cmd/goshmem/internal/launch"
	"goshmem/cmd/goshmem/internal/mps"
	"goshmem/internal/options"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/cudadev"
)

// withGPUs is onGPUs for a job whose PEs have device heaps on GPUs, as the options
// say.
func withGPUs(cfg *launch.Config, log io.Writer) (stop func()) {
	r, err := options.Resolve(options.Values{}, append(os.Environ(), cfg.Env...))
	if err != nil || r.DeviceHeap == 0 {
		return func() {}
	}
	return onGPUs(cfg, log)
}

// onGPUs prepares a job on GPUs: connections to the devices, and an MPS daemon where
// PEs share a GPU that has none. stop ends the daemon.
func onGPUs(cfg *launch.Config, log io.Writer) (stop func()) {
	stop = func() {}
	if variable(*cfg, "GOSHMEM_DEVICE_DRIVER") == "host" {
		return stop
	}
	gpus := gpuCount()
	if gpus == 0 {
		return stop // joining will say why
	}
	each := (cfg.N + gpus - 1) / gpus
	if variable(*cfg, "CUDA_DEVICE_MAX_CONNECTIONS") == "" {
		cfg.Env = append(cfg.Env, mps.ConnectionsVariable(each))
	}
	if each < 2 && variable(*cfg, "GOSHMEM_DEVICE") == "" || cfg.N < 2 || mps.Running(func(k string) string { return variable(*cfg, k) }) {
		return stop
	}
	d, err := mps.Start()
	if err != nil {
		fmt.Fprintf(log, "goshmem: PEs share a GPU without MPS and take turns on it: %v\n", err)
		return stop
	}
	cfg.Env = append(cfg.Env, d.Env()...)
	return func() {
		if err := d.Stop(); err != nil {
			fmt.Fprintf(log, "goshmem: %v\n", err)
		}
	}
}

// variable is one of the PEs' environment.
func variable(cfg launch.Config, name string) string {
	for _, kv := range slices.Backward(cfg.Env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return os.Getenv(name)
}

func gpuCount() int {
	d, err := cudadev.Load()
	if err != nil {
		return 0
	}
	var all []device.Info
	if all, err = d.Devices(); err != nil {
		return 0
	}
	return len(all)
}
