package pe

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"goshmem/internal/options"
)

// Every option that is said to be a field of Config is one, and counts.
func TestConfigHasTheOptions(t *testing.T) {
	for _, o := range options.Table() {
		var c Config
		f := reflect.ValueOf(&c).Elem().FieldByName(o.Name)
		if !assert.Equal(t, !o.EnvOnly, f.IsValid(), o.Name) || o.EnvOnly {
			continue
		}
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		default:
			f.SetInt(1)
		}
		assert.False(t, reflect.ValueOf(c.values()).FieldByName(o.Name).IsZero(), o.Name)
	}
}
