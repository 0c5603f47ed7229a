package kubesocket

import (
	"net/http"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/status"
)

// switchRoute takes what the fleet's switch says for this node.
type switchRoute struct {
	fleet *batchswitch.Fleet
	log   logrus.FieldLogger

	saving sync.Mutex // held while the switch is written to the disk; guards the field below
	said   string     // what the log said last of a switch that could not be saved
}

// ServeHTTP takes a switch over at once, and then saves it. A disk that hangs holds one request
// up, and no switch.
func (r *switchRoute) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, ok := read(w, request, batchswitch.MaxFleet)
	if !ok {
		return
	}
	s, err := batchswitch.DecodeFleet(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	before := r.fleet.Switch()
	r.fleet.Take(s)
	r.tell(before, r.fleet.Switch())
	if !r.saving.TryLock() {
		http.Error(w, "the switch is in force, but an earlier one is still being written to the disk: send this one again later", http.StatusServiceUnavailable)
		return
	}
	defer r.saving.Unlock()
	if err = r.fleet.Save(); err == nil {
		r.said = ""
		return
	}
	if err.Error() != r.said {
		r.said = err.Error()
		r.log.Error(err)
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// tell logs what has changed.
func (r *switchRoute) tell(before, now status.Switch) {
	if before == now {
		return
	}
	log := r.log.WithFields(logrus.Fields{"to": now.State, "evict": now.Evict})
	if now.State == control.SwitchAuto {
		log = r.log.WithField("to", "auto")
	}
	if !now.EndsAt.IsZero() {
		log = log.WithField("until", now.EndsAt)
	}
	if now.Problem != "" {
		log.WithField("problem", now.Problem).Warn("The fleet's switch stays as it was")
		return
	}
	log.Info("The fleet's switch has changed")
}
