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

// herald tells systemd how the service fares, as sd_notify(3) has it.
type herald struct {
	tell  func(state string)
	every time.Duration // between two looks
	// look says whether the service does its work, and how. It doesn't return while the
	// agent's loop hangs: no sign of life follows then.
	look    func() (works bool, how string)
	answers func() error // whether the status socket does
}

// newHerald is nil where nobody listens: this is no service of systemd's.
func newHerald(a *agent.Agent, statusSocket string, log logrus.FieldLogger) *herald {
	heard, err := daemon.SdNotify(false, "STATUS=Starting")
	if err != nil {
		log.WithError(err).Warn("The service's state can't be sent to systemd, which will restart Sluice")
	}
	if !heard {
		return nil
	}
	h := &herald{
		tell: func(state string) {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.WithError(err).Warn("The service's state can't be sent to systemd")
			}
		},
		every:   time.Second,
		look:    func() (bool, string) { return fares(a) },
		answers: func() error { _, err := statusapi.NewClient(statusSocket).Status(); return err },
	}
	if watchdog, err := daemon.SdWatchdogEnabled(false); err == nil && watchdog > 0 {
		h.every = min(h.every, watchdog/3)
	}
	return h
}

// run tells until the context ends.
func (h *herald) run(ctx context.Context) {
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	ready, told := false, ""
	for {
		state := daemon.SdNotifyWatchdog
		works, how := h.look()
		if works && !ready {
			if err := h.answers(); err != nil {
				how = err.Error()
			} else {
				ready = true
				state += "\n" + daemon.SdNotifyReady
			}
		}
		if how != told {
			told = how
			state += "\nSTATUS=" + strings.ReplaceAll(how, "\n", "; ")
		}
		h.tell(state)
		select {
		case <-ctx.Done():
			h.tell(daemon.SdNotifyStopping)
			return
		case <-ticker.C:
		}
	}
}

// fares says how the agent fares: it does its work once the runtime has told it what
// runs here.
func fares(a *agent.Agent) (works bool, how string) {
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
