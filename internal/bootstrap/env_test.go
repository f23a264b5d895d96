package bootstrap

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

type env map[string]string

func (e env) get(k string) string { return e[k] }

// with adds settings "K=v" to a copy.
func (e env) with(settings ...string) env {
	c := make(env, len(e))
	for k, v := range e {
		c[k] = v
	}
	for _, s := range settings {
		k, v, _ := strings.Cut(s, "=")
		if v == "" {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return c
}

var (
	ownEnv  = env{}.with("GOSHMEM_RANK=1", "GOSHMEM_SIZE=4", "GOSHMEM_LOCAL_RANK=1", "GOSHMEM_LOCAL_SIZE=4", "GOSHMEM_RENDEZVOUS=unix:@x")
	ompiEnv = env{}.with("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
		"PMIX_RANK=1", "PMIX_NAMESPACE=prterun-host-77@1")
	hydraEnv = env{}.with("PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4")
	torchEnv = env{}.with("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
		"MASTER_ADDR=localhost", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=job")
)

var (
	slurmEnv = env{}.with("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=a,b", "SLURM_JOB_NODELIST=z,a,b",
		"SLURM_JOB_ID=5", "SLURM_STEP_ID=2", "SLURM_LOCALID=0")
	fluxEnv = env{}.with("FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=4", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=1", "FLUX_JOB_ID=f1")
	kubeEnv = env{}.with("JOB_COMPLETION_INDEX=1", "GOSHMEM_SIZE=4", "GOSHMEM_RENDEZVOUS=job-0.job:7000")
)

// fakeProc is a /proc of these processes: pid, parent, start, environment.
type fakeProcess struct {
	pid, parent, start int
	env                string
}

func fakeProc(t testing.TB, ps ...fakeProcess) procfs {
	root := t.TempDir()
	for _, p := range ps {
		dir := filepath.Join(root, fmt.Sprint(p.pid))
		require.NoError(t, os.Mkdir(dir, 0o700))
		stat := fmt.Sprintf("%d (a) b (c)) S %d 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 123 45\n", p.pid, p.parent, p.start)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "environ"), []byte(p.env), 0o600))
	}
	return procfs(root)
}

// hydraProc: the rank's parent is a wrapper of its own, 100 is the launcher.
func hydraProc(t testing.TB) procfs {
	return fakeProc(t,
		fakeProcess{100, 1, 5000, "PATH=/bin\x00PMI_RANK=10\x00"},
		fakeProcess{200, 100, 6000, "PATH=/bin\x00PMI_RANK=1\x00"},
		fakeProcess{201, 200, 6001, "PMI_RANK=1\x00PATH=/bin\x00"},
	)
}

func TestDetect(t *testing.T) {
	proc := hydraProc(t)
	want := Launch{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4}
	secretFile := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secretFile, []byte("0aff\n"), 0o600))
	job := func(source, name string) string { return jobAddress(source + "\x00" + name) }
	at := func(host, name string) string { return fmt.Sprintf("%s:%d", host, jobPort(name)) }
	for name, c := range map[string]struct {
		env  env
		want func(l *Launch)
	}{
		"own":           {ownEnv, func(l *Launch) { l.Source, l.Rendezvous = "goshmem", "unix:@x" }},
		"own, short":    {ownEnv.with("GOSHMEM_LOCAL_RANK=", "GOSHMEM_LOCAL_SIZE="), func(l *Launch) { l.Source, l.Rendezvous = "goshmem", "unix:@x" }},
		"own, secret":   {ownEnv.with("GOSHMEM_SECRET=00ff"), func(l *Launch) { l.Source, l.Rendezvous, l.Secret = "goshmem", "unix:@x", []byte{0, 255} }},
		"own, both":     {ownEnv.with("GOSHMEM_SECRET=00", "GOSHMEM_SECRET_FILE=/x"), func(l *Launch) { l.Source, l.Rendezvous, l.Secret = "goshmem", "unix:@x", []byte{0} }},
		"own, file":     {ownEnv.with("GOSHMEM_SECRET_FILE=" + secretFile), func(l *Launch) { l.Source, l.Rendezvous, l.Secret = "goshmem", "unix:@x", []byte{10, 255} }},
		"own, launcher": {ownEnv.with("GOSHMEM_HUB=launcher"), func(l *Launch) { l.Source, l.Rendezvous, l.HubExternal = "goshmem", "unix:@x", true }},
		"own, rank0":    {ownEnv.with("GOSHMEM_HUB=rank0"), func(l *Launch) { l.Source, l.Rendezvous = "goshmem", "unix:@x" }},
		"own, alone":    {env{"GOSHMEM_RANK": "0", "GOSHMEM_SIZE": "1"}, func(l *Launch) { *l = Launch{Size: 1, LocalSize: 1, Source: "goshmem"} }},
		"open mpi 5": {ompiEnv, func(l *Launch) {
			l.Source, l.Rendezvous = "openmpi", job("openmpi", "PMIX_NAMESPACE=\"prterun-host-77@1\"\n")
		}},
		"open mpi 4": {ompiEnv.with("PMIX_NAMESPACE=", "OMPI_MCA_ess_base_jobid=99"), func(l *Launch) {
			l.Source, l.Rendezvous = "openmpi", job("openmpi", "OMPI_MCA_ess_base_jobid=\"99\"\n")
		}},
		"hydra":          {hydraEnv, func(l *Launch) { l.Source, l.Rendezvous = "hydra", job("hydra", "process 100 started 5000") }},
		"hydra, address": {hydraEnv.with("GOSHMEM_RENDEZVOUS=unix:/tmp/s"), func(l *Launch) { l.Source, l.Rendezvous = "hydra", "unix:/tmp/s" }},
		"hydra, alone":   {hydraEnv.with("PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"), func(l *Launch) { *l = Launch{Size: 1, LocalSize: 1, Source: "hydra"} }},
		"torchrun": {torchEnv, func(l *Launch) {
			l.Source, l.Rendezvous = "torchrun", job("torchrun", "TORCHELASTIC_RUN_ID=\"job\"\nTORCHELASTIC_RESTART_COUNT=\"\"\nMASTER_ADDR=\"localhost\"\nMASTER_PORT=\"29500\"\n")
		}},
		"torch, by hand": {torchEnv.with("TORCHELASTIC_RUN_ID="), func(l *Launch) {
			l.Source, l.Rendezvous = "torchrun", job("torchrun", "MASTER_PORT=\"29500\"\nMASTER_ADDR=\"localhost\"\n")
		}},
		"all at once":  {ownEnv.with(pairs(ompiEnv, hydraEnv, torchEnv)...), func(l *Launch) { l.Source, l.Rendezvous = "goshmem", "unix:@x" }},
		"hydra, hosts": {hydraEnv.with("MPI_LOCALNRANKS=2", "PMI_FD=7"), func(l *Launch) { l.Source, l.LocalSize, l.PMIFD = "hydra", 2, 7 }},
		"open mpi, allocated": {ompiEnv.with("OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_JOB_NODELIST=n[07-09]"), func(l *Launch) {
			l.Source, l.LocalSize, l.Rendezvous = "openmpi", 2, at("n07", "PMIX_NAMESPACE=\"prterun-host-77@1\"\n")
		}},
		"slurm": {slurmEnv, func(l *Launch) {
			l.LocalRank = 0
			l.Source, l.LocalSize, l.Rendezvous = "slurm", 0, at("a", "SLURM_JOB_ID=\"5\"\nSLURM_STEP_ID=\"2\"\n")
		}},
		"slurm, one host": {slurmEnv.with("SLURM_STEP_NUM_NODES=1", "SLURM_LOCALID=1"), func(l *Launch) {
			l.Source, l.Rendezvous = "slurm", job("slurm", "SLURM_JOB_ID=\"5\"\nSLURM_STEP_ID=\"2\"\n")
		}},
		"slurm, one each": {slurmEnv.with("SLURM_STEP_NUM_NODES=4", "SLURM_LOCALID=0", "GOSHMEM_RENDEZVOUS=a:500"), func(l *Launch) {
			l.Source, l.LocalRank, l.LocalSize, l.Rendezvous = "slurm", 0, 1, "a:500"
		}},
		"open mpi over slurm's daemons": {slurmEnv.with(pairs(ompiEnv)...).with("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"), func(l *Launch) {
			l.Source, l.Rendezvous = "openmpi", job("openmpi", "PMIX_NAMESPACE=\"prterun-host-77@1\"\n")
		}},
		"torchrun over slurm's daemons": {slurmEnv.with(pairs(torchEnv)...).with("SLURM_PROCID=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=m"), func(l *Launch) {
			l.Source, l.LocalSize, l.Rendezvous = "torchrun", 2, at("m", "TORCHELASTIC_RUN_ID=\"job\"\nTORCHELASTIC_RESTART_COUNT=\"\"\nMASTER_ADDR=\"m\"\nMASTER_PORT=\"29500\"\n")
		}},
		"torch, by hand on hosts": {torchEnv.with("LOCAL_WORLD_SIZE=", "LOCAL_RANK=", "TORCHELASTIC_RUN_ID=", "MASTER_ADDR=m"), func(l *Launch) {
			l.Source, l.LocalRank, l.LocalSize, l.Rendezvous = "torchrun", 0, 0, at("m", "MASTER_PORT=\"29500\"\nMASTER_ADDR=\"m\"\n")
		}},
		"pals": {hydraEnv.with("MPI_LOCALRANKID=", "MPI_LOCALNRANKS=", "PALS_RANKID=1", "PALS_LOCAL_RANKID=1", "PALS_LOCAL_SIZE=2", "GOSHMEM_RENDEZVOUS=n1:9"), func(l *Launch) {
			l.Source, l.LocalSize, l.Rendezvous = "hydra", 2, "n1:9"
		}},
		"flux": {fluxEnv, func(l *Launch) { l.Source, l.Rendezvous = "flux", job("flux", "FLUX_JOB_ID=\"f1\"\n") }},
		"flux, pmi": {fluxEnv.with("PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=9", "FLUX_JOB_NNODES=2"), func(l *Launch) {
			l.Source, l.LocalRank, l.LocalSize, l.PMIFD = "hydra", 0, 0, 9
		}},
		"kubernetes": {kubeEnv, func(l *Launch) {
			l.Source, l.LocalRank, l.LocalSize, l.Rendezvous = "kubernetes", 0, 1, "job-0.job:7000"
		}},
		"leader and workers": {env{}.with("LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=4", "LWS_LEADER_ADDRESS=w-0.w.ns"), func(l *Launch) {
			l.Source, l.LocalRank, l.LocalSize, l.Rendezvous = "leaderworkerset", 0, 1, at("w-0.w.ns", "LWS_LEADER_ADDRESS=\"w-0.w.ns\"\n")
		}},
		"two":       {hydraEnv.with(pairs(torchEnv)...).with("GOSHMEM_RENDEZVOUS=unix:@y"), func(l *Launch) { l.Source, l.Rendezvous = "hydra", "unix:@y" }},
		"pmix, own": {ownEnv.with("PMIX_RANK=1"), func(l *Launch) { l.Source, l.Rendezvous = "goshmem", "unix:@x" }},
	} {
		t.Run(name, func(t *testing.T) {
			got, found, err := detect(c.env.get, proc, 201)
			require.NoError(t, err)
			require.True(t, found)
			w := want
			c.want(&w)
			require.Equal(t, w, got)
			if got.Rendezvous != "" {
				_, _, err = splitAddress(got.Rendezvous)
				require.NoError(t, err)
			}
		})
	}
	for name, e := range map[string]env{
		"nothing":  {},
		"a rank":   {"RANK": "gold"},
		"masters":  {"MASTER_ADDR": "h", "MASTER_PORT": "1"},
		"a secret": {"GOSHMEM_SECRET": "zz"},
		"a batch":  {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "a,b"},
		"an index": {"JOB_COMPLETION_INDEX": "3"},
	} {
		_, found, err := Detect(e.get)
		require.NoError(t, err, name)
		require.False(t, found, name)
	}
}

