package main

import (
	"cmp"
	"errors"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// failsafeOptions are the flags of `sluice failsafe`.
type failsafeOptions struct {
	state, runtime, hostRoot string
	now                      bool
}

// newFailsafe is what the plugin starts beside itself, and systemd after its end.
func newFailsafe() *cobra.Command {
	o := failsafeOptions{}
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
		Args:    flagsAlone,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.state, "state-dir", "", "`folder` of the plugin's lock (default /var/lib/sluice)")
	f.StringVar(&o.runtime, "runtime-dir", "", "`folder` with the plan (default: --state-dir if given, else /run/sluice)")
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&o.now, "now", false, "carry out the plan at once if no plugin runs, instead of watching")
	return c
}

func (o *failsafeOptions) run(c *cobra.Command) error {
	usual := config.Default()
	o.runtime = cmp.Or(o.runtime, o.state, usual.RuntimeDir)
	o.state = cmp.Or(o.state, usual.StateDir)
	if o.now {
		if os.Getenv("SERVICE_RESULT") == "success" {
			return nil
		}
		if statedir.Locked(o.state) {
			return errors.New("a plugin runs with this state folder and takes care itself: stop it first")
		}
		return o.act("asked for by the command line")
	}
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		one := make([]byte, 64)
		for {
			if _, err := c.InOrStdin().Read(one); err != nil {
				return
			}
			beats <- struct{}{}
		}
	}()
	w := failsafe.Watcher{Beats: beats, Act: o.act, Succeeded: func() bool { return statedir.Locked(o.state) }}
	return w.Watch(c.Context())
}

// act carries the plan out, and tells so in the log.
func (o *failsafeOptions) act(why string) error {
	acted, err := failsafe.Act(o.runtime, o.hostRoot, why)
	if acted.Changes == 0 && err == nil {
		return nil
	}
	log := logrus.WithField("changes", acted.Changes)
	if err != nil {
		log = log.WithError(err)
	}
	log.Warn("Failsafe: " + why + "; services have what they request, batch work its floor")
	return err
}
