package verbs

import "unsafe"

// The structures of verbs.h, as far as they are used, padding spelled out. The
// order of fields and all names are the header's.

type deviceAttr struct {
	fwVer          [64]byte
	nodeGUID       uint64
	sysImageGUID   uint64
	maxMRSize      uint64
	pageSizeCap    uint64
	vendorID       uint32
	vendorPartID   uint32
	hwVer          uint32
	maxQP          int32
	maxQPWR        int32
	deviceCapFlags uint32
	maxSGE         int32
	maxSGERd       int32
	maxCQ          int32
	maxCQE         int32
	maxMR          int32
	maxPD          int32
	maxQPRdAtom    int32
	maxEERdAtom    int32
	maxResRdAtom   int32
	maxQPInitRd    int32
	maxEEInitRd    int32
	atomicCap      int32
	_              [14]int32
	maxPkeys       uint16
	ackDelay       uint8
	physPortCnt    uint8
}

type portAttr struct {
	state, maxMTU, activeMTU int32
	gidTblLen                int32
	portCapFlags             uint32
	maxMsgSz                 uint32
	badPkeyCntr, qkeyViol    uint32
	pkeyTblLen               uint16
	lid, smLid               uint16
	lmc, maxVLNum, smSL      uint8
	subnetTimeout, initType  uint8
	activeWidth, activeSpeed uint8
	physState, linkLayer     uint8
	flags                    uint8
	portCapFlags2            uint16
}

type gidEntry struct {
	gid         GID
	gidIndex    uint32
	portNum     uint32
	gidType     uint32
	ndevIfindex uint32
}

type globalRoute struct {
	dgid         GID
	flowLabel    uint32
	sgidIndex    uint8
	hopLimit     uint8
	trafficClass uint8
	_            uint8
}

type ahAttr struct {
	grh         globalRoute
	dlid        uint16
	sl          uint8
	srcPathBits uint8
	staticRate  uint8
	isGlobal    uint8
	portNum     uint8
	_           uint8
}

type qpCap struct {
	maxSendWR, maxRecvWR, maxSendSGE, maxRecvSGE, maxInlineData uint32
}

type qpInitAttr struct {
	qpContext, sendCQ, recvCQ, srq unsafe.Pointer
	cap                            qpCap
	qpType                         uint32
	sqSigAll                       int32
	_                              uint32
}

type qpAttr struct {
	qpState, curQPState, pathMTU, pathMigState int32
	qkey, rqPSN, sqPSN, destQPNum              uint32
	qpAccessFlags                              uint32
	cap                                        qpCap
	ahAttr, altAHAttr                          ahAttr
	pkeyIndex, altPkeyIndex                    uint16
	enSqdAsyncNotify, sqDraining               uint8
	maxRdAtomic, maxDestRdAtomic               uint8
	minRNRTimer, portNum, timeout, retryCnt    uint8
	rnrRetry, altPortNum, altTimeout           uint8
	_                                          uint8
	rateLimit                                  uint32
	_                                          uint32
}

// The beginning of three of the library's objects.
type mrHead struct {
	context, pd, addr  unsafe.Pointer
	length             uint64
	handle, lkey, rkey uint32
}

type qpHead struct {
	context, qpContext, pd, sendCQ, recvCQ, srq unsafe.Pointer
	handle, qpNum                               uint32
}

type contextHead struct {
	device  unsafe.Pointer
	ops     [32]uintptr
	cmdFD   int32
	asyncFD int32
}

type compChannelHead struct {
	context unsafe.Pointer
	fd      int32
}

// Numbers of the operations used among contextHead.ops.
const (
	opPollCQ      = 11
	opReqNotifyCQ = 12
	opPostSend    = 25
	opPostRecv    = 26
)

type asyncEvent struct {
	element   uint64
	eventType int32
	_         uint32
}

type sge struct {
	addr   uint64
	length uint32
	lkey   uint32
}

type recvWR struct {
	id     uint64
	next   unsafe.Pointer
	sgList unsafe.Pointer
	numSGE int32
	_      uint32
}

// SendWR is a work request. What its opcode does not use is not read.
type SendWR struct {
	ID         uint64
	next       unsafe.Pointer
	sgList     unsafe.Pointer
	numSGE     int32
	Opcode     Opcode
	Flags      SendFlags
	imm        uint32
	RemoteAddr uint64
	arg        [3]uint64 // rdma: rkey; atomic: compare or add, swap, rkey
	_          [7]uint64
}

// WC is a work completion. If Status is not WCSuccess, only ID, VendorErr and
// QPNum mean anything beside it.
type WC struct {
	ID           uint64
	Status       WCStatus
	Opcode       WCOpcode
	VendorErr    uint32
	ByteLen      uint32
	imm          uint32
	QPNum        uint32
	srcQP        uint32
	wcFlags      uint32
	pkeyIndex    uint16
	slid         uint16
	sl           uint8
	dlidPathBits uint8
	_            uint16
}
