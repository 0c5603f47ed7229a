package failsafe

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// If a plan can't be written, the old one is removed, and a later heartbeat writes the new one.
func TestStalePlan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := logrus.New()
	var text strings.Builder
	log.SetOutput(&text)
	k := NewKeeper(dir, "boot", nil, log)
	change := func(cpus string) []knobs.Change {
		return []knobs.Change{{Object: knobs.Object{Path: "/a", Name: "a"}, Knob: knobs.CPUs, To: knobs.CPUSet(cpuset.MustParse(cpus)), Why: "LS"}}
	}
	k.save(&pendingPlan{changes: change("0-7")})
	// A folder with the name of the temporary file makes writes fail.
	block := filepath.Join(dir, "failsafe.json.new")
	if err := os.Mkdir(block, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		k.save(&pendingPlan{changes: change("2-7")})
	}
	if changes, err := Load(dir, "boot"); changes != nil || err != nil {
		t.Errorf("in force is %v, %v", changes, err)
	}
	if n := strings.Count(text.String(), "there is none until it can be"); n != 1 {
		t.Errorf("told %d times: %s", n, text.String())
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	k.save(k.unsaved)
	if changes, err := Load(dir, "boot"); len(changes) != 1 || changes[0].To != change("2-7")[0].To || k.unsaved != nil || err != nil {
		t.Errorf("in force is %v, %v", changes, err)
	}
}

// The channel of Replace is closed when the plan has been written or replaced by a newer one.
func TestReplaceReportsTheWrite(t *testing.T) {
	t.Parallel()
	k := NewKeeper(t.TempDir(), "boot", nil, logrus.New())
	first, second := k.Replace(nil), k.Replace(nil)
	for i, written := range []<-chan struct{}{first, second} {
		if i == 1 {
			p := <-k.plans
			k.save(&p)
			close(p.written)
		}
		select {
		case <-written:
		case <-time.After(time.Minute):
			t.Fatalf("plan %d: no word", i)
		}
	}
}

// process is a watcher's process that dies after it has received that many heartbeats.
type process struct {
	lives  int
	closed bool
}

func (p *process) Write(beat []byte) (int, error) {
	if p.lives == 0 {
		return 0, io.ErrClosedPipe
	}
	p.lives--
	return len(beat), nil
}

func (p *process) Close() error { p.closed = true; return nil }

// A watcher that has died is started again, at most every ten seconds, and the last one is closed
// at the end.
func TestKeeperStartsTheWatcherAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		var all []*process
		began := time.Now()
		log := logrus.New()
		log.SetOutput(io.Discard)
		k := NewKeeper(t.TempDir(), "boot", func() (io.WriteCloser, error) {
			starts = append(starts, time.Since(began))
			if len(starts) == 2 {
				return nil, errors.New("no memory")
			}
			p := &process{lives: 2}
			all = append(all, p)
			return p, nil
		}, log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); k.Run(ctx) }()
		for range 24 { // it receives two, and the third finds it dead
			synctest.Wait()
			k.Beat()
			time.Sleep(time.Second)
		}
		cancel()
		<-ended
		if len(starts) != 3 || starts[0] != 0 || starts[1] <= restartInterval || starts[2]-starts[1] <= restartInterval {
			t.Errorf("started at %v", starts)
		}
		for i, p := range all {
			if !p.closed {
				t.Errorf("process %d is not let go", i)
			}
		}
	})
}

// At the end, the latest plan is on disk, because an older one may give services the CPUs of a
// newer pin.
func TestKeeperWritesTheLastPlan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := NewKeeper(dir, "boot", func() (io.WriteCloser, error) { return &process{}, nil }, logrus.New())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 10 {
		want := []knobs.Change{{Object: knobs.Object{Path: "/a", Name: "a"}, Knob: knobs.Weight, To: knobs.Shares(100 + i), Why: "LS"}}
		written := k.Replace(want)
		k.Run(ctx)
		select {
		case <-written:
		default:
			t.Fatal("it ends without a word on the plan")
		}
		if got, err := Load(dir, "boot"); len(got) != 1 || got[0].To != want[0].To {
			t.Fatalf("the plan on disk is %v, %v", got, err)
		}
	}
}
