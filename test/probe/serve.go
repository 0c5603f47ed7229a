package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/sight"
	"github.com/sluice-dev/sluice/test/probe/wire"
)

// workingSet is the memory in bytes that a worker walks through. It is about as large as a core's
// own caches, so that a neighbour that evicts them has an effect.
const workingSet = 1 << 20

// serve answers requests with that many threads until SIGTERM. Each thread waits in the kernel by
// itself, as in a server written in C, so that Go's scheduler is not part of the measured time.
// All threads read from one queue, so no request waits while a thread is idle.
func serve(workers int, term <-chan os.Signal) error {
	runtime.GOMAXPROCS(workers + 4)
	durations, err := newDurations()
	if err != nil {
		return err
	}
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(listener, &unix.SockaddrUnix{Name: wire.Socket(os.Getenv(sight.PodVariable))}); err != nil {
		return err
	}
	if err := unix.Listen(listener, 4); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		for {
			conn, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
			if err != nil {
				failed <- fmt.Errorf("accept: %w", err)
				return
			}
			go converse(conn, workers, durations)
		}
	}()
	select {
	case <-term:
		return nil
	case err := <-failed:
		return err
	}
}

// converse serves one connection until its client closes it.
func converse(conn, workers int, durations prometheus.Histogram) {
	var held atomic.Pointer[block]
	left := atomic.Int32{}
	left.Store(int32(workers))
	for range workers {
		go func() {
			runtime.LockOSThread()
			newWorker(conn, &held, durations).run()
			if left.Add(-1) == 0 {
				drop(&held)
				_ = unix.Close(conn)
			}
		}()
	}
}

// block is memory that a request wants held.
type block struct {
	memory []byte
	next   *block
}

type worker struct {
	conn int
	held *atomic.Pointer[block]
	set  []uint64
	sum  uint64

	durations prometheus.Histogram
}

func newWorker(conn int, held *atomic.Pointer[block], durations prometheus.Histogram) *worker {
	w := &worker{conn: conn, held: held, set: make([]uint64, workingSet/8), durations: durations}
	for i := range w.set {
		w.set[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	return w
}

func (w *worker) run() {
	var in [wire.RequestSize]byte
	var out [wire.AnswerSize]byte
	for {
		n, err := syscall.Read(w.conn, in[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != len(in) {
			return
		}
		request := wire.ParseRequest(&in)
		taken := monotonic()
		if request.Drop {
			drop(w.held)
		}
		if err := hold(w.held, int(request.DirtyKiB)<<10); err != nil {
			return
		}
		w.work(request.Rounds)
		done := monotonic()
		wire.Answer{Seq: request.Seq, Taken: taken, Done: done}.Put(&out)
		if _, err := syscall.Write(w.conn, out[:]); err != nil {
			return
		}
		if request.Due == 0 {
			request.Due = taken
		}
		w.durations.Observe(time.Duration(done - request.Due).Seconds())
	}
}

// work makes 64 dependent loads from the working set per round.
func (w *worker) work(rounds uint32) {
	at := w.sum
	for range rounds {
		for range 64 {
			at = at*6364136223846793005 + w.set[(at>>40)%uint64(len(w.set))]
		}
	}
	w.sum = at
}

func hold(held *atomic.Pointer[block], size int) error {
	if size == 0 {
		return nil
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < size; i += os.Getpagesize() {
		memory[i] = 1
	}
	b := &block{memory: memory}
	for {
		b.next = held.Load()
		if held.CompareAndSwap(b.next, b) {
			return nil
		}
	}
}

func drop(held *atomic.Pointer[block]) {
	for b := held.Swap(nil); b != nil; b = b.next {
		_ = unix.Munmap(b.memory)
	}
}

func monotonic() int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}
