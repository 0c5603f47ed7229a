package agent

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
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// recordOf is where the host's kubelet keeps its record of what it has granted.
func recordOf(host fs.FS) string {
	kubelet, _ := peers.FindKubelet(host) // peers.Detect reports that its folder can't be seen
	return kubelet.File(grants.File)
}

const (
	// allocatedWait bounds how long an event waits for the record. The kubelet wrote it
	// just before, so that it is in memory and read within milliseconds; on a disk that
	// hangs the event goes on with what is known, and the pass catches up.
	allocatedWait = 50 * time.Millisecond
	// allocatedStart bounds it where all containers are looked at; the runtime waits 2 s.
	allocatedStart = 500 * time.Millisecond
)

// allocations are the kubelet's record as the loop last took it over.
type allocations struct {
	name    string         // of its file, below the host's root
	record  *grants.Record // nil where none is there that is understood
	file    fileIdentity   // that was read
	problem string         // why there is no record, where there is a file
	news    bool           // not all containers have been compared with the record
	reading chan allocationsRead
}

// fileIdentity tells one finished file from the next: the kubelet renames a new one over
// the old one.
type fileIdentity struct {
	inode    uint64
	modified time.Time
	size     int64
}

// allocationsRead is what a look at the file found.
type allocationsRead struct {
	allocations
	same bool // as before
}

// readAllocations looks at the file, and reads it where it isn't the one read before.
func readAllocations(host fs.FS, name string, before fileIdentity) (r allocationsRead) {
	text, file, err := readNew(host, name, before)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return allocationsRead{same: before == fileIdentity{}}
	case err == nil && text == nil:
		return allocationsRead{same: true}
	case err == nil:
		r.record, err = grants.Parse(text)
	}
	if r.file = file; err != nil {
		r.problem = fmt.Sprintf("/%s %v", name, err)
	}
	return r
}

// readNew reads a file of at most grants.MaxSize bytes, and one more; nil where it is the
// one read before.
func readNew(host fs.FS, name string, before fileIdentity) (text []byte, now fileIdentity, err error) {
	f, err := host.Open(name)
	if err != nil {
		return nil, now, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, now, err
	}
	now = fileIdentity{modified: info.ModTime(), size: info.Size()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		now.inode = s.Ino
	}
	if now == before {
		return nil, now, nil
	}
	text, err = io.ReadAll(io.LimitReader(f, grants.MaxSize+1))
	return text, now, err
}

// lookAtAllocations takes over the record that the kubelet has by now. The file is read
// in a goroutine, one at a time, for which the loop waits for a bounded time; with none
// the next look finds what was read.
func (a *Agent) lookAtAllocations(wait time.Duration) {
	if a.Clock != nil { // nothing blocks there
		a.takeAllocations(readAllocations(a.Host, a.allocated.name, a.allocated.file))
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	if a.allocated.reading != nil { // since before this event, which may have followed a write
		a.awaitAllocations(timeout.C)
	}
	if a.allocated.reading == nil {
		done, name, before := make(chan allocationsRead, 1), a.allocated.name, a.allocated.file
		a.allocated.reading = done
		go func() { done <- readAllocations(a.Host, name, before) }()
		if wait > 0 {
			a.awaitAllocations(timeout.C)
		}
	}
}

// awaitAllocations takes over what is being read, if that ends in time.
func (a *Agent) awaitAllocations(timeout <-chan time.Time) {
	var r allocationsRead
	select {
	case r = <-a.allocated.reading: // also where the time is over
	default:
		select {
		case r = <-a.allocated.reading:
		case <-timeout:
			return
		}
	}
	a.allocated.reading = nil
	a.takeAllocations(r)
}

func (a *Agent) takeAllocations(r allocationsRead) {
	if r.same {
		return
	}
	known := &a.allocated
	switch {
	case r.problem != "" && r.problem != known.problem:
		a.Log.Warnf("What the kubelet has granted to pods is not known: %s. Requests are inferred from what the runtime tells, and of batch work annotations count", r.problem)
	case r.record != nil && known.record == nil:
		a.Log.WithField("pods", r.record.Pods()).Info("Requests of pods are those that the kubelet has granted, by /" + known.name)
	}
	known.record, known.file, known.problem, known.news = r.record, r.file, r.problem, true
}

// granted is what the kubelet has granted to a container, by its record, or would by a
// manifest where it keeps a record.
func (a *Agent) granted(c *container) workload.Granted {
	if c.Granted.Pod && a.allocated.record != nil {
		return c.Granted
	}
	return a.allocated.record.Of(c.pod.UID, c.Name)
}

// admitted has the record be new enough for a container that is being created: the
// kubelet writes a pod's entry before it asks for the pod's sandbox, so a pod that is
// known needs no look at the file.
func (a *Agent) admitted(c *container) {
	if !a.granted(c).Pod {
		a.lookAtAllocations(allocatedWait)
	}
}

// regrantAll brings all containers to what the record says of them by now. Pins whose
// number of CPUs changes wait for the runtime's update, which comes with the resize.
func (a *Agent) regrantAll() {
	if !a.allocated.news {
		return
	}
	a.allocated.news = false
	pods := map[string]*workload.Pod{}
	for _, c := range a.order {
		h, placed := a.ledger.Holder(c.ID)
		if !placed || a.granted(c) == c.granted {
			continue
		}
		c.granted = a.granted(c)
		asked, _ := a.requestBy(a.Config, c)
		if asked.Shares != "" || asked.Request.Class.Pinned() && asked.Request.CPUs != h.Request.CPUs {
			continue
		}
		if _, err := a.ledger.Resize(c.ID, asked.Request, a.inFlight(c.ID)); err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("What the kubelet has granted can't be taken over, the old grant stands")
			continue
		}
		a.rerequest(c)
		pods[c.pod.UID] = c.pod
	}
	if len(pods) == 0 {
		return
	}
	a.loop.stale = true
	a.settle("") //nolint:errcheck // what failed is in the log and is tried again
	for _, pod := range pods {
		a.tune(pod)
	}
}

// tellCut logs and counts a container whose annotation claims more than the kubelet has
// granted, once.
func (a *Agent) tellCut(c *container, warnings []annotation.Warning) {
	for _, w := range warnings {
		if known := a.containers[c.ID]; w.Cut && known != nil && !known.cut {
			known.cut, c.cut = true, true
			a.counters.GrantsCut++
			a.Log.WithFields(logrus.Fields{"container": c.ref, "source": w.Source}).Warn("Grant cut: " + w.Text)
		}
	}
}

// grantsStatus is where requests are known from.
func (a *Agent) grantsStatus() status.Grants {
	s := status.Grants{Problem: a.allocated.problem}
	if a.allocated.record != nil {
		s.File, s.Pods = "/"+a.allocated.name, a.allocated.record.Pods()
	}
	return s
}
