package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unkillable is how long killed processes may take to end.
const unkillable = 10 * time.Second

// phase is how far the job has got on its way to its end.
type phase uint8

const (
	running     phase = iota
	ending            // one failed: the others may end by themselves
	terminating       // they were asked to
	killing           // they were killed
)

// policy decides. Its methods take what happened and return what is to be done,
// in order.
type policy struct {
	grace   time.Duration
	timeout time.Duration // only to name it
	phase   phase
	procs   []proc
	left    int   // processes that have not ended
	trouble []int // ranks, by the first sign of trouble of each
	told    int   // of trouble, how many have been reported
	blamed  bool  // the PE that decides the status has been reported

	interrupts int
	by         syscall.Signal // the first interrupt
	timedOut   bool
	broken     bool // output or launcher failed
}

// proc is one PE's process.
type proc struct {
	pid    int    // 0: not started yet
	on     string // " on " and its host, where there are several
	ended  bool
	status int    // as a shell has it
	how    string // as a person has it
	lost   string // why its world lost it
	byUs   bool   // terminated or killed by the launcher
}

// action is one thing to do.
type action struct {
	kind  actionKind
	ranks []int
	sig   syscall.Signal
	after time.Duration
	text  string
}

type actionKind uint8

const (
	actSignal  actionKind = iota // sig to the groups of ranks
	actArm                       // call timer after that time; replaces what was armed
	actSay                       // text
	actAbandon                   // leave what has not ended
)

func newPolicy(pids []int, grace, timeout time.Duration) *policy {
	p := &policy{grace: grace, timeout: timeout, left: len(pids), procs: make([]proc, len(pids))}
	for i, pid := range pids {
		p.procs[i].pid = pid
	}
	return p
}

// term is the time between SIGTERM and SIGKILL.
func (p *policy) term() time.Duration { return min(p.grace, 2*time.Second) }

// alive are the ranks whose processes have not ended.
func (p *policy) alive() []int {
	var v []int
	for r := range p.procs {
		if !p.procs[r].ended {
			v = append(v, r)
		}
	}
	return v
}

// exited: a process ended.
func (p *policy) exited(rank, status int, how string) []action {
	x := &p.procs[rank]
	x.ended, x.status, x.how = true, status, how
	p.left--
	var do []action
	if status != 0 && !x.byUs {
		do = p.fail(rank)
	}
	return append(do, p.report(p.left == 0)...)
}

// unstarted: these are not there, and never were.
func (p *policy) unstarted(ranks []int) []action {
	for _, r := range ranks {
		p.procs[r].byUs, p.procs[r].ended, p.procs[r].status = true, true, StatusFailed
		p.left--
	}
	return p.aborted()
}

// lost: the world lost a PE, for a cause.
func (p *policy) lost(rank int, cause string) []action {
	x := &p.procs[rank]
	if x.lost != "" {
		return nil
	}
	x.lost = cause
	if x.byUs {
		return nil
	}
	do := p.fail(rank)
	return append(do, p.report(p.left == 0)...)
}

// fail begins the end of the job.
func (p *policy) fail(rank int) []action {
	if !slices.Contains(p.trouble, rank) {
		p.trouble = append(p.trouble, rank)
	}
	if p.phase != running || p.left == 0 {
		return nil
	}
	p.phase = ending
	return []action{{kind: actArm, after: p.grace}}
}

// timer: what was armed has run out.
func (p *policy) timer() []action {
	if p.left == 0 {
		return nil
	}
	alive := p.alive()
	switch p.phase {
	case ending:
		do := p.report(true)
		do = append(do, say("%s: still running %v later, terminated", pes(alive), p.grace))
		return append(do, p.terminate(p.term())...)
	case terminating:
		return append([]action{say("%s: killed", pes(alive))}, p.kill()...)
	case killing:
		return []action{say("%s: cannot be killed", pes(alive)), {kind: actAbandon}}
	}
	return nil
}

// terminate asks all to end.
func (p *policy) terminate(wait time.Duration) []action {
	p.phase = terminating
	return []action{p.ours(syscall.SIGTERM), {kind: actArm, after: wait}}
}

