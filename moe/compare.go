package moe

import (
	"context"
	"encoding/json"
	"fmt"

	"goshmem/pe"
)

// notice is what a rank tells the others of its configuration.
type notice struct {
	Invalid string   // why it cannot be used; empty: it can
	Fields  []string // values, in the order of Config.fields
}

// compare tells the other ranks of this one's configuration, own being what is
// wrong with it, and returns the first disagreement.
func compare(ctx context.Context, team *pe.Team, cfg Config, own error) error {
	mine := notice{Fields: values(cfg)}
	if own != nil {
		mine.Invalid = own.Error()
	}
	blob, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := team.Gather(ctx, "moe/new", blob)
	if own != nil {
		return own
	}
	if err != nil {
		return err
	}
	fields := cfg.fields()
	for rank, b := range all {
		var theirs notice
		if b == nil {
			continue // lost and acknowledged
		}
		if err := json.Unmarshal(b, &theirs); err != nil || len(theirs.Fields) != len(fields) {
			return &pe.MismatchError{PE: rank, Field: "configuration", Want: "readable", Have: "unreadable"}
		}
		if theirs.Invalid != "" {
			return &pe.MismatchError{PE: rank, Field: "configuration", Want: "valid", Have: theirs.Invalid}
		}
		for i, have := range theirs.Fields {
			if have != mine.Fields[i] {
				return &pe.MismatchError{PE: rank, Field: fields[i].name, Want: mine.Fields[i], Have: have}
			}
		}
	}
	return nil
}

func values(cfg Config) []string {
	var out []string
	for _, f := range cfg.fields() {
		out = append(out, fmt.Sprint(f.value))
	}
	return out
}
