package colocation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestYielding(t *testing.T) {
	t.Parallel()
	const pods, best, burst = "/kubepods", "/kubepods/besteffort", "/kubepods/burstable"
	job := BatchPod{QoS: workload.BestEffort, Above: best, Idle: true}
	services := []Sibling{{Path: burst, Class: true}, {Path: pods + "/poddb"}}
	alone := Yielding{ThreadsPerCore: 1, OnlineWeight: 400, Siblings: map[string]*Siblings{pods: {Batch: true, Services: services}, best: {Batch: true}}, Raised: map[string]int{pods: 400}}
	of := func(p BatchPod, change func(*BatchPod)) BatchPod { change(&p); return p }
	with := func(y Yielding, change func(*Yielding)) Yielding { change(&y); return y }
	threads := with(alone, func(y *Yielding) { y.ThreadsPerCore, y.SharedGroups = 2, map[string]bool{"ns/mixed": true} })
	notRaised := with(alone, func(y *Yielding) { y.Raised = nil })
	inBest := with(alone, func(y *Yielding) {
		y.Siblings = map[string]*Siblings{best: {Batch: true, Services: services[1:]}}
	})
	for name, c := range map[string]struct {
		yielding Yielding
		pod      BatchPod
		want     string // "" if batch work yields
		beside   int
	}{
		"in the idle class":              {alone, job, "", 0},
		"not in the idle class":          {alone, of(job, func(p *BatchPod) { p.Idle = false }), "isn't in the idle class", 0},
		"a Burstable one":                {alone, of(job, func(p *BatchPod) { p.Idle, p.QoS = false, workload.Burstable }), "is Burstable: the kubelet writes its CPU weight", 0},
		"expelled by a vendor's kernel":  {threads, BatchPod{Expelled: true}, "", 0},
		"weights have no room":           {notRaised, job, "has so much CPU weight", 2},
		"weights aren't configured":      {with(notRaised, func(y *Yielding) { y.OnlineWeight = 100 }), job, "control.batch.onlineWeight", 2},
		"nothing beside it":              {Yielding{}, job, "", 0},
		"outside of the kubelet's tree":  {alone, of(job, func(p *BatchPod) { p.Above = "/other" }), "", 0},
		"services in its cgroup":         {inBest, job, "has so much CPU weight", 1},
		"services in its cgroup, raised": {with(inBest, func(y *Yielding) { y.Raised = map[string]int{best: 200} }), job, "", 0},
		"its cgroup counts as a service": {with(alone, func(y *Yielding) {
			y.Siblings = map[string]*Siblings{pods: {Services: append(services, Sibling{Path: best})}}
		}), job, "is below /kubepods/besteffort, which others", 0},
		"two threads, no group":           {threads, of(job, func(p *BatchPod) { p.Containers = []CoreSched{{}} }), "no core-sched group", 0},
		"two threads, a group of its own": {threads, of(job, func(p *BatchPod) { p.Containers = []CoreSched{{"ns/own", true}} }), "", 0},
		"two threads, a shared group":     {threads, of(job, func(p *BatchPod) { p.Containers = []CoreSched{{"ns/mixed", true}} }), "in the core-sched group ns/mixed with others", 0},
		"two threads, processes outside":  {threads, of(job, func(p *BatchPod) { p.Containers = []CoreSched{{"ns/own", true}, {"ns/own", false}} }), "processes outside of its core-sched group ns/own", 0},
	} {
		why, beside := c.yielding.Stays(&c.pod)
		if c.want == "" && why != "" || !strings.Contains(why, c.want) || len(beside) != c.beside {
			t.Errorf("%s: %q, beside %d, want %q, beside %d", name, why, len(beside), c.want, c.beside)
		}
	}
}

func TestSharedGroups(t *testing.T) {
	t.Parallel()
	web, job, unplaced := running("web/a", "burstable", workload.LS), running("job/a", "besteffort", workload.BE), running("late/a", "burstable", workload.LS)
	web.Request.CoreSched, job.Request.CoreSched = "ns/web", "ns/job"
	unplaced.Request = nil
	if got := SharedGroups(inventory(web, job, unplaced, running("db/a", "", workload.LS))); len(got) != 1 || !got["ns/web"] {
		t.Errorf("groups that hold others than batch work are %v", got)
	}
}
