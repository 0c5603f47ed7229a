package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// A pod over-asks if its request is overAskFactor times its peak usage or more.
const (
	overAskFactor = 3
	overAskTime   = time.Hour
	overAskLeast  = 500 // thousandths of a CPU; smaller requests are not worth advice
)

// OverAsk finds pods that request far more CPU than they use.
type OverAsk struct {
	interval time.Duration
	watch    stopwatch
	pods     perID[peakUsage]
	advice   []Advice
}

// peakUsage is a pod's peak usage of this hour and of the previous one. Older peaks are
// forgotten.
type peakUsage struct {
	now, before workload.MilliCPU
	watched     time.Duration     // time measured in this hour
	full        bool              // before covers a whole hour
	request     workload.MilliCPU // request for which text was written
	peak        workload.MilliCPU
	text        string
}

// NewOverAsk returns the search for pods that over-ask. Step must be called once per interval.
func NewOverAsk(interval time.Duration) *OverAsk { return &OverAsk{interval: interval} }

// Step returns advice for the pods that over-ask. The list is valid until the next step.
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

// advise returns the advice for a pod with that request; "" if there is none.
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
