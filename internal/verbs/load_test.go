package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"goshmem/internal/errs"
)

// Without library or device the error says what was looked for and found.
func TestNoDevice(t *testing.T) {
	lib, err := Load()
	if err != nil {
		if !errors.Is(err, errs.ErrUnsupported) || !strings.Contains(err.Error(), libraryName) {
			t.Fatal(err)
		}
		return
	}
	names, err := lib.Devices()
	if err != nil {
		t.Fatal(err)
	}
	_, err = lib.Open("nosuch0")
	if !errors.Is(err, errs.ErrUnsupported) || !strings.Contains(err.Error(), "nosuch0") || !strings.Contains(err.Error(), "found") {
		t.Error(err)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if s := lib.StatusText(WCRetryExcErr); s == "" || s == lib.StatusText(WCSuccess) {
		t.Error(s)
	}
	if s := lib.EventText(EventPortErr); s == "" {
		t.Error(s)
	}
}

func TestError(t *testing.T) {
	for errno, is := range map[syscall.Errno]error{
		syscall.ENOMEM: errs.ErrNoMemory, syscall.EINVAL: errs.ErrConfig, syscall.EOPNOTSUPP: errs.ErrUnsupported,
	} {
		err := fail("ibv_modify_qp", uintptr(errno), "to RTR")
		if !errors.Is(err, errno) || !errors.Is(err, is) || !strings.HasPrefix(err.Error(), "verbs: ibv_modify_qp (to RTR): ") {
			t.Error(err)
		}
	}
	if err := fail("x", 0, ""); err != nil {
		t.Error(err)
	}
	minus := -int(syscall.EIO)
	if err := fail("x", uintptr(minus), ""); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}

func TestGID(t *testing.T) {
	mapped := GID{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}
	if mapped.String() != "192.0.2.1" || mapped.LinkLocal() {
		t.Error(mapped)
	}
	if local := (GID{0: 0xfe, 1: 0x80, 15: 1}); !local.LinkLocal() || local.String() != "fe80::1" {
		t.Error(local)
	}
	if !(GID{10: 0xff, 11: 0xff, 12: 169, 13: 254, 15: 1}).LinkLocal() {
		t.Error("169.254/16 is link-local")
	}
	for bytes, m := range map[int]MTU{256: 1, 1024: 3, 4096: 5} {
		if got, ok := MTUOf(bytes); !ok || got != m || m.Bytes() != bytes {
			t.Error(bytes, got)
		}
	}
	if _, ok := MTUOf(1500); ok || MTU(0).Bytes() != 0 {
		t.Error("1500 is no MTU")
	}
	for got, want := range map[string]string{QPSRTS.String(): "RTS", QPState(9).String(): "9", PortActive.String(): "ACTIVE", GIDRoCEv2.String(): "RoCE v2"} {
		if got != want {
			t.Error(got, want)
		}
	}
}
