package cuda

import "unsafe"

// Graph is captured work, GraphExec one ready to be launched.
type (
	Graph     uintptr
	GraphExec uintptr
)

// CaptureMode says which unsafe calls a capture forbids.
type CaptureMode uint32

// The capture modes.
const (
	CaptureGlobal  CaptureMode = 0
	CaptureThread  CaptureMode = 1
	CaptureRelaxed CaptureMode = 2
)

// StreamBeginCapture makes what is enqueued in s part of a graph, until
// StreamEndCapture.
func (l *Lib) StreamBeginCapture(s Stream, m CaptureMode) error {
	return l.call(fStreamBeginCapture, uintptr(s), uintptr(m))
}

// StreamEndCapture ends a capture.
func (l *Lib) StreamEndCapture(s Stream) (Graph, error) {
	var g Graph
	err := l.call(fStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(&g)))
	return g, err
}

// StreamIsCapturing reports whether s is being captured.
func (l *Lib) StreamIsCapturing(s Stream) (bool, error) {
	var v uint32
	err := l.call(fStreamIsCapturing, uintptr(s), uintptr(unsafe.Pointer(&v)))
	return v != 0, err
}

// ThreadExchangeStreamCaptureMode sets the OS thread's mode and returns the one
// before.
func (l *Lib) ThreadExchangeStreamCaptureMode(m CaptureMode) (CaptureMode, error) {
	err := l.call(fThreadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(&m)))
	return m, err
}

// GraphInstantiate makes a graph ready.
func (l *Lib) GraphInstantiate(g Graph) (GraphExec, error) {
	var e GraphExec
	err := l.call(fGraphInstantiate, uintptr(unsafe.Pointer(&e)), uintptr(g), 0)
	return e, err
}

// GraphLaunch enqueues a graph.
func (l *Lib) GraphLaunch(e GraphExec, s Stream) error {
	return l.call(fGraphLaunch, uintptr(e), uintptr(s))
}

// GraphDestroy and GraphExecDestroy end them.
func (l *Lib) GraphDestroy(g Graph) error { return l.call(fGraphDestroy, uintptr(g)) }

// GraphExecDestroy is the other one.
func (l *Lib) GraphExecDestroy(e GraphExec) error { return l.call(fGraphExecDestroy, uintptr(e)) }
