// Package disks lets the node's disks divide their time by I/O weights, and restores what they had
// before.
package disks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
)

// state is the name under which the journal keeps the original parameters.
const state = "disks"

// Host are the parameters of the node's disks; see pkg/kernel/iocost.
type Host interface {
	Read() (map[string]iocost.QoS, error)
	Disks() ([]iocost.Disk, error)
	Write(iocost.Write) error
}

// Keeper sets the parameters of the node's disks, one change at a time. The goroutine that owns the
// journal calls its methods. The kernel's files are read and written outside of that goroutine,
// because a write waits for the disk.
type Keeper struct {
	host    Host
	lacks   string // why there is no host
	journal *journal.Journal
	aside   func(work, then func())
	changed func(withCost []string)
	log     logrus.FieldLogger

	busy      bool             // a change is under way
	next      func()           // the change to begin then; nil for none
	originals iocost.Originals // replaced, never changed in place
	withCost  []string         // numbers of the disks on which io.cost is enabled
	writing   chan struct{}    // holds a value while parameters are written
	said      map[string]string
}

// New makes a Keeper, with the originals that an earlier run left in the journal. aside runs work
// outside of the goroutine that owns the journal, and then in it. changed is called there with the
// numbers of the disks on which io.cost is enabled, when they are others than before. Without a host
// (nil), the Keeper only says why, as lacks tells.
func New(host Host, lacks string, j *journal.Journal, aside func(work, then func()), changed func(withCost []string), log logrus.FieldLogger) *Keeper {
	k := &Keeper{host: host, lacks: lacks, journal: j, aside: aside, changed: changed, log: log, writing: make(chan struct{}, 1), said: map[string]string{}}
	if _, err := j.State(state, &k.originals); err != nil {
		log.WithError(err).Warn("What io.cost was before is lost: it can't be given back")
	}
	return k
}

// Set starts to give the disks the parameters wanted, and to give back those of all others. It
// returns at once. While another change is under way, it begins after that one. allowed is called
// before each part of the change, since another program may have begun to write in the meantime.
func (k *Keeper) Set(want iocost.Want, allowed func() bool) {
	if k.host == nil {
		if want != nil {
			k.say("lacks", k.lacks, func() { k.log.WithField("reason", k.lacks).Warn("ioCost has no effect on this node") })
		}
		return
	}
	if want == nil && len(k.originals) == 0 && !k.busy {
		return
	}
	k.next = func() { k.read(want, allowed) }
	k.proceed()
}

// proceed begins the next change.
func (k *Keeper) proceed() {
	if next := k.next; next != nil && !k.busy {
		k.next = nil
		next()
	}
}

// begin runs work outside of the goroutine; no other change begins before then has run.
func (k *Keeper) begin(work, then func()) {
	k.busy = true
	k.aside(work, func() {
		k.busy = false
		then()
		k.proceed()
	})
}

func (k *Keeper) read(want iocost.Want, allowed func() bool) {
	if !allowed() {
		return
	}
	var planned iocost.Planned
	var err error
	originals := k.originals
	k.begin(func() {
		planned, err = plan(k.host, originals, want)
	}, func() {
		k.trouble("The disks' parameters stay as they are", err)
		switch {
		case err != nil || !allowed():
		case len(planned.Writes) == 0 && maps.Equal(planned.Originals, k.originals):
			k.report(planned, nil)
		default:
			k.write(planned)
		}
	})
}

func plan(host Host, originals iocost.Originals, want iocost.Want) (iocost.Planned, error) {
	found, err := host.Read()
	disks, listErr := host.Disks()
	if err := errors.Join(err, listErr); err != nil {
		return iocost.Planned{}, err
	}
	return iocost.Plan(found, disks, originals, want), nil
}

// write carries out a plan. It writes nothing unless the originals are on disk.
func (k *Keeper) write(p iocost.Planned) {
	k.originals = p.Originals
	err := save(k.journal, p.Originals)
	if err == nil && len(p.Writes) > 0 {
		err = k.journal.Flush()
	}
	if err != nil {
		k.trouble("What io.cost was before can't be written to disk: the disks' parameters stay as they are until it can", err)
		return
	}
	var errs []error
	k.begin(func() {
		k.writing <- struct{}{}
		errs = writeAll(k.host, p.Writes)
		<-k.writing
	}, func() {
		k.originals = iocost.AfterWrites(p.Originals, p.Writes, errs)
		k.trouble("What io.cost was before can't be noted", save(k.journal, k.originals))
		k.report(p, errs)
	})
}

