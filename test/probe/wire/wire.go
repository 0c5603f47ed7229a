// Package wire defines the messages between the probe and the benchmark that drives it: requests
// and answers of the service, and the counters of the hogs.
package wire

import (
	"encoding/binary"
	"path"
)

// Socket returns the abstract address of the service in the pod with that cgroup, of type
// SOCK_SEQPACKET. Containers on the host's network share its abstract names.
func Socket(podCgroup string) string { return "@sluice-" + path.Base(podCgroup) }

// These constants describe the histogram of the service's request durations, for `metrics` of the
// probe.
const (
	Durations   = "request_duration_seconds"
	MetricsPath = "/metrics"
)

// Request asks the service for work.
type Request struct {
	Seq      uint32
	Rounds   uint32 // rounds of work
	DirtyKiB uint32 // KiB of memory to allocate, write to and hold
	Drop     bool   // free all held memory first
	Due      int64  // nanoseconds of CLOCK_MONOTONIC, from which on its duration counts; 0 for when it is taken
}

// RequestSize is the length of a request's packet.
const RequestSize = 24

// Put writes the packet.
func (r Request) Put(b *[RequestSize]byte) {
	var drop uint32
	if r.Drop {
		drop = 1
	}
	for i, v := range [...]uint32{r.Seq, r.Rounds, r.DirtyKiB, drop} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Due))
}

// ParseRequest parses a packet.
func ParseRequest(b *[RequestSize]byte) Request {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return Request{word(0), word(1), word(2), word(3) != 0, int64(binary.LittleEndian.Uint64(b[16:]))}
}

// Answer is the service's reply. Its times are of CLOCK_MONOTONIC, in nanoseconds: when a worker
// took the request, and when it was done.
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

// ParseAnswer parses a packet.
func ParseAnswer(b *[AnswerSize]byte) Answer {
	return Answer{
		Seq:   binary.LittleEndian.Uint32(b[0:]),
		Taken: int64(binary.LittleEndian.Uint64(b[4:])),
		Done:  int64(binary.LittleEndian.Uint64(b[12:])),
	}
}

// These constants describe a hog's file of counters in the root folder of its container. It has a
// slot for each thread, which begins with what the thread has done, a little-endian number of 8
// bytes. It is shared memory and can be read even while the hog is frozen.
const (
	Counters    = "/counters"
	CounterSlot = 64 // in bytes, a cache line
	MaxThreads  = 64
)

// Count returns the sum of a file of counters.
func Count(text []byte) uint64 {
	var sum uint64
	for len(text) >= CounterSlot {
		sum += binary.LittleEndian.Uint64(text)
		text = text[CounterSlot:]
	}
	return sum
}
