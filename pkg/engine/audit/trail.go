// Package audit stores the control loop's decisions, with the measurements behind them, in files
// of JSON lines. The files rotate and are bounded in size; `sluice log` and `sluice explain` read
// them.
package audit

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Entry is one decision in the trail.
type Entry struct {
	Time time.Time    `json:"time"` // Time of the decision.
	Mode control.Mode `json:"mode"` // Mode in which it was made; in "preview" nothing was changed.
	control.Decision
}

const (
	fileName = "audit.jsonl"
	waiting  = 1024 // maximum number of entries that wait for the disk

	// The trail takes at most fileMB × (backups + 1) MB on disk.
	fileMB  = 8
	backups = 3
)

// Trail writes decisions to disk in its own goroutine. If the disk is slow or full, entries are
// lost, but the loop is never delayed.
type Trail struct {
	entries chan Entry
	dropped atomic.Int64
	out     *lumberjack.Logger
	log     logrus.FieldLogger
}

// Open makes a Trail for a folder. Run writes the files.
func Open(dir string, log logrus.FieldLogger) *Trail {
	return &Trail{
		entries: make(chan Entry, waiting),
		out:     &lumberjack.Logger{Filename: filepath.Join(dir, fileName), MaxSize: fileMB, MaxBackups: backups},
		log:     log,
	}
}

// Record queues a decision. It never waits.
func (t *Trail) Record(at time.Time, mode control.Mode, d *control.Decision) {
	select {
	case t.entries <- Entry{at, mode, *d}:
	default:
		t.dropped.Add(1)
	}
}

// Dropped returns the number of decisions that were lost since the start, because the queue was
// full or a write failed.
func (t *Trail) Dropped() int { return int(t.dropped.Load()) }

// Run writes entries until the context ends, and then those that still wait.
func (t *Trail) Run(ctx context.Context) {
	defer t.out.Close() //nolint:errcheck // every entry has been written already
	logged := false
	write := func(e Entry) {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = t.out.Write(append(line, '\n'))
		}
		if err == nil {
			logged = false
			return
		}
		t.dropped.Add(1)
		if !logged {
			logged = true
			t.log.WithError(err).Error("Decisions can't be written to the audit trail: they are lost, and sluice status counts them")
		}
	}
	for {
		select {
		case e := <-t.entries:
			write(e)
		case <-ctx.Done():
			for len(t.entries) > 0 {
				write(<-t.entries)
			}
			return
		}
	}
}
