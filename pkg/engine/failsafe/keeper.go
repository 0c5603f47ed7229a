package failsafe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Keeper is the plugin's side of the failsafe. It writes the plan to disk, keeps the watcher's
// process running, and sends that process heartbeats.
type Keeper struct {
	dir, boot string
	start     func() (io.WriteCloser, error) // starts the watcher's process
	log       logrus.FieldLogger
	beats     chan struct{}
	plans     chan pendingPlan // has the newest plan only

	unsaved *pendingPlan // the plan that could not be written
	problem string       // the problem that was logged last
}

// pendingPlan is a plan that has yet to be written to disk.
type pendingPlan struct {
	changes []knobs.Change
	written chan struct{} // closed when the write has succeeded or failed
}

// NewKeeper makes a Keeper of the plan in a directory, for this boot. start starts the
// watcher's process and returns the writer for heartbeats; StartWatcher does that.
func NewKeeper(dir, boot string, start func() (io.WriteCloser, error), log logrus.FieldLogger) *Keeper {
	return &Keeper{dir: dir, boot: boot, start: start, log: log, beats: make(chan struct{}, 1), plans: make(chan pendingPlan, 1)}
}

// Replace replaces the plan. It never waits.
func (k *Keeper) Replace(changes []knobs.Change) (written <-chan struct{}) {
	select {
	case old := <-k.plans:
		close(old.written)
	default:
	}
	p := pendingPlan{changes, make(chan struct{})}
	k.plans <- p
	return p.written
}

// save writes a plan to the runtime directory. If that fails, it removes the old plan, which
// might give services the CPUs of a newer pin, and the next heartbeat tries to write the new
// one again.
func (k *Keeper) save(p *pendingPlan) {
	err := Save(k.dir, k.boot, p.changes)
	k.unsaved = nil
	if err == nil {
		k.problem = ""
		return
	}
	k.unsaved = p
	what := "there is none until it can be"
	if gone := Forget(k.dir); gone != nil {
		err, what = errors.Join(err, gone), "an old one is in force"
	}
	if err.Error() != k.problem {
		k.problem = err.Error()
		k.log.WithError(err).Error("The failsafe's plan can't be written: " + what)
	}
}

// Beat requests a heartbeat. It never waits.
func (k *Keeper) Beat() {
	select {
	case k.beats <- struct{}{}:
	default:
	}
}

// TakeReport reports, once, what the failsafe did.
func (k *Keeper) TakeReport() (Report, bool) { return TakeReport(k.dir) }

// restartInterval is the time between two starts of the watcher's process.
const restartInterval = 10 * time.Second

// Run keeps the watcher's process running, writes plans, and sends heartbeats, until the
// context ends and the last plan was written. The process outlives it.
func (k *Keeper) Run(ctx context.Context) {
	var pulse io.WriteCloser
	var started time.Time
	for {
		if pulse == nil && time.Since(started) > restartInterval {
			started = time.Now()
			var err error
			if pulse, err = k.start(); err != nil {
				k.log.WithError(err).Error("No failsafe: if this plugin dies, services keep what the loop has left them until it is back")
			}
		}
		select {
		case <-ctx.Done():
			select {
			case p := <-k.plans:
				k.save(&p)
				close(p.written)
			default:
			}
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

// StartWatcher starts this program with other arguments, in a process group of its own, so that
// a signal to the plugin's group doesn't end it. Its standard input receives the heartbeats.
func StartWatcher(arguments ...string) (io.WriteCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	pulse, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", self, arguments[0], err)
	}
	go cmd.Wait() //nolint:errcheck // it only prevents a zombie
	return pulse, nil
}
