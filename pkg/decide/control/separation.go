package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	mostSeparated = 2               // pods that are kept apart at the same time
	separateTime  = 2 * observeTime // after which keeping a pod apart must have helped
	usualFollows  = 0.2             // part of the way that the usual waiting goes with a measurement over observe.SlowInterval
)

// Separation keeps a noisy pod apart from others of its pool that wait for CPU: it gets as many CPUs of the
// pool as it requests, and the others have the rest for themselves. If the one that waited most then waits
// less, the pod stays apart until it has fitted into what it asked for, for as long as Noisy requires. If not,
// it goes back and is left alone for some time. One pod is tried at a time, since the effects of two
// could not be distinguished.
type Separation struct {
	interval time.Duration
	watch    stopwatch
	pods     perID[separated] // by UID
	usual    perID[usual]     // by UID of LS pods
	suspicion
	trying  bool   // one pod is being tried
	closely string // UID of the LS pod of which Closely speaks

	loud      []int // pods with far more work than they asked for now, by index in View.Pods
	podsApart []string
	decisions []Decision
}

// usual is how long an LS pod waits while no pod beside it is loud, by the parts of Strain. The baseline of Interference
// follows all waiting without batch work, also that because of a noisy pod.
type usual struct {
	at    [strains]time.Time // of the newest measurement; zero if there was none
	value [strains]float64
}

// separated is what is known of a pod that was suspected.
type separated struct {
	phase apartPhase
	trouble
	cpus   int           // of its own
	at     time.Time     // when it got them
	passed time.Duration // since then
	seen   readings      // measured since then
	spared time.Duration // for which it is not suspected
	denied int           // times in a row that it did not help, at most mostDoubled
	since  time.Duration // since the end of its last trial
}

type apartPhase uint8

const (
	together   apartPhase = iota
	apartTried            // it is apart, and the one that waits is observed
	apartHeld             // that has helped
)

// NewSeparation returns the controller. Step must be called once per interval.
func NewSeparation(interval time.Duration) *Separation { return &Separation{interval: interval} }

// Closely returns the UID of an LS pod whose waiting must be measured at each step, not only now
// and then; "" for none.
func (s *Separation) Closely() string { return s.closely }

// Trying reports whether a pod is being tried, so that nothing else must change meanwhile.
func (s *Separation) Trying() bool { return s.trying }

// Step returns the UIDs of the pods that must be kept apart. The function fits returns how many CPUs a pod has or would
// have apart, or why it cannot be. If acts is false, no pod is kept apart, and Step only says which one would be. While
// others is set, another controller observes what one of its changes brings, and no trial begins. The list is valid until
// the next step.
func (s *Separation) Step(v *View, disturbed []Disturbance, noisy *Noisy, acts, others bool, fits func(uid string) (cpus int, err error)) ([]string, []Decision) {
	passed := s.watch.lap(v.Now, s.interval)
	s.podsApart, s.decisions, s.closely = s.podsApart[:0], nil, ""
	s.learn(v, disturbed, noisy)
	held := 0
	s.trying = false
	s.pods.begin()
	for i := range v.Pods {
		p := &v.Pods[i]
		a := s.pods.find(p.UID)
		if a == nil {
			continue
		}
		if !acts && a.phase != together {
			s.pods.drop(p.UID)
			continue
		}
		s.advance(v, p, a, disturbed, noisy, passed, fits)
		if a.phase != together {
			held++
		}
		s.trying = s.trying || a.phase == apartTried
	}
	s.pods.end()
	if s.trying || others || held >= mostSeparated {
		s.suspicion = suspicion{}
	} else {
		s.suspect(v, disturbed, noisy, passed, acts, fits)
	}
	for i := range v.Pods {
		if a := s.pods.find(v.Pods[i].UID); a != nil && a.phase != together {
			s.podsApart = append(s.podsApart, v.Pods[i].UID)
			if a.phase == apartTried {
				s.closely = a.victim
			}
		}
	}
	return s.podsApart, s.decisions
}

// learn follows how long LS pods usually wait.
func (s *Separation) learn(v *View, disturbed []Disturbance, noisy *Noisy) {
	s.loud = s.loud[:0]
	for i := range v.Pods {
		if noisy.isLoud(&v.Pods[i]) {
			s.loud = append(s.loud, i)
		}
	}
	s.usual.begin()
	for i := range disturbed {
		d := &disturbed[i]
		u := s.usual.at(v.Pods[d.Pod].UID)
		beside := slices.ContainsFunc(s.loud, func(pod int) bool { return pod != d.Pod && shareCPUs(v, &v.Pods[d.Pod], &v.Pods[pod]) })
		for part := range strains {
			r := &d.Latest[part]
			if r.at.IsZero() || r.at.Equal(u.at[part]) || d.limited {
				continue
			}
			switch {
			case u.at[part].IsZero() || r.value < u.value[part] && beside:
				u.value[part] = r.value
			case !beside:
				over := r.at.Sub(u.at[part])
				u.value[part] += (r.value - u.value[part]) * usualFollows * min(1, max(0, over.Seconds()/observe.SlowInterval.Seconds()))
			}
			u.at[part] = r.at
		}
	}
	s.usual.end()
}

