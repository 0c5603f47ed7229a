package watermarks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
)

type host struct {
	now   watermark.Values
	fails error
}

func (h *host) Read() (watermark.Values, error) { return h.now, h.fails }

func (h *host) Write(to watermark.Values) (watermark.Values, error) {
	h.now = to
	return to, nil
}

var usual = watermark.Values{ScaleFactor: 10, MinFreeKB: 1000}

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

func TestRaiseAndRestore(t *testing.T) {
	t.Parallel()
	h := &host{now: usual}
	k, _ := keeper(t, h, filepath.Join(t.TempDir(), "originals"))
	k.Raise(64<<30, 2)
	if h.now.MinFreeKB <= usual.MinFreeKB {
		t.Errorf("watermarks are %+v, not raised", h.now)
	}
	k.Restore()
	if h.now != usual {
		t.Errorf("watermarks are %+v, want %+v", h.now, usual)
	}
}

func TestNothingIsRaisedWithoutOriginals(t *testing.T) {
	t.Parallel()
	h := &host{now: usual}
	folder := filepath.Join(t.TempDir(), "missing")
	k, log := keeper(t, h, filepath.Join(folder, "originals"))
	k.Raise(64<<30, 2)
	if h.now != usual || len(log.AllEntries()) == 0 {
		t.Errorf("watermarks are %+v, %d log entries", h.now, len(log.AllEntries()))
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if k.Raise(64<<30, 2); h.now == usual {
		t.Error("watermarks are not raised once the originals can be written")
	}
}

func TestUnreadableWatermarksStay(t *testing.T) {
	t.Parallel()
	h := &host{now: usual, fails: errors.New("permission denied")}
	k, log := keeper(t, h, "")
	k.Raise(64<<30, 2)
	if h.now != usual || len(log.AllEntries()) != 1 {
		t.Errorf("watermarks are %+v, %d log entries", h.now, len(log.AllEntries()))
	}
}
