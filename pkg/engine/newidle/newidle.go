// Package newidle lets the node's CPUs look for waiting threads each time they have nothing left to run,
// and restores what the kernel did before.
package newidle

import (
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
)

// state is the name under which the journal keeps what the kernel did before.
const state = "newidleBalance"

// Host is the node's scheduler; see pkg/kernel/newidle.
type Host interface {
	Read() (newidle.Search, error)
	SetAlways(always bool) error
}

// Keeper sets how the node's CPUs look for threads. The goroutine that owns the journal calls its
// methods.
type Keeper struct {
	host    Host
	journal *journal.Journal
	log     logrus.FieldLogger
}

// New makes a Keeper; without a host (nil) it does nothing.
func New(host Host, j *journal.Journal, log logrus.FieldLogger) *Keeper {
	return &Keeper{host, j, log}
}

// Supported reports whether Always can change what the kernel does, and why not.
func (k *Keeper) Supported() (supported bool, why string) {
	if k.host == nil {
		return false, ""
	}
	switch found, err := k.host.Read(); {
	case err != nil:
		return false, err.Error()
	case found == newidle.Plain:
		return false, "this kernel looks for waiting threads each time"
	}
	return true, ""
}

// Always lets CPUs look each time. It writes nothing unless what it found is on disk.
func (k *Keeper) Always() {
	if k.host == nil {
		return
	}
	switch changed, err := k.always(); {
	case err != nil:
		k.log.WithError(err).Warn("CPUs that have nothing left to run look for waiting threads as the kernel chooses, although newidleBalance is always")
	case changed:
		k.log.Info("CPUs that have nothing left to run now look for waiting threads each time")
	}
}

func (k *Keeper) always() (changed bool, err error) {
	found, err := k.host.Read()
	if err != nil || found == newidle.Always || found == newidle.Plain {
		return false, err
	}
	if err := k.journal.SaveState(state, found); err != nil {
		return false, err
	}
	if err := k.journal.Flush(); err != nil {
		return false, err
	}
	return true, k.host.SetAlways(true)
}

// Restore restores what was found, if it was changed.
func (k *Keeper) Restore() {
	if k.host == nil {
		return
	}
	if err := Restore(k.host, k.journal); err != nil {
		k.log.WithError(err).Warn("CPUs still look for waiting threads each time: what the kernel did before could not be restored")
	}
}

// Restore restores what a journal says was found, and removes it from the journal. If another program
// has undone the change, it writes nothing.
func Restore(host Host, j *journal.Journal) error {
	return journal.RestoreState(j, state, func(newidle.Search) error {
		now, err := host.Read()
		if err == nil && now == newidle.Always {
			err = host.SetAlways(false)
		}
		return err
	})
}
