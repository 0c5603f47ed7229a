package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// A pod over-asks where its request is so many times its peak.
const (
	overAskFactor = 3
	overAskTime   = time.Hour
	overAskLeast  = 500 // thousandths of a CPU: below it there is little to win
)

// OverAsk finds pods that ask for far more CPU than they use.
type OverAsk struct {
	interval time.Duration
	watch    stopwatch
	pods     kept[peakUsage]
	advice   []Advice
}

// peakUsage is a pod's peak of this and of the hour before, so that an old one is
// forgotten.
type peakUsage struct {
	now, before workload.MilliCPU
	watched     time.Duration     // in this hour
	full        bool              // before is of a whole hour
	request     workload.MilliCPU // that text was made for
	peak        workload.MilliCPU
	text        string
}

// NewOverAsk is the search for pods that over-ask, stepped each interval.
func NewOverAsk(interval time.Duration) *OverAsk { return &OverAsk{interval: interval} }

// Step answers with the pods that over-ask. The list is lent until the next step.
func (o *OverAsk) Step(v *View) []Advice {
	passed := o.watch.lap(v.Now, o.interval)
	o.pods.begin()
	o.advice = o.advice[:0]
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class == workload.BE || p.Class == workload.System {
			continue
		}
		s := o.pods.at(p.UID)
		var request, usage workload.MilliCPU
		all := true
		for k := range v.Containers[p.First : p.First+p.Count] {
			c := &v.Containers[p.First+k]
			request += c.Request
			usage += c.CPU.Usage
			all = all && uses(v, c, o.interval)
		}
		if all {
			s.enter(usage, passed)
		}
		if text := s.advise(request); text != "" {
			o.advice = append(o.advice, Advice{p.Ref, text})
		}
	}
	o.pods.end()
	return o.advice
}

func (s *peakUsage) enter(usage workload.MilliCPU, passed time.Duration) {
	s.now = max(s.now, usage)
	s.watched += passed
	if s.watched >= overAskTime {
		s.before, s.now, s.watched, s.full = s.now, 0, 0, true
	}
}

// advise is the advice to a pod with that request; "" where there is none.
func (s *peakUsage) advise(request workload.MilliCPU) string {
	peak := max(s.now, s.before)
	if !s.full || request < overAskLeast || request <= overAskFactor*peak {
		s.text = ""
		return ""
	}
	if s.text == "" || s.request != request || s.peak != peak {
		s.request, s.peak = request, peak
		fits := workload.MilliCPU(math.Ceil(float64(peak)*1.2/100)) * 100
		s.text = fmt.Sprintf("it requests %s CPUs and used %s at most for over an hour: a request of %s would do", inCPUs(request), inCPUs(peak), inCPUs(max(fits, 100)))
	}
	return s.text
}
