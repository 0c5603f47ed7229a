package control

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The constants say how CPU usage is compared with a victim's cycles per instruction.
const (
	leastCorrelation = 0.35            // from which CPI² suspects a task
	usageSlot        = 5 * time.Second // over which the usage of a batch pod is averaged
	usageSlots       = int(cyclesTime/usageSlot) + 4
)

// usageHistory is the CPU usage of a batch pod in the last ten minutes.
type usageHistory struct{ slots [usageSlots]usageMean }

// usageMean is the mean usage of one slot of time, in thousandths of a CPU.
type usageMean struct {
	slot int64 // number of the slot since the first step, from 1 on
	sum  float32
	n    int32
}

// enter adds the present usage.
func (h *usageHistory) enter(now time.Duration, use workload.MilliCPU) {
	slot := slotOf(now)
	s := &h.slots[slot%int64(usageSlots)]
	if s.slot != slot {
		*s = usageMean{slot: slot}
	}
	s.sum, s.n = s.sum+float32(use), s.n+1
}

// mean returns the mean usage from one time to another, on the clock of Culprit.
func (h *usageHistory) mean(from, to time.Duration) (sum float64) {
	n := 0
	for slot := slotOf(from); slot <= slotOf(to); slot++ {
		if s := &h.slots[slot%int64(usageSlots)]; s.slot == slot && s.n > 0 {
			sum, n = sum+float64(s.sum)/float64(s.n), n+1
		}
	}
	return sum / float64(max(n, 1))
}

func slotOf(at time.Duration) int64 { return int64(max(0, at)/usageSlot) + 1 }

// inVain is what is known of the suspects of a pod that were tried because their usage rises and falls with its cycles
// per instruction, and whose limit did not help. Others may do that as well, so that all would be tried in turn.
type inVain struct {
	spared time.Duration // for which no other is suspected
	denied int           // times in a row, at most mostDoubled
}

// wait lets time pass for the pods whose suspects were tried in vain.
func (c *Culprit) wait(v *View, passed time.Duration) {
	c.inVain.begin()
	for i := range v.Pods {
		if w := c.inVain.find(v.Pods[i].UID); w != nil {
			if w.spared -= passed; w.spared <= -forgetTime {
				c.inVain.drop(v.Pods[i].UID)
			}
		}
	}
	c.inVain.end()
}

// tried notes whether the limit of a suspect has helped its victim.
func (c *Culprit) tried(t *trouble, helped bool) {
	if t.part != slowCycles {
		return
	}
	w := c.inVain.at(t.victim)
	if helped {
		*w = inVain{}
		return
	}
	w.spared = unsuspectTime << w.denied
	w.denied = min(w.denied+1, mostDoubled)
}

// despite is for how long a service has suffered from contention nearly as much as before while its culprit had the
// limit, less a part of the time in which it did not. A service whose caches are used in phases suffers again and
// again, whoever has a limit, and a trial helps by chance if a phase ends meanwhile.
type despite time.Duration

const (
	despiteTime = despite(10 * time.Second) // after which the pod is not the cause
	despitePart = 8                         // part of the time without suffering that counts against it
	asBefore    = 0.75                      // part of the excess before the limit from which it suffers nearly as much
)

func (t *despite) pass(passed time.Duration, suffers bool) {
	if suffers {
		*t += despite(passed)
	} else {
		*t = max(0, *t-despite(passed)/despitePart)
	}
}

// remember records what batch pods use, if any pod's cycles per instruction are counted.
func (c *Culprit) remember(v *View, disturbed []Disturbance) {
	c.usage.begin()
	defer c.usage.end()
	counted := false
	for i := range disturbed {
		counted = counted || disturbed[i].Cycles != nil
	}
	for i := range v.Pods {
		if p := &v.Pods[i]; counted && p.Class == workload.BE {
			h := c.usage.at(p.UID)
			if use, ok := c.useOf(v, p); ok {
				h.enter(c.clock, use)
			}
		}
	}
}

