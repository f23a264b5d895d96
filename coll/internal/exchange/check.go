package exchange

import "fmt"

// grew checks that a counter did not go back (I5).
func (e *Engine) grew(p *peer, v uint64, seen *uint64) {
	if v < *seen && e.fault == nil {
		e.fault = broken(5, p.rank, fmt.Sprintf("a counter went from %d to %d", *seen, v))
	}
	*seen = v
}

// settled checks what must hold between two calls: nothing came that was not
// counted, but for members that are a call ahead.
func (e *Engine) settled() error {
	if e.fault != nil {
		return e.fault
	}
	for j := range e.peers {
		p := &e.peers[j]
		if j == e.rank {
			continue
		}
		if v := p.datas.Load(); v != p.dataBase {
			// A data signal needs a credit of the next call, which begins later.
			return broken(3, j, fmt.Sprintf("%d data signals, %d expected", v, p.dataBase))
		}
		if v := p.credits.Load(); v < p.creditBase {
			return broken(2, j, fmt.Sprintf("%d credits were used, %d given", p.creditBase, v))
		}
	}
	for i := range e.banks {
		for k := range e.banks[i].serves {
			s := &e.banks[i].serves[k]
			if s.released != s.subs || s.forwarded != s.subs || s.granted < s.subs {
				return broken(7, s.source.rank, fmt.Sprintf("%d of %d slots forwarded, %d released, %d granted", s.forwarded, s.subs, s.released, s.granted))
			}
		}
	}
	return nil
}
