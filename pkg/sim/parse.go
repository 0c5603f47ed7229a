package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology/synth"
)

// These are the bounds of a scenario. Beyond them a run takes hours.
const (
	maxDuration = 366 * 24 * time.Hour
	maxPods     = 2000
)

// Parse parses a scenario. The error is a config.Errors with all mistakes and their lines.
func Parse(data []byte) (*Scenario, error) {
	node, err := config.Document(data)
	if err != nil {
		return nil, err
	}
	if node == nil {
		return nil, config.Errors{{Text: "is empty: a scenario has machine, duration and pods"}}
	}
	s := &Scenario{}
	s.defaults()
	piece := cut(node, "config")
	var all config.Errors
	s.Config, err = config.ParseNode(piece)
	for _, e := range errorsOf(err) {
		e.Key = strings.TrimSuffix("config."+e.Key, ".")
		all = append(all, e)
	}
	err = config.Decode(node, s, func(fail config.Fail) { s.check(fail) })
	if all = append(all, errorsOf(err)...); len(all) > 0 {
		slices.SortStableFunc(all, func(a, b config.Error) int { return a.Line - b.Line })
		return nil, all
	}
	return s, nil
}

func errorsOf(err error) config.Errors {
	errs, _ := err.(config.Errors) //nolint:errorlint // Parse never returns it wrapped
	return errs
}

// cut removes a key from a mapping and returns its value.
func cut(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			value := node.Content[i+1]
			node.Content = slices.Delete(node.Content, i, i+2)
			return value
		}
	}
	return nil
}

// check finds mistakes that the types don't exclude.
func (s *Scenario) check(fail config.Fail) {
	if s.Machine == "" {
		fail("machine", "is missing: it describes the node, as in \"1 packages 4 cores 2 threads\"")
	} else if _, err := synth.Parse(s.Machine); err != nil {
		fail("machine", "%v", err)
	}
	if s.Duration < time.Second || s.Duration > maxDuration {
		fail("duration", "must be 1s to %dh", int(maxDuration.Hours()))
	}
	if s.Hardware.SMT <= 0 || s.Hardware.SMT > 1 {
		fail("hardware.smt", "must be over 0%% and at most 100%%")
	}
	if s.Hardware.Reclaim <= 0 {
		fail("hardware.reclaim", "must be over 0")
	}
	if len(s.Pods) == 0 {
		fail("pods", "is missing: a node without pods does nothing")
	}
	names, total := map[string]bool{}, 0
	for i := range s.Pods {
		p, at := &s.Pods[i], "pods["+strconv.Itoa(i)+"]"
		if p.Name == "" {
			fail(at, "has no name")
		} else if names[p.Name] {
			fail(at+".name", "%.80q is there twice", p.Name)
		}
		names[p.Name] = true
		total += max(1, min(p.Count, maxPods))
		p.check(at, fail)
	}
	if total > maxPods {
		fail("pods", "are %d or more; %d are as many as can be", total, maxPods)
	}
}

func (p *Pod) check(at string, fail config.Fail) {
	if p.Count < 0 || p.Count > maxPods {
		fail(at+".count", "must be 0 to %d", maxPods)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"start", p.Start}, {"end", p.End}, {"stagger", p.Stagger}, {"load.every", p.Load.Every}, {"load.for", p.Load.For},
		{"load.width", p.Load.Width}, {"service.time", p.Service.Time}, {"service.slo", p.Service.SLO},
	} {
		if d.value < 0 || d.value > maxDuration {
			fail(at+"."+d.key, "must be 0s to %dh", int(maxDuration.Hours()))
		}
	}
	if p.End != 0 && p.End <= p.Start {
		fail(at+".end", "must be after the start, at %s", p.Start)
	}
	if p.Limits.CPU > 0 && p.Requests.CPU > p.Limits.CPU {
		fail(at+".requests.cpu", "is above the limit")
	}
	if p.Limits.Memory > 0 && p.Requests.Memory > p.Limits.Memory {
		fail(at+".requests.memory", "is above the limit")
	}
	if p.Service.Time > 0 && p.Service.SLO <= 0 {
		fail(at+".service", "needs an slo: the time in which 99%% of its requests are to be answered")
	}
	p.Load.check(at+".load", fail)
	for i, step := range p.Cycles {
		if step.Load <= 0 {
			fail(at+".cycles["+strconv.Itoa(i)+"].load", "must be over 0%%")
		}
	}
	ascend(p.Cycles, at+".cycles", fail)
	if p.Memory.Speed == 0 {
		p.Memory.Speed = 1 << 30
	}
	if p.Memory.Low == 0 {
		p.Memory.Low = 1
	}
	if p.Memory.Low > 1 {
		fail(at+".memory.low", "must be at most 100%%")
	}
}

func (l *Load) check(at string, fail config.Fail) {
	if l.Curve == "" {
		l.Curve = Constant
	}
	if l.CPU <= 0 && l.Curve != Trace {
		fail(at+".cpu", "is missing: the CPUs that it wants at its top")
	}
	if l.Low > 1 {
		fail(at+".low", "must be at most 100%%")
	}
	if l.Threads < 0 {
		fail(at+".threads", "must be 0 or more")
	}
	if l.Drift > 0.1 {
		fail(at+".drift", "must be at most 10%% per day")
	}
	ascend(l.Steps, at+".steps", fail)
	switch l.Curve {
	case Steps:
		if len(l.Steps) == 0 {
			fail(at+".steps", "is missing: a list of times and loads")
		}
	case Bursts:
		if l.For <= 0 || l.Every <= l.For {
			fail(at, "bursts need `for`, over 0s, and `every`, longer than that")
		}
	case Trace:
		var err error
		if l.points, err = parseTrace(l.Trace); err != nil {
			fail(at+".trace", "%v", err)
		}
		for _, p := range l.points {
			l.CPU = max(l.CPU, Cores(p.cpu))
		}
	case Constant, Sine:
	}
}

// ascend checks the order of steps.
func ascend(steps []Step, at string, fail config.Fail) {
	for i := 1; i < len(steps); i++ {
		if steps[i].At <= steps[i-1].At {
			fail(at+"["+strconv.Itoa(i)+"].at", "must be later than that of the step before")
		}
	}
}

// point is the load at a time.
type point struct {
	at  time.Duration
	cpu float64
}

// parseTrace parses lines of seconds since the start and CPUs. It skips a first line that is no
// number as a heading.
func parseTrace(text string) ([]point, error) {
	var points []point
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		first, second, _ := strings.Cut(strings.TrimSpace(line), ",")
		at, err := strconv.ParseFloat(strings.TrimSpace(first), 64)
		if err != nil && i == 0 {
			continue
		}
		cpu, err2 := strconv.ParseFloat(strings.TrimSpace(second), 64)
		const mostCPU = 1 << 20
		if err != nil || err2 != nil || !(at >= 0 && at <= maxDuration.Seconds()) || !(cpu >= 0 && cpu <= mostCPU) {
			return nil, fmt.Errorf("line %d of it, %.40q, must be seconds and CPUs, like 60,2.5", i+1, line)
		}
		p := point{time.Duration(at * float64(time.Second)), cpu}
		if n := len(points); n > 0 && points[n-1].at >= p.at {
			return nil, fmt.Errorf("line %d of it, %.40q, must be later than the one before", i+1, line)
		}
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("must be lines of seconds and CPUs, like 60,2.5")
	}
	return points, nil
}
