package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Streams are connections to a server that speaks another protocol than the probe's. Each carries
// one request at a time; a request that is due while all are in use waits for one.
type Streams struct {
	protocol Protocol
	all      []*stream
}

type stream struct {
	conn    int
	in      *bufio.Reader
	request atomic.Int64 // index of the request that it carries
}

// Connect connects that many times to the server's Unix socket, and prepares the server.
func Connect(socket string, times int, p Protocol) (s *Streams, err error) {
	s = &Streams{protocol: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for range times {
		conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return s, err
		}
		one := &stream{conn: conn}
		one.in = bufio.NewReaderSize(one, 64<<10)
		s.all = append(s.all, one)
		if err := unix.Connect(conn, &unix.SockaddrUnix{Name: socket}); err != nil {
			return s, fmt.Errorf("the service at %s: %w", socket, err)
		}
	}
	for _, text := range p.Prepare {
		if err := s.all[0].send(text); err != nil {
			return s, err
		}
		if _, err := s.all[0].in.ReadSlice('\n'); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Close ends the connections.
func (s *Streams) Close() error {
	var errs []error
	for _, one := range s.all {
		errs = append(errs, unix.Close(one.conn))
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
		if err := errors.Join(one.send(s.protocol.Request), s.protocol.Receive(one.in)); err != nil {
			return err
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
	failed := make(chan error, len(s.all))
	var receivers sync.WaitGroup
	for _, one := range s.all {
		free <- one
		receivers.Go(func() { failed <- First(func() error { return s.receive(one, done, free) }) })
	}
	err := First(func() error { return s.send(r, due, free, failed, l.Patience) })
	s.Interrupt()
	receivers.Wait()
	if err != nil {
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
func (s *Streams) send(r *Result, due func(int) int64, free chan *stream, failed chan error, patience time.Duration) error {
	if len(r.Late) == 0 {
		return nil
	}
	over := time.After(time.Duration(due(len(r.Late)-1)-Now()) + patience)
	next := func() (*stream, error) {
		select {
		case one := <-free:
			return one, nil
		case err := <-failed:
			return nil, fmt.Errorf("the service has gone: %w", err)
		case <-over:
			return nil, nil
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
			var err error
			if one, err = next(); one == nil {
				return err
			}
			waited = Now()
		}
		one.request.Store(int64(i))
		if err := one.send(s.protocol.Request); err != nil {
			return err
		}
	}
	for range s.all {
		if one, err := next(); one == nil {
			return err
		}
	}
	return nil
}

// receive stores when each answer of a connection has come, until the connection ends.
func (s *Streams) receive(one *stream, done []int64, free chan<- *stream) error {
	for {
		if err := s.protocol.Receive(one.in); err != nil {
			return err
		}
		done[one.request.Load()] = Now()
		free <- one
	}
}

func (one *stream) send(text string) error {
	for {
		_, err := syscall.Write(one.conn, []byte(text))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Read reads from the connection, for its buffer.
func (one *stream) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(one.conn, p)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
