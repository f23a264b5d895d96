package options

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"0", 0},
		{"1", 1},
		{"4096B", 4096},
		{"64MiB", 64 << 20},
		{"64 MiB", 64 << 20},
		{"64m", 64 << 20},
		{"1K", 1024},
		{"3gib", 3 << 30},
		{"2T", 2 << 40},
		{"7P", 7 << 50},
		{"8191PiB", 8191 << 50},
		{"9223372036854775807", math.MaxInt64},
		{"007", 7},
	} {
		got, err := ParseBytes(c.text)
		assert.NoError(t, err, c.text)
		assert.Equal(t, c.want, got, c.text)
	}
}

func TestParseBytesRefuses(t *testing.T) {
	for text, want := range map[string]error{
		"": errSyntax, " ": errSyntax, "MiB": errSyntax, "-1": errSyntax, "+1": errSyntax, "1.5GiB": errSyntax,
		"1e6": errSyntax, "0x10": errSyntax, "1_000": errSyntax, "64MQ": errSyntax, "64MB": errSyntax, "1KiBB": errSyntax,
		"1IB": errSyntax, "1BIB": errSyntax, "1Ki": errSyntax, "1KM": errSyntax, "1 2": errSyntax, "64MiB ": errSyntax,
		"٣": errSyntax, "8192P": errLarge, "9223372036854775808": errLarge, "99999999999999999999T": errLarge,
	} {
		_, err := ParseBytes(text)
		assert.Equal(t, want, err, "%q", text)
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B", 64 << 20: "64MiB", 1 << 50: "1PiB", 1 << 62: "4096PiB", math.MaxInt64: "9223372036854775807B",
	} {
		assert.Equal(t, want, FormatBytes(n))
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{
		"10s": "10s", "10m": "10m", "600s": "10m", "1m30s": "1m30s", "200us": "200us", "200µs": "200us", "1h": "1h", "1.5s": "1.5s", "0": "0s", "90m": "1h30m", "3601s": "1h0m1s",
	} {
		d, err := ParseDuration(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, FormatDuration(d))
	}
	for _, text := range []string{"", "10", "s", "10 s", "1d", "10000000h", "soon"} {
		_, err := ParseDuration(text)
		assert.Error(t, err, text)
	}
}

func TestParseBool(t *testing.T) {
	for text, want := range map[string]bool{"1": true, "true": true, "YES": true, "on": true, "0": false, "False": false, "no": false, "off": false} {
		got, err := ParseBool(text)
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "2", "maybe", "tru"} {
		_, err := ParseBool(text)
		assert.Error(t, err, text)
	}
}

// What is accepted is not negative, and is what its printed form says.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "0", "64MiB", "1 k", "8192P", "9223372036854775807B", "1BIB", "-1", "\xff\xffMiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseBytes(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
		if again, err := ParseBytes(FormatBytes(n)); err != nil || again != n {
			t.Fatalf("%q is %d, printed %q, read %d %v", s, n, FormatBytes(n), again, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"", "0", "10s", "1m30s", "200us", "-1h", "2562047h47m16.854775807s", "1d"} {
		f.Add(s, int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, s string, n int64) {
		durations := []time.Duration{time.Duration(n)}
		if d, err := ParseDuration(s); err == nil {
			durations = append(durations, d)
		}
		for _, d := range durations {
			if again, err := ParseDuration(FormatDuration(d)); err != nil || again != d {
				t.Fatalf("%d, printed %q, read %d %v", d, FormatDuration(d), again, err)
			}
		}
	})
}
