package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// logOptions are the flags of `sluice log`.
type logOptions struct {
	config, stateDir string
	since            time.Duration
	object           string
	controller       string
	why              bool
	output           *cli.Choice
}

func newLogCommand() *cobra.Command {
	o := logOptions{}
	c := &cobra.Command{
		Use:   "log",
		Short: "Show the control loop's decisions and their reasons",
		Long: `Show the control loop's decisions, oldest first. They are read from the audit
trail in the state folder, so that the command also works while the plugin is
not running. Decisions marked preview were not carried out. Several steps in
the same direction are shown as one decision with its duration.`,
		Example: `  sluice log --since 10m
  sluice log --pod data/db-0 --why
  sluice log --controller pools -o json`,
		Args: cli.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` of the audit trail (default: the configuration's)")
	f.DurationVar(&o.since, "since", 0, "only decisions of the last `duration`, e.g. 10m or 24h")
	f.StringVar(&o.object, "pod", "", "only decisions about this pod, container or pool, e.g. `namespace/name`")
	f.StringVar(&o.controller, "controller", "", "only decisions of this controller, e.g. pools or eviction")
	f.BoolVar(&o.why, "why", false, "show the measurements that each decision was based on")
	o.output = cli.OutputFlag(c, "text", "json")
	socket := socketFlag(c)
	cli.Complete(c, "controller", func(string) []string { return controllers() })
	cli.Complete(c, "pod", func(begun string) []string { return completePods(*socket, begun) })
	return c
}

// controllers lists the names of the controllers that take decisions.
func controllers() []string {
	return []string{"batch", "burst", "cache", "culprit", "demotion", "eviction", "interference", "failsafe", "memory", "noisy", "offer", "pools", "rules", "windows"}
}

func (o *logOptions) run(c *cobra.Command) error {
	at, err := statedir.Named(o.stateDir, "", o.config, "/")
	if err != nil {
		return err
	}
	filter := audit.Filter{Object: o.object, Controller: o.controller}
	if o.since > 0 {
		filter.Since = time.Now().Add(-o.since)
	}
	out, dir := c.OutOrStdout(), at.State
	found := false
	broken, err := audit.Read(os.DirFS(dir), filter, func(e audit.Entry) error {
		found = true
		if o.output.String() == "json" {
			return terminal.JSONLine(out, e)
		}
		return render.Decision(out, &e, o.why)
	})
	if err != nil {
		return err
	}
	if broken > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s of the trail left out, which can't be read\n", humanize.Count(broken, "line"))
	}
	if !found && o.output.String() == "text" {
		return render.NoDecisions(out, dir, statedir.Missing(dir))
	}
	return nil
}
