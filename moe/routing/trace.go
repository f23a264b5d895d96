package routing

// Trace is what a model's routers chose: [layer][token][k].
type Trace struct {
	Experts, Layers, Tokens, TopK int

	idx     []int16
	weights []float32
}

// LoadTrace reads a trace from two .npy files of one shape [layer][token][k]:
// expert ids as int16 (-1: no expert), weights as float32. Every id must be
// below experts (ErrRange naming layer, token and k).
func LoadTrace(idx, weights []byte, experts int) (*Trace, error) {
	if experts < 1 {
		return nil, configError("%d experts", experts)
	}
	i, err := DecodeNPY[int16](idx)
	if err != nil {
		return nil, err
	}
	w, err := DecodeNPY[float32](weights)
	if err != nil {
		return nil, err
	}
	if len(i.Shape) != 3 {
		return nil, formatError("shape", "ids are %v, want [layer][token][k]", i.Shape)
	}
	if len(w.Shape) != 3 || w.Shape[0] != i.Shape[0] || w.Shape[1] != i.Shape[1] || w.Shape[2] != i.Shape[2] {
		return nil, formatError("shape", "ids are %v, weights %v", i.Shape, w.Shape)
	}
	t := &Trace{
		Experts: experts,
		Layers:  i.Shape[0], Tokens: i.Shape[1], TopK: i.Shape[2],
		idx: i.Data, weights: w.Data,
	}
	for n, e := range t.idx {
		if e < -1 || int(e) >= experts {
			token, k := n/t.TopK, n%t.TopK
			return nil, rangeError("layer %d, token %d, k %d: expert %d of %d", token/t.Tokens, token%t.Tokens, k, e, experts)
		}
	}
	return t, nil
}

// Batch gives rank r its tokens [r*tokens, (r+1)*tokens) of a layer (ErrRange
// where the trace has no such layer or tokens).
func (t *Trace) Batch(layer, rank, tokens int) (Batch, error) {
	if layer < 0 || layer >= t.Layers {
		return Batch{}, rangeError("layer %d of %d", layer, t.Layers)
	}
	if rank < 0 || tokens < 0 || tokens > t.Tokens || tokens > 0 && rank > (t.Tokens-tokens)/tokens {
		return Batch{}, rangeError("tokens of rank %d, %d a rank, in a trace of %d", rank, tokens, t.Tokens)
	}
	n := tokens * t.TopK
	if n == 0 {
		return Batch{TopK: t.TopK}, nil
	}
	from := (layer*t.Tokens + rank*tokens) * t.TopK
	b := Batch{TopK: t.TopK, Idx: make([]int32, n), Weights: make([]float32, n)}
	for i, e := range t.idx[from : from+n] {
		b.Idx[i] = int32(e)
		if e >= 0 {
			b.Weights[i] = t.weights[from+i]
		}
	}
	return b, nil
}
