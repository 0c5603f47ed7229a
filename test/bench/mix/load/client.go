package load

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

// Client is a connection to the probe's service.
type Client struct{ conn int }

// Dial connects to the service of the pod with that cgroup.
func Dial(podCgroup string) (*Client, error) {
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn}
	// Room for all that may wait when the service is overloaded: sending never blocks.
	err = errors.Join(
		unix.SetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20),
		unix.SetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := unix.Connect(conn, &unix.SockaddrUnix{Name: wire.Socket(podCgroup)}); err != nil {
		return nil, errors.Join(fmt.Errorf("the service of %s: %w", podCgroup, err), c.Close())
	}
	return c, nil
}

// Close ends the connection; the service gives back what it held for it.
func (c *Client) Close() error { return unix.Close(c.conn) }

// Interrupt lets Run fail at once.
func (c *Client) Interrupt() { _ = unix.Shutdown(c.conn, unix.SHUT_RDWR) }

// Ask sends one request and waits for its answer.
func (c *Client) Ask(r wire.Request) (wire.Answer, error) {
	if err := c.send(r); err != nil {
		return wire.Answer{}, err
	}
	answer, _, err := c.receive(0)
	return answer, err
}

// Calibrate returns the number of rounds of work that take the given time on an idle machine, as
// the median of some requests.
func (c *Client) Calibrate(work time.Duration) (uint32, error) {
	const tries, rounds = 101, 2000
	var took []time.Duration
	for range tries {
		answer, err := c.Ask(wire.Request{Rounds: rounds})
		if err != nil {
			return 0, err
		}
		took = append(took, time.Duration(answer.Done-answer.Taken))
	}
	return uint32(rounds * float64(work) / float64(max(Quantile(took, 0.5), 1))), nil
}

func (c *Client) send(r wire.Request) error {
	var packet [wire.RequestSize]byte
	r.Put(&packet)
	for {
		_, err := syscall.Write(c.conn, packet[:])
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// receive returns an answer, and when it arrived.
func (c *Client) receive(flags int) (answer wire.Answer, at int64, err error) {
	var packet [wire.AnswerSize]byte
	var control [64]byte
	for {
		n, noted, _, _, err := unix.Recvmsg(c.conn, packet[:], control[:], flags)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return wire.Answer{}, 0, err
		case n != len(packet):
			return wire.Answer{}, 0, errors.New("the service has gone")
		}
		return wire.ParseAnswer(&packet), arrival(control[:noted]), nil
	}
}

// Load is a series of requests.
type Load struct {
	Begin    int64           // origin of Due, as a time of Now
	Due      []time.Duration // since Begin, in ascending order
	Request  wire.Request    // Run sets Seq to the index in Due, and Due to the time
	Patience time.Duration   // time to wait for answers after the last request was due
}

// Result holds the outcome of each request of a load.
type Result struct {
	Latency []time.Duration // from the due time to the answer, or a lower bound if there was none
	Late    []time.Duration // from the due time to the sending: the generator's own delay
	Wait    []time.Duration // from the sending until a worker took the request
	Lost    int             // requests without an answer in time
}

// Run sends the load and waits for its answers.
func (c *Client) Run(l Load) (*Result, error) {
	n := len(l.Due)
	r := &Result{Latency: make([]time.Duration, n), Late: make([]time.Duration, n), Wait: make([]time.Duration, n)}
	if n == 0 {
		return r, nil
	}
	due := func(i int) int64 { return l.Begin + int64(l.Due[i]) }
	taken, done := make([]int64, n), make([]int64, n)
	deadline := due(n-1) + int64(l.Patience)
	var group sync.WaitGroup
	var errs [2]error
	group.Go(func() {
		errs[0] = First(func() error {
			for i := range n {
				request := l.Request
				request.Seq, request.Due = uint32(i), due(i)
				SleepUntil(due(i))
				r.Late[i] = time.Duration(Now() - due(i))
				if err := c.send(request); err != nil {
					return err
				}
			}
			return nil
		})
	})
	group.Go(func() { errs[1] = First(func() error { return c.collect(taken, done, deadline) }) })
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for i := range n {
		if done[i] == 0 {
			r.Lost++
			done[i], taken[i] = deadline, deadline
		}
		r.Latency[i] = time.Duration(done[i] - due(i))
		r.Wait[i] = time.Duration(taken[i]-due(i)) - r.Late[i]
	}
	return r, nil
}

// collect stores when each answer arrived, until all have arrived or the time is over.
func (c *Client) collect(taken, done []int64, deadline int64) error {
	left := len(done)
	for next := Now(); left > 0 && next < deadline; next = max(next+int64(look), Now()) {
		sleep(next)
		for left > 0 {
			answer, at, err := c.receive(unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return err
			}
			left--
			if int(answer.Seq) < len(done) {
				done[answer.Seq], taken[answer.Seq] = at, answer.Taken
			}
		}
	}
	return nil
}
