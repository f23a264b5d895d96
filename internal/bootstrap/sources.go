package bootstrap

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// source is a launcher's set of variables. Only the local ones may be missing
// when present says that the launcher is there.
type source struct {
	name                             string
	rank, size, localRank, localSize string
	present                          func(getenv func(string) string) bool
	// hosts is the number of hosts, where it is told; 0: it is not.
	hosts func(getenv func(string) string) (int, error)
	// master is the host where PEs of several hosts may meet: that of rank 0 as
	// the launcher deals ranks by default. Empty: it is not told.
	master func(getenv func(string) string) (string, error)
}

// isSet reports whether any of these is.
func isSet(getenv func(string) string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return getenv(n) != "" })
}

func either(names ...string) func(func(string) string) bool {
	return func(getenv func(string) string) bool { return isSet(getenv, names...) }
}

// named is a master by a variable.
func named(variable string) func(func(string) string) (string, error) {
	return func(getenv func(string) string) (string, error) { return getenv(variable), nil }
}

// onePod: each PE is a host.
func onePod(size string) func(func(string) string) (int, error) {
	return func(getenv func(string) string) (int, error) { return number(getenv, size, 1, MaxSize) }
}

// sources in the order in which they count.
func sources() []source {
	return []source{
		{
			name: SourceOwn, rank: EnvRank, size: EnvSize, localRank: EnvLocalRank, localSize: EnvLocalSize,
			present: func(getenv func(string) string) bool {
				return isSet(getenv, EnvRank, EnvLocalRank, EnvLocalSize) || isSet(getenv, EnvSize) && !isSet(getenv, "JOB_COMPLETION_INDEX")
			},
		},
		{
			name: SourceOpenMPI, rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
			localRank: "OMPI_COMM_WORLD_LOCAL_RANK", localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
			present: either("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
			master:  allocated,
		},
		{
			// A PMIx server tells the size by its protocol only: good for a comparison.
			name: SourcePMIx, rank: "PMIX_RANK", present: either("PMIX_RANK"),
		},
		{
			name: SourceHydra, rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS",
			present: either("PMI_RANK", "PMI_SIZE"),
			master:  allocated,
		},
		{
			// Only of a step: a batch script has a rank too, but is alone.
			name: SourceSlurm, rank: "SLURM_PROCID", size: slurmTasks, localRank: "SLURM_LOCALID",
			present: func(getenv func(string) string) bool { return isSet(getenv, slurmTasks) && !slurmBelow(getenv) },
			hosts:   slurmHosts,
			master:  allocated,
		},
		{
			// PALS tells the size as PMI does.
			name: SourcePALS, rank: "PALS_RANKID", localRank: "PALS_LOCAL_RANKID", localSize: "PALS_LOCAL_SIZE", present: either("PALS_RANKID"),
			master: allocated,
		},
		{
			name: SourceFlux, rank: "FLUX_TASK_RANK", size: "FLUX_JOB_SIZE", localRank: "FLUX_TASK_LOCAL_ID",
			present: either("FLUX_TASK_RANK"),
			hosts: func(getenv func(string) string) (int, error) {
				if !isSet(getenv, "FLUX_JOB_NNODES") {
					return 0, nil
				}
				return number(getenv, "FLUX_JOB_NNODES", 1, MaxSize)
			},
		},
		{
			// RANK alone is too common a name to mean a launch.
			name: SourceTorchrun, rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE",
			present: func(getenv func(string) string) bool {
				return isSet(getenv, "WORLD_SIZE") || isSet(getenv, "RANK") &&
					isSet(getenv, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
			},
			hosts: func(getenv func(string) string) (int, error) {
				ip, err := netip.ParseAddr(getenv("MASTER_ADDR"))
				if !isSet(getenv, "MASTER_ADDR") || getenv("MASTER_ADDR") == "localhost" || err == nil && ip.IsLoopback() {
					return 0, nil
				}
				return 2, nil // for all we know: started by hand on several
			},
			master: named("MASTER_ADDR"),
		},
		{
			name: SourceLWS, rank: "LWS_WORKER_INDEX", size: "LWS_GROUP_SIZE", present: either("LWS_WORKER_INDEX"),
			hosts:  onePod("LWS_GROUP_SIZE"),
			master: named("LWS_LEADER_ADDRESS"),
		},
		{
			// An index alone may be that of a job whose parts know nothing of each other.
			name: SourceKube, rank: "JOB_COMPLETION_INDEX", size: EnvSize,
			present: func(getenv func(string) string) bool {
				return isSet(getenv, "JOB_COMPLETION_INDEX") && isSet(getenv, EnvSize) && !isSet(getenv, EnvRank)
			},
			hosts: onePod(EnvSize),
		},
	}
}

const slurmTasks = "SLURM_STEP_NUM_TASKS"

// slurmBelow reports whether Slurm's step is another launcher's own processes,
// one on each host, and not the job's: then the two do not speak of the same.
func slurmBelow(getenv func(string) string) bool {
	for _, n := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		if isSet(getenv, n) && getenv(n) != getenv(slurmTasks) {
			return true
		}
	}
	return isSet(getenv, "TORCHELASTIC_RUN_ID")
}

func slurmHosts(getenv func(string) string) (int, error) {
	for _, n := range []string{"SLURM_STEP_NUM_NODES", "SLURM_NNODES"} {
		if isSet(getenv, n) {
			return number(getenv, n, 1, MaxSize)
		}
	}
	return 0, nil
}

// allocated is the first host of the batch system's list.
func allocated(getenv func(string) string) (string, error) {
	for _, n := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} {
		if !isSet(getenv, n) {
			continue
		}
		hosts, err := ExpandHosts(getenv(n))
		if err != nil {
			return "", fmt.Errorf("%s: %w", n, err)
		}
		return hosts[0], nil
	}
	if path := getenv("PBS_NODEFILE"); path != "" {
		return firstLine(path), nil
	}
	return "", nil
}

// firstLine is that of a file; empty where it cannot be read, as on other hosts
// than the first.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReader(io.LimitReader(f, 4*maxHostName)).ReadString('\n')
	return strings.TrimSpace(line)
}

// jobVariables name a job, alike on all its ranks: the first set whose first
// variable is there. A set of one source names the jobs of that alone: others may
// start several within it.
func jobVariables() []jobVars {
	return []jobVars{
		{names: []string{"PMIX_NAMESPACE"}},
		{names: []string{"OMPI_MCA_ess_base_jobid"}},
		{names: []string{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}},
		{names: []string{"MASTER_PORT", "MASTER_ADDR"}},
		{names: []string{"PALS_APID"}},
		{SourceFlux, []string{"FLUX_JOB_ID"}},
		{SourceSlurm, []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}},
		{SourceLWS, []string{"LWS_LEADER_ADDRESS"}},
	}
}

type jobVars struct {
	of    string // a source; empty: all
	names []string
}
