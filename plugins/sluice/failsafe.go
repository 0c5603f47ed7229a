package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// failsafeOptions are the flags of `sluice failsafe`.
type failsafeOptions struct {
	folders
	hostRoot string
	now      bool
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
		if o.pluginRuns() {
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
	w := failsafe.Watcher{Beats: beats, Act: o.act, Succeeded: o.pluginRuns}
	return w.Watch(c.Context())
}

// pluginRuns reports whether a plugin holds the state folder's lock.
func (o *failsafeOptions) pluginRuns() bool {
	file, err := os.Open(filepath.Join(o.state, "lock"))
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// act carries the plan out, and tells so in the log.
func (o *failsafeOptions) act(why string) error {
	acted, err := o.carryOut(why)
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

// carryOut carries the plan out and leaves word of it. Cgroups that are gone need
// nothing.
func (o *failsafeOptions) carryOut(why string) (failsafe.Acted, error) {
	changes, err := failsafe.Load(o.runtime, agent.BootID(os.DirFS(o.hostRoot)))
	if len(changes) > 0 {
		err = errors.Join(err, o.apply(changes))
	}
	acted := failsafe.Acted{Time: time.Now(), Why: why, Changes: len(changes)}
	if len(changes) == 0 && err == nil {
		return acted, nil
	}
	if err != nil {
		acted.Error = err.Error()
	}
	return acted, errors.Join(err, failsafe.Note(o.runtime, acted))
}

func (o *failsafeOptions) apply(changes []knobs.Change) error {
	driver, err := cgroupfs.Open(o.hostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // it was only written, value by value
	return failsafe.Carry(driver, changes)
}

// keeper is the plugin's end of the failsafe.
type keeper struct {
	folders
	hostRoot, boot string
	log            logrus.FieldLogger
	beats          chan struct{}
	plans          chan pendingPlan // the newest alone

	unsaved *pendingPlan // that could not be written
	problem string       // told last
}

// pendingPlan is a plan that isn't on disk yet.
type pendingPlan struct {
	changes []knobs.Change
	written chan struct{} // closed when it was tried
}

func newKeeper(at folders, hostRoot string, log logrus.FieldLogger) *keeper {
	return &keeper{
		folders: at, hostRoot: hostRoot, boot: agent.BootID(os.DirFS(hostRoot)), log: log,
		beats: make(chan struct{}, 1), plans: make(chan pendingPlan, 1),
	}
}

// Keep replaces what is to be done. It never waits.
func (k *keeper) Keep(changes []knobs.Change) (written <-chan struct{}) {
	select {
	case old := <-k.plans:
		close(old.written)
	default:
	}
	p := pendingPlan{changes, make(chan struct{})}
	k.plans <- p
	return p.written
}

// save brings a plan to the runtime folder. Where that fails, no plan is better than an
// old one, which may give services the CPUs of a pin that came since: it is removed, and
// the new one tried again with the next sign of life.
func (k *keeper) save(p *pendingPlan) {
	err := failsafe.Save(k.runtime, k.boot, p.changes)
	k.unsaved = nil
	if err == nil {
		k.problem = ""
		return
	}
	k.unsaved = p
	what := "there is none until it can be"
	if gone := failsafe.Forget(k.runtime); gone != nil {
		err, what = errors.Join(err, gone), "an old one is in force"
	}
	if err.Error() != k.problem {
		k.problem = err.Error()
		k.log.WithError(err).Error("The failsafe's plan can't be written: " + what)
	}
}

// Beat is a sign of life. It never waits.
func (k *keeper) Beat() {
	select {
	case k.beats <- struct{}{}:
	default:
	}
}

// Acted is word of what the failsafe did, once.
func (k *keeper) Acted() (failsafe.Acted, bool) { return failsafe.Noted(k.runtime) }

// again is the time between two starts of the watcher's process.
const again = 10 * time.Second

// run keeps the watcher's process running, the plan on disk, and passes signs of life
// on, until the context ends. The process outlives it.
func (k *keeper) run(ctx context.Context) {
	var pulse io.WriteCloser
	var started time.Time
	for {
		if pulse == nil && time.Since(started) > again {
			started = time.Now()
			var err error
			if pulse, err = k.start(); err != nil {
				k.log.WithError(err).Error("No failsafe: if this plugin dies, services keep what the loop has left them until it is back")
			}
		}
		select {
		case <-ctx.Done():
			if pulse != nil {
				pulse.Close() //nolint:errcheck // its reader has gone, or is to go
			}
			return
		case p := <-k.plans:
			k.save(&p)
			close(p.written)
		case <-k.beats:
			if k.unsaved != nil {
				k.save(k.unsaved)
			}
			if pulse == nil {
				continue
			}
			if _, err := pulse.Write([]byte{'.'}); err != nil {
				k.log.WithError(err).Warn("The failsafe's process has ended; it is started again")
				pulse.Close() //nolint:errcheck // its reader has gone, or is to go
				pulse = nil
			}
		}
	}
}

// start starts the watcher in a process group of its own, so that what ends the
// plugin's doesn't end it too.
func (k *keeper) start() (pulse io.WriteCloser, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "failsafe", "--state-dir", k.state, "--runtime-dir", k.runtime, "--host-root", k.hostRoot)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	if pulse, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s failsafe: %w", self, err)
	}
	go cmd.Wait() //nolint:errcheck // a zombie is all that it prevents
	return pulse, nil
}