func pairs(es ...env) []string {
	var v []string
	for _, e := range es {
		for k, x := range e {
			v = append(v, k+"="+x)
		}
	}
	return v
}

func TestDetectErrors(t *testing.T) {
	proc := hydraProc(t)
	dir := t.TempDir()
	fifo, empty, words := filepath.Join(dir, "fifo"), filepath.Join(dir, "empty"), filepath.Join(dir, "words")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(words, []byte("not hex"), 0o600))
	for name, c := range map[string]struct {
		env  env
		is   error
		says []string
	}{
		"rank, own and open mpi":  {ownEnv.with(pairs(ompiEnv)...).with("OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=2"), errs.ErrConfig, []string{"GOSHMEM_RANK=1", "OMPI_COMM_WORLD_RANK=2"}},
		"size, own and hydra":     {ownEnv.with(pairs(hydraEnv)...).with("PMI_SIZE=8"), errs.ErrConfig, []string{"GOSHMEM_SIZE=4", "PMI_SIZE=8"}},
		"size, hydra and torch":   {hydraEnv.with(pairs(torchEnv)...).with("WORLD_SIZE=2"), errs.ErrConfig, []string{"PMI_SIZE=4", "WORLD_SIZE=2"}},
		"rank, open mpi and pmix": {ompiEnv.with("PMIX_RANK=3"), errs.ErrConfig, []string{"OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=3"}},
		"rank, pmix and hydra":    {hydraEnv.with("PMIX_RANK=3"), errs.ErrConfig, []string{"PMI_RANK=1", "PMIX_RANK=3"}},
		"third":                   {ownEnv.with(pairs(hydraEnv, torchEnv)...).with("RANK=0"), errs.ErrConfig, []string{"GOSHMEM_RANK=1", "RANK=0"}},

		"no size":       {ownEnv.with("GOSHMEM_SIZE="), errs.ErrConfig, []string{"GOSHMEM_SIZE"}},
		"no rank":       {ownEnv.with("GOSHMEM_RANK="), errs.ErrConfig, []string{"GOSHMEM_RANK"}},
		"only local":    {env{"GOSHMEM_LOCAL_SIZE": "1"}, errs.ErrConfig, []string{"GOSHMEM_RANK"}},
		"no rendezvous": {ownEnv.with("GOSHMEM_RENDEZVOUS="), errs.ErrConfig, []string{"GOSHMEM_RENDEZVOUS"}},
		"only that":     {env{"GOSHMEM_RENDEZVOUS": "unix:@x"}, errs.ErrConfig, []string{"GOSHMEM_RENDEZVOUS", "GOSHMEM_RANK"}},
		"only pmix":     {env{"PMIX_RANK": "0"}, errs.ErrConfig, []string{"PMIX_RANK", "GOSHMEM_SIZE"}},
		"open mpi":      {ompiEnv.with("OMPI_COMM_WORLD_SIZE="), errs.ErrConfig, []string{"OMPI_COMM_WORLD_SIZE"}},
		"hydra":         {hydraEnv.with("PMI_RANK="), errs.ErrConfig, []string{"PMI_RANK"}},
		"torch size":    {torchEnv.with("WORLD_SIZE="), errs.ErrConfig, []string{"WORLD_SIZE"}},
		"torch rank":    {torchEnv.with("RANK="), errs.ErrConfig, []string{"RANK"}},

		"rank of words":   {ownEnv.with("GOSHMEM_RANK=one"), errs.ErrConfig, []string{`GOSHMEM_RANK="one"`}},
		"rank +1":         {ownEnv.with("GOSHMEM_RANK=+1"), errs.ErrConfig, []string{"GOSHMEM_RANK"}},
		"rank -1":         {ownEnv.with("GOSHMEM_RANK=-1"), errs.ErrConfig, []string{"GOSHMEM_RANK"}},
		"rank = size":     {ownEnv.with("GOSHMEM_RANK=4"), errs.ErrConfig, []string{"GOSHMEM_RANK=4", "GOSHMEM_SIZE=4"}},
		"size 0":          {ownEnv.with("GOSHMEM_SIZE=0"), errs.ErrConfig, []string{"GOSHMEM_SIZE"}},
		"size huge":       {ownEnv.with("GOSHMEM_SIZE=99999999999999999999"), errs.ErrConfig, []string{"GOSHMEM_SIZE"}},
		"local rank":      {ownEnv.with("GOSHMEM_LOCAL_RANK=4"), errs.ErrConfig, []string{"GOSHMEM_LOCAL_RANK"}},
		"local size":      {ownEnv.with("GOSHMEM_LOCAL_SIZE=x"), errs.ErrConfig, []string{"GOSHMEM_LOCAL_SIZE"}},
		"hub":             {ownEnv.with("GOSHMEM_HUB=moon"), errs.ErrConfig, []string{"GOSHMEM_HUB"}},
		"hub, no address": {hydraEnv.with("GOSHMEM_HUB=launcher"), errs.ErrConfig, []string{"GOSHMEM_RENDEZVOUS"}},
		"address":         {ownEnv.with("GOSHMEM_RENDEZVOUS=here"), errs.ErrConfig, []string{"GOSHMEM_RENDEZVOUS", "here"}},
		"secret":          {ownEnv.with("GOSHMEM_SECRET=0g"), errs.ErrConfig, []string{"GOSHMEM_SECRET"}},
		"secret long":     {ownEnv.with("GOSHMEM_SECRET=" + strings.Repeat("00", maxSecret+1)), errs.ErrConfig, []string{"GOSHMEM_SECRET"}},
		"file":            {ownEnv.with("GOSHMEM_SECRET_FILE=" + dir + "/none"), errs.ErrConfig, []string{"GOSHMEM_SECRET_FILE"}},
		"fifo":            {ownEnv.with("GOSHMEM_SECRET_FILE=" + fifo), errs.ErrConfig, []string{"GOSHMEM_SECRET_FILE"}},
		"empty file":      {ownEnv.with("GOSHMEM_SECRET_FILE=" + empty), errs.ErrConfig, []string{"GOSHMEM_SECRET_FILE"}},
		"words in file":   {ownEnv.with("GOSHMEM_SECRET_FILE=" + words), errs.ErrConfig, []string{"GOSHMEM_SECRET_FILE"}},

		"hosts, own":      {ownEnv.with("GOSHMEM_LOCAL_SIZE=2"), errs.ErrConfig, []string{"GOSHMEM_RENDEZVOUS=unix:@x", "host:port"}},
		"hosts, open mpi": {ompiEnv.with("OMPI_COMM_WORLD_LOCAL_SIZE=2"), errs.ErrConfig, []string{"openmpi", "several hosts", "GOSHMEM_RENDEZVOUS"}},
		"hosts, hydra":    {hydraEnv.with("MPI_LOCALNRANKS=2"), errs.ErrConfig, []string{"hydra", "PMI_FD", "GOSHMEM_RENDEZVOUS"}},
		"hosts, pmi":      {hydraEnv.with("MPI_LOCALNRANKS=2", "PMI_FD=x"), errs.ErrConfig, []string{"PMI_FD"}},
		"hosts, torch":    {torchEnv.with("LOCAL_WORLD_SIZE=2", "MASTER_ADDR="), errs.ErrConfig, []string{"torchrun", "GOSHMEM_RENDEZVOUS"}},
		"hosts, flux":     {fluxEnv.with("FLUX_JOB_NNODES=2"), errs.ErrConfig, []string{"flux", "GOSHMEM_RENDEZVOUS"}},
		"hosts, kube":     {kubeEnv.with("GOSHMEM_RENDEZVOUS="), errs.ErrConfig, []string{"kubernetes", "GOSHMEM_RENDEZVOUS"}},
		"slurm, nodes":    {slurmEnv.with("SLURM_STEP_NODELIST=n[1-"), errs.ErrConfig, []string{"SLURM_STEP_NODELIST"}},
		"slurm, rank":     {slurmEnv.with("SLURM_PROCID="), errs.ErrConfig, []string{"SLURM_PROCID"}},
		"slurm and torch": {slurmEnv.with("RANK=0", "WORLD_SIZE=4"), errs.ErrConfig, []string{"SLURM_PROCID=1", "RANK=0"}},
		"pals alone":      {env{"PALS_RANKID": "0"}, errs.ErrConfig, []string{"PALS_RANKID", "GOSHMEM_SIZE"}},
		"kube, twice":     {kubeEnv.with("LWS_WORKER_INDEX=2", "LWS_GROUP_SIZE=4"), errs.ErrConfig, []string{"LWS_WORKER_INDEX=2", "JOB_COMPLETION_INDEX=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, found, err := detect(c.env.get, proc, 201)
			require.ErrorIs(t, err, c.is)
			require.False(t, found)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			if s := c.env["GOSHMEM_SECRET"]; s != "" {
				require.NotContains(t, err.Error(), s, "secrets are not for logs")
			}
		})
	}
}

