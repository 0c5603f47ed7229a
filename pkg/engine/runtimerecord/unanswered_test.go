package runtimerecord

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// The journal has what an update names before it is sent, and that it is under way, until the answer.
// A refused update leaves the record as it was. Once one is made, the record has what it named alone: an
// earlier value there is the kubelet's.
func TestJournalOfUpdates(t *testing.T) {
	in(t, func(b *bed) {
		c := b.pin("db", 2)
		const recorded, wanted = knobs.Shares(100), knobs.Shares(200)
		b.Journal.Record(c.Object(), knobs.Weight, knobs.Shares(2))
		c.Recorded.Carried[knobs.Weight] = recorded
		b.carry(c, c.Recorded)
		expect := func(now, before knobs.Value, under bool) {
			t.Helper()
			var sent time.Time
			e, _ := b.Journal.Entry(c.Path, knobs.Weight)
			if is, _ := b.Journal.State(unanswered, &sent); e.Carried != now || e.CarriedBefore != before || is != under {
				t.Errorf("the journal has %v, before %v; an update is under way: %t", e.Carried, e.CarriedBefore, is)
			}
		}
		c.Resources.Shares = uint64(wanted) // what takeBack makes of a weight that nobody asks for any more
		b.Update()
		expect(wanted, recorded, true)
		b.Made(c) // an update of the kubelet's, which came first
		expect(wanted, recorded, true)
		b.answer(errors.New("no"))
		expect(wanted, recorded, true) // it is sent again
		b.answer(nil)
		expect(wanted, nil, false)
	})
}

// While no update is sent any more, one that the runtime refuses is over. One whose connection ends
// before the answer is not: the runtime may still make it.
func TestNoAnswer(t *testing.T) {
	for err, under := range map[error]bool{
		errors.New("no"): false,
		fmt.Errorf("%w: closed", node.ErrNoAnswer): true,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			in(t, func(b *bed) {
				b.pin("db", 2)
				b.Update()
				answered := b.Leave()
				b.answer(err)
				<-answered
				var sent time.Time
				if is, _ := b.Journal.State(unanswered, &sent); is != under {
					t.Errorf("the journal has an update under way: %t", is)
				}
			})
		})
	}
}

// No update is sent while the journal can't be written, unless it names nothing that is in the journal.
func TestUnsavedUpdates(t *testing.T) {
	in(t, func(b *bed) {
		folder := filepath.Join(b.t.TempDir(), "run")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		book, err := journal.Open(filepath.Join(folder, "originals"), "")
		if err != nil {
			t.Fatal(err)
		}
		*b.Journal = *book
		defer b.Journal.Close()
		c := b.pin("db", 2)
		b.Journal.Record(c.Object(), knobs.Weight, knobs.Shares(2))
		c.Recorded.Carried[knobs.Weight] = knobs.Shares(100)
		book.Close()
		if err := os.Rename(folder, folder+".away"); err != nil {
			t.Fatal(err)
		}
		b.Update()
		b.expect()
		if e, _ := book.Entry(c.Path, knobs.Weight); e.Carried != knobs.Value(knobs.Shares(100)) {
			t.Errorf("the journal has %v for the record", e.Carried)
		}
		if err := os.Rename(folder+".away", folder); err != nil {
			t.Fatal(err)
		}
		b.after(b.Config.RecordUpdates.Delay)
		b.expect("db 0-1")
		b.answer(nil)
	})
}

// After Leave no update is sent, and the answer to the one under way is told.
func TestLeave(t *testing.T) {
	in(t, func(b *bed) {
		b.pin("db", 2)
		b.pin("next", 1)
		b.Update()
		b.expect("db 0-1")
		answered := b.Leave()
		b.answer(nil)
		<-answered
		if b.Leave() != nil {
			t.Error("it waits for nothing")
		}
		b.Update()
		b.expect()
	})
}

// What is restored waits for an update that a plugin has sent without seeing the answer.
func TestSettle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sent any // as the journal has it
		wait time.Duration
	}{
		"none":              {nil, 0},
		"a moment ago":      {time.Second, settleTime - time.Second},
		"long ago":          {time.Hour, 0},
		"the clock is back": {-time.Hour, settleTime},
		"garbled":           {"yesterday", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book, err := journal.Open("", "")
				if err != nil {
					t.Fatal(err)
				}
				sent := test.sent
				if ago, ok := sent.(time.Duration); ok {
					sent = time.Now().Add(-ago)
				}
				book.SaveState(unanswered, sent)
				began := time.Now()
				if err := Settle(t.Context(), book); err != nil || time.Since(began) != test.wait {
					t.Errorf("it takes %s, want %s: %v", time.Since(began), test.wait, err)
				}
			})
		})
	}
}
