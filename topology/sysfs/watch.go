package sysfs

import (
	"context"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-dev/sluice/topology"
)

const (
	pollEvery = time.Second
	// settle is the time from the first event to the reading of the machine. Hotplug of a
	// package is a burst of events, and the cache folders of a CPU appear after it is online.
	settle = 100 * time.Millisecond
)

// Watch calls changed with the new machine after each hotplug of CPUs, nodes, memory or PCI
// devices, until ctx ends. The machine that the caller knows is last; nil for none. The
// kernel's uevents announce changes. Where they are not available, Watch reads a few small
// files once a second, which do not show PCI devices.
//
// A machine that can't be read is reported once, as an error with a nil machine, and read again
// each second.
func Watch(ctx context.Context, hostRoot string, last *topology.Machine, changed func(*topology.Machine, error)) {
	events := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		listen(ctx, events)
	}()
	watch(ctx, os.DirFS(hostRoot), last, events, changed)
	<-done
}

func watch(ctx context.Context, fsys fs.FS, last *topology.Machine, events <-chan struct{}, changed func(*topology.Machine, error)) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	settled := time.NewTimer(0) // the first check finds changes since last was read
	defer settled.Stop()

	t := tree{fsys}
	var seen [len(stampFiles)]string
	var failed error
	due := true
	wait := func() {
		if !due { // counts from the first event, so that a long burst delays nothing
			due = true
			settled.Reset(settle)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			wait()
		case <-poll.C:
			if failed != nil || t.stamp() != seen {
				wait()
			}
		case <-settled.C:
			due = false
			seen = t.stamp()
			m, err := Read(fsys)
			switch {
			case err != nil:
				if failed == nil || failed.Error() != err.Error() {
					changed(nil, err)
				}
			case last == nil || !m.Equal(last):
				last = m
				changed(m, nil)
			}
			failed = err
		}
	}
}
