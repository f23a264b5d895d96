package futex

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a sleeper and the words that it sleeps by.
type pair struct {
	*Sleeper
	armed, ring *uint32
}

func newPair(shared bool) pair {
	p := pair{armed: new(uint32), ring: new(uint32)}
	p.Sleeper = NewSleeper(p.armed, p.ring, shared)
	return p
}

func (p pair) asleep() int   { return int(atomic.LoadUint32(p.armed)) }
func (p pair) rings() uint32 { return atomic.LoadUint32(p.ring) }

func both(t *testing.T, f func(t *testing.T, p pair)) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			p := newPair(shared)
			f(t, p)
			require.Zero(t, p.asleep(), "armed stays")
		})
	}
}

// until waits for ok.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 100*time.Microsecond)
}

func never() bool { return false }

// sleepUntil sleeps, again and again, until ok.
func (p pair) sleepUntil(ctx context.Context, ok func() bool) {
	for !ok() && ctx.Err() == nil {
		p.Sleep(ctx, MaxNap, ok)
	}
}

func TestSleepNotAtAll(t *testing.T) {
	both(t, func(t *testing.T, p pair) {
		asked := 0
		for range 1000 { // a sleep each would take minutes
			p.Sleep(t.Context(), time.Hour, func() bool {
				asked++
				require.Equal(t, 1, p.asleep(), "asked before it was armed")
				return true
			})
		}
		require.Equal(t, 1000, asked)
		for _, nap := range []time.Duration{0, -time.Second} {
			p.Sleep(t.Context(), nap, func() bool { t.Error("asked without a nap"); return false })
		}
	})
}

// A ring between the look at the bell and the sleep is not missed.
func TestRingBeforeSleep(t *testing.T) {
	both(t, func(t *testing.T, p pair) {
		for range 1000 {
			p.Sleep(t.Context(), MaxNap, func() bool {
				p.Bell().Check()
				return false
			})
		}
		require.EqualValues(t, 1000, p.rings())
	})
}

func TestCheckRingsTheArmed(t *testing.T) {
	both(t, func(t *testing.T, p pair) {
		p.Bell().Check()
		require.Zero(t, p.rings())
		require.Zero(t, p.Bell().Armed().Load())
		var woken atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.sleepUntil(t.Context(), woken.Load)
		}()
		until(t, func() bool { return p.asleep() == 1 })
		woken.Store(true)
		p.Bell().Check()
		<-done
	})
}

// A sleep that nobody ends does not last.
func TestNapEnds(t *testing.T) {
	both(t, func(t *testing.T, p pair) {
		p.Sleep(t.Context(), time.Hour, never)
		p.Sleep(t.Context(), time.Millisecond, never)
		require.Zero(t, p.rings())
	})
}

// Many goroutines sleep for different reasons; each wakes for its own. At most
// one of them is in the system call.
func TestManySleepers(t *testing.T) {
	const n = 16
	both(t, func(t *testing.T, p pair) {
		var words [n]atomic.Bool
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { p.sleepUntil(t.Context(), words[i].Load) })
		}
		until(t, func() bool { return p.asleep() == n })
		if p.shared {
			until(t, func() bool { return leaders() == 1 })
		} else {
			require.Zero(t, leaders())
		}
		for i := range n {
			words[n-1-i].Store(true)
			p.Bell().Check()
			until(t, func() bool { return p.asleep() <= n-1-i })
			require.LessOrEqual(t, leaders(), 1)
		}
		wg.Wait()
	})
}

// leaders counts the goroutines in FUTEX_WAIT.
func leaders() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "futex.Wait(")
}

// The end of its context wakes each sleeper, whether it leads or follows, and
// leaves the others asleep.
func TestCancelWakes(t *testing.T) {
	both(t, func(t *testing.T, p pair) {
		const n = 4
		var cancels [n]context.CancelFunc
		var done [n]chan struct{}
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancels[i], done[i] = cancel, make(chan struct{})
			go func() {
				defer close(done[i])
				p.sleepUntil(ctx, never)
			}()
			until(t, func() bool { return p.asleep() == i+1 })
		}
		for i := range n {
			cancels[i]()
			<-done[i]
			until(t, func() bool { return p.asleep() == n-1-i })
		}
	})
}

// When a sleep is over, nothing of it touches the bell any more: the memory may
// go.
func TestNothingOutlivesSleep(t *testing.T) {
	p := newPair(true)
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i % 50 {
				runtime.Gosched()
			}
			cancel()
		}()
		p.Sleep(ctx, time.Duration(1+i%7)*20*time.Microsecond, never)
		before := p.rings()
		cancel()
		for range 20 {
			runtime.Gosched()
		}
		require.Equal(t, before, p.rings())
	}
}

// Through another mapping of the same page, as another process rings.
func TestRingThroughAnotherMapping(t *testing.T) {
	fd, err := unix.MemfdCreate("bell-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Ftruncate(fd, 4096))
	var mem [2][]byte
	for i := range mem {
		mem[i], err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		defer func() { _ = unix.Munmap(mem[i]) }()
	}
	at := func(i, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[i][off])) }
	p := pair{NewSleeper(at(0, 0), at(0, 64), true), at(0, 0), at(0, 64)}
	bell := NewBell(at(1, 0), at(1, 64), nil)
	const rounds = 200
	var round atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(rounds) {
			p.sleepUntil(t.Context(), func() bool { return round.Load() > i })
		}
	}()
	for range rounds {
		until(t, func() bool { return p.asleep() == 1 })
		round.Add(1)
		bell.Check()
	}
	<-done
	require.NotZero(t, p.rings())
}

// Changes and sleeps at full speed: no wake-up is lost. A lost one would cost a
// nap, and all of them an hour.
func TestNoWakeUpIsLost(t *testing.T) {
	// With one P, a goroutine in FUTEX_WAIT keeps it for milliseconds: each round
	// would take as long.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	both(t, func(t *testing.T, p pair) {
		const rounds = 20_000
		start := time.Now()
		var word, seen atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := int64(1); i <= rounds; i++ {
				p.sleepUntil(t.Context(), func() bool { return word.Load() >= i })
				seen.Store(i)
			}
		}()
		for i := int64(1); i <= rounds; i++ {
			word.Add(1) // a locked instruction, before armed is read
			p.Bell().Check()
			for k := 0; seen.Load() < i-1; k++ {
				runtime.Gosched()
			}
		}
		<-done
		require.Less(t, time.Since(start), rounds*MaxNap/20)
	})
}
