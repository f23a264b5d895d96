package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"

	"goshmem/internal/bootstrap"
	"goshmem/internal/options"
)

// beginOnHosts starts an agent on each host; the PEs come in their own time.
func (j *job) beginOnHosts(ctx context.Context, env []string, vals options.Values, log *slog.Logger) error {
	agent, tool := j.cfg.Agent, j.cfg.Remote
	if agent == "" {
		agent = DefaultAgent
	}
	if tool == "" {
		var err error
		if tool, err = os.Executable(); err != nil {
			return fmt.Errorf("launch: this tool's own path: %w", err)
		}
	}
	dir := j.cfg.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
	}
	words := agentCommand(agent, "", tool)
	if _, err := exec.LookPath(words[0]); err != nil {
		return &StartError{Program: words[0], Err: errors.Unwrap(err)}
	}
	addrs, err := j.meetHosts(ctx, vals, log)
	if err != nil {
		return err
	}
	j.policy = newPolicy(make([]int, j.cfg.N), j.cfg.Grace, j.cfg.Timeout)
	j.procs = make([]handle, j.cfg.N)
	j.starter = newStarter()
	for i, host := range j.cfg.Hosts {
		p := &post{
			j: j, index: i, host: host, in: newWindow(inputAhead), over: make(chan struct{}),
			job: assignment{
				Ranks: j.cfg.blocks[i], Size: j.cfg.N, Rendezvous: addrs[i], Secret: j.meeting.secret,
				Program: j.cfg.Program, Args: j.cfg.Args, Env: j.hostEnv(env), Dir: dir, Bind: j.cfg.Bind,
				HasInput: j.cfg.Stdin != nil, Heartbeat: j.meeting.cfg.Heartbeat, Deadline: j.meeting.cfg.FailureDeadline,
			},
		}
		for _, r := range p.job.Ranks {
			x := &remote{post: p, rank: r, quiet: make(chan struct{})}
			x.loud.Store(2)
			p.procs = append(p.procs, x)
			j.procs[r] = x
			j.policy.procs[r].on = " on " + host
		}
		if err := p.begin(agentCommand(agent, host, tool), vals.JoinTimeout); err != nil {
			return errors.Join(&StartError{Program: words[0], Err: err}, j.end())
		}
		j.posts = append(j.posts, p)
	}
	j.input = sendInput(j.cfg.Stdin, inputTo{j.posts[0]})
	return nil
}

// meetHosts opens the rendezvous, and gives the address for each host.
func (j *job) meetHosts(ctx context.Context, vals options.Values, log *slog.Logger) (addrs []string, err error) {
	if j.cfg.Rendezvous != "" {
		j.meeting, err = j.meetAt(vals, log)
		return slices.Repeat([]string{j.cfg.Rendezvous}, len(j.cfg.Hosts)), err
	}
	l, addrs, bound, err := bootstrap.ListenFacing(ctx, hostNames(j.cfg.Hosts), vals.Interface, 0)
	if err != nil {
		return nil, err
	}
	said := map[string]bool{}
	for i, b := range bound {
		if text := fmt.Sprintf("the PEs meet at %s (%v)", addrs[i], b); !said[addrs[i]] {
			said[addrs[i]] = true
			j.say(text)
		}
	}
	j.meeting, err = meetAt(l, addrs[0], j.cfg.N, vals, log, j.worldEvent)
	return addrs, err
}

// hostNames drops the users of an agent's hosts.
func hostNames(hosts []string) []string {
	names := slices.Clone(hosts)
	for i, h := range names {
		names[i] = h[strings.LastIndexByte(h, '@')+1:]
	}
	return names
}

// hostEnv is what goes along to other hosts: our options, and what was asked for.
func (j *job) hostEnv(env []string) []string {
	own := slices.DeleteFunc(slices.Clone(env[:len(env)-len(j.cfg.Env)]), func(kv string) bool { return !strings.HasPrefix(kv, options.Prefix) })
	return append(own, j.cfg.Env...)
}

// hearPost: an agent has started its PEs, or could not.
func (j *job) hearPost(h happening) {
	p := h.post
	p.mu.Lock()
	pids, failed := p.pids, p.failed
	p.mu.Unlock()
	if failed != nil {
		if j.notStart == nil {
			j.notStart = failed
		}
		j.do(j.policy.unstarted(p.job.Ranks))
		for _, r := range p.job.Ranks {
			j.meeting.gone(r, "not started")
		}
		return
	}
	for i, r := range p.job.Ranks {
		j.policy.procs[r].pid = pids[i]
		j.verbose("pe %d (process %d on %s): started", r, pids[i], p.host)
	}
}

// sayOf passes on what the way to a host says.
func (j *job) sayOf(p *post, text string) {
	_ = j.err.write(agents-p.index, "["+p.host+"] ", []byte(text+"\n")) // else there is nowhere to say it
}

// inputTo is the input of the host that has rank 0.
type inputTo struct{ p *post }

func (w inputTo) Write(b []byte) (int, error) {
	if !w.p.in.take(len(b)) {
		return 0, io.ErrClosedPipe
	}
	w.p.mail.push(order{Input: slices.Clone(b)})
	return len(b), nil
}

func (w inputTo) Close() error {
	w.p.mail.push(order{InputEnd: true})
	return nil
}
