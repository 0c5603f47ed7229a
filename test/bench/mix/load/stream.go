package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Streams are connections to a server that speaks another protocol than the probe's. Each carries
// one request at a time; a request that is due while all are in use waits for one.
type Streams struct {
	protocol Protocol
	all      []*stream
	ended    atomic.Bool // the load has been sent and answered, as far as it will be
}

type stream struct {
	file    *os.File
	conn    int // its descriptor, which blocks
	answer  []byte
	request atomic.Int64 // index of the request that it carries
}

// Connect connects that many times to the server, as net.Dial does, and prepares the server.
func Connect(network, address string, times int, p Protocol) (s *Streams, err error) {
	s = &Streams{protocol: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for range times {
		file, err := dial(network, address)
		if err != nil {
			return s, fmt.Errorf("the service at %s: %w", address, err)
		}
		s.all = append(s.all, &stream{file: file, conn: int(file.Fd())})
	}
	return s, s.prepare()
}

func dial(network, address string) (*os.File, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	file, err := conn.(interface{ File() (*os.File, error) }).File() // another descriptor of the connection
	return file, errors.Join(err, conn.Close())
}

// prepare sends what prepares the server.
func (s *Streams) prepare() error {
	in := bufio.NewReader(s.all[0].file)
	for _, text := range s.protocol.Prepare {
		if err := s.all[0].send(text); err != nil {
			return err
		}
		if _, err := in.ReadSlice('\n'); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connections.
func (s *Streams) Close() error {
	var errs []error
	for _, one := range s.all {
		errs = append(errs, one.file.Close())
	}
	return errors.Join(errs...)
}

// Interrupt lets Run fail at once.
func (s *Streams) Interrupt() {
	for _, one := range s.all {
		_ = unix.Shutdown(one.conn, unix.SHUT_RDWR)
	}
}

// Ask sends that many requests, one after another.
func (s *Streams) Ask(times int) error {
	one := s.all[0]
	for range times {
		if err := one.send(s.protocol.Request); err != nil {
			return err
		}
		for answered := false; !answered; {
			var err error
			if answered, err = s.read(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run sends the load and waits for its answers. It can be called once. What Result.Wait would be is
// not known.
func (s *Streams) Run(l Load) (*Result, error) {
	n := len(l.Due)
	r := &Result{Latency: make([]time.Duration, n), Late: make([]time.Duration, n)}
	due := func(i int) int64 { return l.Begin + int64(l.Due[i]) }
	done := make([]int64, n)
	free := make(chan *stream, len(s.all))
	for _, one := range s.all {
		free <- one
	}
	failed := make(chan error, 1)
	go func() { failed <- First(func() error { return s.receive(done, free) }) }()
	err := First(func() error { return s.send(r, due, free, l.Patience) })
	s.ended.Store(true)
	s.Interrupt()
	if err := errors.Join(err, <-failed); err != nil {
		return nil, err
	}
	for i := range n {
		if done[i] == 0 {
			r.Lost++
			done[i] = due(n-1) + int64(l.Patience)
		}
		r.Latency[i] = time.Duration(done[i] - due(i))
	}
	return r, nil
}

// send sends each request when it is due, and waits until all are answered or the time is over.
func (s *Streams) send(r *Result, due func(int) int64, free <-chan *stream, patience time.Duration) error {
	if len(r.Late) == 0 {
		return nil
	}
	over := time.After(time.Duration(due(len(r.Late)-1)-Now()) + patience)
	next := func() *stream {
		select {
		case one := <-free:
			return one
		case <-over:
			return nil
		}
	}
	waited := int64(0) // when a request last had to wait for a connection
	for i := range r.Late {
		SleepUntil(due(i))
		r.Late[i] = time.Duration(Now() - max(due(i), waited))
		var one *stream
		select {
		case one = <-free:
		default:
			if one = next(); one == nil {
				return nil
			}
			waited = Now()
		}
		if one == failedStream {
			return nil // receive says why
		}
		one.request.Store(int64(i))
		if err := one.send(s.protocol.Request); err != nil {
			return err
		}
	}
	for range s.all {
		if one := next(); one == nil || one == failedStream {
			return nil
		}
	}
	return nil
}

// failedStream tells the sender that the receiver has failed.
var failedStream = &stream{}

// receive stores when each answer has come, on one thread for all connections, until they end. Threads
// that block in reads of their own would cost Go's scheduler much of a CPU.
func (s *Streams) receive(done []int64, free chan<- *stream) (err error) {
	defer func() {
		if s.ended.Load() {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("the service: %w", err)
			select {
			case free <- failedStream:
			default: // none is in use
			}
		}
	}()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(poll)
	for i, one := range s.all {
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, one.conn, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return err
		}
	}
	var events [64]unix.EpollEvent
	for {
		n, err := wait(poll, events[:])
		if err != nil {
			return err
		}
		for _, e := range events[:n] {
			one := s.all[e.Fd]
			answered, err := s.read(one)
			if err != nil {
				return err
			}
			if answered {
				done[one.request.Load()] = Now()
				free <- one
			}
		}
	}
}

// wait returns the number of events. Its thread remains one of Go's running threads, see SleepUntil.
func wait(poll int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// read reads once from a connection that is readable or blocks, and reports whether the answer is
// complete.
func (s *Streams) read(one *stream) (answered bool, err error) {
	const room = 64 << 10
	one.answer = slices.Grow(one.answer, room)
	n, err := syscall.Read(one.conn, one.answer[len(one.answer):len(one.answer)+room])
	switch {
	case errors.Is(err, syscall.EINTR):
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, errors.New("it has ended the connection")
	}
	one.answer = one.answer[:len(one.answer)+n]
	err = s.protocol.Receive(bufio.NewReader(bytes.NewReader(one.answer)))
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	one.answer = one.answer[:0]
	return err == nil, err
}

func (one *stream) send(text string) error {
	for {
		_, err := syscall.Write(one.conn, []byte(text))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
