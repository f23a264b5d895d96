package ibrc

import (
	"fmt"

	"goshmem/internal/errs"
)

// Status of a work completion, numbered as in verbs.
type Status uint8

// The statuses.
const (
	StatusSuccess Status = iota
	StatusLocLen
	StatusLocQPOp
	StatusLocEECOp
	StatusLocProt
	StatusWRFlush
	StatusMWBind
	StatusBadResp
	StatusLocAccess
	StatusRemInvReq
	StatusRemAccess
	StatusRemOp
	StatusRetryExc
	StatusRNRRetryExc
	StatusLocRDDViol
	StatusRemInvRDReq
	StatusRemAbort
	StatusInvEECN
	StatusInvEECState
	StatusFatal
	StatusRespTimeout
	StatusGeneral

	numStatuses
)

var statusNames = [numStatuses]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
	"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
	"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

func (s Status) String() string {
	if s < numStatuses {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// StatusError is a work request that failed. The queue pair is in error.
type StatusError struct {
	Op     Opcode
	Status Status
	Detail string // the library's text, vendor code; may be empty
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%v: %v", e.Op, e.Status)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is matches ErrPeerLost where the peer no longer answers, ErrRange where it
// refused access.
func (e *StatusError) Is(t error) bool {
	switch e.Status {
	case StatusRetryExc, StatusRNRRetryExc, StatusRespTimeout, StatusRemAbort:
		return t == errs.ErrPeerLost
	case StatusRemAccess:
		return t == errs.ErrRange
	}
	return false
}
