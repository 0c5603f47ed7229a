// Package record records the measurements of a node, as the control loop would see them, for
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

// Options say what to record, and for how long.
type Options struct {
	HostRoot string // folder with the host's /sys and /proc
	Socket   string // the status socket of the running plugin, which lists the containers
	For      time.Duration
	Interval time.Duration // time between two samples
}

// Node records until the duration is over or the context ends.
func Node(ctx context.Context, out io.Writer, o Options) error {
	driver, err := cgroupfs.Open(o.HostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // the driver only read
	reader, err := sampler.Open(o.HostRoot, driver, nil, sampler.Intervals{Fast: o.Interval, All: o.Interval, Slow: o.Interval})
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck // the sampler only read
	r := recording{client: statusapi.NewClient(o.Socket), sampler: reader, recorder: sim.NewRecorder(out)}
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	next := time.NewTicker(o.Interval)
	defer next.Stop()
	for {
		if err := r.sample(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// ToFile records into a new file. It fails if the file exists.
func ToFile(ctx context.Context, file string, o Options) error {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(to)
	err = Node(ctx, buffered, o)
	return errors.Join(err, buffered.Flush(), to.Close())
}

// recording reads the containers from the plugin, and writes their measurements.
type recording struct {
	client   *statusapi.Client
	sampler  *sampler.Sampler
	recorder *sim.Recorder

	targets  []observe.Target
	known    []sim.Recorded
	snapshot observe.Snapshot
}

func (r *recording) sample(ctx context.Context) error {
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
	// A sample omits what can't be read of a container that is ending.
	r.sampler.Sample(time.Now(), r.targets, &r.snapshot) //nolint:errcheck // see above
	return r.recorder.Record(m, r.known, &r.snapshot)
}
