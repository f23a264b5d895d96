package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Both sides prove that they know the job's secret, by a MAC over both nonces
// and all they claim. The labels keep one side's proof from serving as the other's.

func newNonce() (n [nonceSize]byte, err error) {
	if _, err = rand.Read(n[:]); err != nil {
		err = fmt.Errorf("bootstrap: no random bytes: %w", err)
	}
	return n, err
}

// proof is the MAC over a label and fields, each with its length in front.
func proof(secret []byte, label string, fields ...[]byte) (mac [macSize]byte) {
	h := hmac.New(sha256.New, secret)
	for _, f := range append([][]byte{[]byte(label)}, fields...) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write(f)
	}
	h.Sum(mac[:0])
	return mac
}

func sameProof(a, b [macSize]byte) bool { return hmac.Equal(a[:], b[:]) }

func helloProof(secret []byte, hub [nonceSize]byte, rank int, h *hello) [macSize]byte {
	var n [12]byte
	binary.LittleEndian.PutUint32(n[0:], uint32(rank))
	binary.LittleEndian.PutUint32(n[4:], uint32(h.size))
	binary.LittleEndian.PutUint32(n[8:], uint32(h.pid))
	return proof(secret, "goshmem member 1", hub[:], h.nonce[:], n[:], []byte(h.host))
}

func welcomeProof(secret []byte, hub, member [nonceSize]byte, rank int, w *welcome) [macSize]byte {
	var n [24]byte
	binary.LittleEndian.PutUint32(n[0:], uint32(rank))
	binary.LittleEndian.PutUint32(n[4:], uint32(int32(w.holder)))
	binary.LittleEndian.PutUint64(n[8:], w.heartbeat)
	binary.LittleEndian.PutUint64(n[16:], w.deadline)
	return proof(secret, "goshmem hub 1", member[:], hub[:], n[:])
}
