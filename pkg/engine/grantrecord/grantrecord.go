// Package grantrecord reads the kubelet's record of what it has granted to pods. The record is
// a file on a disk that may hang, so only separate goroutines read it.
package grantrecord

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// Watcher has the latest version of the record that was read. It is for use by one goroutine.
type Watcher struct {
	host   fs.FS
	log    logrus.FieldLogger
	inline bool // read in the caller's goroutine, for tests in virtual time

	file    string         // path below the host's root
	record  *grants.Record // nil if there is no record in a known format
	read    identity       // identifies the file that was read last
	problem string         // why there is no record although there is a file
	changed bool           // the record has changed since the last call of TakeChanged
	reading chan outcome   // receives the result of a read; nil if none is under way
}

// New makes a Watcher. inline makes it read the record in the caller's goroutine, for virtual
// time, in which nothing blocks.
func New(host fs.FS, inline bool, log logrus.FieldLogger) *Watcher {
	return &Watcher{host: host, inline: inline, log: log}
}

// Follow sets the record's path below the host's root.
func (w *Watcher) Follow(file string) { w.file = file }

// Refresh reads the record, and waits for the result no longer than wait. A later Refresh handles the
// result of a slower read.
func (w *Watcher) Refresh(wait time.Duration) {
	if w.inline {
		w.take(readRecord(w.host, w.file, w.read, w.record))
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	if w.reading != nil { // that read may have begun before the kubelet's last write
		w.await(timeout.C)
	}
	if w.reading == nil {
		done, host, file, before, known := make(chan outcome, 1), w.host, w.file, w.read, w.record
		w.reading = done
		go func() { done <- readRecord(host, file, before, known) }()
		if wait > 0 {
			w.await(timeout.C)
		}
	}
}

// await handles the result of the read under way if it arrives in time.
func (w *Watcher) await(timeout <-chan time.Time) {
	var o outcome
	select {
	case o = <-w.reading: // select may choose this case after the timeout, too
	default:
		select {
		case o = <-w.reading:
		case <-timeout:
			return
		}
	}
	w.reading = nil
	w.take(o)
}

func (w *Watcher) take(o outcome) {
	if o.same {
		return
	}
	switch {
	case o.problem != "" && o.problem != w.problem:
		w.log.Warnf("What the kubelet has granted to pods is not known: %s. Requests are inferred from what the runtime tells, and of batch work annotations count", o.problem)
	case o.record != nil && w.record == nil:
		w.log.WithField("pods", o.record.Pods()).Info("Requests of pods are those that the kubelet has granted, by /" + w.file)
	}
	w.record, w.read, w.problem, w.changed = o.record, o.read, o.problem, true
}

// Known reports whether there is a record in a known format.
func (w *Watcher) Known() bool { return w.record != nil }

// Of is the kubelet's grant to a container, by the record.
func (w *Watcher) Of(podUID, container string) workload.Granted {
	return w.record.Of(podUID, container)
}

// TakeChanged reports whether the record has changed since the last call.
func (w *Watcher) TakeChanged() bool {
	changed := w.changed
	w.changed = false
	return changed
}

// Status reports the source of the kubelet's grants.
func (w *Watcher) Status() status.Grants {
	s := status.Grants{Problem: w.problem}
	if w.record != nil {
		s.File, s.Pods = "/"+w.file, w.record.Pods()
	}
	return s
}

// identity distinguishes versions of the file: the kubelet writes a new file and renames it
// over the old one.
type identity struct {
	inode    uint64
	modified time.Time
	size     int64
}

// outcome is the result of reading the file.
type outcome struct {
	same    bool // the file has not changed; the other fields are empty
	record  *grants.Record
	read    identity
	problem string
}

// readRecord reads the file unless it is the one that was read before, whose record is known.
func readRecord(host fs.FS, name string, before identity, known *grants.Record) (o outcome) {
	text, now, err := readNew(host, name, before)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return outcome{same: before == identity{}}
	case err == nil && text == nil:
		return outcome{same: true}
	case err == nil:
		o.record, err = known.Next(text)
	}
	if o.read = now; err != nil {
		o.problem = fmt.Sprintf("/%s %v", name, err)
	}
	return o
}

// readNew reads up to grants.MaxSize bytes and one more; it returns nil if the file is the one
// that was read before.
func readNew(host fs.FS, name string, before identity) (text []byte, now identity, err error) {
	f, err := host.Open(name)
	if err != nil {
		return nil, now, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, now, err
	}
	now = identity{modified: info.ModTime(), size: info.Size()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = s.Ino
	}
	if now == before {
		return nil, now, nil
	}
	text, err = io.ReadAll(io.LimitReader(f, grants.MaxSize+1))
	return text, now, err
}
