package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// call runs a command of the table in this process.
func call(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = dispatch(stdio{os.Stdin, &out, &err}, args)
	return status, out.String(), err.String()
}

func TestOverview(t *testing.T) {
	status, stdout, stderr := call()
	assert.Equal(t, exitUsage, status)
	assert.Empty(t, stdout)
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}} {
		status, stdout, _ = call(args...)
		assert.Equal(t, exitOK, status)
		assert.Equal(t, stderr, stdout)
	}
	for _, c := range commands() {
		assert.Regexp(t, `(?m)^  `+c.name+` +`, stdout)
	}
}

// Each command tells its own use, by both ways to ask, without doing anything.
func TestHelp(t *testing.T) {
	for _, c := range commands() {
		status, asked, stderr := call("help", c.name)
		assert.Equal(t, exitOK, status)
		assert.Empty(t, stderr)
		assert.True(t, strings.HasPrefix(asked, strings.TrimSpace("usage: goshmem "+c.name+" "+c.args)+"\n\n"+c.brief+"\n"), asked)
		assert.Contains(t, asked, c.text[:min(40, len(c.text))])
		if c.name == "bench" {
			continue // has flags of its own
		}
		status, flag, stderr := call(c.name, "-h")
		assert.Equal(t, exitOK, status)
		assert.Empty(t, stderr)
		assert.Equal(t, asked, flag)
	}
	_, run, _ := call("help", "run")
	for _, f := range []string{"-n number", "-nodes K", "-hosts hosts", "-ppn number", "-agent command", "-rendezvous address", "-prefix", "-timeout time", "-grace time", "-bind where", "-env NAME=VALUE", "-stdin", "-v"} {
		assert.Contains(t, run, "\n  "+f)
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{
		{"nonsense"}, {"help", "nonsense"}, {"version", "x"}, {"info", "x"}, {"info", "-n", "0"}, {"info", "-n", "100000"}, {"info", "-x"}, {"info", "-nodes", "3"}, {"info", "-nodes", "-1"}, {"run"},
	} {
		status, stdout, stderr := call(args...)
		assert.Equal(t, exitUsage, status, "%v", args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "see goshmem help", "%v", args)
	}
}

func TestVersion(t *testing.T) {
	status, stdout, _ := call("version")
	assert.Equal(t, exitOK, status)
	assert.Regexp(t, `(?m)^built with +go1\.`, stdout)
	_, other, _ := call("--version")
	assert.Equal(t, stdout, other)
}

func TestInfo(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := runTool(t, "info", "-n", "3")
	assert.Equal(t, exitOK, status)
	assert.Empty(t, stderr)
	var titles []string
	for line := range strings.Lines(stdout) {
		if line != "\n" && line[0] != ' ' {
			titles = append(titles, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{
		"Version", "Launch", "Options", "Machine", "GPUs", "Memory", "Copies",
		"RDMA ports of 3 PEs of this host", "Paths in a world of 3 PEs on this host", "Paths that can be forced by GOSHMEM_PATH",
	}, titles)
	assert.Regexp(t, `(?m)^  pe 0-2 to 0-2 +direct +same host`, stdout)

	status, stdout, _ = runTool(t, "info", "-md")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, 10, strings.Count(stdout, "## "))
	assert.Equal(t, 20, strings.Count(stdout, "```\n"))

	// Simulated nodes, by the flag and as a job's PE finds them.
	_, stdout, _ = runTool(t, "info", "-n", "4", "-nodes", "2")
	assert.Regexp(t, `(?m)^  pe 0-1 to 2-3 +remote +another node`, stdout)
	assert.Regexp(t, `(?m)^  transport +simulated link`, stdout)
	_, stdout, _ = runTool(t, "run", "-n", "2", "-nodes", "2", "sh", "-c", "[ $GOSHMEM_RANK = 1 ] || exec "+toolName+" info")
	assert.Regexp(t, `(?m)^  GOSHMEM_NODES +2 +environment$`, stdout)
	assert.Regexp(t, `(?m)^  pe 0 to 1 +remote`, stdout)

	// In a job it tells the job.
	status, stdout, _ = runTool(t, "run", "-n", "1", "-env", "GOSHMEM_WINDOW=8", toolName, "info")
	assert.Equal(t, exitOK, status)
	assert.Contains(t, stdout, "PE 0 of 1, says goshmem\n")
	assert.Regexp(t, `(?m)^  GOSHMEM_WINDOW +8 +environment$`, stdout)

	// What is wrong is said, the rest is there all the same.
	status, stdout, _ = runTool(t, "run", "-n", "1", "sh", "-c", "GOSHMEM_WINDOW=x exec "+toolName+" info")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, `error: options: GOSHMEM_WINDOW="x"`)
	assert.Contains(t, stdout, "\nMachine\n")
}
