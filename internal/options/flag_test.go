package options

import (
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFlagError(t *testing.T) {
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Duration("time", 0, "")
	fs.Int("n", 0, "")
	fs.Float64("percent", 0, "")
	fs.Bool("b", false, "")
	for args, want := range map[[2]string]string{
		{"-time", "5"}:    `invalid value "5" for flag -time: want a time with its unit, such as 10s or 300ms`,
		{"-n", "a -b"}:    `invalid value "a -b" for flag -n: want a number`,
		{"-percent", "x"}: `invalid value "x" for flag -percent: want a number`,
		{"-b=maybe", ""}:  `invalid boolean value "maybe" for -b: parse error`,
		{"-m", ""}:        `flag provided but not defined: -m`,
	} {
		assert.EqualError(t, FlagError(fs, fs.Parse(args[:])), want)
	}
}
