// Package wire is what the probe and the benchmark that drives it say to each
// other: the requests and answers of the service, and the counters of the hogs.
package wire

import (
	"encoding/binary"
	"path"
)

// Socket is the abstract address of the service in the pod with that cgroup, of
// type SOCK_SEQPACKET: containers on the host's network share its abstract names.
func Socket(podCgroup string) string { return "@sluice-" + path.Base(podCgroup) }

// Request asks the service for work.
type Request struct {
	Seq      uint32
	Rounds   uint32 // of work
	DirtyKiB uint32 // KiB of memory to take, write to and hold
	Drop     bool   // give all held memory back first
}

// RequestSize is the length of a request's packet.
const RequestSize = 16

// Put writes the packet.
func (r Request) Put(b *[RequestSize]byte) {
	var drop uint32
	if r.Drop {
		drop = 1
	}
	for i, v := range [...]uint32{r.Seq, r.Rounds, r.DirtyKiB, drop} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
}

// ParseRequest reads a packet.
func ParseRequest(b *[RequestSize]byte) Request {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return Request{word(0), word(1), word(2), word(3) != 0}
}

// Answer is the service's reply. The times are of CLOCK_MONOTONIC, in
// nanoseconds: when a worker took the request, and when it was done.
type Answer struct {
	Seq         uint32
	Taken, Done int64
}

// AnswerSize is the length of an answer's packet.
const AnswerSize = 20

// Put writes the packet.
func (a Answer) Put(b *[AnswerSize]byte) {
	binary.LittleEndian.PutUint32(b[0:], a.Seq)
	binary.LittleEndian.PutUint64(b[4:], uint64(a.Taken))
	binary.LittleEndian.PutUint64(b[12:], uint64(a.Done))
}

// ParseAnswer reads a packet.
func ParseAnswer(b *[AnswerSize]byte) Answer {
	return Answer{
		Seq:   binary.LittleEndian.Uint32(b[0:]),
		Taken: int64(binary.LittleEndian.Uint64(b[4:])),
		Done:  int64(binary.LittleEndian.Uint64(b[12:])),
	}
}

// Counters is a hog's file, in the root folder of its container: what each of its
// threads has done so far, a little-endian number of 8 bytes at the start of each
// slot. It is shared memory, so that it can be read also while the hog is frozen.
const (
	Counters    = "/counters"
	CounterSlot = 64 // bytes, a cache line
	MaxThreads  = 64
)

// Count adds up a counters file.
func Count(text []byte) uint64 {
	var sum uint64
	for len(text) >= CounterSlot {
		sum += binary.LittleEndian.Uint64(text)
		text = text[CounterSlot:]
	}
	return sum
}
