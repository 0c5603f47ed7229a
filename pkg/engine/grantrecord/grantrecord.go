// Package grantrecord follows the kubelet's record of what it has granted to pods. The
// record is a file on a disk that may hang: only goroutines read it.
package grantrecord

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// Find tells where the host's kubelet keeps its record, as a path below the host's root.
func Find(host fs.FS) string {
	kubelet, _ := peers.FindKubelet(host) // peers.Detect reports that its folder can't be seen
	return kubelet.File(grants.File)
}

// Watcher has the record as it was read last. It is for one goroutine.
type Watcher struct {
	host   fs.FS
	log    logrus.FieldLogger
	inline bool // reads block nobody: in virtual time

	file    string         // below the host's root
	record  *grants.Record // nil where there is none that is understood
	read    identity       // of the file that was read
	problem string         // why there is no record, where there is a file
	news    bool           // since News was asked last
	reading chan outcome   // nil while nothing is being read
}

// New makes a Watcher of a host. Inline has it read in the caller's goroutine, for virtual
// time, in which nothing blocks.
func New(host fs.FS, inline bool, log logrus.FieldLogger) *Watcher {
	return &Watcher{host: host, inline: inline, log: log}
}

// Follow names the file, below the host's root.
func (w *Watcher) Follow(file string) { w.file = file }

// Look takes over the record that the kubelet has by now, and waits for it no longer than
// given. What takes longer is taken over by a later Look.
func (w *Watcher) Look(wait time.Duration) {
	if w.inline {
		w.take(look(w.host, w.file, w.read))
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	if w.reading != nil { // since before this call, which may have followed a write
		w.await(timeout.C)
	}
	if w.reading == nil {
		done, host, file, before := make(chan outcome, 1), w.host, w.file, w.read
		w.reading = done
		go func() { done <- look(host, file, before) }()
		if wait > 0 {
			w.await(timeout.C)
		}
	}
}

// await takes over what is being read, if that ends in time.
func (w *Watcher) await(timeout <-chan time.Time) {
	var o outcome
	select {
	case o = <-w.reading: // also where the time is over
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
	w.record, w.read, w.problem, w.news = o.record, o.read, o.problem, true
}

// Known reports whether there is a record that is understood.
func (w *Watcher) Known() bool { return w.record != nil }

// Of is what the kubelet has granted to a container, by the record.
func (w *Watcher) Of(podUID, container string) workload.Granted {
	return w.record.Of(podUID, container)
}

// News reports whether the record has changed since it was asked last.
func (w *Watcher) News() bool {
	news := w.news
	w.news = false
	return news
}

// Status tells where requests are known from.
func (w *Watcher) Status() status.Grants {
	s := status.Grants{Problem: w.problem}
	if w.record != nil {
		s.File, s.Pods = "/"+w.file, w.record.Pods()
	}
	return s
}

// identity tells one finished file from the next: the kubelet renames a new one over the
// old one.
type identity struct {
	inode    uint64
	modified time.Time
	size     int64
}

// outcome is what a look at the file found.
type outcome struct {
	same    bool // as before; the rest is empty
	record  *grants.Record
	read    identity
	problem string
}

// look reads the file where it isn't the one read before.
func look(host fs.FS, name string, before identity) (o outcome) {
	text, now, err := readNew(host, name, before)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return outcome{same: before == identity{}}
	case err == nil && text == nil:
		return outcome{same: true}
	case err == nil:
		o.record, err = grants.Parse(text)
	}
	if o.read = now; err != nil {
		o.problem = fmt.Sprintf("/%s %v", name, err)
	}
	return o
}

// readNew reads a file of at most grants.MaxSize bytes, and one more; nil where it is the
// one read before.
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
