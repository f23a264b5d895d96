package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"goshmem/pe"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args string
		want commandLine
	}{
		{"put", commandLine{Config: Config{Name: "put"}, Bind: "auto"}},
		{"put -n 3 -path proxy -sizes 8,4KiB,1MiB -iters 10 -time 2s -json -bind none", commandLine{
			Config: Config{Name: "put", PEs: 3, Path: "proxy", Sizes: []int64{8, 4096, 1 << 20}, Iters: 10, Time: 2 * time.Second},
			JSON:   true, Bind: "none"}},
		{"barrier -inprocess -n 16", commandLine{Config: Config{Name: "barrier", PEs: 16}, InProcess: true, Bind: "auto"}},
		{"ring -join -n 8", commandLine{Config: Config{Name: "ring", PEs: 8}, Join: true, Bind: "auto"}},
		{"moe -tokens 5 -hidden 16 -experts 8 -topk 2 -dtype fp8 -routing zipf:1.1 -layout expert -combine expert -mover ce -sms 16", commandLine{
			Config: Config{Name: "moe", MoE: MoE{5, 16, 8, 2, "fp8", "zipf:1.1", "expert", "expert", "ce", 16}}, Bind: "auto"}},
		{"alltoallv -n 8 -nodes 4 -algo relay -spread zipf", commandLine{
			Config: Config{Name: "alltoallv", PEs: 8, Nodes: 4, Algo: "relay", Spread: "zipf"}, Bind: "auto"}},
		{"put -repeat 3", commandLine{Config: Config{Name: "put"}, Bind: "auto", Repeat: 3}},
		{"all -json -time 1ms", commandLine{Config: Config{Name: "all", Time: time.Millisecond}, JSON: true, Bind: "auto"}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			got, err := parse(strings.Fields(tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(Config{})); d != "" {
				t.Error(d)
			}
			if tc.want.Name == all {
				return
			}
			// What the processes are given says the same.
			again, err := parse(got.args())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(got.Config, again.Config, cmpopts.IgnoreUnexported(Config{})); d != "" || !again.Join || !again.JSON {
				t.Errorf("%v: %s", got.args(), d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"", "want one of put, get"},
		{"pt", "scatter, all or scale"},
		{"pt", `no program "pt"`},
		{"put -time 5", "want a time with its unit"},
		{"-json put", "name comes first"},
		{"put -size 8", "flag provided but not defined: -size"},
		{"put -tokens 8", "not defined"},
		{"put extra", `unexpected argument "extra"`},
		{"put -n x", `"x"`},
		{"put -n -1", "-1 PEs"},
		{"put-signal -n 1", "1 PEs: want 2 or more"},
		{"put -sizes 8,", "not understood"},
		{"put -sizes 0", "a size of 0 B"},
		{"put -sizes 4TiB", "is not possible"},
		{"amo -sizes 4", "a size of 4 B"},
		{"barrier -sizes 8", "no -sizes"},
		{"channel -n 2", "no -n"},
		{"allreduce -sizes 6", "a size of 6 B"},
		{"allreduce -algo relay", "no -algo"},
		{"alltoallv -spread even", "want one of [uniform zipf"},
		{"alltoall -spread zipf", "no -spread"},
		{"alltoallv -algo best", "want auto, direct or relay"},
		{"alltoallv -nodes 3", "3 simulated nodes of 2 PEs"},
		{"alltoallv -nodes -1", "-1 simulated nodes"},
		{"gc -nodes 2", "no -nodes"},
		{"put -iters -5", "negative"},
		{"put -time -5s", "negative"},
		{"put -iters 9223372036854775807", "iterations"},
		{"all -time -1s", "-time -1s"},
		{"put -path slow", `path "slow": want one of`},
		{"put -bind socket", "want auto, core or none"},
		{"put -join -inprocess", "exclude each other"},
		{"gc -join", "joins no world"},
		{"put -repeat -1", "-repeat -1"},
		{"put -join -repeat 2", "exclude each other"},
		{"all -n 2", "not defined"},
		{"moe -dtype fp4", `dtype "fp4": want one of`},
		{"moe -layout x", "layout"},
		{"moe -combine x", "combine"},
		{"moe -routing x", "routing is no trace"},
		{"moe -routing e256k8 -topk 2", "has 256 experts and top 8"},
		{"moe -routing uniform -experts 4 -topk 5", "TopK"},
		{"moe -tokens 1000000", "trace"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			err := Main(context.Background(), strings.Fields(tc.args), io.Discard, io.Discard, nil)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
			if !errors.Is(err, pe.ErrConfig) && !errors.Is(err, pe.ErrRange) {
				t.Errorf("%v is no configuration error", err)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"-h", "--help", "put -help"} {
		var out bytes.Buffer
		if err := Main(context.Background(), strings.Fields(args), &out, io.Discard, nil); err != nil {
			t.Fatal(err)
		}
		names, _ := Names()
		for _, n := range append(names, all, "-sizes", "-inprocess", "-routing") {
			if !strings.Contains(out.String(), n) {
				t.Errorf("%s: no %s in\n%s", args, n, &out)
			}
		}
	}
}

func TestMainWithoutLauncher(t *testing.T) {
	if err := Main(context.Background(), []string{"amo"}, io.Discard, io.Discard, nil); !errors.Is(err, pe.ErrUnsupported) {
		t.Error(err)
	}
}
