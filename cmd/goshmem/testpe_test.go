package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"goshmem/coll"
	"goshmem/internal/bootstrap"
	"goshmem/internal/shm"
	"goshmem/internal/spin"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// lostStatus is the exit status of a test PE that was told of another's loss.
const lostStatus = 7

// testPE is the program that the tests run. Its first argument is what to do.
func testPE(args []string) int {
	rank := os.Getenv("GOSHMEM_RANK")
	ctx := context.Background()
	do := map[string]func() error{
		"env": func() error {
			env := slices.Sorted(slices.Values(os.Environ()))
			for _, kv := range env {
				fmt.Println(kv)
			}
			return nil
		},
		// lines prints args[1] lines that grow, to both streams, in pieces.
		"lines": func() error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			for i := range n {
				for _, f := range []*os.File{os.Stdout, os.Stderr} {
					fmt.Fprintf(f, "%s:%d:", rank, i)
					fmt.Fprintf(f, "%s\n", strings.Repeat("x", i))
				}
			}
			return nil
		},
		"cat": func() error {
			_, err := io.Copy(os.Stdout, os.Stdin)
			fmt.Printf("end of input of pe %s\n", rank)
			return err
		},
		"cpus": func() error {
			cpus, err := spin.CPUs()
			fmt.Println(rank, cpus)
			return err
		},
		// nodes tells where the PE is, how it reaches the others, and whether they
		// hear of each other.
		"nodes": func() error {
			return pe.Run(ctx, pe.Config{}, func(p *pe.PE) error {
				w := p.World()
				var paths []string
				for to := range p.Size() {
					peer, _ := p.Peer(to)
					paths = append(paths, peer.Path)
				}
				word, err := pe.Calloc[int64](ctx, p, p.Size())
				if err != nil {
					return err
				}
				for to := range p.Size() {
					if err := rma.PutValue(p.Context(), word.At(p.Rank()), int64(p.Rank()+1), to); err != nil {
						return err
					}
				}
				if err := coll.Barrier(ctx, p.Team()); err != nil {
					return err
				}
				verdict := "ok"
				for from, v := range word.Local() {
					if v != int64(from+1) {
						verdict = fmt.Sprint("got ", word.Local())
					}
				}
				me, _ := p.Peer(p.Rank())
				fmt.Printf("pe %d on node %d of %d: %v %s\n", p.Rank(), me.Node, w.Nodes(), paths, verdict)
				return nil
			})
		},
		// sleep is a program that joins no world.
		"sleep": func() error {
			ready()
			return forever()
		},
		"stubborn": func() error {
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			if len(args) > 1 { // a file that tells so
				if err := os.WriteFile(args[1]+rank, nil, 0o600); err != nil {
					return err
				}
			}
			ready()
			return forever()
		},
		"polite": func() error {
			c := make(chan os.Signal, 8)
			signal.Notify(c)
			ready()
			fmt.Println("got", <-c)
			return nil
		},
		// escape starts a process that leaves the PE's group but holds its output.
		"escape": func() error {
			cmd := exec.Command(peName, "sleep")
			cmd.Stdout = os.Stdout
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			return cmd.Start()
		},
		// wait joins and waits for what never comes.
		"wait": func() error { return pe.Run(ctx, pe.Config{}, waitForever) },
		// chat is wait, but PE args[1] puts to PE args[2] until that fails, and both are
		// long in giving up then.
		"chat": func() error {
			to, err := strconv.Atoi(args[2])
			if err != nil {
				return err
			}
			return pe.Run(ctx, pe.Config{}, func(p *pe.PE) error {
				word, err := pe.Calloc[int64](ctx, p, 1)
				if err != nil {
					return err
				}
				if rank == args[1] {
					go func() {
						for err == nil {
							time.Sleep(time.Millisecond)
							err = cmp.Or(rma.PutValue(p.Context(), word.At(0), 1, to), rma.Quiet(ctx, p.Context()))
						}
					}()
				}
				late := waitForever(p)
				if rank == args[1] || rank == args[2] {
					time.Sleep(10 * time.Second)
				}
				return late
			})
		},
		// fail is wait, but for PE args[1], whose body fails.
		"fail": func() error {
			return pe.Run(ctx, pe.Config{}, func(p *pe.PE) error {
				if err := meet(p); err != nil {
					return err
				}
				if rank == args[1] {
					return errors.New("the body failed")
				}
				return waitForever(p)
			})
		},
		// desert is wait, but for PE args[1], which ends as if all were well.
		"desert": func() error {
			return pe.Run(ctx, pe.Config{}, func(p *pe.PE) error {
				if err := meet(p); err != nil {
					return err
				}
				if rank == args[1] {
					os.Exit(0)
				}
				return waitForever(p)
			})
		},
		// skip is wait, but for PE args[1], which does not join.
		"skip": func() error {
			if rank == args[1] {
				ready()
				return nil
			}
			return pe.Run(ctx, pe.Config{}, waitForever)
		},
		// absent is skip, but PE args[1] stays around.
		"absent": func() error {
			if rank == args[1] {
				return forever()
			}
			return pe.Run(ctx, pe.Config{}, waitForever)
		},
		// meet joins the job without making a world, exchanges, and waits for losses
		// if args[1] says so.
		"meet": func() error { return meetOnly(ctx, len(args) > 1) },
		// suite runs the cases of args[1].
		"suite": func() error {
			cases, n := map[string]func() []suite.Case{"pe": suite.PE, "rma": suite.RMA, "amo": suite.AMO, "coll": suite.Coll}[args[1]](), 0
			size, err := strconv.Atoi(os.Getenv("GOSHMEM_SIZE"))
			if err == nil {
				err = suite.Launched(ctx, size, cases, func(name string, err error) {
					if n++; err != nil {
						fmt.Printf("%s: %v\n", name, err)
					}
				})
			}
			fmt.Printf("%d cases\n", n)
			return err
		},
		"worlds": func() error {
			n, err := strconv.Atoi(args[1])
			for i := 0; i < n && err == nil; i++ {
				err = pe.Run(ctx, pe.Config{}, func(p *pe.PE) error {
					fmt.Printf("world %d: pe %d of %d\n", i, p.Rank(), p.Size())
					return meet(p)
				})
			}
			return err
		},
	}[args[0]]
	err := do()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, pe.ErrPeerLost):
		fmt.Println("lost:", err)
		return lostStatus
	}
	fmt.Println("error:", err)
	return 1
}

