// Package record writes down what a node does, as the control loop would see it, for
// 'sluice replay'.
package record

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// Options say what is recorded, and for how long.
type Options struct {
	HostRoot string // below which the host's /sys and /proc are
	Socket   string // of the running plugin, which knows the containers
	For      time.Duration
	Interval time.Duration // between two samples
}

// Node records until the time is over or the context ends.
func Node(ctx context.Context, out io.Writer, o Options) error {
	driver, err := cgroupfs.Open(o.HostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // it was only read
	looks, err := sampler.Open(o.HostRoot, driver, nil, sampler.Intervals{Fast: o.Interval, All: o.Interval, Slow: o.Interval})
	if err != nil {
		return err
	}
	defer looks.Close() //nolint:errcheck // it was only read
	r := recording{client: statusapi.NewClient(o.Socket), sampler: looks, recorder: sim.NewRecorder(out)}
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	next := time.NewTicker(o.Interval)
	defer next.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// ToFile records into a file that doesn't exist yet.
func ToFile(ctx context.Context, file string, o Options) error {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(to)
	err = Node(ctx, buffered, o)
	return errors.Join(err, buffered.Flush(), to.Close())
}

// recording looks at what the plugin knows, and writes what it does.
type recording struct {
	client   *statusapi.Client
	sampler  *sampler.Sampler
	recorder *sim.Recorder

	targets []observe.Target
	known   []sim.Recorded
	seen    observe.Snapshot
}

func (r *recording) look(ctx context.Context) error {
	s, err := r.client.StatusIn(ctx)
	if err != nil {
		return err
	}
	m, err := r.client.Machine(ctx)
	if err != nil {
		return err
	}
	r.targets, r.known = r.targets[:0], r.known[:0]
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Cgroup == "" {
			continue
		}
		r.targets = append(r.targets, observe.Target{ID: c.ID, Path: c.Cgroup, Memory: true})
		known := sim.Recorded{ID: c.ID, Ref: c.Ref, Class: c.Class, Pool: c.Pool, Request: c.Requested}
		if u := c.Usage; u != nil {
			known.Limit, known.Memory, known.MemoryLimit = u.CPU.Limit, u.Memory.RequestedBytes, u.Memory.LimitBytes
		}
		r.known = append(r.known, known)
	}
	// What can't be read of a container that ends isn't in the look.
	r.sampler.Sample(time.Now(), r.targets, &r.seen) //nolint:errcheck // see above
	return r.recorder.Record(m, r.known, &r.seen)
}
