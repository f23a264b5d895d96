package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"goshmem/bench"
	"goshmem/internal/topo"
)

// perftest is UCX's own benchmark program: a server and a client.
func perftest(m maker) peer {
	return peer{name: "ucx", start: runPerftest, compiler: m.tool("UCX_PERFTEST", "ucx_perftest"), gaps: map[string]string{
		"put latency": "ucx_perftest has no put with a flush each: ucp_put_lat, which is one way, stands with put-signal",
		"barrier":     "ucx_perftest has no collectives",
	}}
}

// ucxTests is which test gives which figure.
func ucxTests() map[string]string {
	return map[string]string{
		"put rate": "ucp_put_bw", "put bandwidth": "ucp_put_bw",
		"get latency": "ucp_get", "get bandwidth": "ucp_get", "put-signal latency": "ucp_put_lat",
		"amo fetch-add": "ucp_fadd", "amo compare-swap": "ucp_cswap",
	}
}

// runPerftest runs a test for each figure of a suite, and gives it goshmem's form.
func runPerftest(ctx context.Context, p *peer, s settings, l suite) ([]byte, error) {
	var out bytes.Buffer
	for _, metric := range l.metrics {
		test := ucxTests()[l.op+" "+metric]
		for _, size := range l.sizes {
			if test == "" || !has(metric, size) {
				continue
			}
			text, err := p.pair(ctx, s, test, metric, l.path, size)
			if err != nil {
				return out.Bytes(), err
			}
			r, err := readPerftest(text, metric, size)
			if err != nil {
				return out.Bytes(), err
			}
			r.Bench, r.PEs, r.Path = l.op, l.pes, l.path
			if err := r.WriteJSON(&out); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}

// pair starts server and client, and gives what the client printed.
func (p *peer) pair(ctx context.Context, s settings, test, metric, path string, size int64) ([]byte, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	n := iterations(s.time, path, size)
	args := []string{"-p", strconv.Itoa(port), "-t", test, "-s", strconv.FormatInt(size, 10),
		"-n", strconv.Itoa(n), "-w", strconv.Itoa(n/10 + 1), "-v", "-f"}
	if metric != "rate" && metric != "bandwidth" {
		args = append(args, "-O", "1")
	}
	cpus := topo.Read().Usable
	bind := func(i int) []string {
		if len(cpus) == 0 {
			return nil
		}
		return []string{"-c", strconv.Itoa(cpus[i%len(cpus)])}
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := output(serving, s, p.env, p.program, append(bind(0), args...)...)
		ended <- err
	}()
	defer func() {
		stop()
		<-ended
	}()
	// The server takes a moment to listen.
	var text []byte
	for range 50 {
		if text, err = output(ctx, s, p.env, p.program, append(append([]string{"127.0.0.1"}, bind(1)...), args...)...); err == nil {
			return text, nil
		}
		select {
		case server := <-ended:
			ended <- nil
			return nil, errors.Join(server, err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// iterations fit into about the time of a figure.
func iterations(t time.Duration, path string, size int64) int {
	each := 100*time.Nanosecond + time.Duration(size/10)
	if path == "tcp" {
		each = 20*time.Microsecond + time.Duration(size)
	}
	return max(int(t/each), 50)
}

// readPerftest reads the last line of its values: its means over all iterations.
func readPerftest(text []byte, metric string, size int64) (bench.Result, error) {
	r := bench.Result{Metric: metric, Size: size, Verified: true}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	cells := strings.Split(lines[len(lines)-1], ",")
	if len(cells) != 8 {
		return r, fmt.Errorf("ucx_perftest printed %q", text)
	}
	rate, err := strconv.ParseFloat(cells[7], 64)
	if err != nil || rate <= 0 {
		return r, fmt.Errorf("ucx_perftest printed a rate of %q", cells[7])
	}
	switch metric {
	case "rate":
		r.Unit, r.P50 = "M/s", rate/1e6
	case "bandwidth":
		r.Unit, r.P50 = "GB/s", rate*float64(size)/1e9
	default:
		r.Unit, r.P50 = "ns", 1e9/rate
	}
	r.P99, r.Mean = r.P50, r.P50
	return r, nil
}
