package control

import (
	"fmt"
	"maps"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// egressUnit is the unit in bits per second in which the room is divided: it is the least limit, and
	// links of 1 Tbit/s are less than 2^24 of it, which is the most that Split divides.
	egressUnit = observe.BitRate(workload.LeastEgress)
	// hungryPercent is what a pod sends, in percent of its limit, from which on it is taken to want more.
	hungryPercent = 80
	// egressRoomPercent is what a pod may send next in percent of what it sends, while others want more.
	egressRoomPercent = 150
	// firstPartPercent is what is left to a pod that sends nothing, in percent of its part by weight, so that it can begin.
	firstPartPercent = 10
	// steadyPercent is the change of a limit, in percent, up to which the limit stays.
	steadyPercent = 5
	// egressPeakTime is the time whose highest use of the link by others than batch work counts.
	egressPeakTime = 5 * time.Second
)

// Egress decides how much each pod of batch work may send, so that what services send goes first:
//
//	room = link × threshold − what others send
//
// Others send what the link carries and batch work does not, at the most of egressPeakTime. What pods send to
// other pods of the node counts as batch work's and is not on the link, so that others may send less than
// nothing; the room is larger by that. The pods share the room by weight, and what a pod does not use, the others
// may. The law is that of the batch budget (see Batch), for the link.
type Egress struct {
	cfg     EgressConfig
	weights BatchWeights
	peaks   []egressPeak
	readAt  time.Time       // of the last reading
	room    observe.BitRate // 0 before the first decision
	told    observe.BitRate // room of the last decision that was told
	limits  map[string]observe.BitRate
	outage  outage

	pods   []int // indexes in View.Pods
	claims []Share[egressUnits]
	parts  []egressUnits
}

// egressUnits is an amount of egressUnit.
type egressUnits int64

type egressPeak struct {
	at     time.Time
	others observe.BitRate
}

// NewEgress returns the controller. Step may be called at any interval.
func NewEgress(cfg EgressConfig) *Egress { return &Egress{cfg: cfg} }

// Room returns what batch work may send together; 0 if that is unknown.
func (e *Egress) Room() observe.BitRate { return e.room }

// Step returns the limits of the pods of batch work, by UID; nil before anything is known.
// The map is new whenever a limit changes, and must not be modified.
func (e *Egress) Step(v *View) (map[string]observe.BitRate, []Decision) {
	in := &v.Egress
	lost := in.Problem != ""
	var all []Decision
	if e.outage.observe(v.Now, lost && e.room > 0) {
		all = append(all, e.tellOutage(in))
	}
	if in.At.Equal(e.readAt) {
		return e.limits, all
	}
	e.readAt = in.At
	if !lost && !in.At.IsZero() {
		e.measure(in)
		others := e.decide(in)
		if change := e.room - e.told; len(in.Pods) > 0 && (e.told == 0 || max(change, -change)*100 >= steadyPercent*in.Speed) {
			all = append(all, e.tell(in, others))
		}
	}
	e.divide(v)
	return e.limits, all
}

// measure enters what others send.
func (e *Egress) measure(in *observe.Egress) {
	from := 0
	for from < len(e.peaks) && (in.At.Sub(e.peaks[from].at) > egressPeakTime || in.At.Before(e.peaks[from].at)) {
		from++
	}
	e.peaks = append(e.peaks[:0], e.peaks[from:]...)
	e.peaks = append(e.peaks, egressPeak{in.At, in.Sent - in.Batch})
}

// decide sets the room, and returns the most that others have sent, which is less than nothing while pods of batch work
// send to others of the node.
func (e *Egress) decide(in *observe.Egress) (others observe.BitRate) {
	others = e.peaks[0].others
	for _, p := range e.peaks {
		others = max(others, p.others)
	}
	floor := in.Speed * observe.BitRate(e.cfg.FloorPercent) / 100
	e.room = max(floor, in.Speed*observe.BitRate(e.cfg.ThresholdPercent)/100-others)
	return others
}

