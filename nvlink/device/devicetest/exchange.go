package devicetest

import (
	"github.com/stretchr/testify/require"

	"goshmem/nvlink/device"
)

// exchanges is alltoallvs of two members, each a slot and a stream of its own, of sizes
// about that which lands in mail, over the number of calls at which flags come again.
func exchanges(r *rig) {
	const landing, start = 4096, 1<<31 - 8
	const to, mail = 1 << 20, 3 << 20           // in the slots
	const stop, failed = heapSize, heapSize + 8 // in r.host
	slots, box := [2]uint64{r.a, r.b}, device.MailBytes(landing)
	var s [2]device.Stream
	var state [2]uint64
	for k := range s {
		var err error
		state[k], err = r.dev.Alloc(device.ExchangeState)
		require.NoError(r, err)
		s[k] = r.stream()
		r.in(func() error { return s[k].Write([]device.Word{{Addr: state[k], Value: start, Wide: true}}) })
		r.in(func() error { return s[k].Fill(slots[k]+mail, 0, 2*box) })
		r.idle(s[k])
	}
	clear(r.host[heapSize:][:128])
	call := uint64(0)
	// exchange sends n[k][l] bytes from k to l; want differs for the one that lies.
	exchange := func(n [2][2]uint64, skew, lie uint64) {
		call++
		for k := range s {
			pattern(r.host[:to], int(call)+k)
			r.in(func() error { return s[k].Copy(slots[k], r.addr, to) })
			r.in(func() error { return s[k].Fill(slots[k]+to, 0xee, to) })
			r.idle(s[k])
		}
		for k := range s {
			x := device.Exchange{
				State: state[k], Landing: landing, Stop: r.addr + stop, Failed: r.addr + failed + uint64(8*k), Limit: 20e9,
			}
			src, at := slots[k]+skew, to+2*skew
			for l := range s {
				p := device.Part{Src: src, N: n[k][l], Heap: slots[l], At: at, Want: n[l][k]}
				if l != k {
					p.Mail, p.Box = slots[l]+mail+uint64(k)*box, slots[k]+mail+uint64(l)*box
					p.Want += lie * uint64(k)
				}
				x.Parts = append(x.Parts, p)
				src, at = src+p.N+skew, at+p.Want+skew
			}
			r.in(func() error { return s[k].Exchange(&x) })
		}
		for k := range s {
			r.idle(s[k])
			r.in(func() error { return s[k].Copy(r.addr, slots[k]+to, to) })
			r.idle(s[k])
			at, sent := 2*skew, make([]byte, to)
			for l := range s {
				pattern(sent, int(call)+l)
				src := skew
				if k == 1 {
					src += n[l][0] + skew
				}
				want := sent[src:][:n[l][k]]
				if lie > 0 && k == 1 && l == 0 {
					want = filled(n[l][k] + lie)
				}
				require.Equal(r, want, r.host[at:][:len(want)], "call %d, from %d to %d", call, l, k)
				require.Equal(r, filled(skew), r.host[at+uint64(len(want)):][:skew])
				at += uint64(len(want)) + skew
			}
		}
	}
	for i, n := range []uint64{0, 1, 7, 8, 9, landing - 1, landing, landing + 1, 5000, 16*landing + 7, 16*landing + 8, 300000, 40} {
		skew := []uint64{0, 16, 3, 4}[i%4]
		exchange([2][2]uint64{{n, n}, {n / 2, n / 3}}, skew, 0)
		require.Zero(r, r.word(failed).Load()+r.word(failed+8).Load())
	}
	for _, n := range []uint64{40, 3 * landing, 100 * landing} {
		exchange([2][2]uint64{{n, n}, {n, n}}, 8, 1)
		for k := range s {
			require.Equal(r, uint64(device.ExchangeMismatch), r.word(failed+8*k).Swap(0))
		}
	}
	exchange([2][2]uint64{{9, 9}, {9, 9}}, 0, 0)
	require.Zero(r, r.word(failed).Load()+r.word(failed+8).Load())
}

func filled(n uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xee
	}
	return b
}
