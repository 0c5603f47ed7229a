package sim

import (
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
)

// A rival decides by another system's formula, in place of the agent's loop. It is called after each
// step of the node, which ended at the time now since the start.
type rival interface {
	step(s *simulation, now time.Duration) error
}

// rival returns the formula of a policy; nil if the policy is one of Sluice's.
func (p Policy) rival(s *simulation) rival {
	switch p {
	case Koordinator:
		return newKoordinator(s)
	case LAR:
		return newLAR(s)
	}
	return nil
}

// rivalEvery is the time between two decisions of a rival.
const rivalEvery = time.Second

// silent returns a logger that writes nothing.
func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.PanicLevel)
	return log
}

// rivalLog counts a rival's decisions as those of the agent are counted.
func rivalLog(s *simulation) *decisionlog.Log { return decisionlog.New(&s.report, silent()) }

// resized returns the decision that something has another number of CPUs, or none if it has not.
func resized(controller, object, less string, from, to float64) []control.Decision {
	if from == to {
		return nil
	}
	d := control.Decision{Controller: controller, Object: object, Action: "grow", Moves: "size"}
	if to < from {
		d.Action = less
	}
	return []control.Decision{d}
}
