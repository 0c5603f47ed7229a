package reconcile

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Options are a Reconciler's dependencies, and the questions that it asks of its owner.
type Options struct {
	Kernel   Kernel // unused while MayWrite returns false
	Journal  *journal.Journal
	Features *knobs.Features
	Log      logrus.FieldLogger
	Now      func() time.Time

	MayWrite      func() bool          // reports whether Sluice may write cgroups: they are Sluice's to set, and it is not in preview
	DriftInterval func() time.Duration // the time between two passes

	// Carried returns the value that the runtime would set a cgroup's knob to if it didn't set
	// Sluice's value in its place; ok is false if the runtime doesn't set the knob for Sluice.
	Carried func(at Key) (value knobs.Value, ok bool)
	// Updating reports whether the runtime may be writing a cgroup for Sluice right now.
	Updating func(path string) bool
	// Starting reports whether no process of a cgroup has run yet, so that waiting a moment for
	// its settings is worthwhile.
	Starting func(path string) bool
	// Suspect names the program that has probably changed a knob to the value found.
	Suspect func(o knobs.Object, k knobs.Knob, found knobs.Value) string
	// Failed is called for a write that the kernel refused after Write had returned.
	Failed func(at Key)

	// Blocking makes slow writes in the caller's goroutine, like all others.
	Blocking bool
	Spawn    func(work func())               // runs work in a goroutine
	Post     func(name string, event func()) // runs an event in the Reconciler's goroutine
	Panicked func()                          // counts a panic that was recovered from
}
