package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/pkg/view/top"
	"github.com/sluice-dev/sluice/pkg/view/top/live"
)

// topOptions are the flags of `sluice top`.
type topOptions struct {
	socket   *string
	interval time.Duration
	once     bool
	sort     *choice
}

// leastInterval bounds how often the plugin is asked.
const leastInterval = 200 * time.Millisecond

func newTop() *cobra.Command {
	o := topOptions{}
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch the node: CPUs by owner, pools, containers, decisions",
		Long: `Watch the running plugin live: the owner and load of every CPU, the load of each
pool against its band, batch work against its budget, the busiest containers,
throttled and disturbed containers, advice, and the latest decisions. A terminal
of 80 columns and 24 lines shows everything; a smaller one shows less.

Letters repeat all information that colours carry; NO_COLOR=1 turns colours off.
With --once, or if the output is not a terminal that can move its cursor, one
frame is written as text.

Keys: c t m sort by CPU, throttling, memory; up, down, PgUp, PgDn scroll;
p pauses; ? explains the letters; q quits.`,
		Example: `  sluice top
  sluice top --interval 5s
  sluice top --once --sort memory
  NO_COLOR=1 sluice top`,
		Args: flagsAlone,
		PreRunE: func(*cobra.Command, []string) error {
			if o.interval < leastInterval {
				return fmt.Errorf("--interval %v: it must be at least %v", o.interval, leastInterval)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	}
	f := c.Flags()
	f.DurationVar(&o.interval, "interval", time.Second, "time between two refreshes, at least "+leastInterval.String())
	f.BoolVar(&o.once, "once", false, "print one frame as text, with all containers, and exit")
	o.sort = &choice{value: "cpu", words: []string{"cpu", "throttled", "memory"}}
	f.Var(o.sort, "sort", "order of the containers")
	complete(c, "sort", func(string) []string { return o.sort.words })
	o.socket = socketFlag(c)
	return c
}

// order is a sort word as the view knows it.
func order(word string) top.Order {
	switch word {
	case "throttled":
		return top.ByThrottled
	case "memory":
		return top.ByMemory
	}
	return top.ByCPU
}

func (o *topOptions) run(ctx context.Context, out io.Writer) error {
	from := live.FromSocket(*o.socket)
	file, isFile := out.(*os.File)
	canMove := isFile && term.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
	show := top.Options{Sort: order(o.sort.value), Colour: canMove && os.Getenv("NO_COLOR") == ""}
	if o.once || !canMove {
		seen, err := live.Look(ctx, from)
		if err != nil {
			return err
		}
		show.Width = render.Columns
		if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
			show.Width = width
		} else if isFile {
			if width, _, err := term.GetSize(file.Fd()); err == nil && width > 0 {
				show.Width = width
			}
		}
		_, err = fmt.Fprintln(out, top.Render(seen, show))
		return err
	}
	return live.Watch(ctx, from, o.interval, show)
}
