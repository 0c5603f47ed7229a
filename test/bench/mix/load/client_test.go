package load

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

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
