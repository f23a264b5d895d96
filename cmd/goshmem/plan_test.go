package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlan(t *testing.T) {
	t.Setenv("GOSHMEM_HEAP_SIZE", "1MiB")
	status, stdout, stderr := call("plan", "-pes", "64,100000", "-per-node", "8", "-bytes", "1KiB")
	assert.Equal(t, exitOK, status, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")[2:]
	assert.Len(t, lines, 5, "a head and two ways of each")
	fields := func(i int) []string { return strings.Fields(lines[i]) }
	assert.Equal(t, []string{"64", "8", "1MiB"}, fields(1)[:3])
	assert.Equal(t, []string{"1KiB", "direct", "56", "0", "56"}, fields(1)[6:11])
	assert.Equal(t, []string{"1KiB", "relay", "7", "7", "14"}, fields(2)[:5])
	assert.Equal(t, "100000", fields(3)[0])
	assert.Equal(t, "199984", fields(3)[10], "messages of a PE: a credit and the data for each remote peer")
	assert.Regexp(t, regexp.MustCompile(`relay +12499 +12499`), lines[4])

	// All on one node, whose size overflows nothing.
	status, stdout, stderr = call("plan", "-pes", "8", "-per-node", "9223372036854775807")
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, " direct ")

	for _, bad := range [][]string{{"-pes", "0"}, {"-pes", "x"}, {"-bytes", "-1"}, {"-bandwidth", "0"}, {"-per-node", "0"}, {"-pes", "9999999"}, {"rest"},
		{"-latency", "-1s"}, {"-post", "-1ns"}, {"-copy-post", "-1s"}, {"-latency", "2562047h"}, {"-post", "100000h"},
		{"-post", "1h"}, {"-bandwidth", "1", "-bytes", "1TiB"}} {
		status, stdout, stderr := call(append([]string{"plan"}, bad...)...)
		assert.Equal(t, exitUsage, status, "%v: %s", bad, stderr)
		assert.Empty(t, stdout, "%v", bad)
	}
}