// A launcher's job without a name of its own is known by the launcher's process.
func TestDetectLauncherProcess(t *testing.T) {
	get := hydraEnv.get
	address := func(parent int, ps ...fakeProcess) string {
		t.Helper()
		l, _, err := detect(get, fakeProc(t, ps...), parent)
		require.NoError(t, err)
		return l.Rendezvous
	}
	launcher := fakeProcess{50, 1, 7, "A=b\x00"}
	direct := address(50, launcher)
	require.Equal(t, direct, address(60, launcher, fakeProcess{60, 50, 9, "PMI_RANK=1\x00"}), "behind a wrapper")
	require.NotEqual(t, direct, address(50, fakeProcess{50, 1, 8, ""}), "another process with its number")
	require.NotEqual(t, direct, address(51, fakeProcess{51, 1, 7, ""}))

	loop := fakeProcess{60, 60, 9, "PMI_RANK=1\x00"}
	for name, c := range map[string]struct {
		parent int
		ps     []fakeProcess
	}{
		"orphan": {1, nil}, "outside": {0, nil}, "gone": {50, nil}, "loop": {60, []fakeProcess{loop}},
		"orphaned wrapper": {60, []fakeProcess{{60, 1, 9, "PMI_RANK=1\x00"}}},
	} {
		_, _, err := detect(get, fakeProc(t, c.ps...), c.parent)
		require.ErrorIs(t, err, errs.ErrConfig, name)
		require.ErrorContains(t, err, EnvRendezvous, name)
	}
	for _, stat := range []string{"", "1 (x", "1 (x) S x 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 1"} {
		root := t.TempDir()
		require.NoError(t, os.Mkdir(root+"/50", 0o700))
		require.NoError(t, os.WriteFile(root+"/50/stat", []byte(stat), 0o600))
		_, _, err := detect(get, procfs(root), 50)
		require.ErrorIs(t, err, errs.ErrConfig)
	}
	// This process's own parent, for real.
	l, found, err := Detect(get)
	require.NoError(t, err)
	require.True(t, found)
	require.Contains(t, l.Rendezvous, "unix:@goshmem-")
}

