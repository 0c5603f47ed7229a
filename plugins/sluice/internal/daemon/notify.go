package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// notifier reports the service's state to systemd, as in sd_notify(3).
type notifier struct {
	notify func(state string)
	every  time.Duration // interval between reports
	// state reports whether the service does its work, and describes its state. It blocks while
	// the agent's loop hangs, so that the watchdog gets no keep-alive then.
	state   func() (works bool, how string)
	answers func() error // checks that the status socket answers
}

// newNotifier returns nil if systemd doesn't run this process as a service of type notify.
func newNotifier(a *agent.Agent, statusSocket string, log logrus.FieldLogger) *notifier {
	heard, err := daemon.SdNotify(false, "STATUS=Starting")
	if err != nil {
		log.WithError(err).Warn("The service's state can't be sent to systemd, which will restart Sluice")
	}
	if !heard {
		return nil
	}
	h := &notifier{
		notify: func(state string) {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.WithError(err).Warn("The service's state can't be sent to systemd")
			}
		},
		every:   time.Second,
		state:   func() (bool, string) { return agentState(a) },
		answers: func() error { _, err := statusapi.NewClient(statusSocket).Status(); return err },
	}
	if watchdog, err := daemon.SdWatchdogEnabled(false); err == nil && watchdog > 0 {
		h.every = min(h.every, watchdog/3)
	}
	return h
}

// run reports the state until the context ends.
func (h *notifier) run(ctx context.Context) {
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	ready, sent := false, ""
	for {
		state := daemon.SdNotifyWatchdog
		works, how := h.state()
		if works && !ready {
			if err := h.answers(); err != nil {
				how = err.Error()
			} else {
				ready = true
				state += "\n" + daemon.SdNotifyReady
			}
		}
		if how != sent {
			sent = how
			state += "\nSTATUS=" + strings.ReplaceAll(how, "\n", "; ")
		}
		h.notify(state)
		select {
		case <-ctx.Done():
			h.notify(daemon.SdNotifyStopping)
			return
		case <-ticker.C:
		}
	}
}

// agentState describes the agent's state. The agent works once the runtime has sent it the running
// containers.
func agentState(a *agent.Agent) (works bool, how string) {
	p, err := a.Pulse()
	switch {
	case err != nil:
		return false, err.Error()
	case !p.Runtime.Connected:
		return false, "Waiting for the container runtime: no connection to its NRI socket"
	case !p.Synced:
		return false, "Waiting for the container runtime to tell what runs here"
	}
	return true, fmt.Sprintf("Connected to %s %s, %s", p.Runtime.Name, p.Runtime.Version, humanize.Count(p.Containers, "container"))
}