// report logs what is new, and tells of it.
func (k *Keeper) report(p iocost.Planned, errs []error) {
	withCost := slices.DeleteFunc(p.WithCost, func(number string) bool {
		at := slices.IndexFunc(p.Writes, func(w iocost.Write) bool { return w.Number == number })
		return at >= 0 && errs[at] != nil
	})
	if !slices.Equal(withCost, k.withCost) {
		k.withCost = withCost
		k.changed(withCost)
	}
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, iocost.ErrGone) })
	err := errors.Join(failed...)
	if k.trouble("The kernel refuses parameters of disks, which stay as they are", err); err != nil {
		return
	}
	enabled, others := strings.Join(p.Enabled, ", "), strings.Join(p.Others, ", ")
	k.say("enabled", enabled, func() {
		if enabled == "" {
			k.log.Info("The disks' parameters are as they were before")
			return
		}
		k.log.WithField("disks", enabled).Info("Disks divide their time by I/O weights (io.cost)")
	})
	k.say("others", others, func() {
		if others != "" {
			k.log.WithField("disks", others).Info("Another program has enabled io.cost on disks: its parameters stay")
		}
	})
}

// trouble logs an error once, until it is another one or gone.
func (k *Keeper) trouble(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	k.say(what, text, func() {
		if err != nil {
			k.log.WithError(err).Warn(what)
		}
	})
}

// say calls log if the text about a matter is not the one before.
func (k *Keeper) say(matter, text string, log func()) {
	if k.said[matter] != text {
		k.said[matter] = text
		log()
	}
}

// Leave gives back all originals before the process ends. It waits at most so long for a disk that
// hangs, also if it hangs in an earlier write. The originals then stay in the journal, for the next
// start or sluice restore.
func (k *Keeper) Leave(patience time.Duration) {
	if k.host == nil || len(k.originals) == 0 {
		return
	}
	type result struct {
		left iocost.Originals
		err  error
	}
	done, originals := make(chan result, 1), k.originals
	go func() {
		k.writing <- struct{}{} // a write that hangs has yet to change what is found
		left, err := giveBack(k.host, originals)
		<-k.writing
		done <- result{left, err}
	}()
	err := fmt.Errorf("they took longer than %s", patience)
	select {
	case r := <-done:
		k.originals, err = r.left, errors.Join(r.err, save(k.journal, r.left))
	case <-time.After(patience):
	}
	if err != nil {
		k.log.WithError(err).Warn("The original parameters of disks could not be given back; sluice restore tries it again")
	}
}

// Restore gives back the originals that a journal has, and removes those from it that are given
// back. No plugin may be running.
func Restore(host Host, j *journal.Journal) error {
	originals, err := Originals(j)
	if err != nil || len(originals) == 0 {
		return err
	}
	left, err := giveBack(host, originals)
	return errors.Join(err, save(j, left))
}

// Originals reads the original parameters from a journal.
func Originals(j *journal.Journal) (originals iocost.Originals, err error) {
	_, err = j.State(state, &originals)
	return originals, err
}

// giveBack returns the originals that could not be given back.
func giveBack(host Host, originals iocost.Originals) (left iocost.Originals, err error) {
	p, err := plan(host, originals, nil)
	if err != nil {
		return originals, err
	}
	errs := writeAll(host, p.Writes)
	for _, err := range errs {
		if err != nil && !errors.Is(err, iocost.ErrGone) {
			return iocost.AfterWrites(p.Originals, p.Writes, errs), err
		}
	}
	return iocost.AfterWrites(p.Originals, p.Writes, errs), nil
}

func writeAll(host Host, writes []iocost.Write) []error {
	errs := make([]error, len(writes))
	for i, w := range writes {
		errs[i] = host.Write(w)
	}
	return errs
}

// save records the originals in the journal; it removes the record if there are none.
func save(j *journal.Journal, originals iocost.Originals) error {
	if len(originals) == 0 {
		return j.SaveState(state, nil)
	}
	return j.SaveState(state, originals)
}
