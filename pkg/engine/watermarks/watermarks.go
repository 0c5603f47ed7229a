// Package watermarks raises the node's free-memory watermarks according to the size of its
// memory, and restores the original ones.
package watermarks

import (
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
)

// state is the name under which the journal keeps the original watermarks.
const state = "watermarks"

// Host are the node's watermarks; see pkg/kernel/watermark.
type Host interface {
	Read() (watermark.Values, error)
	Write(to watermark.Values) (watermark.Values, error)
}

// Keeper sets the node's watermarks. The goroutine that owns the journal calls its methods.
type Keeper struct {
	host    Host
	journal *journal.Journal
	log     logrus.FieldLogger
}

// New makes a Keeper; without a host (nil) it does nothing.
func New(host Host, j *journal.Journal, log logrus.FieldLogger) *Keeper {
	return &Keeper{host, j, log}
}

// Raise sets the watermarks for a node with that many bytes of memory and NUMA nodes. It writes
// nothing unless the originals are on disk.
func (k *Keeper) Raise(memory int64, nodes int) {
	if k.host == nil {
		return
	}
	now, err := k.raise(memory, nodes)
	if err != nil {
		k.log.WithError(err).Warn("The node's memory watermarks stay as they are")
		return
	}
	k.log.WithField("scaleFactor", now.ScaleFactor).WithField("minFreeKB", now.MinFreeKB).Info("The node's memory watermarks are raised")
}

func (k *Keeper) raise(memory int64, nodes int) (now watermark.Values, err error) {
	found, err := k.host.Read()
	if err != nil {
		return now, err
	}
	var originals watermark.Originals
	if _, err := k.journal.State(state, &originals); err != nil {
		k.log.WithError(err).Warn("The original memory watermarks are lost: those found are taken for them")
	}
	originals = watermark.Plan(found, originals, memory, nodes)
	if err := k.journal.SaveState(state, originals); err != nil {
		return now, err
	}
	if err := k.journal.Flush(); err != nil {
		return now, err
	}
	return k.host.Write(originals.Now)
}

// Restore restores the originals, if there are any.
func (k *Keeper) Restore() {
	if k.host == nil {
		return
	}
	if err := Restore(k.host, k.journal); err != nil {
		k.log.WithError(err).Warn("The original memory watermarks could not be given back")
	}
}

// Restore restores the originals that a journal has, and removes them from it.
func Restore(host Host, j *journal.Journal) error {
	return journal.RestoreState(j, state, func(originals watermark.Originals) error {
		found, err := host.Read()
		if err == nil {
			_, err = host.Write(watermark.Restore(found, originals))
		}
		return err
	})
}
