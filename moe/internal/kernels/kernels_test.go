package kernels

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The PTX is of this source: `make ptx-moe` makes it anew.
func TestPTXIsOfSource(t *testing.T) {
	src, err := os.ReadFile("kernels.cu")
	require.NoError(t, err)
	first, _, _ := bytes.Cut(PTX, []byte("\n"))
	require.Equal(t, fmt.Sprintf("// source sha256:%x", sha256.Sum256(src)), string(first))
	for k := range Kernels {
		require.Contains(t, string(PTX), ".entry "+k.String()+"(")
	}
}

// Kernels have as many parameters as Params says.
func TestParams(t *testing.T) {
	for k := range Kernels {
		_, rest, _ := strings.Cut(string(PTX), ".entry "+k.String()+"(")
		head, _, _ := strings.Cut(rest, ")")
		require.Equal(t, strings.Count(head, ".param"), k.Params(), k)
		require.LessOrEqual(t, k.Params(), MaxParams)
	}
}

// No product is fused with a sum: results are those of the host.
func TestNoContraction(t *testing.T) {
	require.NotRegexp(t, regexp.MustCompile(`fma\.rn\.f32|mad\.rn\.f32|\.ftz\.f32|ex2\.approx`), string(PTX))
	require.Contains(t, string(PTX), "mul.rn.f32")
	require.Contains(t, string(PTX), "add.rn.f32")
}

// Ctx has the fields of the kernels' struct, in its order, and constants agree.
func TestMirror(t *testing.T) {
	src, err := os.ReadFile("kernels.cu")
	require.NoError(t, err)
	text := string(src)
	rest := mirrored(t, text, "struct Ctx {", reflect.TypeFor[Ctx]())
	staged := mirrored(t, text, "struct Stage {", reflect.TypeFor[Stage]())
	require.Contains(t, staged, fmt.Sprintf("B_TABLE = %d", BTable))
	box, _, _ := strings.Cut(staged[strings.Index(staged, "enum { B_SEQ"):], "B_TABLE")
	require.Equal(t, BSums+1, strings.Count(box, ","))
	require.Contains(t, rest, fmt.Sprintf("mover_warps = %d, most_stages = %d, near_peers = %d", moverWarps, maxStages, NearPeers))
	require.Contains(t, rest, fmt.Sprintf("fetch_stages = %d, fetch_piece = %d", fetchStages, fetchPiece))
	require.Contains(t, rest, fmt.Sprintf("last_part = %d", LastPart))
	require.Contains(t, rest, "enum { F_HEAD, F_DATA, F_READY, F_DONE, flag_kinds }")
	require.Contains(t, rest, "W_COUNTS = 16")
	state, _, _ := strings.Cut(rest[strings.Index(rest, "enum { S_SEQ"):], "state_words")
	require.Equal(t, StateWords, strings.Count(state, ","))
	require.LessOrEqual(t, int64(FetchShared), int64(SharedMost))
}

// mirrored compares a struct of the kernels with ours, and returns what follows it.
func mirrored(t *testing.T, text, begin string, ours reflect.Type) (rest string) {
	t.Helper()
	_, text, _ = strings.Cut(text, begin)
	body, rest, _ := strings.Cut(text, "};")
	body = regexp.MustCompile(`//[^\n]*`).ReplaceAllString(body, "")
	var theirs, names []string
	for _, d := range strings.Split(body, ";") {
		d = regexp.MustCompile(`^\s*u?int64_t`).ReplaceAllString(d, "")
		for n := range strings.SplitSeq(d, ",") {
			if n = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(n), "_", "")); n != "" {
				theirs = append(theirs, n)
			}
		}
	}
	for i := range ours.NumField() {
		names = append(names, strings.ToLower(ours.Field(i).Name))
		require.EqualValues(t, 8, ours.Field(i).Type.Size())
	}
	require.Equal(t, theirs, names)
	return rest
}

// Pieces of rows fit into shared memory whatever the row, and into bulk copies.
func TestStages(t *testing.T) {
	for row := int64(1); row < 1<<20; row += 1 + row/7 {
		stage, n := Stages(row)
		require.GreaterOrEqual(t, n, int64(3))
		require.LessOrEqual(t, n, int64(maxStages))
		require.Zero(t, stage%16)
		require.LessOrEqual(t, int64(DispatchShared(stage, n)), int64(SharedMost))
	}
}

// However many blocks and PEs share a link, together they send no faster than it takes.
func TestInterval(t *testing.T) {
	for _, blocks := range []int{1, 3, 8, 24, 64, 132} {
		for _, sharing := range []int{1, 2, 4} {
			for _, stage := range []int64{16, 1024, 7168, 8192} {
				ns := Interval(stage, blocks, sharing)
				sent := stage * moverWarps / 2 * int64(blocks) * int64(sharing)
				if blocks*sharing < LinkRate/smRate {
					require.Zero(t, ns)
					continue
				}
				require.Positive(t, ns)
				require.LessOrEqual(t, sent, (ns+1)*LinkRate)
				require.GreaterOrEqual(t, sent+LinkRate, ns*LinkRate)
			}
		}
	}
}
