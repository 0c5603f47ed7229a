package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// usualConfig is where the installation puts the configuration.
const usualConfig = "/etc/sluice/sluice.yaml"

// configFile is the file that the flag names, else the usual one, where it is there.
func configFile(flag, hostRoot string) string {
	if flag != "" {
		return flag
	}
	usual := filepath.Join(hostRoot, usualConfig)
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return usual
}

// originalsFile is the file in the runtime folder that keeps original values.
const originalsFile = "originals.jsonl"

// runtimeDirHelp tells of the flag that names the runtime folder.
const runtimeDirHelp = "`folder` on tmpfs for original values and the failsafe's plan (default: --state-dir if given, else the configuration's)"

// folders are where Sluice keeps what must outlive it.
type folders struct {
	state   string // and outlive the boot: the lock, the audit trail, the batch switch
	runtime string // the journal of original values and the failsafe's plan
}

// bothFolders are the folders that the flags name, else the configuration's.
func bothFolders(state, runtime, config, hostRoot string) (folders, error) {
	if state != "" && config == "" {
		return folders{state, cmp.Or(runtime, state)}, nil
	}
	cfg, err := loadConfig(configFile(config, hostRoot))
	if err != nil {
		return folders{}, fmt.Errorf("%w; --state-dir without --config works as well", err)
	}
	return folders{cmp.Or(state, cfg.StateDir), cmp.Or(runtime, state, cfg.RuntimeDir)}, nil
}

// prepareRuntime makes the runtime folder, and warns where it is on a disk.
func (at folders) prepareRuntime(log logrus.FieldLogger) error {
	if err := private(at.runtime, "runtimeDir"); err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	if err := writable(at.runtime); err != nil {
		return fmt.Errorf("runtime folder: %w: mount a tmpfs there, or name another runtimeDir", err)
	}
	var fs unix.Statfs_t
	if unix.Statfs(at.runtime, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		log.WithField("runtimeDir", at.runtime).Warn("The runtime folder is not in memory (tmpfs): where its disk hangs or is frozen, containers wait for it before they are created or started")
	}
	return nil
}

// failsafePlan is the plan that a failsafe may have carried out, where versions before
// the runtime folder kept it too. What can't be read was not carried out.
func (at folders) failsafePlan(boot string) []knobs.Change {
	changes, _ := failsafe.Load(at.runtime, boot)
	if len(changes) == 0 {
		changes, _ = failsafe.Load(at.state, boot)
	}
	return changes
}

// forgetFailsafe removes the failsafe's plan.
func (at folders) forgetFailsafe() error {
	return errors.Join(failsafe.Forget(at.runtime), failsafe.Forget(at.state))
}

// book is the journal of original values. With dry no file is changed.
func (at folders) book(boot string, dry bool) (*journal.Book, error) {
	name, formerly := filepath.Join(at.runtime, originalsFile), filepath.Join(at.state, originalsFile)
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

// stateFolder is the folder that the flag names, else the configuration's.
func stateFolder(flag, config, hostRoot string) (string, error) {
	if flag != "" && config == "" {
		return flag, nil
	}
	cfg, err := loadConfig(configFile(config, hostRoot))
	if err != nil {
		return "", fmt.Errorf("%w; --state-dir without --config works as well", err)
	}
	return cmp.Or(flag, cfg.StateDir), nil
}

// missing reports whether a folder is not there.
func missing(folder string) bool {
	_, err := os.Stat(folder)
	return errors.Is(err, fs.ErrNotExist)
}
