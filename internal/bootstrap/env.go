package bootstrap

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"goshmem/internal/errs"
)

// Own variables of a launch.
const (
	EnvRank       = "GOSHMEM_RANK"
	EnvSize       = "GOSHMEM_SIZE"
	EnvLocalRank  = "GOSHMEM_LOCAL_RANK"
	EnvLocalSize  = "GOSHMEM_LOCAL_SIZE"
	EnvRendezvous = "GOSHMEM_RENDEZVOUS"
	EnvSecret     = "GOSHMEM_SECRET"      // hexadecimal
	EnvSecretFile = "GOSHMEM_SECRET_FILE" // a file that holds it
	EnvHub        = "GOSHMEM_HUB"         // "launcher" or "rank0" (also when empty)

	envPMIFD    = "PMI_FD"
	hubLauncher = "launcher"
	hubRank0    = "rank0"
)

// Names of the sources of a launch.
const (
	SourceOwn      = "goshmem"
	SourceOpenMPI  = "openmpi"
	SourcePMIx     = "pmix"
	SourceHydra    = "hydra" // PMI-1, whoever speaks it
	SourceSlurm    = "slurm"
	SourcePALS     = "pals"
	SourceFlux     = "flux"
	SourceTorchrun = "torchrun"
	SourceLWS      = "leaderworkerset" // of Kubernetes
	SourceKube     = "kubernetes"      // an indexed job
)

// Launch is what the environment says of this process's place in its job.
type Launch struct {
	Rank, Size           int
	LocalRank, LocalSize int
	Rendezvous           string // an address for Listen and Dial; may be empty when Size is 1, or with PMIFD
	PMIFD                int    // descriptor of the PMI-1 server that the rendezvous is found by; 0: none
	Secret               []byte
	Source               string // who said it: one of the Source names
	HubExternal          bool   // the launcher holds the hub
}

// ErrNoPlace is what Detect finds where the environment tells a rendezvous, but no
// rank: all that is needed by who knows its rank otherwise.
var ErrNoPlace = fmt.Errorf("%s is set, but neither %s and %s nor a launcher's variables are: %w", EnvRendezvous, EnvRank, EnvSize, errs.ErrConfig)

// Detect reads a launch from the environment: the own variables, else those of
// Open MPI, PMI-1 (Hydra), Slurm, PALS, Flux, torchrun or Kubernetes. found is
// false, without an error, where there is none. Sources that disagree on rank or
// size, and variables that are malformed or incomplete, are errs.ErrConfig and
// name the variables.
//
// Without GOSHMEM_RENDEZVOUS the job of a foreign launcher meets, on one host, at
// an abstract socket whose name is derived from the user and the launcher's name
// for the job, or else its process. Over several hosts it meets where PMI tells,
// else at a port derived from the job's name on the first host of the node list
// or on the one that the launcher names as the master.
func Detect(getenv func(string) string) (l Launch, found bool, err error) {
	return detect(getenv, procfs("/proc"), os.Getppid())
}

func detect(getenv func(string) string, proc procfs, parent int) (l Launch, found bool, err error) {
	defer func() {
		if err != nil {
			l, found, err = Launch{}, false, fmt.Errorf("bootstrap: environment: %w", err)
		}
	}()
	var seen []source
	for _, s := range sources() {
		if !s.present(getenv) {
			continue
		}
		rank, size, err := readSource(getenv, s)
		if err != nil {
			return l, false, err
		}
		for _, other := range seen {
			if err := agree(getenv, other, s); err != nil {
				return l, false, err
			}
		}
		seen = append(seen, s)
		if l.Size == 0 && s.size != "" {
			l.Rank, l.Size, l.Source = rank, size, s.name
		}
	}
	if len(seen) == 0 {
		if getenv(EnvRendezvous) != "" {
			return l, false, ErrNoPlace
		}
		return l, false, nil
	}
	at := slices.IndexFunc(seen, func(s source) bool { return s.name == l.Source })
	if at < 0 {
		return l, false, fmt.Errorf("%s is set, but nothing tells the job's size: set %s, %s and %s: %w", seen[0].rank, EnvRank, EnvSize, EnvRendezvous, errs.ErrConfig)
	}
	if err := readLocal(getenv, seen, seen[at], &l); err != nil {
		return l, false, err
	}
	if l.Secret, err = ReadSecret(getenv(EnvSecret), getenv(EnvSecretFile)); err != nil {
		return l, false, err
	}
	if err := readRendezvous(getenv, seen, seen[at], &l, proc, parent); err != nil {
		return l, false, err
	}
	return l, true, nil
}

