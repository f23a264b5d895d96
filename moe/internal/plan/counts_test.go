package plan

import (
	"bytes"
	"testing"

	"goshmem/moe/routing"
)

func TestCapacity(t *testing.T) {
	for _, major := range []bool{false, true} {
		p := small()
		p.ExpertMajor, p.Alignment = major, 4
		p, in := p.with(t, routing.Spec{Kind: routing.OneExpert, Target: 3, Experts: 4, TopK: 2}, []int{3, 2})
		w := play(t, p, in) // 5 rows at rank 1; 8 with padding
		p.MaxRows = 4
		if major {
			p.MaxRows = 7
		}
		sz, _ := Measure(&p)
		want := Fault{TooManyRows, 1, 5, 4}
		if major {
			want = Fault{TooManyRows, 1, 8, 7}
		}
		for r := range p.Ranks {
			var pl Placement
			if f := Place(&p, w.o, &sz, &w.matrix, r, &pl); f != want {
				t.Errorf("rank %d: %+v, want %+v", r, f, want)
			}
		}
	}
}

func TestCorruptCounts(t *testing.T) {
	p := small()
	o := NewOwners(p.Ranks, p.Experts)
	for name, c := range map[string]struct {
		tokens      uint32
		rows, pairs []uint32
	}{
		"more tokens than allowed":     {4, []uint32{0, 0}, []uint32{0, 0, 0, 0}},
		"more rows than tokens":        {1, []uint32{2, 0}, []uint32{1, 1, 0, 0}},
		"more choices than tokens":     {1, []uint32{1, 0}, []uint32{2, 0, 0, 0}},
		"a row without a choice":       {2, []uint32{1, 0}, []uint32{0, 0, 0, 0}},
		"a choice without a row":       {2, []uint32{0, 0}, []uint32{0, 0, 1, 0}},
		"more choices than a row has":  {3, []uint32{0, 1}, []uint32{0, 0, 3, 0}},
		"more choices than tokens can": {1, []uint32{1, 1}, []uint32{1, 1, 1, 0}},
	} {
		var m Matrix
		m.Reset(&p)
		b := make([]byte, headFixed+4*6)
		EncodeCounts(b, &Sent{Rows: c.rows, Pairs: c.pairs})
		if f := m.Decode(&p, o, 1, Head{T: c.tokens}, b); f != (Fault{Corrupt, 1, 0, 0}) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	var m Matrix
	m.Reset(&p)
	if f := m.Decode(&p, o, 0, Head{}, make([]byte, headFixed+23)); f.Code != Corrupt {
		t.Errorf("short: %+v", f)
	}
}

func FuzzCounts(f *testing.F) {
	f.Add(make([]byte, headFixed+24))
	f.Add([]byte("\x00\x00\x00\x00"))
	p := small()
	o := NewOwners(p.Ranks, p.Experts)
	for _, major := range []bool{false, true} {
		p.ExpertMajor = major
		_, in := p.with(f, routing.Spec{Experts: 4, TopK: 2}, []int{3, 2})
		var s Sent
		Route(&p, o, in.Idx[0], in.Weights[0], &s)
		b := make([]byte, headFixed+24)
		h := Head{T: 3}
		h.Encode(b)
		EncodeCounts(b, &s)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := DecodeHead(b)
		if !ok {
			return
		}
		for _, major := range []bool{false, true} {
			p := small()
			p.ExpertMajor = major
			sz, _ := Measure(&p)
			var m Matrix
			m.Reset(&p)
			if m.Decode(&p, o, 0, h, b).Code != None || m.Decode(&p, o, 1, h, b).Code != None {
				return
			}
			for r := range p.Ranks {
				var pl Placement
				if f := Place(&p, o, &sz, &m, r, &pl); f.Code != None {
					t.Fatalf("accepted counts do not fit: %+v", f)
				}
				var a Arrived
				records := bytes.Repeat(b, int(sz.RecordCap*sz.RecordBytes)/len(b)+1)
				Unpack(&p, &pl, records, &a)
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	base := small()
	base, in := base.with(f, routing.Spec{Experts: 4, TopK: 2, Holes: 0.2}, []int{3, 3})
	for _, major := range []bool{false, true} {
		p := base
		p.ExpertMajor = major
		w := play(f, p, in)
		f.Add(major, w.records[0])
		f.Add(major, w.records[1])
	}
	f.Fuzz(func(t *testing.T, major bool, records []byte) {
		p := base
		p.ExpertMajor = major
		w := play(t, p, in)
		for r := range p.Ranks {
			if int64(len(records)) < w.place[r].Records*w.sz.RecordBytes {
				return
			}
			var a Arrived
			if f := Unpack(&p, &w.place[r], records, &a); f.Code != None && f.Code != Corrupt {
				t.Fatalf("%+v", f)
			}
		}
	})
}

func TestDecodeHeadRefuses(t *testing.T) {
	b := make([]byte, headFixed)
	if _, ok := DecodeHead(b[:63]); ok {
		t.Error("63 bytes pass")
	}
	h := Head{Fault: Fault{Code: codes}}
	h.Encode(b)
	if _, ok := DecodeHead(b); ok {
		t.Error("an unknown code passes")
	}
}
