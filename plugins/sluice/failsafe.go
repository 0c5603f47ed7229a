package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/daemon"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// newFailsafe is the command that the plugin starts as a second process, and that systemd runs
// after the plugin's end.
func newFailsafe() *cobra.Command {
	state, runtime, hostRoot, now := "", "", "", false
	c := &cobra.Command{
		Use:   "failsafe",
		Short: "Protect services when the plugin has died",
		Long: `Watch the plugin that started this process; the plugin sends a sign of life to
its standard input. If the plugin exits and no other takes its place within
5 seconds, or is silent for 5 seconds, give containers of class LS their
requested CPU back and limit batch work to its floor. CPUs of LSE and LSR
containers stay as they are.

The plugin starts this command itself. systemd's ExecStopPost runs it with --now
to act without the 5 seconds' delay. After a clean exit (systemd sets
SERVICE_RESULT=success) --now does nothing, because it may be a restart; the
process that the plugin started then decides.`,
		Example: `  sluice failsafe --now`,
		Args:    cli.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			usual := config.Default()
			at := statedir.Dirs{State: cmp.Or(state, usual.StateDir), Runtime: cmp.Or(runtime, state, usual.RuntimeDir)}
			if now {
				return daemon.FailsafeNow(at, hostRoot, os.Getenv("SERVICE_RESULT") == "success")
			}
			return daemon.Failsafe(c.Context(), at, hostRoot, c.InOrStdin())
		},
	}
	f := c.Flags()
	f.StringVar(&state, "state-dir", "", "`folder` of the plugin's lock (default /var/lib/sluice)")
	f.StringVar(&runtime, "runtime-dir", "", "`folder` with the plan (default: --state-dir if given, else /run/sluice)")
	f.StringVar(&hostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&now, "now", false, "carry out the plan at once if no plugin runs, instead of watching")
	return c
}
