// Package statedir is the two folders in which Sluice keeps what must outlive its process:
// who may use them, which one sluice works with them, and the files in them that several
// commands share.
package statedir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// journalFile is the journal of original values, in the runtime folder.
const journalFile = "originals.jsonl"

// Dirs are the folders in which Sluice keeps what must outlive its process.
type Dirs struct {
	State   string // for what must outlive the boot too: the lock, the audit trail, the batch switch
	Runtime string // for the journal of original values and the failsafe's plan
}

// Named are the folders that flags name, else those of the configuration: of the file that
// a flag names, or of the usual one.
func Named(state, runtime, file, hostRoot string) (Dirs, error) {
	if state != "" && file == "" {
		return Dirs{state, cmp.Or(runtime, state)}, nil
	}
	cfg, _, err := config.Load(config.FileOr(file, hostRoot))
	if err != nil {
		return Dirs{}, fmt.Errorf("%w; --state-dir without --config works as well", err)
	}
	return Of(cfg, state, runtime), nil
}

// Of are the folders that flags name, else the configuration's. A state folder that a flag
// names serves as the runtime folder too where no flag names one.
func Of(cfg *config.Config, state, runtime string) Dirs {
	return Dirs{cmp.Or(state, cfg.StateDir), cmp.Or(runtime, state, cfg.RuntimeDir)}
}

// PrepareRuntime makes the runtime folder, and warns where it is on a disk.
func (at Dirs) PrepareRuntime(log logrus.FieldLogger) error {
	if err := private(at.Runtime, "runtimeDir"); err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	if err := Writable(at.Runtime); err != nil {
		return fmt.Errorf("runtime folder: %w: mount a tmpfs there, or name another runtimeDir", err)
	}
	var fs unix.Statfs_t
	if unix.Statfs(at.Runtime, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		log.WithField("runtimeDir", at.Runtime).Warn("The runtime folder is not in memory (tmpfs): where its disk hangs or is frozen, containers wait for it before they are created or started")
	}
	return nil
}

// FailsafePlan is the plan that a failsafe may have carried out, where versions before
// the runtime folder kept it too. What can't be read was not carried out.
func (at Dirs) FailsafePlan(boot string) []knobs.Change {
	changes, _ := failsafe.Load(at.Runtime, boot)
	if len(changes) == 0 {
		changes, _ = failsafe.Load(at.State, boot)
	}
	return changes
}

// ForgetFailsafe removes the failsafe's plan.
func (at Dirs) ForgetFailsafe() error {
	return errors.Join(failsafe.Forget(at.Runtime), failsafe.Forget(at.State))
}

// JournalFile is the journal of original values.
func (at Dirs) JournalFile() string { return filepath.Join(at.Runtime, journalFile) }

// FormerJournalFile is where versions before the runtime folder kept the journal.
func (at Dirs) FormerJournalFile() string { return filepath.Join(at.State, journalFile) }

// Journal reads the journal of original values. With dry no file is changed.
func (at Dirs) Journal(boot string, dry bool) (*journal.Book, error) {
	name, formerly := at.JournalFile(), at.FormerJournalFile()
	book, err := journal.Read(name, boot)
	if name == formerly {
		return book, err
	}
	if dry {
		old, bad := journal.Read(formerly, boot)
		book.Add(old)
		return book, errors.Join(err, bad)
	}
	return book, errors.Join(err, book.TakeOver(formerly))
}

// Missing reports whether a folder is not there.
func Missing(folder string) bool {
	_, err := os.Stat(folder)
	return errors.Is(err, fs.ErrNotExist)
}
