package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// recordOptions are the flags of `sluice record`.
type recordOptions struct {
	file, hostRoot, statusSocket string
	lasts, interval              time.Duration
}

func newRecord() *cobra.Command {
	o := recordOptions{}
	c := &cobra.Command{
		Use:   "record -f recording.jsonl",
		Short: "Record this node's load, for 'sluice replay'",
		Long: `Measure the node and its containers as the control loop does, and write one line
per measurement until --for has passed or the command is interrupted. The
running plugin supplies the list of containers; nothing is changed. The
recording contains names of pods and containers, so take care whom you give it
to. A thousand measurements of a hundred containers take about 60 MiB, or 3 MiB
compressed.`,
		Example: `  sluice record -f recording.jsonl --for 24h --interval 5s
  sluice record -f - --for 10m | gzip > recording.jsonl.gz
  sluice replay -f recording.jsonl`,
		Args: flagsAlone,
	}
	f := c.Flags()
	f.StringVarP(&o.file, "file", "f", "", "`file` to write, which must not exist yet; - is standard output")
	f.DurationVar(&o.lasts, "for", 10*time.Minute, "how long to record")
	f.DurationVar(&o.interval, "interval", time.Second, "time between two measurements, at least 100ms")
	f.StringVar(&o.hostRoot, "host-root", "/", "folder that holds the host's /sys and /proc")
	f.StringVar(&o.statusSocket, "status-socket", status.DefaultSocket, "unix socket of the running plugin")
	required(c, "file")
	c.PreRunE = func(*cobra.Command, []string) error {
		if o.interval < 100*time.Millisecond || o.lasts < o.interval {
			return fmt.Errorf("--interval %v: it must be at least 100ms, and no more than --for %v", o.interval, o.lasts)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return o.record(ctx, c.OutOrStdout())
	}
	return c
}

func (o *recordOptions) record(ctx context.Context, out io.Writer) (err error) {
	if o.file != "-" {
		file, err := os.OpenFile(o.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		buffered := bufio.NewWriter(file)
		out = buffered
		defer func() { err = errors.Join(err, buffered.Flush(), file.Close()) }()
	}
	driver, err := cgroupfs.Open(o.hostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // it was only read
	looks, err := sampler.Open(o.hostRoot, driver, nil, sampler.Intervals{Fast: o.interval, All: o.interval, Slow: o.interval})
	if err != nil {
		return err
	}
	defer looks.Close() //nolint:errcheck // it was only read
	r := recording{client: statusapi.NewClient(o.statusSocket), sampler: looks, recorder: sim.NewRecorder(out)}
	ctx, cancel := context.WithTimeout(ctx, o.lasts)
	defer cancel()
	next := time.NewTicker(o.interval)
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
			known.Limit, known.Memory, known.MemoryLimit = u.CPU.Limit, u.Memory.Request, u.Memory.Limit
		}
		r.known = append(r.known, known)
	}
	// What can't be read of a container that ends isn't in the look.
	r.sampler.Sample(time.Now(), r.targets, &r.seen) //nolint:errcheck // see above
	return r.recorder.Record(m, r.known, &r.seen)
}
