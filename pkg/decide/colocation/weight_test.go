package colocation

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestRankOf(t *testing.T) {
	t.Parallel()
	ls, be := &workload.Request{Class: workload.LS}, &workload.Request{Class: workload.BE}
	low := &workload.Request{Class: workload.LS}
	low.Identity, low.Weight = workload.Some(-1), 40
	for name, c := range map[string]struct {
		requests []*workload.Request
		rank     Rank
		percent  int
	}{
		"no container with a place":       {nil, RankLow, 100},
		"a service":                       {[]*workload.Request{ls, ls}, RankService, 100},
		"batch":                           {[]*workload.Request{be, be}, RankBatch, 100},
		"batch beside a service":          {[]*workload.Request{be, ls}, RankService, 100},
		"the lowest priority":             {[]*workload.Request{low}, RankLow, 40},
		"the lowest priority, and others": {[]*workload.Request{low, ls}, RankService, 40},
	} {
		if rank, percent := RankOf(c.requests); rank != c.rank || percent != c.percent {
			t.Errorf("%s: rank %d, %d %%, want %d, %d %%", name, rank, percent, c.rank, c.percent)
		}
	}
}

func TestFindSiblings(t *testing.T) {
	t.Parallel()
	const pods, burst, best = "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"
	web, db := running("web/a", "burstable", workload.LS), running("db/a", "", workload.LSR)
	job, low := running("job/a", "besteffort", workload.BE), running("low/a", "burstable", workload.BE)
	proxy := running("proxy/a", "besteffort", workload.LS)
	db.Request.Weight = 150
	foreign := running("foreign/a", "burstable", workload.LS)
	foreign.PodPath = web.PodPath
	nowhere := running("nowhere/a", "burstable", workload.LS)
	nowhere.PodPath = ""
	of := func(c *Container, percent int) Sibling { return Sibling{Path: c.PodPath, Percent: percent} }
	class := func(path string) Sibling { return Sibling{Path: path, Percent: 100, Class: true} }
	for name, c := range map[string]struct {
		containers []Container
		want       map[string]Siblings
	}{
		"services":             {[]Container{web, db, nowhere}, map[string]Siblings{pods: {Services: []Sibling{class(burst), of(&db, 150)}}, burst: {Services: []Sibling{of(&web, 100)}}}},
		"BestEffort batch":     {[]Container{web, job}, map[string]Siblings{pods: {Batch: true, Services: []Sibling{class(burst)}}, burst: {Services: []Sibling{of(&web, 100)}}, best: {Batch: true}}},
		"and a service in it":  {[]Container{job, proxy}, map[string]Siblings{pods: {Batch: true}, best: {Batch: true, Services: []Sibling{of(&proxy, 100)}}}},
		"Burstable batch":      {[]Container{low, db}, map[string]Siblings{pods: {Batch: true, Services: []Sibling{of(&db, 150)}}, burst: {Batch: true}}},
		"beside a service":     {[]Container{low, web}, map[string]Siblings{pods: {Services: []Sibling{class(burst)}}, burst: {Batch: true, Services: []Sibling{of(&web, 100)}}}},
		"two pods in a cgroup": {[]Container{web, foreign}, map[string]Siblings{}},
	} {
		got := map[string]Siblings{}
		for parent, s := range FindSiblings(inventory(c.containers...)) {
			slices.SortFunc(s.Services, func(a, b Sibling) int { return cmp.Compare(a.Path, b.Path) })
			got[parent] = *s
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestLSWeights(t *testing.T) {
	t.Parallel()
	const batch, services = "/kubepods", "/kubepods/burstable"
	with := map[string]*Siblings{batch: {Batch: true}, services: {}}
	without := map[string]*Siblings{batch: {}, services: {}}
	room := map[string]int{batch: 1000}
	want := NewCPUDesired()
	var w LSWeights
	step := func(after time.Duration, siblings map[string]*Siblings) int {
		w.Step(start.Add(after), 400, siblings, room, want)
		return want.LSWeights[batch]
	}
	if got := w.Parents(with); !slices.Equal(got, []string{batch}) {
		t.Errorf("weights are raised below %v, want below the parent with batch work", got)
	}
	if got := step(0, with); got != 400 || len(want.LSWeights) != 1 {
		t.Errorf("weights are raised to %v, want 400 %%", want.LSWeights)
	}
	if got := step(time.Second, without); got != 400 || len(w.Parents(without)) != 1 {
		t.Errorf("batch work that is gone for a second has weights at %d %%, want them unchanged", got)
	}
	if step(2*time.Minute, without); len(want.LSWeights) != 0 || len(w.Parents(without)) != 0 {
		t.Errorf("batch work that is gone for minutes has weights at %v, want none raised", want.LSWeights)
	}
	step(3*time.Minute, with)
	if step(4*time.Minute, nil); len(want.LSWeights) != 0 {
		t.Errorf("below a parent that is gone weights are at %v", want.LSWeights)
	}
	if got := step(5*time.Minute, with); got != 400 {
		t.Errorf("below a parent that is back weights are at %d %%, want 400 %%", got)
	}
	if w.Reset(want); len(want.LSWeights) != 0 || len(w.Parents(without)) != 0 {
		t.Errorf("after the reset weights are at %v", want.LSWeights)
	}
	room[batch] = 250
	if got := step(6*time.Minute, with); got != 200 {
		t.Errorf("with room for 250 %% weights are at %d %%, want half of 400", got)
	}
}