// excess returns how much longer than usual an LS pod waits, or than its baseline.
func (s *Separation) excess(v *View, d *Disturbance, part int) float64 {
	r := &d.Latest[part]
	if u := s.usual.find(v.Pods[d.Pod].UID); u != nil && !u.at[part].IsZero() {
		return max(r.above, r.value-u.value[part])
	}
	return r.above
}

// suspect looks for the noisiest pod beside which another one waits for CPU, and keeps it apart once both have
// been the same for suspectTime.
func (s *Separation) suspect(v *View, disturbed []Disturbance, noisy *Noisy, passed time.Duration, acts bool, fits func(uid string) (int, error)) {
	var p *Pod
	var d *Disturbance
	part, cpus, most := 0, 0, workload.MilliCPU(0)
	for i := range v.Pods {
		one := &v.Pods[i]
		more := noisy.beyond(one)
		if a := s.pods.find(one.UID); more <= most || one.Squeezed || a != nil && (a.phase != together || a.spared > 0) {
			continue
		}
		victim, of := s.waitsBeside(v, disturbed, noisy, one)
		if victim == nil {
			continue
		}
		if n, err := fits(one.UID); err == nil {
			p, d, part, cpus, most = one, victim, of, n, more
		}
	}
	if p == nil {
		s.suspicion = suspicion{}
		return
	}
	victim := &v.Pods[d.Pod]
	s.closely = victim.UID
	if s.pod != p.UID || s.victim != victim.UID || s.part != part {
		s.suspicion = suspicion{trouble: trouble{victim: victim.UID, ref: victim.Ref, part: part, bears: d.bearsOf(part), late: d.late()}, pod: p.UID}
		return
	}
	s.time += passed
	if r := &d.Latest[part]; fresh(v, r, s.interval) {
		s.calm = r.value - s.excess(v, d, part)
		s.seen.add(r, s.calm)
	}
	if s.time < suspectTime || s.seen.n == 0 {
		return
	}
	s.before = s.seen.mean()
	s.separate(v, p, noisy, cpus, acts)
}

// waitsBeside returns the LS pod that waits most for CPU beside a noisy one, and the part of Strain; nil if none suffers.
// That of the present suspicion stays while it suffers. A pod that is noisy itself waits for that reason.
func (s *Separation) waitsBeside(v *View, disturbed []Disturbance, noisy *Noisy, p *Pod) (most *Disturbance, part int) {
	excess := 0.0
	for i := range disturbed {
		d := &disturbed[i]
		victim := &v.Pods[d.Pod]
		if victim.UID == p.UID || !shareCPUs(v, p, victim) || noisy.isNoisy(victim) {
			continue
		}
		for k := range strains {
			_, kind := strainName(k)
			above := s.excess(v, d, k)
			if kind != ofCPU || k == throttling || d.throttled() || above < d.tells(k) || !knownSlowly(v.Now, d.Latest[k].at, s.interval) {
				continue
			}
			if s.pod == p.UID && s.victim == victim.UID && s.part == k {
				return d, k
			}
			if above > excess {
				most, part, excess = d, k, above
			}
		}
	}
	return most, part
}

// separate begins a trial.
func (s *Separation) separate(v *View, p *Pod, noisy *Noisy, cpus int, acts bool) {
	a := s.pods.at(p.UID)
	a.trouble, a.cpus = s.trouble, cpus
	s.suspicion = suspicion{}
	pool := v.Pools[poolOf(v, p)].Name
	why := fmt.Sprintf("it has work for %s CPUs more than it asked for, while %s waits: the %s of %s is %s above the usual; it gets %s of pool %s for itself, which covers its request, and the others have the rest",
		inCPUs(noisy.beyond(p)), a.ref, a.name(), a.ref, inPercent(a.before), humanize.Count(cpus, "CPU"), pool)
	if limit := limitOf(v, p); limit == 0 || limit > workload.MilliCPU(cpus)*1000 {
		why += "; it can use no more than these"
	}
	s.decide(p, "separate", "pool "+pool, humanize.Count(cpus, "CPU")+" of its own", why, a.facts(a.before))
	if !acts {
		*a = separated{spared: unsuspectTime << a.denied, denied: min(a.denied+1, mostDoubled)}
		return
	}
	a.phase, a.at, a.passed, a.seen = apartTried, v.Now, 0, readings{}
	s.trying = true
}

