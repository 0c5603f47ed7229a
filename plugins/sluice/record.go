package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/status"
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
compressed.`,
		Example: `  sluice record -f recording.jsonl --for 24h --interval 5s
  sluice record -f - --for 10m | gzip > recording.jsonl.gz
  sluice replay -f recording.jsonl`,
		Args: cli.FlagsAlone,
	}
	f := c.Flags()
	file := ""
	f.StringVarP(&file, "file", "f", "", "`file` to write, which must not exist yet; - is standard output")
	f.DurationVar(&o.For, "for", 10*time.Minute, "how long to record")
	f.DurationVar(&o.Interval, "interval", time.Second, "time between two measurements, at least 100ms")
	f.StringVar(&o.HostRoot, "host-root", "/", "folder that holds the host's /sys and /proc")
	f.StringVar(&o.Socket, "status-socket", status.DefaultSocket, "unix socket of the running plugin")
	required(c, "file")
	c.PreRunE = func(*cobra.Command, []string) error {
		if o.Interval < 100*time.Millisecond || o.For < o.Interval {
			return fmt.Errorf("--interval %v: it must be at least 100ms, and no more than --for %v", o.Interval, o.For)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if file == "-" {
			return record.Node(ctx, c.OutOrStdout(), o)
		}
		return record.ToFile(ctx, file, o)
	}
	return c
}
