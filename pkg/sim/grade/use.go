package grade

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// use is what a workload used.
type use struct {
	last     recording.Container // the newest that was recorded of it
	totals   []float64           // CPUs of all its pods on a node, by interval in which it ran
	hours    float64             // on the node where it was recorded longest
	podTime  time.Duration       // sum over its pods
	timeUsed time.Duration       // sum over nodes
	cpuTime  float64             // CPU seconds

	waited, waitedFor float64 // seconds that threads waited, by the CPU seconds used meanwhile
	pressure          mean
	throttled         mean
}

type mean struct {
	sum float64
	n   int
}

// add adds a value unless it is unknown.
func (m *mean) add(v float32) {
	if v != recording.Unknown {
		m.sum, m.n = m.sum+float64(v), m.n+1
	}
}

func (m *mean) value() *float64 {
	if m.n == 0 {
		return nil
	}
	v := m.sum / float64(m.n)
	return &v
}

// course is what a workload used on one node, by interval.
type course struct {
	cpus []float64
	pod  []int // number of the pod that was last seen in the interval; 0 for none
}

// enter adds a recording. Single measurements are summed up by minutes.
func enter(uses map[string]*use, r *recording.Recording) {
	interval := max(r.Interval, time.Minute)
	intervals := int(r.End.Sub(r.Start)/interval) + 1
	courses := map[string]*course{}
	var names []string
	pod := 0
	tracks := slices.Clone(r.Tracks)
	slices.SortStableFunc(tracks, func(a, b recording.Track) int { return strings.Compare(a.Ref, b.Ref) })
	for i := range tracks {
		t := &tracks[i]
		if i == 0 || podOf(t) != podOf(&tracks[i-1]) {
			pod++
		}
		name := workload.NameOf(podOf(t), "")
		if uses[name] == nil {
			uses[name] = &use{}
		}
		if courses[name] == nil {
			courses[name] = &course{make([]float64, intervals), make([]int, intervals)}
			names = append(names, name)
		}
		uses[name].track(t, pod, interval, courses[name])
	}
	for _, name := range names {
		uses[name].course(courses[name], interval)
	}
}

// podOf returns a container's pod as "namespace/pod".
func podOf(t *recording.Track) string { return t.Ref[:max(0, strings.LastIndexByte(t.Ref, '/'))] }

// track adds a container of a pod. The containers of a pod follow each other.
func (u *use) track(t *recording.Track, pod int, interval time.Duration, into *course) {
	u.last = t.Container
	for i := 0; i < len(t.Samples); {
		at := int(t.Samples[i].At / interval)
		sum, n := 0.0, 0
		for ; i < len(t.Samples) && int(t.Samples[i].At/interval) == at; i++ {
			s := &t.Samples[i]
			sum, n = sum+float64(s.CPU), n+1
			if s.Waiting != recording.Unknown {
				u.waited, u.waitedFor = u.waited+float64(s.Waiting), u.waitedFor+float64(s.CPU)
			}
			u.pressure.add(s.Pressure)
			u.throttled.add(s.Throttled)
		}
		into.cpus[at] += sum / float64(n)
		if into.pod[at] != pod {
			into.pod[at] = pod
			u.podTime += interval
		}
	}
}

// course adds what the workload used on a node.
func (u *use) course(c *course, interval time.Duration) {
	lasted := time.Duration(0)
	for at, cpus := range c.cpus {
		if c.pod[at] == 0 {
			continue
		}
		u.totals = append(u.totals, cpus)
		u.cpuTime += cpus * interval.Seconds()
		lasted += interval
	}
	u.timeUsed += lasted
	u.hours = max(u.hours, lasted.Hours())
}

// workload returns the figures of a workload.
func (u *use) workload(name string) Workload {
	w := Workload{Name: name, Class: u.last.Class, Pool: u.last.Pool, Request: u.last.Request, Hours: u.hours, PressureFraction: u.pressure.value(), ThrottledFraction: u.throttled.value()}
	if len(u.totals) == 0 {
		return w
	}
	slices.Sort(u.totals)
	at := func(part float64) float64 { return u.totals[int(part*float64(len(u.totals)-1))] }
	w.P99CPUs = at(0.99)
	if w.P99CPUs > 0 {
		w.SteadyFraction = at(0.1) / w.P99CPUs
	}
	w.Pods = u.podTime.Seconds() / u.timeUsed.Seconds()
	w.MeanCPUs = u.cpuTime / u.podTime.Seconds()
	w.usedCPUs = u.cpuTime / u.timeUsed.Seconds()
	if u.waitedFor > 0 {
		ratio := u.waited / u.waitedFor
		w.WaitsRatio = &ratio
	}
	return w
}
