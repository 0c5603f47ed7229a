// Package record records the measurements of a node, as the control loop would see them, for
// 'sluice replay'.
package record

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Options say what to record, and for how long.
type Options struct {
	HostRoot string        // folder with the host's /sys and /proc
	Socket   string        // the status socket of the running plugin, which lists the containers
	For      time.Duration // 0 for until the context ends
	Interval time.Duration // time between two samples
	Days     bool          // a recording of days
	MaxBytes int64         // of a recording of days in a file, with its older part
	Note     func(error)   // called when the plugin does not answer while days are recorded, and with nil when it does again
}

// recorder writes measurements.
type recorder interface {
	Record(m *topology.Machine, containers []recording.Container, s *observe.Snapshot) error
	Close() error
}

// Node records until the duration is over or the context ends.
func Node(ctx context.Context, out io.Writer, o Options) error {
	driver, err := cgroupfs.Open(o.HostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // the driver only read
	every := sampler.Intervals{Fast: o.Interval, All: o.Interval, Slow: o.Interval}
	r := measuring{client: statusapi.NewClient(o.Socket), now: time.Now, listEvery: o.Interval, delays: o.Days}
	if o.Days {
		// Measurements of CPU must be less than 10 s apart, those of the rest less than 90 s: see
		// observe.Meter.
		every = sampler.Intervals{Fast: recording.PeakTime, All: recording.PeakTime, Slow: min(o.Interval, 30*time.Second)}
		r.note = o.Note
		r.recorder, err = recording.NewDays(out, o.Interval)
	} else {
		r.recorder = recording.NewLines(out)
	}
	if err != nil {
		return err
	}
	if r.sampler, err = sampler.Open(o.HostRoot, driver, nil, every); err != nil {
		return err
	}
	defer r.sampler.Close() //nolint:errcheck // the sampler only read
	return errors.Join(r.run(ctx, o.For, every.Fast), r.recorder.Close())
}

// ToFile records into a file. A recording of days goes on with the file if it is one; any other
// recording fails if the file exists.
func ToFile(ctx context.Context, file string, o Options) error {
	if o.Days {
		to, err := openParts(file, o.MaxBytes)
		if err != nil {
			return err
		}
		return errors.Join(Node(ctx, to, o), to.Close())
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(to)
	err = Node(ctx, buffered, o)
	return errors.Join(err, buffered.Flush(), to.Close())
}

// measuring reads the containers from the plugin, and writes their measurements.
type measuring struct {
	client    *statusapi.Client
	now       func() time.Time
	sampler   *sampler.Sampler
	recorder  recorder
	listEvery time.Duration
	delays    bool        // run delays are measured, which takes long
	note      func(error) // nil if the recording ends when the plugin does not answer

	listedAt time.Time // when the plugin was last asked for the containers
	away     bool      // the plugin did not answer then
	machine  *topology.Machine
	targets  []observe.Target
	known    []recording.Container
	snapshot observe.Snapshot
}

func (r *measuring) run(ctx context.Context, lasts, every time.Duration) error {
	if lasts > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, lasts)
		defer cancel()
	}
	next := time.NewTicker(every)
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

func (r *measuring) sample(ctx context.Context) error {
	now := r.now()
	if r.listedAt.IsZero() || now.Sub(r.listedAt) >= r.listEvery-r.listEvery/10 {
		r.listedAt = now
		err := r.list(ctx)
		if err != nil && (r.machine == nil || r.note == nil) {
			return err
		}
		if away := err != nil; away != r.away && ctx.Err() == nil {
			r.away = away
			r.note(err)
		}
	}
	// A sample omits what can't be read of a container that is ending.
	r.sampler.Sample(r.now(), r.targets, &r.snapshot) //nolint:errcheck // see above
	return r.recorder.Record(r.machine, r.known, &r.snapshot)
}

// list asks the plugin for the machine and the containers, and keeps those of before if it does
// not answer.
func (r *measuring) list(ctx context.Context) error {
	s, err := r.client.StatusIn(ctx)
	if err != nil {
		return err
	}
	m, err := r.client.Machine(ctx)
	if err != nil {
		return err
	}
	r.machine, r.targets, r.known = m, nil, r.known[:0] // the sampler keeps the former targets
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Cgroup == "" {
			continue
		}
		// Fast, because the others' CPU is read so seldom while they are idle that it would be
		// unknown.
		r.targets = append(r.targets, observe.Target{ID: c.ID, Path: c.Cgroup, Fast: true, LS: r.delays && c.Class != workload.BE, Memory: true})
		known := recording.Container{ID: c.ID, Ref: c.Ref, Class: c.Class, Pool: c.Pool, Request: c.Requested}
		if u := c.Usage; u != nil {
			known.Limit, known.Memory, known.MemoryLimit = u.CPU.Limit, u.Memory.RequestedBytes, u.Memory.LimitBytes
		}
		r.known = append(r.known, known)
	}
	return nil
}

// parts is a recording of days in a file. When it has half of the bytes that it may have, it becomes
// the older part, in place of the one before.
type parts struct {
	name     string
	maxBytes int64
	file     *os.File
	size     int64
}

// OlderPart returns the name of the older part of a recording of days.
func OlderPart(file string) string { return file + ".1" }

// openParts opens a recording, new or old. It cuts off a block that was being written when an
// earlier recorder was killed.
func openParts(name string, maxBytes int64) (*parts, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	p := &parts{name: name, maxBytes: maxBytes, file: file}
	p.size, err = recording.Whole(bufio.NewReader(file))
	if err != nil {
		err = fmt.Errorf("%s is there, and is no recording of days to go on with; name another file: %w", name, err)
	} else if err = file.Truncate(p.size); err == nil {
		_, err = file.Seek(p.size, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

// Write writes a block.
func (p *parts) Write(block []byte) (int, error) {
	if p.size > 0 && p.size+int64(len(block)) > p.maxBytes/2 {
		next, err := p.rotate()
		if err != nil {
			return 0, err
		}
		p.file, p.size = next, 0
	}
	n, err := p.file.Write(block)
	p.size += int64(n)
	return n, errors.Join(err, p.file.Sync())
}

func (p *parts) rotate() (*os.File, error) {
	if err := errors.Join(p.file.Close(), os.Rename(p.name, OlderPart(p.name))); err != nil {
		return nil, err
	}
	return os.OpenFile(p.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// Close closes the file.
func (p *parts) Close() error { return p.file.Close() }
