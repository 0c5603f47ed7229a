// Package audit keeps what the loop decided, with the numbers that it was decided
// from, in files of JSON lines: bounded, rotating, for `sluice log` and `explain`.
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
	waiting  = 1024 // entries that may wait for the disk

	// The trail's size on disk: fileMB times one file more than backups.
	fileMB  = 8
	backups = 3
)

// Trail writes decisions to disk in a goroutine of its own. A disk that is slow or
// full costs entries, never the loop's time.
type Trail struct {
	entries chan Entry
	dropped atomic.Int64
	out     *lumberjack.Logger
	log     logrus.FieldLogger
}

// Open makes the trail in a folder; Run writes it.
func Open(dir string, log logrus.FieldLogger) *Trail {
	return &Trail{
		entries: make(chan Entry, waiting),
		out:     &lumberjack.Logger{Filename: filepath.Join(dir, fileName), MaxSize: fileMB, MaxBackups: backups},
		log:     log,
	}
}

// Record takes a decision. It never waits.
func (t *Trail) Record(at time.Time, mode control.Mode, d *control.Decision) {
	select {
	case t.entries <- Entry{at, mode, *d}:
	default:
		t.dropped.Add(1)
	}
}

// Dropped is how many decisions found no room, or no disk, since the start.
func (t *Trail) Dropped() int { return int(t.dropped.Load()) }

// Run writes until the context ends, then what is still waiting.
func (t *Trail) Run(ctx context.Context) {
	defer t.out.Close() //nolint:errcheck // each entry was written
	told := false
	write := func(e Entry) {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = t.out.Write(append(line, '\n'))
		}
		if err == nil {
			told = false
			return
		}
		t.dropped.Add(1)
		if !told {
			told = true
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
