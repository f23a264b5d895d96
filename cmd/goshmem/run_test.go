package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/spin"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("no program"), 0o644))
	garbage := filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("\x7fELF no program"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), []byte("#!/bin/sh\n[ -f plain ]"), 0o755))
	here, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(here, dir)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		args   []string
		status int
		stderr string // pattern
	}{
		"all well":          {[]string{"run", "-n", "3", "true"}, 0, `^$`},
		"no number":         {[]string{"run", "true"}, 0, `^$`},
		"one fails":         {[]string{"run", "-n", "4", "sh", "-c", `[ $GOSHMEM_RANK != 2 ] || exit 3`}, 3, `^goshmem: pe 2 \(process \d+\): exit status 3\n$`},
		"by signal":         {[]string{"run", "-n", "2", "sh", "-c", `[ $GOSHMEM_RANK = 0 ] || kill -SEGV $$`}, 139, `^goshmem: pe 1 \(process \d+\): signal: segmentation fault.*\n$`},
		"missing":           {[]string{"run", "-n", "2", "no-such-program"}, 127, `^goshmem: no-such-program: executable file not found in \$PATH\n$`},
		"missing path":      {[]string{"run", "./no/such"}, 127, `^goshmem: ./no/such: .*no such file or directory\n$`},
		"not executable":    {[]string{"run", plain}, 126, `permission denied\n$`},
		"no program at all": {[]string{"run", "-n", "2", garbage}, 126, `^goshmem: .*garbage: pe 0: exec format error\n$`},
		"folder":            {[]string{"run", dir}, 126, `is a directory\n$`},
		"directory":         {[]string{"run", "-n", "2", "-dir", dir, "./prog"}, 0, `^$`},
		"relative":          {[]string{"run", "-dir", relative, "./prog"}, 0, `^$`},
		"relative, hosts":   {hostArgs(script(t, `exec "$@"`), "a,b", "-dir", relative, "./prog"), 0, meetLine + `$`},
		"no directory":      {[]string{"run", "-dir", "/no/such", "true"}, 1, `^goshmem: true: directory: stat /no/such: no such file or directory\n$`},
		"a file":            {[]string{"run", "-dir", plain, "true"}, 1, `directory: chdir .*plain: not a directory\n$`},
		"no program":        {[]string{"run", "-n", "2"}, 2, `^goshmem run: no program\nsee goshmem help run\n$`},
		"no PEs":            {[]string{"run", "-n", "0", "true"}, 2, `0 PEs are not in`},
		"many PEs":          {[]string{"run", "-n", "100000", "true"}, 2, `100000 PEs are not in`},
		"no such flag":      {[]string{"run", "-N", "2", "true"}, 2, `flag provided but not defined: -N`},
		"no number given":   {[]string{"run", "-n", "two", "true"}, 2, `invalid value "two" for flag -n`},
		"binding":           {[]string{"run", "-bind", "socket", "true"}, 2, `"socket" is neither "none" nor "core"`},
		"seconds":           {[]string{"run", "-timeout", "5", "true"}, 2, `flag -timeout: want a time with its unit, such as 10s`},
		"timeout":           {[]string{"run", "-timeout", "-1s", "true"}, 2, `timeout -1s`},
		"grace":             {[]string{"run", "-grace", "-1s", "true"}, 2, `grace -1s`},
		"negative nodes":    {[]string{"run", "-nodes", "-1", "true"}, 2, `-1 simulated nodes of 1 PEs`},
		"many nodes":        {[]string{"run", "-n", "2", "-nodes", "3", "true"}, 2, `3 simulated nodes of 2 PEs`},
		"many by variable":  {[]string{"run", "-n", "2", "-env", "GOSHMEM_NODES=3", "true"}, 2, `3 simulated nodes \(GOSHMEM_NODES\) of 2 PEs`},
		"nodes twice":       {[]string{"run", "-n", "2", "-nodes", "2", "-env", "GOSHMEM_NODES=1", "true"}, 2, `2 simulated nodes, and GOSHMEM_NODES=1`},
		"variable":          {[]string{"run", "-env", "X", "true"}, 2, `not of the form NAME=VALUE`},
		"our variable":      {[]string{"run", "-env", "GOSHMEM_RANK=1", "true"}, 2, `environment GOSHMEM_RANK: the launcher sets it`},
		"option":            {[]string{"run", "-env", "GOSHMEM_WINDOW=x", "true"}, 2, `^goshmem: options: GOSHMEM_WINDOW="x": not understood: want`},
		"unknown option":    {[]string{"run", "-env", "GOSHMEM_WIDNOW=1", "true"}, 0, `^goshmem: warning: options: GOSHMEM_WIDNOW is no option: did you mean GOSHMEM_WINDOW\?\n$`},
		"hub's option":      {[]string{"run", "-env", "GOSHMEM_FAILURE_DEADLINE=1ms", "true"}, 2, `failure deadline 1ms is under`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := runTool(t, c.args...)
			assert.Equal(t, c.status, status)
			assert.Empty(t, stdout)
			assert.Regexp(t, c.stderr, stderr)
		})
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog-here"), nil, 0o755))
	s := startWith(t, func(c *exec.Cmd) { c.Dir = dir }, "run", "prog-here")
	assert.Equal(t, 127, s.wait())
	assert.Contains(t, s.err.String(), "is ./prog-here meant?")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	shm := inShm(t)
	s := startWith(t, func(c *exec.Cmd) {
		// What other launchers said to us is not for our PEs.
		c.Env = append(c.Env, "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=9", "PMI_RANK=1", "GOSHMEM_SECRET_FILE=/nowhere", "KEPT=yes", "CHANGED=no")
	}, "run", "-n", "3", "-prefix", "-env", "ADDED=a=b", "-env", "CHANGED=yes", "-env", "GOSHMEM_WINDOW=8", peName, "env")
	require.Equal(t, 0, s.wait())
	env := map[string]map[string]string{}
	for line := range strings.Lines(s.out.String()) {
		rank, kv, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok)
		name, value, _ := strings.Cut(kv, "=")
		if env[rank] == nil {
			env[rank] = map[string]string{}
		}
		env[rank][name] = value
	}
	require.Len(t, env, 3)
	first := env["[0]"]
	for rank := range 3 {
		e := env[fmt.Sprintf("[%d]", rank)]
		for name, want := range map[string]string{
			"GOSHMEM_RANK": strconv.Itoa(rank), "GOSHMEM_LOCAL_RANK": strconv.Itoa(rank), "GOSHMEM_SIZE": "3", "GOSHMEM_LOCAL_SIZE": "3",
			"GOSHMEM_HUB": "launcher", "GOSHMEM_RENDEZVOUS": first["GOSHMEM_RENDEZVOUS"], "GOSHMEM_SECRET": first["GOSHMEM_SECRET"],
			"ADDED": "a=b", "CHANGED": "yes", "KEPT": "yes", "GOSHMEM_WINDOW": "8",
		} {
			assert.Equal(t, want, e[name], "%s of pe %d", name, rank)
		}
		for _, name := range []string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "GOSHMEM_SECRET_FILE"} {
			assert.NotContains(t, e, name)
		}
	}
	assert.Regexp(t, `^[0-9a-f]{64}$`, first["GOSHMEM_SECRET"])
	assert.Regexp(t, `^unix:@goshmem-`, first["GOSHMEM_RENDEZVOUS"])
	assert.False(t, listening(t, first["GOSHMEM_RENDEZVOUS"]), "the rendezvous is still there")
	assert.Equal(t, shm, inShm(t))

	_, other, _ := runTool(t, "run", peName, "env")
	assert.NotContains(t, other, first["GOSHMEM_SECRET"], "two jobs have one secret")
}

