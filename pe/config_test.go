package pe

import (
	"bytes"
	"log/slog"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/options"
)

// Every option but those of the environment alone has a field, whose value arrives.
func TestConfigHasEveryOption(t *testing.T) {
	for _, o := range options.Table() {
		var c Config
		f := reflect.ValueOf(&c).Elem().FieldByName(o.Name)
		if !assert.Equal(t, !o.EnvOnly, f.IsValid(), o.Name) || o.EnvOnly {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		default:
			f.SetInt(1)
		}
		assert.False(t, reflect.ValueOf(c.values()).FieldByName(o.Name).IsZero(), o.Name)
	}
}

// A world in one process tells of misspelt variables too.
func TestRunWarns(t *testing.T) {
	t.Setenv("GOSHMEM_PAHT", "proxy")
	var log bytes.Buffer
	cfg := Config{Size: 1, HeapSize: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	require.NoError(t, Run(t.Context(), cfg, func(*PE) error { return nil }))
	assert.Contains(t, log.String(), "did you mean GOSHMEM_PATH?")
}
