package pe

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"goshmem/internal/bootstrap"
)

// onHosts is a member that knows where everybody is.
type onHosts struct {
	bootstrap.Member
	hosts []string
}

func (m onHosts) Peer(rank int) (bootstrap.Peer, bool) {
	return bootstrap.Peer{HostID: m.hosts[rank]}, true
}

func TestOversubscribed(t *testing.T) {
	two := []int{0, 1}
	for name, tc := range map[string]struct {
		hosts  []string
		hellos []hello
		want   bool
	}{
		"a CPU each":          {[]string{"a", "a"}, []hello{{CPUs: two}, {CPUs: two}}, false},
		"bound to one each":   {[]string{"a", "a"}, []hello{{CPUs: two[:1]}, {CPUs: two[1:]}}, false},
		"bound to the same":   {[]string{"a", "a"}, []hello{{CPUs: two[:1]}, {CPUs: two[:1]}}, true},
		"three on two":        {[]string{"a", "a", "a"}, []hello{{CPUs: two}, {CPUs: two}, {CPUs: two}}, true},
		"three on two hosts":  {[]string{"a", "a", "b"}, []hello{{CPUs: two}, {CPUs: two}, {CPUs: two}}, false},
		"a quota of one CPU":  {[]string{"a", "a"}, []hello{{CPUs: two, Quota: 1}, {CPUs: two, Quota: 1}}, true},
		"a quota that is met": {[]string{"a", "a"}, []hello{{CPUs: two, Quota: 2}, {CPUs: two}}, false},
	} {
		assert.Equal(t, tc.want, oversubscribed(onHosts{hosts: tc.hosts}, tc.hellos), name)
	}
}
