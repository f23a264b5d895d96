package bootstrap

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	hubLauncher = "launcher"
	hubRank0    = "rank0"
)

// Names of the sources of a launch.
const (
	SourceOwn      = "goshmem"
	SourceOpenMPI  = "openmpi"
	SourcePMIx     = "pmix"
	SourceHydra    = "hydra"
	SourceTorchrun = "torchrun"
)

// Launch is what the environment says of this process's place in its job.
type Launch struct {
	Rank, Size           int
	LocalRank, LocalSize int
	Rendezvous           string // an address for Listen and Dial; may be empty when Size is 1
	Secret               []byte
	Source               string // who said it: one of the Source names
	HubExternal          bool   // the launcher holds the hub
}

// source is a launcher's set of variables. Only the local ones may be missing
// when present says that the launcher is there.
type source struct {
	name                             string
	rank, size, localRank, localSize string
	present                          func(getenv func(string) string) bool
}

// sources in the order in which they count.
func sources() []source {
	either := func(names ...string) func(func(string) string) bool {
		return func(getenv func(string) string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return getenv(n) != "" })
		}
	}
	return []source{
		{
			name: SourceOwn, rank: EnvRank, size: EnvSize, localRank: EnvLocalRank, localSize: EnvLocalSize,
			present: either(EnvRank, EnvSize, EnvLocalRank, EnvLocalSize),
		},
		{
			name: SourceOpenMPI, rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
			localRank: "OMPI_COMM_WORLD_LOCAL_RANK", localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
			present: either("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
		},
		{
			// A PMIx server tells the size by its protocol only: good for a comparison.
			name: SourcePMIx, rank: "PMIX_RANK", present: either("PMIX_RANK"),
		},
		{
			name: SourceHydra, rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS",
			present: either("PMI_RANK", "PMI_SIZE"),
		},
		{
			// RANK alone is too common a name to mean a launch.
			name: SourceTorchrun, rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE",
			present: func(getenv func(string) string) bool {
				return getenv("WORLD_SIZE") != "" ||
					getenv("RANK") != "" && either("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")(getenv)
			},
		},
	}
}

// jobVariables name a job, alike on all its ranks: the first set whose first
// variable is there.
func jobVariables() [][]string {
	return [][]string{
		{"PMIX_NAMESPACE"},
		{"OMPI_MCA_ess_base_jobid"},
		{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"},
		{"MASTER_PORT", "MASTER_ADDR"},
	}
}

// Detect reads a launch from the environment: the own variables, else those of
// Open MPI, Hydra or torchrun. found is false, without an error, where there is
// none. Sources that disagree on rank or size, and variables that are malformed
// or incomplete, are errs.ErrConfig and name the variables; a job over several
// hosts is errs.ErrUnsupported.
//
// Without GOSHMEM_RENDEZVOUS a foreign launcher's job meets at an abstract socket
// whose name is derived from the user and the launcher's name for the job, or
// else its process.
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
			return l, false, fmt.Errorf("%s is set, but neither %s and %s nor a launcher's variables are: %w", EnvRendezvous, EnvRank, EnvSize, errs.ErrConfig)
		}
		return l, false, nil
	}
	at := slices.IndexFunc(seen, func(s source) bool { return s.name == l.Source })
	if at < 0 {
		return l, false, fmt.Errorf("%s is set, but nothing tells the job's size: set %s, %s and %s: %w", seen[0].rank, EnvRank, EnvSize, EnvRendezvous, errs.ErrConfig)
	}
	from := seen[at]
	if err := readLocal(getenv, from, &l); err != nil {
		return l, false, err
	}
	if l.Secret, err = readSecret(getenv); err != nil {
		return l, false, err
	}
	if err := readRendezvous(getenv, from, &l, proc, parent); err != nil {
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

func readLocal(getenv func(string) string, s source, l *Launch) (err error) {
	l.LocalRank, l.LocalSize = l.Rank, l.Size
	if getenv(s.localSize) != "" {
		if l.LocalSize, err = number(getenv, s.localSize, 1, l.Size); err != nil {
			return err
		}
	}
	if l.LocalSize != l.Size {
		return fmt.Errorf("%s=%d of %s=%d: a job over several hosts needs an explicit rendezvous that all of them reach, which is not supported yet: %w",
			s.localSize, l.LocalSize, s.size, l.Size, errs.ErrUnsupported)
	}
	if getenv(s.localRank) != "" {
		if l.LocalRank, err = number(getenv, s.localRank, 0, l.LocalSize-1); err != nil {
			return err
		}
	}
	return nil
}

func readSecret(getenv func(string) string) ([]byte, error) {
	text, name, path := getenv(EnvSecret), EnvSecret, getenv(EnvSecretFile)
	if text != "" && path != "" {
		return nil, fmt.Errorf("both %s and %s are set: %w", EnvSecret, EnvSecretFile, errs.ErrConfig)
	}
	if path != "" {
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

func readRendezvous(getenv func(string) string, s source, l *Launch, proc procfs, parent int) error {
	l.Rendezvous = getenv(EnvRendezvous)
	switch v := getenv(EnvHub); v {
	case "", hubRank0:
	case hubLauncher:
		l.HubExternal = true
	default:
		return fmt.Errorf("%s=%.64q is neither %q nor %q: %w", EnvHub, v, hubLauncher, hubRank0, errs.ErrConfig)
	}
	if l.Rendezvous != "" {
		if _, _, err := splitAddress(l.Rendezvous); err != nil {
			return fmt.Errorf("%s: %w", EnvRendezvous, err)
		}
		return nil
	}
	if l.HubExternal || s.name == SourceOwn && l.Size > 1 {
		return fmt.Errorf("%s is not set, other variables of %s are: %w", EnvRendezvous, SourceOwn, errs.ErrConfig)
	}
	if l.Size == 1 {
		return nil
	}
	job := jobName(getenv)
	if job == "" {
		var err error
		if job, err = proc.launcher(parent, s.rank, getenv(s.rank)); err != nil {
			return fmt.Errorf("no name for the job of %s: set %s: %w: %w", s.name, EnvRendezvous, errs.ErrConfig, err)
		}
	}
	l.Rendezvous = jobAddress(s.name + "\x00" + job)
	return nil
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
	drop := map[string]bool{EnvRendezvous: true, EnvSecret: true, EnvSecretFile: true, EnvHub: true}
	for _, s := range sources() {
		for _, n := range []string{s.rank, s.size, s.localRank, s.localSize} {
			drop[n] = true
		}
	}
	for _, set := range jobVariables() {
		for _, n := range set {
			drop[n] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return drop[name]
	})
}
