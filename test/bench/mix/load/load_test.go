package load

import (
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 50).Draw(t, "d")) }), 1, 200).Draw(t, "samples")
		permille := rapid.IntRange(1, 1000).Draw(t, "permille")
		got := Quantile(slices.Clone(samples), float64(permille)/1000)
		atMost, less := 0, 0
		for _, s := range samples {
			if s <= got {
				atMost++
			}
			if s < got {
				less++
			}
		}
		if !slices.Contains(samples, got) || atMost*1000 < permille*len(samples) || less*1000 >= permille*len(samples) {
			t.Fatalf("the %d per mille of %v is %v", permille, samples, got)
		}
	})
	if got := Quantile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	phases := append([]Phase{{Rate: 0, For: time.Second}}, Steps(100, 1000, time.Second, 4500*time.Millisecond)...)
	due := Schedule(phases, 7)
	if !slices.IsSorted(due) || !slices.Equal(due, Schedule(phases, 7)) || slices.Equal(due, Schedule(phases, 8)) {
		t.Fatal("a schedule is in order, and follows from its seed")
	}
	var perSecond [6]int
	for _, at := range due {
		perSecond[at/time.Second]++
	}
	for second, want := range [6]int{0, 100, 1000, 100, 1000, 50} {
		if got := perSecond[second]; got < want*6/10 || got > want*14/10 {
			t.Errorf("second %d has %d requests, want about %d", second, got, want)
		}
	}
}

// An answer of the probe counts from when the kernel received it, however late it is read.
func TestClientArrival(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the generator needs root, for its socket's buffer")
	}
	pod := "test-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unixpacket", wire.Socket(pod))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(pod)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	service, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	var packet [wire.AnswerSize]byte
	send := func(seq uint32) (from, until int64) {
		wire.Answer{Seq: seq}.Put(&packet)
		from = Now()
		if _, err := service.Write(packet[:]); err != nil {
			t.Fatal(err)
		}
		return from, Now()
	}
	send(0) // the kernel begins to note arrivals a moment after it is asked to
	time.Sleep(20 * time.Millisecond)
	from, until := send(1)
	time.Sleep(20 * time.Millisecond)
	for seq := range uint32(2) {
		answer, at, err := c.receive(unix.MSG_DONTWAIT)
		if err != nil || answer.Seq != seq {
			t.Fatalf("answer %d: %+v, %v", seq, answer, err)
		}
		if seq == 1 && (at < from || at > until) {
			t.Errorf("an answer sent between 0 and %d ns: after %d ns", until-from, at-from)
		}
	}
	if _, _, err := c.receive(unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("no answer: %v", err)
	}
}
