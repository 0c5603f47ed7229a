package disks

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
)

type host struct {
	disks  []iocost.Disk
	now    map[string]iocost.QoS
	fails  error
	hangs  chan struct{}
	writes int
}

func (h *host) Read() (map[string]iocost.QoS, error) { return maps.Clone(h.now), nil }

func (h *host) Disks() ([]iocost.Disk, error) { return h.disks, nil }

func (h *host) Write(w iocost.Write) error {
	h.writes++
	if h.hangs != nil {
		<-h.hangs
	}
	for _, d := range h.disks {
		if d.Number == w.Number && h.fails == nil {
			h.now[w.Number] = w.To
			return nil
		}
	}
	if h.fails != nil {
		return h.fails
	}
	return fmt.Errorf("%s: %w", w.Number, iocost.ErrGone)
}

var ssd = iocost.Default(false)

func newHost() *host {
	return &host{disks: []iocost.Disk{{Name: "a", Number: "8:0"}, {Name: "b", Number: "8:16"}}, now: map[string]iocost.QoS{}}
}

func want(iocost.Disk) (iocost.QoS, bool) { return ssd, true }

func always() bool { return true }

func atOnce(work, then func()) {
	work()
	then()
}

// keeper opens the journal in a file, as a start of the plugin does.
func keeper(t *testing.T, h Host, file string) (*Keeper, *logtest.Hook) {
	t.Helper()
	j, err := journal.Open(file, "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	log, hook := logtest.NewNullLogger()
	return New(h, "this kernel has none", j, atOnce, func([]string) {}, log), hook
}

func TestSet(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.now["8:16"] = iocost.QoS{Enabled: true}
	file := filepath.Join(t.TempDir(), "originals")
	k, log := keeper(t, h, file)
	var told []string
	k.changed = func(withCost []string) { told = append(told, strings.Join(withCost, " ")) }
	for range 3 {
		k.Set(want, always)
	}
	if !slices.Equal(told, []string{"8:0 8:16"}) {
		t.Errorf("it tells of %q", told)
	}
	if h.now["8:0"] != ssd || h.now["8:16"] != (iocost.QoS{Enabled: true}) || h.writes != 1 {
		t.Errorf("disks have %+v after %d writes", h.now, h.writes)
	}
	if all := log.AllEntries(); len(all) != 2 || all[0].Data["disks"] != "a" || all[1].Data["disks"] != "b" {
		t.Errorf("logged %v", all)
	}
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}

	k, _ = keeper(t, h, file) // after a crash
	k.Set(want, always)
	h.disks = append(h.disks, iocost.Disk{Name: "c", Number: "8:32"})
	k.Set(want, always)
	if h.now["8:32"] != ssd || h.writes != 2 {
		t.Errorf("with a new disk they have %+v after %d writes", h.now, h.writes)
	}
	k.Set(nil, func() bool { return false })
	if h.writes != 2 {
		t.Error("it writes although it may not")
	}
	k.Set(nil, always)
	k.Set(nil, always)
	if h.now["8:0"] != (iocost.QoS{}) || h.now["8:32"] != (iocost.QoS{}) || !h.now["8:16"].Enabled || h.writes != 4 || len(k.originals) > 0 {
		t.Errorf("given back, they have %+v after %d writes; %+v", h.now, h.writes, k.originals)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.fails = errors.New("invalid argument")
	k, log := keeper(t, h, "")
	for range 3 {
		k.Set(want, always)
	}
	if n := len(log.AllEntries()); n != 1 || h.writes != 6 || len(k.withCost) > 0 {
		t.Errorf("%d messages of %d refused writes; io.cost is on for %v", n, h.writes, k.withCost)
	}
	h.fails = nil
	k.Set(want, always)
	if h.now["8:0"] != ssd {
		t.Errorf("disks have %+v", h.now)
	}
	h.disks = h.disks[1:] // unplugged
	delete(h.now, "8:0")
	k.Set(nil, always)
	if h.now["8:16"] != (iocost.QoS{}) || len(k.originals) > 0 {
		t.Errorf("disks have %+v; %+v", h.now, k.originals)
	}
}

// A disk is unplugged after the list was made.
func TestGoneWhileWriting(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.fails = fmt.Errorf("%w", iocost.ErrGone)
	k, log := keeper(t, h, "")
	k.Set(want, always)
	for _, e := range log.AllEntries() {
		if e.Level < logrus.InfoLevel {
			t.Error(e.Message)
		}
	}
	if len(k.originals) > 0 {
		t.Errorf("originals of disks that are gone: %+v", k.originals)
	}
}

func TestNoIOCost(t *testing.T) {
	t.Parallel()
	k, log := keeper(t, nil, "")
	k.Set(nil, always)
	if n := len(log.AllEntries()); n != 0 {
		t.Errorf("%d messages without the configuration asking for it", n)
	}
	for range 3 {
		k.Set(want, always)
	}
	k.Leave(time.Second)
	if all := log.AllEntries(); len(all) != 1 || all[0].Data["reason"] != "this kernel has none" {
		t.Errorf("logged %v", all)
	}
}

// A change that comes during another one is not lost.
func TestWhileBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		k, _ := keeper(t, h, "")
		posted := make(chan func(), 1)
		k.aside = func(work, then func()) {
			go func() {
				work()
				posted <- then
			}()
		}
		k.Set(want, always)
		k.Set(want, always)
		k.Set(nil, always)
		for k.busy {
			(<-posted)()
		}
		if len(h.now) != 2 || h.now["8:0"] != (iocost.QoS{}) || len(k.originals) > 0 {
			t.Errorf("disks have %+v; %+v", h.now, k.originals)
		}
	})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		k, log := keeper(t, h, "")
		k.Set(want, always)
		h.hangs = make(chan struct{})
		start := time.Now()
		k.Leave(5 * time.Second)
		if waited := time.Since(start); waited != 5*time.Second || len(k.originals) != 2 || !strings.Contains(log.LastEntry().Message, "sluice restore") {
			t.Errorf("waited %s; %+v", waited, k.originals)
		}
		close(h.hangs)
		synctest.Wait()
		if err := Restore(h, k.journal); err != nil || h.now["8:0"] != (iocost.QoS{}) {
			t.Errorf("%v; disks have %+v", err, h.now)
		}
		if left, err := Originals(k.journal); err != nil || len(left) > 0 {
			t.Errorf("%v; %+v are left", err, left)
		}
		k.Leave(5 * time.Second)
	})
}

