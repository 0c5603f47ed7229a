package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// shareWindow is over what the share pool's load is averaged.
const shareWindow = 5 * time.Second

// sharePool is the load of the CPUs that LS shares, as a mean.
type sharePool struct {
	loads []float64 // of the window's looks, a ring
	next  int
	full  int
	at    time.Time // of the last look
}

func newSharePool(interval time.Duration) sharePool {
	return sharePool{loads: make([]float64, max(1, int(shareWindow/max(interval, time.Millisecond))))}
}

// step enters a look and answers with the mean; known is false where the node's usage
// is not known.
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

// shareLoad is (node − LSE, LSR and BE usage) / (CPUs − LSE and LSR requests), as
// koordlet has it. What is not known of them counts for LS: it is never taken for
// idle.
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

// What a container uses on average is an exponential mean, of which a burst of some
// seconds moves little.
const (
	busyTime = 5 * time.Minute // its time constant, and how long it is watched before it tells
	busyFrom = 0.5             // of the limit: burst saves what is left over, and above it little is
	busyTo   = 0.45
)

// busyMean is a container's usage on average.
type busyMean struct {
	usage   float64 // thousandths of a CPU
	watched time.Duration
	told    bool
	limit   workload.MilliCPU // that text was made for
	text    string
}

// advise tells once of a container that burst can't help.
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
	if m.told && share < busyTo {
		m.told = false
	}
	tell := !m.told && share > busyFrom
	if tell || m.told && m.limit != c.Limit {
		m.told, m.limit = true, c.Limit
		fits := workload.MilliCPU(math.Ceil(m.usage/busyFrom/100)) * 100
		m.text = fmt.Sprintf("burst can't help: it is %s busy on average with a limit of %s CPUs; its usage of %s suggests a limit of %s",
			inPercent(share), inCPUs(c.Limit), inCPUs(workload.MilliCPU(m.usage)), inCPUs(fits))
	}
	if m.told {
		b.advice = append(b.advice, Advice{c.Ref, m.text})
	}
	if !tell {
		return nil
	}
	return &Decision{
		Controller: "burst", Object: c.Ref, Action: "advise", Why: m.text,
		Facts: []Fact{{"usage_cpus", m.usage / 1000}, {"limit_cpus", float64(c.Limit) / 1000}},
	}
}
