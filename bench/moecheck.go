package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"goshmem/moe"
	"goshmem/moe/oracle"
)

// input is what all ranks dispatch, without the rows: those are compared by
// their source and token, from which they can be made again.
func (r *moeRun) input() (oracle.Input, error) {
	n := r.p.Size()
	in := oracle.Input{Ranks: n, Experts: r.cfg.Experts, TopK: r.cfg.TopK}
	for s := range n {
		b, err := r.m.batch(s, n)
		if err != nil {
			return in, err
		}
		in.X, in.Scales = append(in.X, nil), append(in.Scales, nil)
		in.Idx, in.Weights = append(in.Idx, b.Idx), append(in.Weights, b.Weights)
	}
	return in, nil
}

// checkDispatch compares everything that the last dispatch delivered here.
func (r *moeRun) checkDispatch() (bool, error) {
	in, err := r.input()
	if err != nil {
		return false, err
	}
	d := r.d
	if r.env.cfg.corrupt != nil {
		r.env.cfg.corrupt(d.Rows)
	}
	want, per := oracle.RankMajor(in, r.p.Rank()), r.cfg.TopK
	if r.cfg.Layout == moe.ExpertMajor {
		want, per = oracle.ExpertMajor(in, r.p.Rank(), max(r.cfg.Alignment, 1)), 1
	}
	rowBytes, scaleBytes := int(r.shape.RowBytes()), int(r.cfg.ScaleBytes)
	if d.Len() != len(want.Rows) || len(d.Rows) != d.Len()*rowBytes || len(d.Scales) != d.Len()*scaleBytes ||
		len(d.Local) != d.Len()*per || len(d.Weights) != d.Len()*per || !sameInts(d.Counts, want.PerExpert) {
		return false, nil
	}
	row, scales := make([]byte, rowBytes), make([]byte, scaleBytes)
	for i, w := range want.Rows {
		if int(d.Source[i]) != w.Source || int(d.Token[i]) != w.Token {
			return false, nil
		}
		clear(row)
		clear(scales)
		if w.Source >= 0 { // not padding
			pattern(row, rowSeed(w.Source, w.Token))
			pattern(scales, ^rowSeed(w.Source, w.Token))
		}
		if !bytes.Equal(row, d.Rows[i*rowBytes:(i+1)*rowBytes]) || !bytes.Equal(scales, d.Scales[i*scaleBytes:(i+1)*scaleBytes]) {
			return false, nil
		}
		for k, l := range w.Local {
			if int(d.Local[i*per+k]) != l || math.Float32bits(d.Weights[i*per+k]) != math.Float32bits(w.Weights[k]) {
				return false, nil
			}
		}
	}
	return true, nil
}

func sameInts(have []int64, want []int) bool {
	return slices.EqualFunc(have, want, func(a int64, b int) bool { return a == int64(b) })
}

// expertOutput is what the stand-in expert e makes of a token: eighths from -16
// to 15.875, exact in every type.
func expertOutput(out []float32, e, source, token int) {
	x := uint64(e)<<48 ^ rowSeed(source, token)*0x9e3779b97f4a7c15
	for h := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[h] = float32(int8(x)) / 8
	}
}

// outputs is the y of this rank: an output row for each choice that a received
// row stands for.
func (r *moeRun) outputs(d *moe.Dispatched) []byte {
	size := 2
	if r.cfg.Output == moe.FP32 {
		size = 4
	}
	firstExpert, _ := r.shape.LocalExperts(r.p.Rank())
	y := make([]byte, d.OutputRows*int64(r.cfg.Hidden*size))
	values := make([]float32, r.cfg.Hidden)
	at := 0
	row := func(local, source, token int32) {
		expertOutput(values, firstExpert+int(local), int(source), int(token))
		for _, v := range values {
			if size == 2 {
				binary.LittleEndian.PutUint16(y[at:], uint16(math.Float32bits(v)>>16))
			} else {
				binary.LittleEndian.PutUint32(y[at:], math.Float32bits(v))
			}
			at += size
		}
	}
	for i := range d.Len() {
		if r.cfg.Layout == moe.ExpertMajor {
			if d.Source[i] < 0 {
				at += r.cfg.Hidden * size // padding: never looked at
			} else {
				row(d.Local[i], d.Source[i], d.Token[i])
			}
			continue
		}
		for _, l := range d.Local[i*r.cfg.TopK : (i+1)*r.cfg.TopK] {
			if l >= 0 {
				row(l, d.Source[i], d.Token[i])
			}
		}
	}
	return y
}

// checkCombine compares the last combine's result bit by bit.
func (r *moeRun) checkCombine() (bool, error) {
	in, err := r.input()
	if err != nil {
		return false, err
	}
	if r.env.cfg.corrupt != nil {
		r.env.cfg.corrupt(r.out)
	}
	rank, values := r.p.Rank(), make([]float32, r.cfg.Hidden)
	y := func(s, t, k int) []float32 {
		expertOutput(values, int(in.Idx[s][t*in.TopK+k]), s, t)
		return values
	}
	var want [][]uint16
	if r.cfg.Combine == moe.WeightsAtExpert {
		want = oracle.CombineAtExpert(in, rank, r.cfg.Hidden, y, nil, r.cfg.Share == moe.BF16)
	} else {
		want = oracle.CombineAtSource(in, rank, r.cfg.Hidden, y, nil)
	}
	at := 0
	for _, row := range want {
		for _, v := range row {
			if binary.LittleEndian.Uint16(r.out[at:]) != v {
				return false, nil
			}
			at += 2
		}
	}
	return at == len(r.out), nil
}
