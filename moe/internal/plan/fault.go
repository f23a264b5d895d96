package plan

// Fault says, as plain data that fits a message head, why a rank cannot take
// part in a call. The zero Fault is none.
type Fault struct {
	Code    Code
	A, B, C int64 // what the code says
}

// Code is the kind of a Fault. The numbers travel between ranks.
type Code uint32

// The faults, and what A, B and C are.
const (
	None        Code = iota
	BadExpert        // token, k, the index
	Duplicate        // token, k of the second, the expert
	TooMany          // tokens, the most allowed
	TooManyRows      // receiving rank, rows, the most allowed
	BadArgument      // Argument, bytes or elements given, wanted
	Aliased          // Argument: it overlaps the receive buffer
	Stale            // the handle's slot was used again
	Foreign          // no handle or routing of this engine
	OtherCall        // rank, what it called, what was called here
	OtherPlan        // rank, the routing it used, the one used here
	Corrupt          // rank whose counts or records contradict themselves
	codes
)

// Known reports whether c is one of the codes.
func (c Code) Known() bool { return c < codes }

// Argument numbers for BadArgument.
const (
	ArgX int64 = iota
	ArgScales
	ArgIdx
	ArgWeights
	ArgY
	ArgBias
	ArgOut
)

// Calls, as a message head names them.
const (
	CallDispatch uint32 = 1 + iota
	CallCached
	CallCombine
)
