// Package launch runs a program as the PEs of one world: n processes of this
// host, or of several, the rendezvous they meet at, their output, and their end.
//
// The launcher holds the bootstrap's hub, so it learns of losses and goodbyes as
// the PEs do, and tells the hub of every process that ended. Each PE is the
// leader of a process group of its own: signals go to the group, and what is left
// of a group is killed when its leader ends. The kernel kills the leaders when
// the launcher dies (PR_SET_PDEATHSIG); what a leader that is only a wrapper
// started then finds its world closed.
//
// With hosts, an agent on each (Agent, a crew of its own) starts the PEs; the
// launcher has a post for each host, and a remote in place of each child. They
// talk in lines of JSON over the agent's standard input and output (wire.go);
// output and input underway are bounded by windows, so that neither side waits
// for the other with anything else.
//
// What to do about an end, a loss, a signal or a deadline is decided by policy,
// which is plain data and knows neither clock nor process; Run carries it out,
// in one goroutine that alone signals and reaps.
//
//	running      a PE fails or is lost  -> ending: the others have the grace
//	             period to see ErrPeerLost and to end by themselves
//	ending       the period is over     -> terminating: SIGTERM
//	terminating  a little later         -> killing: SIGKILL
//
// The exit status is that of the PE that failed first: the first to be lost or
// to end with a status other than 0, and not because of the launcher.
package launch
