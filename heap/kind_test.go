package heap

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKind(t *testing.T) {
	assert.Equal(t, "host", KindHost.String())
	assert.Equal(t, "cuda", KindCUDA.String())
	assert.Equal(t, "kind9", Kind(9).String())
	assert.True(t, KindCUDA.Valid())
	assert.False(t, Kind(2).Valid())
}
