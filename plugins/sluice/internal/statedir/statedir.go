// Package statedir manages the two folders in which Sluice keeps what must outlive its process:
// it checks their permissions, lets only one sluice use them, and knows the files in them that
// several commands share.
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
	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// journalFile is the name of the journal of original values in the runtime folder.
const journalFile = "originals.jsonl"

// Dirs are the folders in which Sluice keeps what must outlive its process.
type Dirs struct {
	State   string // survives a reboot: the lock, the audit trail, the batch switch
	Runtime string // the journal of original values and the failsafe plan
}

// Named returns the folders that flags name, otherwise those of the configuration, which is in
// the file that a flag names or in the usual one.
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

// Of returns the folders that flags name, otherwise the configuration's. If a flag names only
// the state folder, that is the runtime folder, too.
func Of(cfg *config.Config, state, runtime string) Dirs {
	return Dirs{cmp.Or(state, cfg.StateDir), cmp.Or(runtime, state, cfg.RuntimeDir)}
}

// PrepareRuntime creates the runtime folder, and warns if it is on a disk.
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

// FailsafePlan returns the changes of a failsafe plan that may have been executed. It also
// reads the place where versions without a runtime folder kept the plan. A plan that can't be
// read was not executed.
func (at Dirs) FailsafePlan(boot string) []knobs.Change {
	changes, _ := failsafe.Load(at.Runtime, boot)
	if len(changes) == 0 {
		changes, _ = failsafe.Load(at.State, boot)
	}
	return changes
}

// ForgetFailsafe removes the failsafe plan.
func (at Dirs) ForgetFailsafe() error {
	return errors.Join(failsafe.Forget(at.Runtime), failsafe.Forget(at.State))
}

// JournalFile returns the path of the journal of original values.
func (at Dirs) JournalFile() string { return filepath.Join(at.Runtime, journalFile) }

// FormerJournalFile returns the path of the journal of versions without a runtime folder.
func (at Dirs) FormerJournalFile() string { return filepath.Join(at.State, journalFile) }

// EgressMark is the file that tells of limits on what pods send.
func (at Dirs) EgressMark() string { return filepath.Join(at.Runtime, egress.MarkFile) }

// Journal reads the journal of original values. With dry it changes no file.
func (at Dirs) Journal(boot string, dry bool) (*journal.Journal, error) {
	name, formerly := at.JournalFile(), at.FormerJournalFile()
	j, err := journal.Read(name, boot)
	if name == formerly {
		return j, err
	}
	if dry {
		old, bad := journal.Read(formerly, boot)
		j.Add(old)
		return j, errors.Join(err, bad)
	}
	return j, errors.Join(err, j.TakeOver(formerly))
}

// Missing reports whether a folder doesn't exist.
func Missing(folder string) bool {
	_, err := os.Stat(folder)
	return errors.Is(err, fs.ErrNotExist)
}
