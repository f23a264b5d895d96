package moe

import "goshmem/moe/internal/kernels"

// On makes options that use a runner instead of a GPU.
func (o DeviceOptions) On(r kernels.Runner) DeviceOptions {
	o.runner = r
	return o
}

// Far makes every other rank one on another device: rows go to them at a pace.
func (o DeviceOptions) Far(on bool) DeviceOptions {
	o.far = on
	return o
}
