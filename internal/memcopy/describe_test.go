package memcopy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every method is either in a range of sizes or named as missing.
func TestDescribe(t *testing.T) {
	got := Describe()
	assert.True(t, strings.HasPrefix(got, "below 1 MiB: Go's copy\n"), got)
	for m := range methodsCount {
		assert.NotContains(t, m.String(), "method")
		if !available(m) {
			assert.Contains(t, got, "not available here: "+m.String()+"\n")
		}
	}
	for _, n := range []uintptr{RepMin, NTMin} {
		assert.Contains(t, got, "MiB: "+route(n).String()+" in pieces of 1 MiB\n")
	}
	assert.Equal(t, "method 9", method(9).String())
}
