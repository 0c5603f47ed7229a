package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// shareWindow is the time over which the share pool's load is averaged.
const shareWindow = 5 * time.Second

// sharePool is the mean load of the CPUs that LS pods share.
type sharePool struct {
	loads []float64 // loads of the measurements in the window, a ring buffer
	next  int
	full  int
	at    time.Time // time of the last measurement
}

func newSharePool(interval time.Duration) sharePool {
	return sharePool{loads: make([]float64, max(1, int(shareWindow/max(interval, time.Millisecond))))}
}

// step adds the node's newest measurement and returns the mean. It returns false if the node's
// usage is unknown.
func (p *sharePool) step(v *View, interval time.Duration) (mean float64, ok bool) {
	at := v.Node.CPU.At
	if !known(v.Now, at, interval) {
		p.next, p.full = 0, 0
		return 0, false
	}
	if !at.Equal(p.at) || p.full == 0 {
		p.at = at
		p.loads[p.next] = shareLoad(v, interval)
		p.next = (p.next + 1) % len(p.loads)
		p.full = min(p.full+1, len(p.loads))
	}
	for _, load := range p.loads[:p.full] {
		mean += load
	}
	return mean / float64(p.full), true
}

// shareLoad returns (node − LSE, LSR and BE usage) / (CPUs − LSE and LSR requests), as koordlet
// computes it. Usage that is unknown counts as LS usage, so that the pool never looks idle by
// mistake.
func shareLoad(v *View, interval time.Duration) float64 {
	used, cpus := v.Node.CPU.Usage, v.Allocatable
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class.Pinned() {
			cpus -= c.Request
		}
		if (c.Class.Pinned() || c.Class == workload.BE) && uses(v, c, interval) {
			used -= c.CPU.Usage
		}
	}
	if cpus <= 0 {
		return 1
	}
	return float64(max(used, 0)) / float64(cpus)
}

// The mean usage of a container is an exponential mean, which a burst of some seconds changes
// little.
const (
	busyTime = 5 * time.Minute // time constant of the mean; a container gets advice after so long at the earliest
	busyFrom = 0.5             // part of the limit above which little quota is left over for burst to save
	busyTo   = 0.45
)

// busyMean is the mean usage of one container.
type busyMean struct {
	usage    float64 // thousandths of a CPU
	watched  time.Duration
	reported bool
	limit    workload.MilliCPU // limit for which text was written
	text     string
}

// advise adds advice for a container that burst can't help. It returns a decision the first
// time.
func (b *Burst) advise(v *View, c *Container, s *burstState, passed time.Duration) *Decision {
	m := &s.busy
	if uses(v, c, b.interval) {
		usage := float64(c.CPU.Usage)
		if m.watched == 0 {
			m.usage = usage
		}
		m.watched += passed
		m.usage += (usage - m.usage) * min(1, passed.Seconds()/busyTime.Seconds())
	}
	if m.watched < busyTime {
		return nil
	}
	share := m.usage / float64(c.Limit)
	if m.reported && share < busyTo {
		m.reported = false
	}
	begins := !m.reported && share > busyFrom
	if begins || m.reported && m.limit != c.Limit {
		m.reported, m.limit = true, c.Limit
		fits := workload.MilliCPU(math.Ceil(m.usage/busyFrom/100)) * 100
		m.text = fmt.Sprintf("burst can't help: it is %s busy on average with a limit of %s CPUs; its usage of %s suggests a limit of %s",
			inPercent(share), inCPUs(c.Limit), inCPUs(workload.MilliCPU(m.usage)), inCPUs(fits))
	}
	if m.reported {
		b.advice = append(b.advice, Advice{c.Ref, m.text})
	}
	if !begins {
		return nil
	}
	return &Decision{
		Controller: "burst", Object: c.Ref, Action: "advise", Why: m.text,
		Facts: []Fact{{"usage_cpus", m.usage / 1000}, {"limit_cpus", float64(c.Limit) / 1000}},
	}
}
