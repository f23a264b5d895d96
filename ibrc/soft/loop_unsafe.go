package soft

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/ibrc"
)

// loop is the queue pair of a PE with itself: work requests are carried out when
// they are posted.
type loop struct {
	p     *Provider
	cfg   ibrc.QPConfig
	state ibrc.State
}

func (l *loop) Handle() []byte    { return []byte{handleVersion} }
func (l *loop) State() ibrc.State { return l.state }
func (l *loop) Destroy()          { l.state = ibrc.StateError }

func (l *loop) Connect([]byte) (bool, error) {
	l.state = ibrc.StateRTS
	return true, nil
}

// Post carries out work requests in order.
func (l *loop) Post(wrs []ibrc.WR) (int, error) {
	for i := range wrs {
		if err := l.carry(&wrs[i]); err != nil {
			return i, err
		}
	}
	l.p.told = append(l.p.told, ibrc.WC{Tag: l.cfg.Tag, ID: wrs[len(wrs)-1].ID})
	l.p.env.Knock(l.cfg.Local)
	return len(wrs), nil
}

func (l *loop) carry(wr *ibrc.WR) error {
	refused := &ibrc.StatusError{Op: wr.Op, Status: ibrc.StatusRemAccess}
	m := l.p.region(l.cfg.Local, uint16(wr.RKey))
	if l.state != ibrc.StateRTS || m == nil || m.mem.Check(wr.Remote, uint64(wr.Length)) != nil {
		return refused
	}
	local, remote := wr.Local, m.mem.At(wr.Remote)
	switch wr.Op {
	case ibrc.OpWrite:
		if local == nil {
			local = unsafe.Pointer(&wr.Operand)
		}
		store(remote, local, int(wr.Length))
		return nil
	case ibrc.OpRead:
		if wr.Length <= word8 {
			var b [word8]byte
			load(b[:wr.Length], remote)
			remote = unsafe.Pointer(&b)
		}
		store(local, remote, int(wr.Length))
		return nil
	}
	op, e := wr.AMO, wr.Elem
	switch wr.Op {
	case ibrc.OpFetchAdd:
		op, e = addOp, word
	case ibrc.OpCompareSwap:
		op, e = swapOp, word
	}
	if !op.IsAMO() || uintptr(remote)&uintptr(e.Size()-1) != 0 {
		return refused
	}
	old := channel.ApplyAMO(op, e, remote, wr.Operand, wr.Compare)
	if local != nil {
		channel.StoreElem(local, e.Size(), old)
	}
	return nil
}
