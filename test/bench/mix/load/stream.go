package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Streams are TCP connections to a server that speaks another protocol than the probe's. Each carries
// one request at a time. Requests go to the server's workers in turn, as a balancer sends them, so that the same load
// puts the same requests on each of them every time; a request that is due while all connections of its worker
// are in use waits for one.
type Streams struct {
	protocol Protocol
	all      []*stream
	workers  int
	ended    atomic.Bool // the load has been sent and answered, as far as it will be

	room, control []byte        // for one read
	parser        *bufio.Reader // of one answer
}

type stream struct {
	conn    int
	worker  int          // index of the worker that answers
	answer  []byte       // start of an answer of which the rest has not arrived
	request atomic.Int64 // index of the request that it carries
}

// Connect connects that many times to the server at that address of IPv4, and prepares the server.
func Connect(address netip.AddrPort, times int, p Protocol) (s *Streams, err error) {
	s = &Streams{protocol: p, room: make([]byte, 64<<10), control: make([]byte, 64), parser: bufio.NewReader(nil)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for range times {
		conn, err := dial(address)
		if err != nil {
			return s, fmt.Errorf("the service at %s: %w", address, err)
		}
		s.all = append(s.all, &stream{conn: conn})
	}
	return s, errors.Join(s.prepare(), s.findWorkers())
}

// dial connects, and lets the kernel note when bytes arrive. Go's net package would wake a thread of this process for
// every answer.
func dial(address netip.AddrPort) (conn int, err error) {
	conn, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return conn, err
	}
	err = errors.Join(
		unix.SetsockoptInt(conn, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.Connect(conn, &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())}))
	if err != nil {
		err = errors.Join(err, unix.Close(conn))
	}
	return conn, err
}

// prepare sends what prepares the server.
func (s *Streams) prepare() error {
	for _, text := range s.protocol.Prepare {
		err := s.ask(s.all[0], text, func(in *bufio.Reader) error {
			_, err := in.ReadSlice('\n')
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findWorkers asks on each connection which worker answers it.
func (s *Streams) findWorkers() error {
	s.workers = 1
	if s.protocol.Worker == "" {
		return nil
	}
	indexes := map[string]int{}
	for _, one := range s.all {
		var name string
		err := s.ask(one, s.protocol.Worker, func(in *bufio.Reader) (err error) {
			name, err = s.protocol.ReceiveWorker(in)
			return err
		})
		if err != nil {
			return err
		}
		if _, known := indexes[name]; !known {
			indexes[name] = len(indexes)
		}
		one.worker = indexes[name]
	}
	s.workers = len(indexes)
	return nil
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
	for range times {
		if err := s.ask(s.all[0], s.protocol.Request, s.protocol.Receive); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request and waits for its answer.
func (s *Streams) ask(one *stream, request string, receive func(*bufio.Reader) error) error {
	err := one.send(request)
	for answered := false; err == nil && !answered; {
		answered, _, err = s.read(one, 0, receive)
	}
	return err
}

// Run sends the load and waits for its answers. It can be called once. What Result.Wait would be is
// not known.
func (s *Streams) Run(l Load) (*Result, error) {
	n := len(l.Due)
	r := &Result{Latency: make([]time.Duration, n), Late: make([]time.Duration, n)}
	due := func(i int) int64 { return l.Begin + int64(l.Due[i]) }
	done := make([]int64, n)
	free := make([]chan *stream, s.workers) // connections, by worker
	for i := range free {
		free[i] = make(chan *stream, len(s.all))
	}
	for _, one := range s.all {
		free[one.worker] <- one
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
func (s *Streams) send(r *Result, due func(int) int64, free []chan *stream, patience time.Duration) error {
	if len(r.Late) == 0 {
		return nil
	}
	over := time.After(time.Duration(due(len(r.Late)-1)-Now()) + patience)
	next := func(worker int) *stream {
		select {
		case one := <-free[worker]:
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
		case one = <-free[i%s.workers]:
		default:
			if one = next(i % s.workers); one == nil {
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
	for _, one := range s.all {
		if one := next(one.worker); one == nil || one == failedStream {
			return nil
		}
	}
	return nil
}

// failedStream tells the sender that the receiver has failed.
var failedStream = &stream{}

// receive stores when each answer arrived, on one thread for all connections, until they end.
func (s *Streams) receive(done []int64, free []chan *stream) (err error) {
	defer func() {
		if s.ended.Load() {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("the service: %w", err)
			for _, of := range free {
				select {
				case of <- failedStream:
				default: // none is in use
				}
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
	events := make([]unix.EpollEvent, len(s.all))
	for next := Now(); !s.ended.Load(); next = max(next+int64(look), Now()) {
		sleep(next)
		n, err := unix.EpollWait(poll, events, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			one := s.all[e.Fd]
			answered, at, err := s.read(one, unix.MSG_DONTWAIT, s.protocol.Receive)
			if err != nil {
				return err
			}
			if answered {
				done[one.request.Load()] = at
				free[one.worker] <- one
			}
		}
	}
	return nil
}

// read reads once from a connection, and reports whether the answer is complete, and when its last bytes arrived.
func (s *Streams) read(one *stream, flags int, receive func(*bufio.Reader) error) (answered bool, at int64, err error) {
	n, control, _, _, err := unix.Recvmsg(one.conn, s.room, s.control, flags)
	switch {
	case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		return false, 0, nil
	case err != nil:
		return false, 0, err
	case n == 0:
		return false, 0, errors.New("it has ended the connection")
	}
	answer := s.room[:n]
	if len(one.answer) > 0 {
		answer = append(one.answer, answer...)
	}
	s.parser.Reset(bytes.NewReader(answer))
	err = receive(s.parser)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		one.answer = slices.Clone(answer)
		return false, 0, nil
	}
	one.answer = nil
	return err == nil, arrival(s.control[:control]), err
}

func (one *stream) send(text string) error {
	for {
		_, err := syscall.Write(one.conn, []byte(text))
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
