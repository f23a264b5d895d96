package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed src
var sources embed.FS

// peer is another library's program, with one way to start it.
type peer struct {
	name     string
	source   string   // "": nothing is built
	compiler []string // and its flags
	launcher []string // with %d for the number of PEs; nil: none
	env      []string
	program  string // once built

	gaps  map[string]string                                                       // operations, or operation and metric, that it has not, and why
	start func(ctx context.Context, p *peer, s settings, l suite) ([]byte, error) // nil: by launcher
}

// lacks reports whether it has nothing of an operation.
func (p *peer) lacks(op string) bool { return p.gaps[op] != "" }

// gap is the reason why a figure is not there.
func (p *peer) gap(op, metric string) string {
	if why := p.gaps[op]; why != "" {
		return why
	}
	return p.gaps[op+" "+metric]
}

// maker makes peers of the tools that the environment names.
type maker func(name string) string

func (m maker) tool(variable, standard string) []string {
	if f := strings.Fields(m(variable)); len(f) > 0 {
		return f
	}
	return []string{standard}
}

// root is what Open MPI's launchers want of the superuser.
func root() []string {
	if os.Geteuid() == 0 {
		return []string{"--allow-run-as-root"}
	}
	return nil
}

func (m maker) openmpi(name string, flags ...string) peer {
	return peer{
		name: name, source: "mpi.c", compiler: m.tool("MPICC", "mpicc.openmpi"),
		launcher: slices.Concat(m.tool("MPIRUN", "mpirun.openmpi"), root(), flags, []string{"-n", "%d"}),
	}
}

func (m maker) oshmem(name string, flags ...string) peer {
	return peer{
		name: name, source: "shmem.c", compiler: m.tool("OSHCC", "oshcc"),
		launcher: slices.Concat(m.tool("OSHRUN", "oshrun"), root(), flags, []string{"-n", "%d"}),
	}
}

func (m maker) mpich(name string) peer {
	return peer{
		name: name, source: "mpi.c", compiler: m.tool("MPICH_CC", "mpicc.mpich"),
		launcher: slices.Concat(m.tool("MPICH_RUN", "mpirun.mpich"), []string{"-bind-to", "core", "-n", "%d"}),
	}
}

func (m maker) floor(env ...string) peer {
	return peer{name: floorName, source: "floor.c", compiler: m.tool("CC", "gcc"), env: env}
}

// floorName is the peer that is none.
const floorName = "floor"

func bound() []string { return []string{"--bind-to", "core:overload-allowed", "--oversubscribe"} }

func (p peer) with(env ...string) peer {
	p.env = env
	return p
}

func (p peer) without(gaps map[string]string) peer {
	p.gaps = gaps
	return p
}

func hostPeers(getenv func(string) string) []peer {
	m := maker(getenv)
	return []peer{
		m.floor(),
		m.openmpi("openmpi", append([]string{"--mca", "osc", "ucx"}, bound()...)...),
		m.openmpi("openmpi-sm", append([]string{"--mca", "osc", "sm"}, bound()...)...),
		m.oshmem("oshmem", bound()...),
		m.mpich("mpich"),
		perftest(m),
	}
}

func tcpPeers(getenv func(string) string) []peer {
	m := maker(getenv)
	ucx := []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}
	plain := []string{"--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"}
	return []peer{
		m.floor("PEER_PATH=tcp").without(map[string]string{
			"put rate": "how many small messages a segment takes is the sender's choice: no floor without it",
		}),
		m.openmpi("openmpi", slices.Concat(plain, []string{"--mca", "osc", "pt2pt"}, bound())...),
		m.oshmem("oshmem", slices.Concat(plain, []string{"--mca", "spml", "ucx", "-x", "UCX_TLS", "-x", "UCX_NET_DEVICES"}, bound())...).with(ucx...),
		m.mpich("mpich").with(append(ucx, "MPIR_CVAR_NOLOCAL=1")...),
		perftest(m).with(ucx...),
	}
}

func collPeers(getenv func(string) string) []peer {
	m := maker(getenv)
	free := []string{"--bind-to", "none", "--oversubscribe"}
	vader := []string{"--mca", "pml", "ob1", "--mca", "btl", "self,vader"}
	return []peer{
		m.openmpi("openmpi", bound()...), m.openmpi("openmpi-free", free...),
		m.openmpi("openmpi-vader", append(vader, bound()...)...), m.openmpi("openmpi-vader-free", append(vader, free...)...),
		m.oshmem("oshmem", bound()...), m.oshmem("oshmem-free", free...),
		m.mpich("mpich"),
	}
}

// build compiles the program, once for all peers that have it in common.
func (p *peer) build(ctx context.Context, dir string) error {
	if p.source == "" {
		path, err := exec.LookPath(p.compiler[0])
		p.program = path
		return err
	}
	program := filepath.Join(dir, strings.TrimSuffix(p.source, ".c")+"-"+filepath.Base(p.compiler[0]))
	if _, err := os.Stat(program); err != nil {
		files, err := sources.ReadDir("src")
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := sources.ReadFile("src/" + f.Name())
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, f.Name()), text, 0o600); err != nil {
				return err
			}
		}
		// Libraries go last: a compiler given as gcc with flags has them among these.
		args := append([]string{"-O2", "-o", program, filepath.Join(dir, p.source)}, p.compiler[1:]...)
		if _, err := output(ctx, settings{limit: time.Minute}, nil, p.compiler[0], append(args, "-lm")...); err != nil {
			return fmt.Errorf("cannot be built: %w", err)
		}
	}
	p.program = program
	return nil
}

// run is one job.
func (p *peer) run(ctx context.Context, s settings, l suite) ([]byte, error) {
	if p.start != nil {
		return p.start(ctx, p, s, l)
	}
	batch := 50 * time.Microsecond
	if l.pes > runtime.NumCPU() {
		batch = 2 * time.Millisecond
	}
	args := append([]string{}, p.launcher...)
	for i := range args {
		if args[i] == "%d" {
			args[i] = strconv.Itoa(l.pes)
		}
	}
	args = append(args, p.program, l.op, strconv.FormatInt(s.time.Nanoseconds(), 10), strconv.FormatInt(batch.Nanoseconds(), 10))
	args = append(args, texts(l.sizes)...)
	env := append([]string{"PEER_PES=" + strconv.Itoa(l.pes)}, p.env...)
	return output(ctx, s, env, args[0], args[1:]...)
}
