package newidle

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
)

// host behaves as the kernel does: it knows the feature, or not.
type host struct {
	now    newidle.Search
	fails  error // of Read
	writes int
}

func (h *host) Read() (newidle.Search, error) { return h.now, h.fails }

func (h *host) SetAlways(always bool) error {
	if h.now == newidle.Plain {
		return errors.New("invalid argument")
	}
	h.writes++
	h.now = newidle.Sometimes
	if always {
		h.now = newidle.Always
	}
	return nil
}

func keeper(t *testing.T, h *host, file string) (*Keeper, *logtest.Hook) {
	t.Helper()
	j, err := journal.Open(file, "boot")
	if j == nil { // if the file's folder is missing, Open returns a journal and an error
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	log, hook := logtest.NewNullLogger()
	return New(h, j, log), hook
}

func TestAlwaysAndRestore(t *testing.T) {
	t.Parallel()
	for _, found := range []newidle.Search{newidle.Sometimes, newidle.Rated} {
		h := &host{now: found}
		file := filepath.Join(t.TempDir(), "originals")
		k, log := keeper(t, h, file)
		k.Always()
		k.Always()
		if h.now != newidle.Always || h.writes != 1 || len(log.AllEntries()) != 1 {
			t.Errorf("found %s: now %s after %d writes and %d messages", found, h.now, h.writes, len(log.AllEntries()))
		}
		if err := k.journal.Close(); err != nil {
			t.Fatal(err)
		}
		k, _ = keeper(t, h, file) // the plugin was killed
		k.Always()
		k.Restore()
		if h.now != newidle.Sometimes {
			t.Errorf("found %s: restored to %s", found, h.now)
		}
	}
}

func TestWhatNeedsNoChange(t *testing.T) {
	t.Parallel()
	for _, found := range []newidle.Search{newidle.Always, newidle.Plain} {
		h := &host{now: found}
		k, log := keeper(t, h, filepath.Join(t.TempDir(), "originals"))
		k.Always()
		k.Restore()
		if h.now != found || h.writes > 0 || len(log.AllEntries()) > 0 {
			t.Errorf("found %s: now %s after %d writes and %d messages", found, h.now, h.writes, len(log.AllEntries()))
		}
	}
}

func TestAnothersChangeStays(t *testing.T) {
	t.Parallel()
	h := &host{now: newidle.Sometimes}
	k, _ := keeper(t, h, filepath.Join(t.TempDir(), "originals"))
	k.Always()
	h.now = newidle.Sometimes
	k.Restore()
	if h.writes != 1 {
		t.Errorf("%d writes", h.writes)
	}
	h.now = newidle.Always // an administrator's, after Sluice has given up its own
	if k.Restore(); h.now != newidle.Always {
		t.Error("what an administrator has set is undone")
	}
}

func TestNothingIsChangedWithoutAJournal(t *testing.T) {
	t.Parallel()
	h := &host{now: newidle.Sometimes}
	folder := filepath.Join(t.TempDir(), "missing")
	k, log := keeper(t, h, filepath.Join(folder, "originals"))
	k.Always()
	if h.writes > 0 || len(log.AllEntries()) == 0 {
		t.Errorf("%d writes, %d log entries", h.writes, len(log.AllEntries()))
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if k.Always(); h.now != newidle.Always {
		t.Error("nothing is changed once the original can be written")
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	h := &host{now: newidle.Sometimes, fails: errors.New("locked down")}
	k, log := keeper(t, h, "")
	k.Always()
	if h.writes > 0 || len(log.AllEntries()) != 1 {
		t.Errorf("%d writes, %d log entries", h.writes, len(log.AllEntries()))
	}
}

func TestSupported(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host *host
		want bool
		why  string
	}{
		{&host{now: newidle.Sometimes}, true, ""},
		{&host{now: newidle.Always}, true, ""},
		{&host{now: newidle.Plain}, false, "this kernel looks for waiting threads each time"},
		{&host{fails: errors.New("locked down")}, false, "locked down"},
	} {
		k, _ := keeper(t, test.host, "")
		if got, why := k.Supported(); got != test.want || why != test.why {
			t.Errorf("%+v: %v, %q", test.host, got, why)
		}
	}
	k, _ := keeper(t, nil, "")
	k.host = nil
	k.Always()
	k.Restore()
	if got, why := k.Supported(); got || why != "" {
		t.Errorf("without a kernel: %v, %q", got, why)
	}
}
