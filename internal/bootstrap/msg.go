package bootstrap

import (
	"fmt"

	"goshmem/internal/errs"
)

// kind of a message between a member and its hub.
type kind uint8

const (
	kindChallenge  kind = 1 + iota // hub → member: nonce
	kindHello                      // member → hub: src, size, pid, host, nonce, mac
	kindWelcome                    // hub → member: holder, times, mac
	kindRefuse                     // hub → member: code, text
	kindHeartbeat                  // both ways
	kindGather                     // member → hub: call, tag, group, gseq, blob
	kindGiveUp                     // member → hub: call, tag, group, gseq, code (giveUp…)
	kindResult                     // hub → member: call, blobs
	kindFailed                     // hub → member: call, fail
	kindMessage                    // both ways: src, dst, blob
	kindCredit                     // both ways: src, dst, n
	kindLost                       // hub → member: src is lost; member → hub: the hub is
	kindGoodbye                    // member → hub: I leave; hub → member: src left
	kindJoined                     // hub → member: peers
	kindJoinFailed                 // hub → member: fail (join deadline)
	kindAskMissing                 // member → hub: who has not joined?
	kindMissing                    // hub → member: missing
	kindHubBye                     // hub → member: the hub closes in order
	kindAccuse                     // member → hub: my connection to dst broke, or I (dst) give up, for text
	kindEnd
)

// msg is a message in memory. Which fields count depends on the kind; a message
// given to a sink is never changed again, for it may be shared by several.
type msg struct {
	kind     kind
	src, dst int

	call, gseq, n uint64
	code          uint8
	tag, text     string
	group         []int
	blob          []byte
	blobs         [][]byte
	fail          *failure
	missing       []int
	peers         []Peer
	hello         *hello
	welcome       *welcome
	nonce         [nonceSize]byte // of a challenge
}

const (
	nonceSize = 32
	macSize   = 32
)

type hello struct {
	size  int
	pid   int
	host  string
	nonce [nonceSize]byte
	mac   [macSize]byte
}

type welcome struct {
	holder              int
	heartbeat, deadline uint64 // nanoseconds
	mac                 [macSize]byte
}

// Why a member gave up a gather.
const (
	giveUpTimeout uint8 = 1 + iota
	giveUpCancel
)

// Kinds of failures of a gather or a join.
const (
	failLost uint8 = 1 + iota
	failClosed
	failTimeout // pe gave up at its deadline
	failAborted // pe was cancelled
	failJoin    // the join deadline passed
	failCrowd   // the hub holds too many gathers
	failEnd
)

// failure is an error that can travel.
type failure struct {
	kind    uint8
	pe      int
	cause   string
	missing []int
	want    int // members of the group
}

// err is the failure as the member with this rank sees it.
func (f *failure) err(rank int) error {
	switch f.kind {
	case failLost:
		return &errs.PeerLostError{PE: f.pe, Cause: f.cause}
	case failClosed:
		return &errs.ClosedError{PE: f.pe}
	case failJoin:
		err := timeoutError("all ranks to join", f.want, f.missing)
		if f.cause != "" {
			return fmt.Errorf("%w; a process was refused: %s", err, f.cause)
		}
		return err
	case failTimeout:
		what := "the group"
		if f.pe != rank {
			what = fmt.Sprintf("the group (pe %d gave up)", f.pe)
		}
		return timeoutError(what, f.want, f.missing)
	case failAborted:
		return &AbortedError{PE: f.pe, Missing: f.missing}
	}
	return fmt.Errorf("over %d gathers at once: %w", maxGathers, errs.ErrCapacity)
}

func timeoutError(what string, want int, missing []int) *errs.TimeoutError {
	e := &errs.TimeoutError{What: what, PE: -1, Missing: missing}
	if want > 0 {
		e.Want, e.Have = uint64(want), uint64(want-len(missing))
	}
	return e
}
