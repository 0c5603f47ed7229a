package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

// TestDurations asks the service for no work and reads what its metrics say: the first request was
// due a second ago, and the second one does not say since when.
func TestDurations(t *testing.T) {
	durations, err := newDurations()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	if err := metrics(port); err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	converse(ends[0], 2, durations)
	defer unix.Close(ends[1])
	for seq, due := range []int64{monotonic() - int64(time.Second), 0} {
		var packet [wire.RequestSize]byte
		wire.Request{Seq: uint32(seq), Due: due}.Put(&packet)
		if _, err := unix.Write(ends[1], packet[:]); err != nil {
			t.Fatal(err)
		}
		var answer [wire.AnswerSize]byte
		if n, err := unix.Read(ends[1], answer[:]); n != len(answer) || err != nil || wire.ParseAnswer(&answer).Seq != uint32(seq) {
			t.Fatalf("answer %d: %d bytes, %v", seq, n, err)
		}
	}
	var count uint64
	var sum float64
	for began := time.Now(); count < 2 && time.Since(began) < 10*time.Second; { // a worker counts after its answer
		count, sum = scrape(t, port)
	}
	if count != 2 || sum < 1 || sum > 1.9 {
		t.Errorf("%d requests in %v s", count, sum)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// scrape returns the count and the sum of the histogram.
func scrape(t *testing.T, port int) (count uint64, sum float64) {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, wire.MetricsPath))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case wire.Durations + `_count{code="200"}`:
			_, err = fmt.Sscan(value, &count)
		case wire.Durations + `_sum{code="200"}`:
			_, err = fmt.Sscan(value, &sum)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return count, sum
}
