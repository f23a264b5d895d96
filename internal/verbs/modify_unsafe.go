package verbs

import (
	"fmt"
	"unsafe"

	"goshmem/internal/dl"
)

// Path is how a queue pair reaches its peer.
type Path struct {
	Port     int
	MTU      MTU
	DestQPN  uint32
	DestGID  GID
	DestLID  uint16
	SGID     int  // index in the local GID table
	Global   bool // by GID (RoCE always); else by LID alone
	SL       int  // service level, 0..15
	TC       int  // traffic class, 0..255
	RQPSN    uint32
	DestRd   int // READs and atomics taken as target
	RNRTimer int // code, 0..31
}

// Retry is how a queue pair sends.
type Retry struct {
	SQPSN    uint32
	Timeout  int // of an acknowledgement, 4.096 us x 2^Timeout; 0: none
	RetryCnt int // 0..7
	RNRRetry int // 0..7; 7: for ever
	RdAtomic int // READs and atomics under way
}

// ToInit goes from RESET to INIT.
func (q *QP) ToInit(port, pkeyIndex int, access Access) error {
	a := &qpAttr{qpState: int32(QPSInit), portNum: uint8(port), pkeyIndex: uint16(pkeyIndex), qpAccessFlags: uint32(access)}
	return q.modify(a, qpState|qpPkeyIndex|qpPort|qpAccessFlags,
		func() string {
			return fmt.Sprintf("to INIT, port %d, pkey index %d, access %#x", port, pkeyIndex, access)
		})
}

// ToRTR goes from INIT to RTR.
func (q *QP) ToRTR(p Path) error {
	a := &qpAttr{
		qpState: int32(QPSRTR), pathMTU: int32(p.MTU), destQPNum: p.DestQPN, rqPSN: p.RQPSN,
		maxDestRdAtomic: uint8(p.DestRd), minRNRTimer: uint8(p.RNRTimer),
		ahAttr: ahAttr{dlid: p.DestLID, sl: uint8(p.SL), portNum: uint8(p.Port)},
	}
	if p.Global {
		a.ahAttr.isGlobal = 1
		a.ahAttr.grh = globalRoute{dgid: p.DestGID, sgidIndex: uint8(p.SGID), hopLimit: 64, trafficClass: uint8(p.TC)}
	}
	return q.modify(a, qpState|qpAV|qpPathMTU|qpDestQPN|qpRQPSN|qpMaxDestRdAtomic|qpMinRNRTimer,
		func() string {
			return fmt.Sprintf("to RTR, port %d, gid index %d, mtu %d, sl %d, tc %d, to qp %#x, gid %v, lid %d",
				p.Port, p.SGID, p.MTU.Bytes(), p.SL, p.TC, p.DestQPN, p.DestGID, p.DestLID)
		})
}

// ToRTS goes from RTR to RTS.
func (q *QP) ToRTS(r Retry) error {
	a := &qpAttr{
		qpState: int32(QPSRTS), sqPSN: r.SQPSN, timeout: uint8(r.Timeout), retryCnt: uint8(r.RetryCnt),
		rnrRetry: uint8(r.RNRRetry), maxRdAtomic: uint8(r.RdAtomic),
	}
	return q.modify(a, qpState|qpTimeout|qpRetryCnt|qpRNRRetry|qpSQPSN|qpMaxRdAtomic,
		func() string {
			return fmt.Sprintf("to RTS, timeout %d, retries %d, rnr retries %d, %d reads and atomics", r.Timeout, r.RetryCnt, r.RNRRetry, r.RdAtomic)
		})
}

// ToError goes to ERR: what is posted completes with a flush error.
func (q *QP) ToError() error {
	return q.modify(&qpAttr{qpState: int32(QPSErr)}, qpState, func() string { return "to ERR" })
}

func (q *QP) modify(a *qpAttr, mask int, detail func() string) error {
	r, _ := dl.Call(q.pd.c.lib.modifyQP, uintptr(unsafe.Pointer(q.head)), uintptr(unsafe.Pointer(a)), uintptr(mask))
	if int32(r) == 0 {
		return nil
	}
	return fail("ibv_modify_qp", r, q.pd.c.Name+" qp "+fmt.Sprintf("%#x ", q.Num())+detail())
}

// State asks for the queue pair's state.
func (q *QP) State() (QPState, error) {
	a, init := new(qpAttr), new(qpInitAttr)
	r, _ := dl.Call(q.pd.c.lib.queryQP, uintptr(unsafe.Pointer(q.head)), uintptr(unsafe.Pointer(a)), qpState, uintptr(unsafe.Pointer(init)))
	return QPState(a.qpState), fail("ibv_query_qp", r, fmt.Sprintf("qp %#x", q.Num()))
}
