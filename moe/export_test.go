package moe

import "goshmem/moe/internal/kernels"

// On makes options that use a runner instead of a GPU.
func (o DeviceOptions) On(r kernels.Runner) DeviceOptions {
	o.runner = r
	return o
}