// tell returns the decision that tells of the room.
func (e *Egress) tell(in *observe.Egress, others observe.BitRate) Decision {
	d := Decision{
		Controller: "egress", Object: "node", Action: "grow", From: e.told.String(), To: e.room.String(), Moves: "egress",
		Why: fmt.Sprintf("services and the system send up to %s of %s, and batch work may fill it to %d%%", max(0, others), in.Speed, e.cfg.ThresholdPercent),
		Facts: []Fact{
			{"link_mbits", megabits(in.Speed)}, {"sent_mbits", megabits(in.Sent)}, {"batch_mbits", megabits(in.Batch)}, {"others_mbits", megabits(others)},
		},
	}
	switch {
	case e.told == 0:
		d.Action, d.From = "limit", ""
	case e.room < e.told:
		d.Action = "shrink"
	}
	e.told = e.room
	return d
}

func (e *Egress) tellOutage(in *observe.Egress) Decision {
	d := Decision{Controller: "egress", Object: "node", Action: "hold", From: e.room.String(), To: e.room.String(), Why: "what the node sends can't be read: " + in.Problem}
	if !e.outage.on {
		d.Action, d.Why = "resume", "what the node sends can be read again"
	}
	return d
}

func megabits(rate observe.BitRate) float64 { return float64(rate/1e4) / 100 }

// divide divides the room between the pods.
func (e *Egress) divide(v *View) {
	in := &v.Egress
	e.pods, e.claims = e.pods[:0], e.claims[:0]
	e.weights.Count(v)
	var weights int64
	for i := range v.Pods {
		p := &v.Pods[i]
		if _, ok := in.Pods[p.UID]; !ok || p.Class != workload.BE {
			continue
		}
		weight := e.weights.Of(v, p)
		weights += weight
		e.pods, e.claims = append(e.pods, i), append(e.claims, Share[egressUnits]{Weight: weight, Floor: 1})
	}
	limits := make(map[string]observe.BitRate, len(e.pods))
	if e.room > 0 {
		e.claim(v, weights)
		e.parts = Split(e.parts, egressUnits(e.room/egressUnit), e.claims)
	}
	for i, pod := range e.pods {
		p := &v.Pods[pod]
		if e.room > 0 {
			limits[p.UID] = e.steady(p.UID, observe.BitRate(e.parts[i])*egressUnit)
		} else if own := ownCeiling(p, in); own > 0 {
			limits[p.UID] = own
		}
	}
	if !maps.Equal(limits, e.limits) {
		e.limits = limits
	}
}

// ownCeiling returns the most that a pod may send by its annotation or the configuration; 0 for any amount.
func ownCeiling(p *Pod, in *observe.Egress) observe.BitRate {
	return observe.BitRate(p.Egress.Of(int64(in.Speed)))
}

// claim enters what each pod can use of the room. If some room would be left, the pods that use little may use it, too.
func (e *Egress) claim(v *View, weights int64) {
	in := &v.Egress
	room := egressUnits(e.room / egressUnit)
	most := func(p *Pod) egressUnits {
		if own := ownCeiling(p, in); own > 0 {
			return min(room, egressUnits(own/egressUnit))
		}
		return room
	}
	var sum egressUnits
	for i, pod := range e.pods {
		p, c := &v.Pods[pod], &e.claims[i]
		c.Demand = most(p)
		sent := in.Pods[p.UID].Sent
		if had := e.limits[p.UID]; had > 0 && sent*100 < had*hungryPercent {
			part := float64(room) * float64(c.Weight) / float64(weights)
			c.Demand = min(c.Demand, max(egressUnits(sent*egressRoomPercent/100/egressUnit), egressUnits(part*firstPartPercent/100))+1)
		}
		sum += c.Demand
	}
	if sum >= room {
		return
	}
	for i, pod := range e.pods {
		c := &e.claims[i]
		c.Floor, c.Demand = max(c.Demand, 1), most(&v.Pods[pod])
	}
}

// steady returns the limit that a pod had if the new one is hardly another.
func (e *Egress) steady(uid string, limit observe.BitRate) observe.BitRate {
	had := e.limits[uid]
	if change := limit - had; max(change, -change)*100 <= had*steadyPercent {
		return had
	}
	return limit
}