// contender returns the pod that contends most for caches and the bandwidth of memory, and by what it is
// suspected, with its share of that or the correlation; pod is -1 if there is none.
func (c *Culprit) contender(v *View, d *Disturbance, can func(pod int) bool) (pod int, part float64, by hintKind) {
	victim := &v.Pods[d.Pod]
	counted := false
	for _, by := range []hintKind{ofBandwidth, ofCache} {
		if pod, part = c.candidate(v, victim, by, can); pod >= 0 {
			return pod, part, by
		}
		counted = counted || c.collect(v, victim, by, false) > 0
	}
	if counted || d.Cycles == nil || v.Batch.Squeeze || v.Share.limits() {
		return -1, 0, 0
	}
	if w := c.inVain.find(victim.UID); w != nil && w.spared > 0 {
		return -1, 0, 0
	}
	pod, part = c.correlated(v, d, can)
	return pod, part, ofCorrelation
}

// correlated returns the BE pod whose CPU usage rises and falls most with the victim's cycles per instruction. Of
// several that do so equally, to a tenth, it is the one that was tried in vain the fewest times, and then the largest user.
func (c *Culprit) correlated(v *View, d *Disturbance, can func(pod int) bool) (best int, most float64) {
	best = -1
	var first [3]float64
	for i := range v.Pods {
		p := &v.Pods[i]
		h := c.usage.find(p.UID)
		if p.Class != workload.BE || h == nil {
			continue
		}
		use, ok := c.useOf(v, p)
		a := c.pods.find(p.UID)
		if !ok || use <= c.floor(v, p) || !can(i) || a != nil && (a.phase != culpritFree || a.spared > 0) {
			continue
		}
		denied := 0
		if a != nil {
			denied = a.denied
		}
		by := d.Cycles.correlation(c.clock, h)
		rank := [3]float64{math.Round(by * 10), -float64(denied), float64(use)}
		if by >= leastCorrelation && (best < 0 || slices.Compare(rank[:], first[:]) > 0) {
			best, most, first = i, by, rank
		}
	}
	return best, most
}

// correlation returns how far a suspect's CPU usage rises and falls with the cycles per instruction, from -1 to 1, by
// the formula of CPI² (section 4.2 of the paper): usage while there are more cycles per instruction than the limit speaks for
// it, usage while there are fewer against it. now is the present time on the suspect's clock.
func (c *Cycles) correlation(now time.Duration, suspect *usageHistory) (sum float64) {
	var uses [cyclesHistory]float64
	all := 0.0
	for i := range c.samples {
		s := &c.samples[i]
		if age := c.now - s.ended; age <= cyclesTime {
			uses[i] = suspect.mean(now-age-s.over, now-age)
			all += uses[i]
		}
	}
	if all == 0 {
		return 0
	}
	for i := range c.samples {
		if value := c.samples[i].value; value > c.LimitRatio {
			sum += uses[i] / all * (1 - c.LimitRatio/value)
		} else {
			sum += uses[i] / all * (value/c.LimitRatio - 1)
		}
	}
	return sum
}

// contends says by what a suspect is found that contends for caches and the bandwidth of memory.
func contends(p *Pod, victim string, by hintKind, part float64) string {
	if by == ofCorrelation {
		return fmt.Sprintf("%s needs more cycles per instruction when this pod uses more CPU (correlation %.2f of at most 1)", victim, part)
	}
	return does(p, by, part)
}

// contention says how a pod is slowed down that waits for caches or memory without being seen to wait.
func (d *Disturbance) contention(part int) string {
	if part != slowCycles || d.Cycles == nil {
		return ", since batch work holds cache that it had"
	}
	return fmt.Sprintf(" (%.2g, and %.2g usually)", d.Cycles.PerInstructionRatio, d.Cycles.UsualRatio)
}
