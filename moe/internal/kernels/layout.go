package kernels

import (
	"goshmem/moe/internal/plan"
)

// Ctx is what the kernels of a slot know: struct Ctx of kernels.cu, field by field.
type Ctx struct {
	Rank, Ranks, Experts, TopK, Hidden                                                       int64
	RowBytes, ScaleBytes, YSize, ShareSize                                                   int64
	ExpertMajor, AtExpert, Align                                                             int64
	MaxTokens, RowCap, RecordCap                                                             int64
	InFlight, Slots                                                                          int64
	First, Locals                                                                            int64
	Heads, HeadBytes, Flags                                                                  int64
	Rows, Scales, Source, Token, Choice, Local, Weight, PairStart, PairWeight, PairRow, Back int64
	Engine, PerToken, Arrive                                                                 int64
	Peers, Owner, OwnLocal, Work, WorkStride, State, All, Stop, Report, Send, Pulled         uint64
	Limit                                                                                    uint64
	RIdx, RW, RCode, RRec, RRow, RPair, RN, RList, RListW, RInv, RTo, RFrom, RCounts         int64
	ROffsets                                                                                 int64
}

// Slot is what the device knows of a slot: struct Slot of kernels.cu.
type Slot struct {
	Ctx
	Peers, Far [NearPeers]uint64 // the first of Ctx.Peers
	State      [StateWords]uint64
}

// Stage is what the device knows of a slot whose rows go by way of the host: struct
// Stage of kernels.cu.
type Stage struct {
	Box, Posted                       uint64
	X, Scales, Idx, W, Back           uint64
	Moves, Passes, List, ListW, ListN uint64
	Call, Gen, Combined, Exits        uint64
}

// Words of a box, in which the device posts a call and the host answers.
const (
	BSeq = iota // of the call, counted over all slots: from here on it is posted
	BKind
	BTokens
	BGen
	BRouting
	BCode
	BA
	BB
	BC
	BDone    // the latest call that was answered
	BRefused // it came to nothing
	BPlanned // the latest call of which is known what goes where, or that it was refused
	BMoves   // rows to send: so many
	BRows    // where rows from other nodes have arrived, and their scales
	BScales
	BLanded // of these so many are to be fetched,
	BPassed // then so many passed on,
	BBlank  // and so many left zero
	BPieces // what else a dispatch has brought: so many of PieceWords from BTable on
	BSums   // tokens that a combine gives
	BTable  = 24

	PieceWords = 3 // to, from, bytes
	mostPieces = 16
	BoxWords   = BTable + mostPieces*PieceWords
)

// Move is rows to be moved: struct Move of kernels.cu.
type Move struct {
	To, N     int32
	From, Row int64
}

// Layout is the sizes that follow from an engine's parameters.
type Layout struct {
	Ctx      Ctx   // the offsets, the same in every slot
	Slot     int64 // symmetric memory of a slot
	Routing  int64 // of a routing
	Work     int64 // of the workspace
	Report   int64 // pinned memory of a slot
	SendRoom int64 // of the copy engine's mover: rows to be sent
	PullRoom int64 // results fetched
	OutRows  int64 // the most rows of a combine's input
}

// State and report are words.
const (
	StateBroken  = 4 // a word of the state
	StateWords   = 10
	NearPeers    = 64
	ReportHead   = 16
	flagKinds    = 4
	HeadWords    = 8 // at the start of a routing
	maxStages    = 8
	moverWarps   = 4
	sharedWords  = moverWarps*maxStages + 9 // beside a Slot
	alignedLine  = 128
	stageMost    = 8 << 10
	sharedMost   = 200 << 10
	Threads      = 512
	WaitThreads  = 128
	warpsInBlock = Threads / 32
)

// Words of a report.
const (
	WGen = iota
	WCode
	WPE
	WA
	WB
	WC
	WRecords
	WRows
	WPairs
	WLast
)

// TimedOut is the code of a wait that ended without what it waited for; the other
// codes are plan's.
const TimedOut = 100

// Kinds of flags.
const (
	FlagHead = iota
	FlagData
	FlagReady
	FlagDone
)

// LastPart is the number of the last part of a dispatch.
const LastPart = 255

// Options of moe_dispatch and moe_combine.
const (
	OptCached = 1 << iota
	OptWait
	OptBulk
	OptEngine
	OptOwnBias
	OptDrain
)

// What moe_offer does.
const (
	OfferNothing = iota
	OfferSums
	OfferCopies
)

// Slots is how many slots an engine has: of the direct mover one more than results in
// flight, so that the slot of the next dispatch is nobody's.
func Slots(p *plan.Params, engine bool) int64 { return int64(p.Slots) + 1 - bit(engine) }