// Lines of eight PEs arrive whole, in order, and only with the prefix asked for.
func TestOutput(t *testing.T) {
	t.Parallel()
	const pes, lines = 8, 150
	for _, prefix := range []bool{false, true} {
		t.Run(fmt.Sprint(prefix), func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := runTool(t, "run", "-n", strconv.Itoa(pes), "-prefix="+strconv.FormatBool(prefix), peName, "lines", strconv.Itoa(lines))
			require.Equal(t, 0, status)
			form := regexp.MustCompile(`^(\d+):(\d+):(x*)\n$`)
			if prefix {
				form = regexp.MustCompile(`^\[\d+\] (\d+):(\d+):(x*)\n$`)
			}
			for name, text := range map[string]string{"stdout": stdout, "stderr": stderr} {
				next := make([]int, pes)
				for line := range strings.Lines(text) {
					m := form.FindStringSubmatch(line)
					require.NotNil(t, m, "%s: %q", name, line)
					rank, _ := strconv.Atoi(m[1])
					if prefix {
						require.True(t, strings.HasPrefix(line, fmt.Sprintf("[%d] ", rank)), line)
					}
					require.Equal(t, strconv.Itoa(next[rank]), m[2], name)
					require.Len(t, m[3], next[rank], name)
					next[rank]++
				}
				assert.Equal(t, slices.Repeat([]int{lines}, pes), next, name)
			}
		})
	}
}

