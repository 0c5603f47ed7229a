package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are the numbers of noisy pods in docs/control.md.
const (
	noisyPercent = 150 // runnable tasks in percent of the request or limit
	noisySteps   = 3
	noisyCalm    = 120 * time.Second
)

const noisyApart = "it has far more work than the CPUs that it asked for, and is kept apart from the others of its pool, on as many CPUs as it requests: a larger request would give it more"

// Noisy finds pods with many more runnable tasks than the CPUs that they requested. Such a pod
// delays the others in its pool. Noisy only gives advice; Separation acts on what it finds.
type Noisy struct {
	interval time.Duration
	watch    stopwatch
	pods     perID[noise]
	advice   []Advice
}

type noise struct {
	at      time.Time // time of the previous measurement
	steps   int       // consecutive steps above the bound
	calm    time.Duration
	unknown time.Duration     // for which nobody knows how much work it has
	text    string            // advice; "" if the pod is not noisy
	ended   string            // why the pod is not noisy any more; "" if it never was
	more    workload.MilliCPU // its newest CPU demand, less what it asked for
}

// NewNoisy returns the search for noisy pods. Step must be called once per interval.
func NewNoisy(interval time.Duration) *Noisy { return &Noisy{interval: interval} }

// Step returns advice for the pods that are noisy now. The list is valid until the next step.
func (n *Noisy) Step(v *View) ([]Advice, []Decision) {
	passed := n.watch.lap(v.Now, n.interval)
	n.pods.begin()
	n.advice = n.advice[:0]
	var decisions []Decision
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.LS && p.Class != workload.Unclassified {
			continue
		}
		s := n.pods.at(p.UID)
		runnable, requested, at := runnable(v, p, n.interval)
		s.more = runnable - requested
		measured := !at.IsZero() && requested > 0
		if s.unknown += passed; measured {
			s.unknown = 0
		}
		switch {
		case s.text != "" && s.unknown >= lostTime:
			*s = noise{unknown: s.unknown, ended: fmt.Sprintf("how much work it has beyond what it asked for has not been known for %v", lostTime)}
			decisions = append(decisions, Decision{Controller: "noisy", Object: p.Ref, Action: "calm", Why: s.ended})
		case !measured:
		case runnable*100 <= requested*noisyPercent:
			s.steps, s.calm = 0, s.calm+passed
			if s.text != "" && s.calm >= noisyCalm {
				s.text, s.ended = "", fmt.Sprintf("its tasks have fitted into the CPUs that it asked for, for %s", noisyCalm)
				decisions = append(decisions, Decision{
					Controller: "noisy", Object: p.Ref, Action: "calm", Why: fmt.Sprintf("its tasks fit into the %s CPUs that it asked for again, for %v", inCPUs(requested), noisyCalm),
					Facts: []Fact{{"runnable_cpus", float64(runnable) / 1000}, {"requested_cpus", float64(requested) / 1000}},
				})
			}
		case !at.Equal(s.at):
			s.steps, s.calm = s.steps+1, 0
			if s.text == "" && s.steps >= noisySteps {
				s.text = fmt.Sprintf("it has work for %s CPUs and asked for %s: pods beside it wait for it; %s", inCPUs(runnable), inCPUs(requested), noisyRemedy(v, p))
				decisions = append(decisions, Decision{
					Controller: "noisy", Object: p.Ref, Action: "advise", Why: s.text,
					Facts: []Fact{{"runnable_cpus", float64(runnable) / 1000}, {"requested_cpus", float64(requested) / 1000}},
				})
			}
		}
		s.at = at
		switch {
		case s.text != "" && p.Separated:
			n.advice = append(n.advice, Advice{p.Ref, noisyApart})
		case s.text != "":
			n.advice = append(n.advice, Advice{p.Ref, s.text})
		}
	}
	n.pods.end()
	return n.advice, decisions
}

// beyond returns the CPU for which a noisy pod has work now beyond what it asked for. It is 0 for a pod that is not
// noisy.
func (n *Noisy) beyond(p *Pod) workload.MilliCPU {
	if s := n.pods.find(p.UID); s != nil && s.text != "" {
		return max(0, s.more)
	}
	return 0
}

// isNoisy reports whether a pod is noisy, or was less than noisyCalm ago.
func (n *Noisy) isNoisy(p *Pod) bool {
	s := n.pods.find(p.UID)
	return s != nil && s.text != ""
}

// whyEnded returns why a pod is not noisy any more.
func (n *Noisy) whyEnded(p *Pod) string {
	if s := n.pods.find(p.UID); s != nil && s.ended != "" {
		return s.ended
	}
	return "it is not noisy any more"
}

// isLoud reports whether a pod is noisy, or had far more work than it asked for at the newest measurement.
func (n *Noisy) isLoud(p *Pod) bool {
	s := n.pods.find(p.UID)
	return s != nil && (s.text != "" || s.steps > 0)
}

// noisyRemedy says what keeps a noisy pod from the others. Pools that share their CPUs do not.
func noisyRemedy(v *View, p *Pod) string {
	switch {
	case v.ExclusivePools:
		return "a pool of its own (pool.sluice.dev) would keep it apart, and control.noisy can while others wait"
	case p.Allow&workload.Demote != 0:
		return "since it allows to be demoted, control.culprit can lower its CPU limit where a service waits because of it"
	}
	return "a CPU limit, or allow.sluice.dev: demote, would bound it, and control.noisy can keep it apart while others wait; a pool of its own would not, because the pools share their CPUs"
}

// runnable returns how many tasks of a pod are running or ready to run on average, in
// thousandths, and how many CPUs it asked for: its limits, or its requests if it has none. The
// time is that of the oldest measurement; it is zero if one is unknown.
func runnable(v *View, p *Pod, interval time.Duration) (runnable, requested workload.MilliCPU, at time.Time) {
	for i := range v.Containers[p.First : p.First+p.Count] {
		c := &v.Containers[p.First+i]
		if c.Pool < 0 {
			continue
		}
		if !uses(v, c, interval) || !knownSlowly(v.Now, c.RunDelay.At, interval) {
			return 0, 0, time.Time{}
		}
		runnable += c.CPU.Usage + workload.MilliCPU(c.RunDelay.Waiting*1000)
		if c.Limit > 0 {
			requested += c.Limit
		} else {
			requested += c.Request
		}
		if at.IsZero() || c.RunDelay.At.Before(at) {
			at = c.RunDelay.At
		}
	}
	return runnable, requested, at
}
