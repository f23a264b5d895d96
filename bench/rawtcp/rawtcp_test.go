package rawtcp

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestLink(t *testing.T) {
	l, addr, err := Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	g.Go(func() error {
		k, err := l.Accept(t.Context())
		if err != nil {
			return err
		}
		err = k.Bounce(make([]byte, 100), 50, false)
		<-k.done // until the other end closes
		_ = k.Close()
		return err
	})
	k, err := Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Bounce(make([]byte, 100), 50, true); err != nil {
		t.Error(err)
	}
	if err := k.Stream(make([]byte, 100000), 50); err != nil {
		t.Error(err)
	}
	if err := k.Echo(make([]byte, 8), 50); err != nil {
		t.Error(err)
	}
	_ = k.Close()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// Ends that do not meet are not waited for beyond ctx.
func TestNobodyComes(t *testing.T) {
	l, addr, err := Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Accept(ctx); err == nil {
		t.Error("accepted nobody")
	}
	if _, err := Dial(ctx, addr); err == nil {
		t.Error("dialled nobody")
	}
}