// meetOnly is a member of the job's bootstrap and no more.
func meetOnly(ctx context.Context, wait bool) error {
	l, found, err := bootstrap.Detect(os.Getenv)
	if err != nil || !found {
		return fmt.Errorf("launch: %v, %w", found, err)
	}
	cfg := l.Config()
	cfg.HostID, cfg.Interface = shm.HostID(), os.Getenv("GOSHMEM_INTERFACE")
	cfg.FailureDeadline, _ = time.ParseDuration(os.Getenv("GOSHMEM_FAILURE_DEADLINE"))
	m, err := bootstrap.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	hosts, all := map[string]bool{}, make([]int, l.Size)
	for i := range all {
		all[i] = i
		p, _ := m.Peer(i)
		hosts[p.HostID] = true
	}
	lost := make(chan bootstrap.Event, l.Size)
	m.OnEvent(func(e bootstrap.Event) {
		if e.Kind == bootstrap.EventLost || e.Kind == bootstrap.EventHubLost {
			lost <- e
		}
	})
	for range 20 {
		if _, err := m.Gather(ctx, "x", all, make([]byte, 1000)); err != nil {
			return err
		}
	}
	fmt.Printf("pe %d of %d on %d hosts\n", l.Rank, l.Size, len(hosts))
	if wait {
		e := <-lost
		return fmt.Errorf("%w: pe %d %v: %s", pe.ErrPeerLost, e.PE, e.Kind, e.Cause)
	}
	return errors.Join(m.Goodbye(), m.Close())
}

// ready says which process is which PE.
func ready() { fmt.Printf("ready %s %d\n", os.Getenv("GOSHMEM_RANK"), os.Getpid()) }

func forever() error {
	time.Sleep(10 * time.Minute)
	return errors.New("nobody ended it")
}

// meet is a barrier.
func meet(p *pe.PE) error {
	_, err := p.Team().Gather(context.Background(), "meet", nil)
	return err
}

func waitForever(p *pe.PE) error {
	ctx := context.Background()
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	ready()
	return rma.WaitSignal(ctx, p.Context(), sigs.At(0), rma.GT, 0)
}
