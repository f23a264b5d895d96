package dl

// Frame is a call of a C function with up to four arguments, in memory that is
// not Go's, as what the arguments point to is.
type Frame struct {
	Fn     uintptr
	Args   [4]uintptr
	Result uintptr
}
