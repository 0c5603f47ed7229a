package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/view/top"
	"github.com/sluice-dev/sluice/pkg/view/top/live"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// orders maps the values of --sort.
var orders = map[string]top.Order{"cpu": top.ByCPU, "throttled": top.ByThrottled, "memory": top.ByMemory}

// leastInterval is the minimum time between two requests to the plugin.
const leastInterval = 200 * time.Millisecond

func newTop() *cobra.Command {
	interval, once := time.Duration(0), false
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
		Args: cli.FlagsAlone,
		PreRunE: func(*cobra.Command, []string) error {
			if interval < leastInterval {
				return fmt.Errorf("--interval %v: it must be at least %v", interval, leastInterval)
			}
			return nil
		},
	}
	f := c.Flags()
	f.DurationVar(&interval, "interval", time.Second, "time between two refreshes, at least "+leastInterval.String())
	f.BoolVar(&once, "once", false, "print one frame as text, with all containers, and exit")
	sort := cli.ChoiceFlag(c, "sort", "", "order of the containers", "cpu", "throttled", "memory")
	socket := socketFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		show := top.Options{Sort: orders[sort.String()]}
		return live.Show(c.Context(), c.OutOrStdout(), live.FromSocket(*socket), interval, once, show)
	}
	return c
}
