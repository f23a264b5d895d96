package bootstrap

import (
	"fmt"
	"log/slog"
	"time"

	"goshmem/internal/errs"
)

// Limits and defaults.
const (
	MaxSize                = 1 << 16          // ranks of a job
	MaxFrame               = 64 << 20         // bytes of a frame on the wire
	MaxBlob                = MaxFrame - 4<<10 // bytes of all blobs of a gather, and 8 for each
	Window                 = 4 << 20          // bytes underway from one member to another
	MaxMessage             = Window - messageExtra
	DefaultJoinDeadline    = 60 * time.Second
	DefaultFailureDeadline = 10 * time.Second
	DefaultHeartbeat       = time.Second

	maxTag     = 255  // bytes of a gather's tag
	maxText    = 1024 // bytes of a cause, a reason or a host id
	maxSecret  = 4096
	maxGathers = 1 << 16 // gathers of a hub that are not over

	// silentTicks is the number of a watcher's own ticks without a byte from the
	// other side that makes it lost. Counting ticks and not time means that a
	// watcher which was stopped or starved has seen few of them and accuses nobody.
	silentTicks = 16

	// messageExtra is what a message counts in the window beside its bytes: small
	// ones use memory too.
	messageExtra = 128

	// answerWait bounds a question to the hub at the end of a context, and the
	// flush of a goodbye.
	answerWait = 2 * time.Second
	// attemptTime bounds one attempt to connect to another host.
	attemptTime = 5 * time.Second
	// closeGrace bounds the flush of what is queued when a connection is closed.
	closeGrace = time.Second
	// shakeDeadline bounds a handshake, on the hub's side.
	shakeDeadline = 5 * time.Second
)

// HubConfig describes a job to its hub.
type HubConfig struct {
	Size   int // ranks of the job
	Holder int // rank whose process holds the hub; HolderLauncher: none

	JoinDeadline    time.Duration // since NewHub; 0: DefaultJoinDeadline
	FailureDeadline time.Duration // silence that makes a member lost; 0: DefaultFailureDeadline
	Heartbeat       time.Duration // 0: DefaultHeartbeat, or a fifth of a short FailureDeadline

	Secret []byte // the job's; may be empty on unix sockets, where users are checked too
	HostID string // identity of this process's host and namespaces
	Logger *slog.Logger
}

func (c *HubConfig) complete() error {
	if c.Size < 1 || c.Size > MaxSize {
		return fmt.Errorf("bootstrap: size %d is not in 1..%d: %w", c.Size, MaxSize, errs.ErrConfig)
	}
	if c.Holder < HolderLauncher || c.Holder >= c.Size {
		return fmt.Errorf("bootstrap: holder %d is no rank of %d: %w", c.Holder, c.Size, errs.ErrConfig)
	}
	if c.JoinDeadline < 0 || c.FailureDeadline < 0 || c.Heartbeat < 0 {
		return fmt.Errorf("bootstrap: a negative deadline or heartbeat: %w", errs.ErrConfig)
	}
	if err := checkTexts(c.Secret, c.HostID); err != nil {
		return err
	}
	if c.JoinDeadline == 0 {
		c.JoinDeadline = DefaultJoinDeadline
	}
	if c.FailureDeadline == 0 {
		c.FailureDeadline = DefaultFailureDeadline
	}
	if c.FailureDeadline < silentTicks*time.Millisecond {
		return fmt.Errorf("bootstrap: failure deadline %v is under %v: %w", c.FailureDeadline, silentTicks*time.Millisecond, errs.ErrConfig)
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = min(DefaultHeartbeat, c.FailureDeadline/5)
	}
	if c.Heartbeat > c.FailureDeadline/2 {
		return fmt.Errorf("bootstrap: heartbeat %v is over half the failure deadline %v: %w", c.Heartbeat, c.FailureDeadline, errs.ErrConfig)
	}
	c.Logger = orDiscard(c.Logger)
	return nil
}

// DialConfig says which hub to join, and as whom.
type DialConfig struct {
	Address string // as Listen takes it
	Rank    int
	Size    int

	Deadline time.Duration // for the hub to appear and to admit us; 0: DefaultJoinDeadline

	Secret []byte // the job's
	HostID string // identity of this process's host and namespaces
	Logger *slog.Logger

	holder []int // the rank that is missing where no hub appears; empty: not known
}

func (c *DialConfig) complete() error {
	if c.Size < 1 || c.Size > MaxSize {
		return fmt.Errorf("bootstrap: size %d is not in 1..%d: %w", c.Size, MaxSize, errs.ErrConfig)
	}
	if c.Rank < 0 || c.Rank >= c.Size {
		return fmt.Errorf("bootstrap: rank %d is not in 0..%d: %w", c.Rank, c.Size-1, errs.ErrConfig)
	}
	if c.Deadline < 0 {
		return fmt.Errorf("bootstrap: a negative deadline: %w", errs.ErrConfig)
	}
	if c.Deadline == 0 {
		c.Deadline = DefaultJoinDeadline
	}
	c.Logger = orDiscard(c.Logger)
	return checkTexts(c.Secret, c.HostID)
}

func checkTexts(secret []byte, host string) error {
	if len(secret) > maxSecret {
		return fmt.Errorf("bootstrap: a secret of %d bytes, over %d: %w", len(secret), maxSecret, errs.ErrConfig)
	}
	if len(host) > maxText {
		return fmt.Errorf("bootstrap: a host id of %d bytes, over %d: %w", len(host), maxText, errs.ErrConfig)
	}
	return nil
}

func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
