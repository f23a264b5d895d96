package cudadev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The kernel of alltoallvs, compiled as C++: members that run ahead of each other, sizes
// about that which lands, and numbers of calls at which flags come again: the last of some
// have the flags of earlier ones, whose lines the calls between have written over.
func TestExchangeEmulated(t *testing.T) {
	cc := os.Getenv("CXX")
	if cc == "" {
		cc = "g++"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no compiler, and no GPU: %v", err)
	}
	bin := filepath.Join(t.TempDir(), "emulate")
	out, err := exec.Command(cc, "-std=c++17", "-O1", "-pthread", "-o", bin, "testdata/emulate.cpp").CombinedOutput()
	require.NoError(t, err, "%s", out)
	runs := [][]string{{"1", "-1", "0:3"}, {"2", "5", "0:20"}, {"3", "7", "0x7ffffff8:20"}, {"3", "-1", "0xfffffff8:20"}}
	for i := range 4 {
		runs = append(runs, []string{"3", "-1", fmt.Sprintf("0:%d", i), "8:4", "0x7fffffff:2", "0x10000000a:2"})
	}
	for _, args := range runs {
		out, err := exec.Command(bin, args...).CombinedOutput()
		require.NoError(t, err, "%v\n%s", args, out)
	}
}
