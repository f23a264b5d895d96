package bootstrap

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"goshmem/internal/errs"
)

// PMI-1's wire protocol: lines of name=value pairs, each with a cmd, over the
// descriptor that PMI_FD names. It is spoken once in a process's life: the server
// takes an end without finalize for a crash, and finalize for the last word.

// pmi is a client.
type pmi struct {
	conn net.Conn
	r    *bufio.Reader
}

const (
	pmiLine  = 4 << 10         // bytes of a line
	pmiKey   = "goshmem"       // of the rendezvous
	pmiGrace = 2 * time.Second // for the last word
)

// newPMI takes the descriptor over.
func newPMI(fd int) (*pmi, error) {
	f := os.NewFile(uintptr(fd), "PMI_FD")
	if f == nil {
		return nil, fmt.Errorf("PMI_FD=%d is no descriptor: %w", fd, errs.ErrConfig)
	}
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("PMI_FD=%d: %w: %w", fd, errs.ErrConfig, err)
	}
	return &pmi{conn: conn, r: bufio.NewReaderSize(conn, pmiLine)}, nil
}

// pmiFields reads a line of the protocol.
func pmiFields(line string) (map[string]string, error) {
	m := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		k, v, ok := strings.Cut(word, "=")
		switch {
		case ok && k != "":
			m[k] = v
		case m["cmd"] == "": // a message may be several words
			return nil, fmt.Errorf("%.80q: %w", line, errs.ErrUnsupported)
		}
	}
	if m["cmd"] == "" {
		return nil, fmt.Errorf("%.80q: %w", line, errs.ErrUnsupported)
	}
	return m, nil
}

// call says something and hears the answer of that name.
func (p *pmi) call(answer, format string, args ...any) (map[string]string, error) {
	said := fmt.Sprintf(format, args...)
	if _, err := p.conn.Write([]byte("cmd=" + said + "\n")); err != nil {
		return nil, err
	}
	line, err := p.r.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer to %.40q: %w", said, err)
	}
	m, err := pmiFields(string(line))
	if err != nil {
		return nil, fmt.Errorf("answer to %.40q: %w", said, err)
	}
	if rc := m["rc"]; m["cmd"] != answer || rc != "" && rc != "0" {
		return nil, fmt.Errorf("answer to %.40q: %.80q: %w", said, strings.TrimSpace(string(line)), errs.ErrUnsupported)
	}
	return m, nil
}

// exchange gives everybody what rank 0 puts.
func (p *pmi) exchange(ctx context.Context, rank int, value string) (string, error) {
	defer context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := p.call("response_to_init", "init pmi_version=1 pmi_subversion=1"); err != nil {
		return "", err
	}
	max, err := p.call("maxes", "get_maxes")
	if err != nil {
		return "", err
	}
	if n, err := strconv.Atoi(max["vallen_max"]); err != nil || n <= len(value) {
		return "", fmt.Errorf("values of %.20q bytes, %d are needed: %w", max["vallen_max"], len(value)+1, errs.ErrUnsupported)
	}
	kvs, err := p.call("my_kvsname", "get_my_kvsname")
	if err != nil {
		return "", err
	}
	if rank == 0 {
		if _, err := p.call("put_result", "put kvsname=%s key=%s value=%s", kvs["kvsname"], pmiKey, value); err != nil {
			return "", err
		}
	}
	if _, err := p.call("barrier_out", "barrier_in"); err != nil {
		return "", err
	}
	got, err := p.call("get_result", "get kvsname=%s key=%s", kvs["kvsname"], pmiKey)
	if err != nil {
		return "", err
	}
	return got["value"], nil
}

func (p *pmi) finish() {
	_ = p.conn.SetDeadline(time.Now().Add(pmiGrace))
	_, _ = p.call("finalize_ack", "finalize") // all that we wanted is there
	_ = p.conn.Close()
}

// Meet finds the rendezvous, where that takes asking: by PMI. Connect does it
// too; a caller that wants to know Address and Secret does it before.
func (c *ConnectConfig) Meet(ctx context.Context) error {
	if c.Address != "" || c.PMIFD <= 0 || c.Size < 2 {
		return nil
	}
	if c.JoinDeadline <= 0 {
		c.JoinDeadline = DefaultJoinDeadline
	}
	return meetByPMI(ctx, c)
}

// meetByPMI finds the rendezvous of a job over several hosts in the launcher's
// key-value space, where rank 0, which opens it, puts it, with a secret if the
// job has none. The answer goes into this process's environment, for further
// worlds: there it is looked for before PMI is asked.
func meetByPMI(ctx context.Context, cfg *ConnectConfig) (err error) {
	defer func() {
		_ = os.Unsetenv(envPMIFD) // closed, and perhaps another file's by now
		if err != nil {
			err = fmt.Errorf("bootstrap: rendezvous by PMI: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinDeadline)
	defer cancel()
	p, err := newPMI(cfg.PMIFD)
	if err != nil {
		return err
	}
	defer p.finish()
	value := ""
	if cfg.Rank == 0 {
		if value, err = openForPMI(ctx, cfg); err != nil {
			return err
		}
	}
	got, err := p.exchange(ctx, cfg.Rank, value)
	if err == nil {
		err = cfg.takePMI(got)
	}
	if err != nil {
		if cfg.listener != nil {
			_ = cfg.listener.Close()
		}
		if ctx.Err() != nil {
			return contextError(ctx, "exchange", &errs.TimeoutError{What: "all ranks to speak PMI", PE: -1})
		}
		return err
	}
	for k, v := range map[string]string{EnvRendezvous: cfg.Address, EnvSecret: hex.EncodeToString(cfg.Secret), EnvSecretFile: ""} {
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	return nil
}

// openForPMI opens the rendezvous and gives the word for it.
func openForPMI(ctx context.Context, cfg *ConnectConfig) (string, error) {
	b, err := Outward(ctx, cfg.Interface)
	if err != nil {
		return "", err
	}
	if cfg.listener, err = listenOn(b, "0"); err != nil {
		return "", err
	}
	orDiscard(cfg.Logger).Info("bootstrap: the hub listens", "address", cfg.listener.Addr().String(), "interface", b.String())
	if len(cfg.Secret) > 0 {
		return cfg.listener.Addr().String(), nil
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("no random bytes: %w", err)
	}
	return cfg.listener.Addr().String() + "/" + hex.EncodeToString(secret), nil
}

// takePMI reads what openForPMI made.
func (c *ConnectConfig) takePMI(word string) error {
	address, text, has := strings.Cut(word, "/")
	if err := CheckAddress(address); err != nil {
		return err
	}
	c.Address = address
	if len(c.Secret) > 0 || !has {
		return nil
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) == 0 || len(secret) > maxSecret {
		return fmt.Errorf("the secret of rank 0 is none: %w", errs.ErrConfig)
	}
	c.Secret = secret
	return nil
}