// A disk hangs since before the end: its parameters come late, and must not stay without a record.
func TestLeaveWhileWriting(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]time.Duration{"it ends in time": 2 * time.Second, "it takes too long": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			k, _ := keeper(t, h, "")
			k.aside = func(work, _ func()) { go work() } // the loop has ended: nobody takes the result
			h.hangs = make(chan struct{})
			k.write(iocost.Plan(nil, h.disks, nil, want))
			synctest.Wait()
			go func() {
				time.Sleep(hangs)
				close(h.hangs)
			}()
			k.Leave(5 * time.Second)
			time.Sleep(time.Hour)
			synctest.Wait()
			if err := Restore(h, k.journal); err != nil || h.now["8:0"] != (iocost.QoS{}) || h.now["8:16"] != (iocost.QoS{}) {
				t.Errorf("%s: %v; disks have %+v", name, err, h.now)
			}
		})
	}
}

func TestRestoreFails(t *testing.T) {
	t.Parallel()
	h := newHost()
	k, _ := keeper(t, h, "")
	k.Set(want, always)
	h.fails = errors.New("invalid argument")
	if err := Restore(h, k.journal); !errors.Is(err, h.fails) {
		t.Error(err)
	}
	if left, err := Originals(k.journal); err != nil || len(left) != 2 {
		t.Errorf("%v; %+v are left", err, left)
	}
}