// Measure computes a layout. sz is plan's, engine whether copy engines move, blocks
// the most blocks of a launch that keeps counters.
func Measure(p *plan.Params, sz *plan.Sizes, rank int, engine bool, blocks int) Layout {
	o := plan.NewOwners(p.Ranks, p.Experts)
	first, end := o.Block(rank)
	l := Layout{}
	c := &l.Ctx
	*c = Ctx{
		Rank: int64(rank), Ranks: int64(p.Ranks), Experts: int64(p.Experts), TopK: int64(p.TopK), Hidden: p.Hidden,
		RowBytes: p.RowBytes, ScaleBytes: p.ScaleBytes, YSize: p.YBytes, ShareSize: p.PartialBytes,
		ExpertMajor: bit(p.ExpertMajor), AtExpert: bit(p.AtExpert), Align: p.Alignment,
		MaxTokens: p.MaxTokens, RowCap: sz.RowCap, RecordCap: sz.RecordCap,
		InFlight: int64(p.Slots), Slots: Slots(p, engine),
		First: int64(first), Locals: int64(end - first),
		Engine: bit(engine), PerToken: 1,
	}
	_, most := o.Block(0) // the first rank owns most
	perRank := int64(min(p.TopK, most))
	pairs := sz.RecordCap * perRank
	back, backBytes := sz.RecordCap, p.Hidden*p.PartialBytes
	if !p.AtExpert {
		backBytes = p.Hidden * p.YBytes
		back = pairs
		if p.ExpertMajor && !engine {
			back = sz.RowCap
		}
		c.PerToken = perRank
	}
	l.OutRows = pairs
	if p.ExpertMajor {
		l.OutRows = sz.RowCap
	}
	if engine {
		back = c.Ranks * p.MaxTokens * c.PerToken
	}
	var a area
	c.HeadBytes = up(headFixed+4*(2*c.Ranks+c.Experts), 64)
	c.Flags = a.take(flagKinds*c.Ranks, 8)
	c.Heads = a.take(2*c.Ranks, c.HeadBytes)
	c.Source = a.take(sz.RowCap, 4)
	c.Token = a.take(sz.RowCap, 4)
	per := c.TopK
	if p.ExpertMajor {
		per = 1
		c.Choice = a.take(sz.RowCap, 4)
		c.PairRow = a.take(pairs, 8)
	}
	c.Local = a.take(sz.RowCap*per, 4)
	c.Weight = a.take(sz.RowCap*per, 4)
	c.PairStart = a.take(sz.RecordCap+1, 8)
	c.PairWeight = a.take(pairs, 4)
	c.Rows = a.take(sz.RowCap, c.RowBytes)
	c.Scales = a.take(sz.RowCap, c.ScaleBytes)
	c.Back = a.take(back, backBytes)
	if engine {
		c.Arrive = a.take(c.Ranks*p.MaxTokens, c.RowBytes)
	}
	l.Slot = a.end

	choices := p.MaxTokens * c.TopK
	var r area
	r.take(HeadWords, 8)
	c.RIdx = r.take(choices, 4)
	c.RW = r.take(choices, 4)
	c.RCode = r.take(choices, 4)
	c.RRec = r.take(choices, 8)
	c.RRow = c.RRec
	if p.ExpertMajor {
		c.RRow = r.take(choices, 8)
	}
	c.RPair = r.take(choices, 8)
	c.RN = r.take(p.MaxTokens, 4)
	c.RList = r.take(choices, 8)
	c.RListW = r.take(choices, 4)
	c.RTo = r.take(c.Ranks, 8)
	c.RFrom = r.take(c.Ranks+1, 8)
	c.RCounts = r.take(c.Locals, 8)
	c.ROffsets = r.take(c.Locals+1, 8)
	if engine {
		c.RInv = r.take(c.Ranks*p.MaxTokens, 4)
		l.SendRoom = c.Ranks * p.MaxTokens * c.RowBytes
		l.PullRoom = back * backBytes
	}
	l.Routing = r.end

	counters := 2*c.Ranks + c.Experts
	c.WorkStride = uint64(up(counters*4, 8) + 8 + 8*(counters+c.Experts+4*c.Ranks))
	l.Work = int64(c.WorkStride) * int64(blocks)
	l.Report = 8 * (ReportHead + c.Ranks + 1 + 2*c.Locals + 1)
	return l
}

const headFixed = plan.ShortHead

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func up(a, unit int64) int64 { return (a + unit - 1) / unit * unit }

// area deals out memory by lines.
type area struct{ end int64 }

func (a *area) take(n, size int64) int64 {
	at := a.end
	a.end = up(at+n*size, alignedLine)
	return at
}

// SharedBase is the shared memory that every kernel with a Ctx takes.
const SharedBase = (slotBytes + 8*sharedWords + alignedLine - 1) / alignedLine * alignedLine

// Stages divides shared memory into room for pieces of rows that are under way: the
// length of a piece and how many a mover warp has.
func Stages(rowBytes int64) (stage, stages int64) {
	pieces := (rowBytes + stageMost - 1) / stageMost
	stage = up((rowBytes+pieces-1)/pieces, 16)
	stages = min(maxStages, (sharedMost-SharedBase)/moverWarps/up(stage, 16))
	return stage, max(stages, 4) // three are always on their way out
}

// LinkRate is what a link between devices takes in one direction before it takes less,
// in bytes a nanosecond: measured on NVLink with 18 links (docs/perf/moe-gpu.md).
const LinkRate = 355

// smRate is what one multiprocessor stores to each of two places.
const smRate = 25

// Interval is how many nanoseconds lie between two pieces of stage bytes that a warp
// sends to other devices, of the movers' half in each of so many blocks of sharing PEs
// on a device. 0: they are too few to press too hard.
func Interval(stage int64, blocks, sharing int) int64 {
	if int64(blocks)*int64(sharing)*smRate <= LinkRate {
		return 0
	}
	return max(stage*moverWarps/2*int64(blocks)*int64(sharing)/LinkRate, 1)
}

// DispatchShared is the shared memory of a dispatch.
func DispatchShared(stage, stages int64) uint32 {
	return uint32(SharedBase + up(stage, 16)*stages*moverWarps)
}

// What a combine by bulk copies takes beyond SharedBase: barriers, and a ring for
// each warp.
const (
	fetchStages = 6
	fetchPiece  = 2048
	FetchShared = SharedBase + 1024 + warpsInBlock*fetchStages*fetchPiece
	FetchTopK   = 32 // the most choices
)

// SharedMost is the most shared memory that a kernel here asks for.
const SharedMost = sharedMost