// number reads a variable as a number in lo..hi.
func number(getenv func(string) string, name string, lo, hi int) (int, error) {
	s := getenv(name)
	v, err := strconv.Atoi(s)
	if err != nil || v < lo || v > hi || s[0] == '+' {
		return 0, fmt.Errorf("%s=%.64q is not a number in %d..%d: %w", name, s, lo, hi, errs.ErrConfig)
	}
	return v, nil
}

func readSource(getenv func(string) string, s source) (rank, size int, err error) {
	size = MaxSize
	for _, name := range []string{s.rank, s.size} {
		if name != "" && getenv(name) == "" {
			return 0, 0, fmt.Errorf("%s is not set, other variables of %s are: %w", name, s.name, errs.ErrConfig)
		}
	}
	if s.size != "" {
		if size, err = number(getenv, s.size, 1, MaxSize); err != nil {
			return 0, 0, err
		}
	}
	if rank, err = number(getenv, s.rank, 0, MaxSize-1); err != nil {
		return 0, 0, err
	}
	if rank >= size {
		return 0, 0, fmt.Errorf("%s=%d is not under %s=%d: %w", s.rank, rank, s.size, size, errs.ErrConfig)
	}
	return rank, size, nil
}

// agree compares two sources that are each well-formed.
func agree(getenv func(string) string, a, b source) error {
	for _, p := range [][2]string{{a.rank, b.rank}, {a.size, b.size}} {
		if p[0] == "" || p[1] == "" {
			continue
		}
		x, _ := strconv.Atoi(getenv(p[0]))
		y, _ := strconv.Atoi(getenv(p[1]))
		if x != y {
			return fmt.Errorf("%s=%d but %s=%d: %w", p[0], x, p[1], y, errs.ErrConfig)
		}
	}
	return nil
}

// readLocal reads the place among the PEs of the host, from the first source that
// tells it. LocalSize is 0 where nobody tells and there are several hosts.
func readLocal(getenv func(string) string, seen []source, from source, l *Launch) (err error) {
	l.LocalRank, l.LocalSize = l.Rank, l.Size
	for _, s := range append([]source{from}, seen...) {
		if s.localSize == "" || getenv(s.localSize) == "" {
			continue
		}
		if l.LocalSize, err = number(getenv, s.localSize, 1, l.Size); err != nil {
			return err
		}
		if l.LocalSize < l.Size {
			l.LocalRank = 0
		}
		if s.localRank != "" && getenv(s.localRank) != "" {
			l.LocalRank, err = number(getenv, s.localRank, 0, l.LocalSize-1)
		}
		return err
	}
	for _, s := range seen {
		if s.hosts == nil {
			continue
		}
		n, err := s.hosts(getenv)
		if err != nil {
			return err
		}
		if n > 1 {
			l.LocalRank, l.LocalSize = 0, 0
		}
		if n >= l.Size { // one each
			l.LocalSize = min(l.Size, 1)
		}
		if n > 0 {
			break
		}
	}
	if from.localRank != "" && getenv(from.localRank) != "" {
		l.LocalRank, err = number(getenv, from.localRank, 0, l.Size-1)
	}
	return err
}

// ReadSecret is a job's secret: text, which is hexadecimal, or if that is empty, what
// the file holds. nil: there is neither. Errors name the variables.
func ReadSecret(text, path string) ([]byte, error) {
	name := EnvSecret
	if text == "" && path != "" {
		name = EnvSecretFile
		b, err := readSmall(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", name, errs.ErrConfig, err)
		}
		if text = strings.TrimSpace(string(b)); text == "" {
			return nil, fmt.Errorf("%s: %s is empty: %w", name, path, errs.ErrConfig)
		}
	}
	if text == "" {
		return nil, nil
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) > maxSecret {
		// Its value is not for logs.
		return nil, fmt.Errorf("%s is not hexadecimal of at most %d bytes: %w", name, maxSecret, errs.ErrConfig)
	}
	return secret, nil
}

