// Package hostdev is the device driver over host memory, for machines without a
// device: its devices are parts of this process, their memory is host memory and
// their streams are ordered queues, each served by a goroutine. What runs on it
// runs on a GPU, but for speed; see package device.
package hostdev
