package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/record"
)

func newRecord() *cobra.Command {
	o := record.Options{}
	c := &cobra.Command{
		Use:   "record -f recording.jsonl",
		Short: "Record this node's load, for 'sluice replay'",
		Long: `Measure the node and its containers as the control loop does, and write one line
per measurement until --for has passed or the command is interrupted. The
running plugin supplies the list of containers; nothing is changed. The
recording contains names of pods and containers, so take care whom you give it
to. A thousand measurements of a hundred containers take about 60 MiB, or 3 MiB
compressed.

With --days, measure every 5 seconds, and keep one value per minute in a compact
form: mean and highest CPU, memory, CPU pressure, throttling, waiting threads.
A day of 500 containers takes about 2 MiB. The command goes on while the plugin
restarts, and goes on with a file of its own that exists. It writes a block per
hour, and one when it ends: if it is killed, it loses at most the last hour. A
file that has half of --max-size becomes FILE.1, in place of the one before;
the commands that read FILE read FILE.1 first.`,
		Example: `  sluice record -f recording.jsonl --for 24h --interval 5s
  sluice record -f - --for 10m | gzip > recording.jsonl.gz
  sluice replay -f recording.jsonl
  sluice record --days -f days.rec
  sluice record --days -f days.rec --for 336h --interval 30s --max-size 100Mi`,
		Args: cli.FlagsAlone,
	}
	f := c.Flags()
	file, size := "", ""
	f.StringVarP(&file, "file", "f", "", "`file` to write, which must not exist yet, except with --days; - is standard output")
	f.BoolVar(&o.Days, "days", false, "keep days in a compact form")
	f.DurationVar(&o.For, "for", 0, "how long to record (default 10m; with --days until interrupted)")
	f.DurationVar(&o.Interval, "interval", 0, "time between two measurements, at least 100ms (default 1s); with --days, time that one value covers, 10s to 1h (default 1m)")
	f.StringVar(&size, "max-size", "256Mi", "most bytes of a recording of days, FILE.1 included")
	f.StringVar(&o.HostRoot, "host-root", "/", "folder that holds the host's /sys and /proc")
	f.StringVar(&o.Socket, "status-socket", status.DefaultSocket, "unix socket of the running plugin")
	required(c, "file")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("max-size") && !o.Days {
			return errors.New("--max-size: it bounds a recording of --days alone")
		}
		return complete(&o, size)
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		o.Note = func(err error) {
			if err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "sluice record: the plugin does not answer; the containers that it listed last are recorded until it does: %v\n", err)
			} else {
				fmt.Fprintln(c.ErrOrStderr(), "sluice record: the plugin answers again")
			}
		}
		return recordTo(ctx, c, file, o)
	}
	return c
}

func recordTo(ctx context.Context, c *cobra.Command, file string, o record.Options) error {
	if file == "-" {
		return record.Node(ctx, c.OutOrStdout(), o)
	}
	return record.ToFile(ctx, file, o)
}

// complete checks the flags, and sets what they leave out.
func complete(o *record.Options, size string) error {
	least, most := 100*time.Millisecond, time.Duration(0)
	interval := time.Second
	if o.Days {
		least, most, interval = recording.LeastInterval, recording.MostInterval, time.Minute
	} else if o.For == 0 {
		o.For = 10 * time.Minute
	}
	if o.Interval == 0 {
		o.Interval = interval
	}
	if o.Interval < least {
		return fmt.Errorf("--interval %v: it must be at least %s", o.Interval, least)
	}
	if o.For != 0 && o.For < o.Interval {
		return fmt.Errorf("--interval %v: it must be no more than --for %v", o.Interval, o.For)
	}
	if most > 0 && (o.Interval > most || o.Interval%time.Second != 0) {
		return fmt.Errorf("--interval %v: with --days it must be %s to %s in whole seconds", o.Interval, least, most)
	}
	const leastBytes = 1 << 20
	bytes, err := quantity.Parse(size)
	if err != nil || bytes.Value() < leastBytes {
		return fmt.Errorf("--max-size %.40q: it must be an amount like 256Mi, at least 1Mi", size)
	}
	o.MaxBytes = bytes.Value()
	return nil
}