// kill ends all.
func (p *policy) kill() []action {
	p.phase = killing
	return []action{p.ours(syscall.SIGKILL), {kind: actArm, after: unkillable}}
}

// ours is a signal whose consequences are not the processes' own doing.
func (p *policy) ours(sig syscall.Signal) action {
	alive := p.alive()
	for _, r := range alive {
		p.procs[r].byUs = true
	}
	return action{kind: actSignal, ranks: alive, sig: sig}
}

// signalled: the launcher got a signal. The first that asks for an end is passed
// on; the second kills; a third leaves what will not die.
func (p *policy) signalled(sig syscall.Signal) []action {
	if p.left == 0 {
		return nil
	}
	pass := action{kind: actSignal, ranks: p.alive(), sig: sig}
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP:
	default:
		return []action{pass}
	}
	p.interrupts++
	switch p.interrupts {
	case 1:
		p.by = sig
		do := []action{pass}
		if sig == syscall.SIGINT {
			do = append(do, say("interrupt passed on to the PEs; once more kills them"))
		}
		// Whoever sent the others may not be there to send them twice.
		if (sig == syscall.SIGTERM || sig == syscall.SIGHUP) && p.phase <= ending {
			p.phase = terminating
			do = append(do, action{kind: actArm, after: p.grace})
		}
		return do
	case 2:
		return p.kill()
	}
	return []action{{kind: actAbandon}}
}

// expired: the job's time is over.
func (p *policy) expired() []action {
	if p.left == 0 {
		return nil
	}
	p.timedOut = true
	do := []action{say("%s: timeout after %v", pes(p.alive()), p.timeout)}
	if p.phase <= ending {
		do = append(do, p.terminate(p.term())...)
	}
	return do
}

// aborted: the launcher cannot go on, because its output is gone or its caller
// has no more use for it.
func (p *policy) aborted() []action {
	p.broken = true
	if p.left == 0 || p.phase >= terminating {
		return nil
	}
	return p.terminate(p.term())
}

// report tells of the PEs in trouble, in order, up to the one that decides the
// status. One that has not ended yet is waited for, since how it ended says
// more than its loss; unless now.
func (p *policy) report(now bool) []action {
	var do []action
	for !p.blamed && p.told < len(p.trouble) {
		r := p.trouble[p.told]
		x := &p.procs[r]
		if !x.ended && !now {
			break
		}
		p.told++
		p.blamed = x.status != 0 && !x.byUs
		do = append(do, say("pe %d (process %d%s): %s", r, x.pid, x.on, x.story()))
	}
	return do
}

// story is how a process in trouble fared.
func (x *proc) story() string {
	switch {
	case !x.ended:
		return "lost: " + x.lost
	case x.status == 0:
		return "ended without leaving its world by Close: " + x.lost
	case x.byUs:
		return "lost: " + x.lost + "; then " + x.how
	}
	return x.how
}

// exitStatus is the job's.
func (p *policy) exitStatus() int {
	if p.timedOut {
		return StatusTimeout
	}
	for _, r := range p.trouble {
		if x := &p.procs[r]; x.status != 0 && !x.byUs {
			return x.status
		}
	}
	if p.by != 0 && p.phase == killing {
		return statusSignal + int(p.by)
	}
	for _, r := range p.trouble {
		if x := &p.procs[r]; x.status != 0 {
			return x.status
		}
	}
	if p.left > 0 || p.broken || slices.ContainsFunc(p.procs, func(x proc) bool { return x.status != 0 }) {
		return StatusFailed
	}
	return 0
}

func say(format string, args ...any) action {
	return action{kind: actSay, text: fmt.Sprintf(format, args...)}
}

// pes names ranks: "pe 1", "pes 0, 2".
func pes(ranks []int) string {
	var v []string
	for i, r := range ranks {
		if i == 16 {
			v = append(v, fmt.Sprintf("and %d more", len(ranks)-i))
			break
		}
		v = append(v, strconv.Itoa(r))
	}
	if len(ranks) == 1 {
		return "pe " + v[0]
	}
	return "pes " + strings.Join(v, ", ")
}