// readSmall reads a regular file; anything else could keep us waiting.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("no regular file")}
	}
	return io.ReadAll(io.LimitReader(f, 4*maxSecret))
}

func readRendezvous(getenv func(string) string, seen []source, from source, l *Launch, proc procfs, parent int) error {
	l.Rendezvous = getenv(EnvRendezvous)
	switch v := getenv(EnvHub); v {
	case "", hubRank0:
	case hubLauncher:
		l.HubExternal = true
	default:
		return fmt.Errorf("%s=%.64q is neither %q nor %q: %w", EnvHub, v, hubLauncher, hubRank0, errs.ErrConfig)
	}
	if l.Rendezvous != "" {
		network, _, err := splitAddress(l.Rendezvous)
		if err != nil {
			return fmt.Errorf("%s: %w", EnvRendezvous, err)
		}
		if network == "unix" && l.LocalSize != l.Size {
			return fmt.Errorf("%s=%s is of one host, but the job is on several: set it to host:port of rank 0's host: %w", EnvRendezvous, l.Rendezvous, errs.ErrConfig)
		}
		return nil
	}
	if l.HubExternal || from.name == SourceOwn && l.Size > 1 {
		return fmt.Errorf("%s is not set, other variables of %s are: %w", EnvRendezvous, SourceOwn, errs.ErrConfig)
	}
	if l.Size == 1 {
		return nil
	}
	job := jobName(getenv, from.name)
	if l.LocalSize != l.Size {
		return meetingPoint(getenv, seen, from, job, l)
	}
	if job == "" {
		var err error
		if job, err = proc.launcher(parent, from.rank, getenv(from.rank)); err != nil {
			return fmt.Errorf("no name for the job of %s: set %s: %w: %w", from.name, EnvRendezvous, errs.ErrConfig, err)
		}
	}
	l.Rendezvous = jobAddress(from.name + "\x00" + job)
	return nil
}

// meetingPoint finds where a job over several hosts meets.
func meetingPoint(getenv func(string) string, seen []source, from source, job string, l *Launch) error {
	if getenv(envPMIFD) != "" {
		fd, err := number(getenv, envPMIFD, 3, math.MaxInt32)
		l.PMIFD = fd
		return err
	}
	for _, s := range seen {
		if s.master == nil {
			continue
		}
		host, err := s.master(getenv)
		if err != nil {
			return err
		}
		if host == "" {
			continue
		}
		l.Rendezvous = net.JoinHostPort(host, strconv.Itoa(jobPort(job)))
		return CheckAddress(l.Rendezvous)
	}
	return fmt.Errorf("the job of %s is on several hosts and nothing tells where its PEs meet (%s, a list of nodes, a master's address): set %s to host:port of rank 0's host, alike for all ranks: %w",
		from.name, envPMIFD, EnvRendezvous, errs.ErrConfig)
}

// Env is the launch as own variables, to start a process with.
func (l Launch) Env() []string {
	env := []string{
		EnvRank + "=" + strconv.Itoa(l.Rank), EnvSize + "=" + strconv.Itoa(l.Size),
		EnvLocalRank + "=" + strconv.Itoa(l.LocalRank), EnvLocalSize + "=" + strconv.Itoa(l.LocalSize),
	}
	if l.Rendezvous != "" {
		env = append(env, EnvRendezvous+"="+l.Rendezvous)
	}
	if len(l.Secret) > 0 {
		env = append(env, EnvSecret+"="+hex.EncodeToString(l.Secret))
	}
	if l.HubExternal {
		env = append(env, EnvHub+"="+hubLauncher)
	}
	return env
}

// WithoutLaunch is an environment less all that Detect reads: what a launcher
// that runs inside another one's job hands to its processes.
func WithoutLaunch(env []string) []string {
	drop := map[string]bool{EnvRendezvous: true, EnvSecret: true, EnvSecretFile: true, EnvHub: true, envPMIFD: true}
	for _, s := range sources() {
		for _, n := range []string{s.rank, s.size, s.localRank, s.localSize} {
			drop[n] = true
		}
	}
	for _, set := range jobVariables() {
		if set.of != "" {
			continue // it names an allocation, which is there all the same
		}
		for _, n := range set.names {
			drop[n] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return drop[name]
	})
}