func TestLaunchEnv(t *testing.T) {
	base := append(pairs(ownEnv, ompiEnv, hydraEnv, torchEnv), "PATH=/bin", "GOSHMEM_SECRET=00", "GOSHMEM_SECRET_FILE=/x", "GOSHMEM_HUB=rank0", "GOSHMEM_HEAP=1G", "odd")
	require.ElementsMatch(t, []string{"PATH=/bin", "GOSHMEM_HEAP=1G", "odd"}, WithoutLaunch(base))
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, MaxSize).Draw(t, "size")
		l := Launch{Size: size, LocalSize: size, Source: SourceOwn, Rendezvous: "unix:@" + rapid.StringMatching(`[a-z]{1,20}`).Draw(t, "name")}
		l.Rank = rapid.IntRange(0, size-1).Draw(t, "rank")
		l.LocalRank = rapid.IntRange(0, size-1).Draw(t, "local")
		l.HubExternal = rapid.Bool().Draw(t, "hub")
		if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "secret"); len(b) > 0 {
			l.Secret = b
		}
		got, found, err := Detect(env{}.with(append(WithoutLaunch(base), l.Env()...)...).get)
		if err != nil || !found || fmt.Sprint(got) != fmt.Sprint(l) {
			t.Fatal(got, found, err)
		}
	})
}