// advance brings one pod a step further.
func (s *Separation) advance(v *View, p *Pod, a *separated, disturbed []Disturbance, noisy *Noisy, passed time.Duration, fits func(uid string) (int, error)) {
	if a.phase == together {
		a.spared, a.since = max(0, a.spared-passed), a.since+passed
		if a.since >= forgetTime {
			s.pods.drop(p.UID)
		}
		return
	}
	a.passed += passed
	if v.Now.Before(a.at) {
		a.at = v.Now // the clock was set back
	}
	cpus, err := fits(p.UID)
	switch {
	case err != nil:
		s.end(p, a, "restore", "it can't be kept apart any more: "+err.Error(), a.denied)
		a.spared = unsuspectTime
	case !noisy.isNoisy(p):
		s.end(p, a, "restore", noisy.whyEnded(p), 0)
	case !hasNeighbours(v, p):
		s.end(p, a, "restore", "there is no other LS pod in its pool", 0)
	case a.phase == apartTried:
		s.try(v, p, a, disturbed)
	default:
		a.cpus = cpus
	}
}

// try ends the trial once it shows whether the pod that waits does so less.
func (s *Separation) try(v *View, p *Pod, a *separated, disturbed []Disturbance) {
	d := a.victimOf(v, disturbed)
	if d == nil {
		s.end(p, a, "restore", a.ref+" is gone", a.denied)
		return
	}
	if r := &d.Latest[a.part]; fresh(v, r, s.interval) && r.since(a.at, s.interval) {
		a.seen.add(r, a.calm)
	}
	helped := a.seen.n > 0 && a.seen.mean() < a.before*helpedFraction // another noisy pod may be the reason for the rest
	switch {
	case helped && a.passed >= observeTime:
		a.phase, a.denied = apartHeld, 0
		s.decide(p, "confirm", "", humanize.Count(a.cpus, "CPU")+" of its own", fmt.Sprintf("%s waited while this pod was beside it: %s; they stay apart until the tasks of this pod have fitted into what it asked for, for %s", a.ref, a.outcome(), noisyCalm), a.facts(a.seen.mean()))
	case helped:
	case a.seen.n == 0 && a.passed >= blindTime:
		s.end(p, a, "restore", "nobody knows whether keeping it apart helps: how long "+a.ref+" waits was not measured", a.denied)
		a.spared = unsuspectTime
	case a.seen.n > 0 && a.passed >= separateTime:
		spared := unsuspectTime << a.denied
		s.end(p, a, "acquit", fmt.Sprintf("keeping it apart does not help: %s; it stays in its pool for %s", a.outcome(), spared), min(a.denied+1, mostDoubled))
		a.spared = spared
	}
}

// end puts the pod back beside the others.
func (s *Separation) end(p *Pod, a *separated, action, why string, denied int) {
	excess := 0.0
	if a.seen.n > 0 {
		excess = a.seen.mean()
	}
	s.decide(p, action, humanize.Count(a.cpus, "CPU")+" of its own", "all CPUs of its pool", why, a.facts(excess))
	*a = separated{denied: denied}
}

// outcome says what has changed since the pod is apart.
func (a *separated) outcome() string {
	return fmt.Sprintf("the %s of %s was %s above the usual before, and is %s now", a.name(), a.ref, inPercent(a.before), inPercent(a.seen.mean()))
}

func (a *separated) facts(excess float64) []Fact {
	return []Fact{{"excess_before", a.before}, {"excess", excess}, {"cpus", float64(a.cpus)}}
}

func (s *Separation) decide(p *Pod, action, from, to, why string, facts []Fact) {
	s.decisions = append(s.decisions, Decision{Controller: "noisy", Object: p.Ref, Action: action, From: from, To: to, Why: why, Facts: facts})
}

// hasNeighbours reports whether a pod that is kept apart would otherwise share its CPUs with another LS pod.
func hasNeighbours(v *View, p *Pod) bool {
	own := poolOf(v, p)
	for i := range v.Pods {
		if other := &v.Pods[i]; other.UID != p.UID && other.Class != workload.BE && v.overlap(own, poolOf(v, other)) {
			return true
		}
	}
	return false
}

// limitOf returns the CPU limit of a pod; 0 if a container has none.
func limitOf(v *View, p *Pod) (sum workload.MilliCPU) {
	for i := range v.Containers[p.First : p.First+p.Count] {
		limit := v.Containers[p.First+i].Limit
		if limit == 0 {
			return 0
		}
		sum += limit
	}
	return sum
}
