package plan

import (
	"math"
	"testing"
)

func TestSizes(t *testing.T) {
	p := Params{Ranks: 4, Experts: 256, TopK: 8, MaxTokens: 1024, RowBytes: 14336, Hidden: 7168, YBytes: 2, PartialBytes: 2, Alignment: 128, Slots: 2}
	s, ok := Measure(&p)
	if !ok || s.RowCap != 4096 || s.RecordCap != 4096 || s.BackCap != 8192 || s.RecordBytes != 68 || s.HeadBytes != 1152 {
		t.Errorf("%+v", s)
	}
	p.ExpertMajor, p.AtExpert = true, true
	s, ok = Measure(&p)
	if !ok || s.RowCap != 4096*8+64*127 || s.BackCap != 4096 {
		t.Errorf("%+v", s)
	}
	// Areas do not overlap and slots are whole lines.
	ends := []int64{s.Heads + 2*4*s.HeadBytes, s.Records + s.RecordCap*s.RecordBytes, s.Rows + s.RowCap*p.RowBytes, s.Scales, s.Back + s.BackCap*p.BackBytes()}
	starts := []int64{s.Records, s.Rows, s.Scales, s.Back, s.Slot}
	for i := range ends {
		if ends[i] > starts[i] || starts[i]%line != 0 {
			t.Errorf("area %d ends at %d, the next begins at %d", i, ends[i], starts[i])
		}
	}
	if s.Total != 2*s.Slot {
		t.Errorf("total %d, slot %d", s.Total, s.Slot)
	}
}

func TestLargeSizes(t *testing.T) {
	p := Params{Ranks: 64, Experts: 1024, TopK: 16, MaxTokens: 131072, RowBytes: 28672, Hidden: 7168, YBytes: 4, PartialBytes: 4, Alignment: 128, Slots: 1, ExpertMajor: true}
	s, ok := Measure(&p)
	if !ok || s.RowCap != 64*131072*16+16*127 {
		t.Fatalf("%+v, %v", s, ok)
	}
	last := s.RowCap - 1
	if have, want := s.RowAt(&p, last), s.Rows+last*28672; have != want || have < 1<<40 {
		t.Errorf("last row at %d, want %d", have, want)
	}
	for name, change := range map[string]func(*Params){
		"rows":      func(p *Params) { p.RowBytes = 1 << 40 },
		"tokens":    func(p *Params) { p.MaxTokens, p.Ranks = MaxTokens, math.MaxInt32 },
		"slots":     func(p *Params) { p.Slots = 1 << 30 },
		"hidden":    func(p *Params) { p.Hidden = math.MaxInt64 / 2 },
		"alignment": func(p *Params) { p.Alignment = math.MaxInt64 },
		"scales":    func(p *Params) { p.ScaleBytes = math.MaxInt64 / 4 },
	} {
		q := p
		change(&q)
		if s, ok := Measure(&q); ok {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