func FuzzDetect(f *testing.F) {
	names := []string{
		EnvRank, EnvSize, EnvLocalRank, EnvLocalSize, EnvRendezvous, EnvSecret, EnvSecretFile, EnvHub,
		"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
		"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
	}
	for _, e := range []env{ownEnv, ompiEnv, hydraEnv, torchEnv} {
		var values []string
		for _, n := range names {
			values = append(values, e[n])
		}
		f.Add(strings.Join(values, "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := env{}
		for i, v := range strings.SplitN(text, "\n", len(names)) {
			e[names[i]] = v
		}
		l, found, err := Detect(e.get)
		if err != nil || !found {
			if fmt.Sprint(l) != fmt.Sprint(Launch{}) || found {
				t.Fatal("a launch beside an error")
			}
			return
		}
		if l.Rank < 0 || l.Rank >= l.Size || l.Size > MaxSize || l.LocalSize != l.Size || l.LocalRank < 0 || l.LocalRank >= l.LocalSize || l.Source == "" {
			t.Fatalf("%+v", l)
		}
		if l.Size > 1 && l.Rendezvous == "" {
			t.Fatal("no rendezvous")
		}
		if s := e[EnvSecret]; s != "" && hex.EncodeToString(l.Secret) != strings.ToLower(s) {
			t.Fatal("another secret")
		}
	})
}