// The bytes of a single PE pass unchanged, whatever lines there are.
func TestOutputVerbatim(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "no end", "\n\n", "a\r\nb", strings.Repeat("long ", 40000) + "\nend"} {
		file := filepath.Join(t.TempDir(), "text")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		status, stdout, _ := runTool(t, "run", "cat", file)
		assert.Equal(t, 0, status)
		assert.Equal(t, text, stdout)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	give := func(c *exec.Cmd) { c.Stdin = strings.NewReader("for pe 0\n") }
	s := startWith(t, give, "run", "-n", "3", "-prefix", peName, "cat")
	require.Equal(t, 0, s.wait())
	assert.ElementsMatch(t, []string{"[0] for pe 0\n", "[0] end of input of pe 0\n", "[1] end of input of pe 1\n", "[2] end of input of pe 2\n"},
		slices.Collect(strings.Lines(s.out.String())))

	s = startWith(t, give, "run", "-stdin=false", peName, "cat")
	require.Equal(t, 0, s.wait())
	assert.Equal(t, "end of input of pe 0\n", s.out.String())
}

// The PEs are dealt to simulated nodes, say so, and what they send crosses.
func TestNodes(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runTool(t, "run", "-n", "5", "-nodes", "2", peName, "nodes")
	require.Equal(t, 0, status, stderr)
	lines := slices.Sorted(strings.Lines(stdout))
	assert.Equal(t, []string{
		"pe 0 on node 0 of 2: [direct direct direct remote remote] ok\n",
		"pe 1 on node 0 of 2: [direct direct direct remote remote] ok\n",
		"pe 2 on node 0 of 2: [direct direct direct remote remote] ok\n",
		"pe 3 on node 1 of 2: [remote remote remote direct direct] ok\n",
		"pe 4 on node 1 of 2: [remote remote remote direct direct] ok\n",
	}, lines)

	// The flag goes before the launcher's own environment.
	s := startWith(t, func(c *exec.Cmd) { c.Env = append(c.Env, "GOSHMEM_NODES=1") }, "run", "-n", "2", "-nodes", "2", peName, "nodes")
	require.Equal(t, 0, s.wait())
	assert.Contains(t, s.out.String(), "pe 1 on node 1 of 2: [remote direct] ok")
}

func TestBind(t *testing.T) {
	t.Parallel()
	cpus, err := spin.CPUs()
	require.NoError(t, err)
	status, stdout, _ := runTool(t, "run", "-n", "4", "-bind", "core", peName, "cpus")
	require.Equal(t, 0, status)
	of := map[string]string{}
	for line := range strings.Lines(stdout) {
		rank, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		of[rank] = list
	}
	require.Len(t, of, 4)
	if len(cpus) == 2 { // of cores of their own or of one, all PEs are alike
		assert.Equal(t, of["0"], of["2"])
		assert.Equal(t, of["1"], of["3"])
	}
	_, stdout, _ = runTool(t, "run", "-n", "1", peName, "cpus")
	assert.Equal(t, fmt.Sprintf("0 %v\n", cpus), stdout, "not asked to bind")
}

// The programs that users see first, as they are built.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "goshmem/cmd/goshmem", "goshmem/examples/hello", "goshmem/examples/ring")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	hello, ring := filepath.Join(dir, "hello"), filepath.Join(dir, "ring")
	assert.Equal(t, "pe 0 of 1 got \"hello, pe 0, from pe 0\"\n", run("goshmem", "run", hello))
	assert.Len(t, strings.Split(run("goshmem", "run", "-n", "8", hello), "\n"), 9)
	assert.Len(t, strings.Split(run("hello", "-n", "3"), "\n"), 4)
	hop := `^ring of %d PEs, 100 rounds: a hop takes p50 \S+, p99 \S+, mean \S+\n$`
	assert.Regexp(t, fmt.Sprintf(hop, 1), run("goshmem", "run", ring, "-rounds", "100"))
	assert.Regexp(t, fmt.Sprintf(hop, 8), run("goshmem", "run", "-n", "8", ring, "-rounds", "100"))
	assert.Regexp(t, fmt.Sprintf(hop, 3), run("ring", "-n", "3", "-rounds", "100"))
	assert.Regexp(t, `^\[0\] ring of 2 PEs`, run("goshmem", "run", "-n", "2", "-prefix", "-env", "GOSHMEM_PATH=proxy", ring, "-rounds", "100"))
}
