package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// bus is a node on which batch pods contend with a service for memory bandwidth. No waiting shows it.
type bus struct {
	*scene
	f     *Interference
	cache *Cache
	c     *Culprit

	wants     map[string]workload.MilliCPU
	traffic   map[string]float64 // GB per CPU second of batch pods
	cycles    func() float64     // cycles per instruction of the service
	counts    bool               // they are counted
	resctrl   bool               // cache and memory traffic are counted
	lost      func() bool        // batch work holds cache of the service
	limits    map[string]workload.MilliCPU
	limited   map[string]int // seconds with a limit, by pod
	random    *rand.Rand
	began     time.Time
	countedAt time.Time
	log       []string // "seconds action pod to"
	why       []string
}

// newBus returns a node with a service that needs 1.2 cycles per instruction beside batch pods that run 30 CPU seconds
// a second in total.
func newBus() *bus {
	s := newScene(64)
	s.run("web", workload.LS, 4000, 0)
	cfg := DefaultConfig()
	b := &bus{
		scene: s, f: NewInterference(time.Second), cache: NewCache(cfg.Cache, time.Second), c: NewCulprit(BatchConfig{}, time.Second),
		wants: map[string]workload.MilliCPU{}, traffic: map[string]float64{}, counts: true, lost: func() bool { return false },
		limited: map[string]int{}, random: rand.New(rand.NewPCG(1, 2)), began: s.Now,
	}
	b.Capacity = 64000
	for i := range 10 {
		name := fmt.Sprintf("job%d", i)
		b.run(name, workload.BE, 0, 0)
		b.wants[name], b.traffic[name] = 0, 0.1
	}
	b.cycles = func() float64 { return 1.2 }
	return b
}

// slowedBy makes the service need 2.4 cycles more for each 16 GB/s of that pod.
func (b *bus) slowedBy(name string) {
	b.cycles = func() float64 { return 1.2 + 2.4*b.bandwidth(name)/16 }
}

// bandwidth is what a pod moves, in GB/s.
func (b *bus) bandwidth(name string) float64 {
	return b.traffic[name] * float64(b.at(name).CPU.Usage) / 1000
}

func (b *bus) work(cpus workload.MilliCPU) {
	for name := range b.wants {
		b.wants[name] = cpus
	}
}

func (b *bus) step() {
	for i := range b.Containers {
		c := &b.Containers[i]
		if wants, is := b.wants[c.ID]; is {
			if c.CPU.Usage = wants; b.limits[c.ID] > 0 {
				c.CPU.Usage = min(wants, b.limits[c.ID])
			}
		}
	}
	b.second()
	b.count()
	b.monitor()
	disturbed, _ := b.f.Step(&b.View)
	b.cache.Step(&b.View)
	b.cache.Tell(&b.View, disturbed)
	limits, decisions := b.c.Step(&b.View, disturbed, true, func(int) bool { return true })
	b.limits = map[string]workload.MilliCPU{}
	for _, l := range limits {
		name := b.Pods[l.Pod].UID
		b.limits[name] = l.CPU
		b.limited[name]++
	}
	for _, d := range decisions {
		b.log = append(b.log, fmt.Sprintf("%v %s %s %s", b.Now.Sub(b.began).Seconds(), d.Action, d.Object, d.To))
		b.why = append(b.why, d.Why)
	}
}

// count counts the cycles for ten seconds of each minute, or each second if the controller wants that.
func (b *bus) count() {
	over := 10 * time.Second
	always := b.c.Cycles() && b.c.Closely() == "web"
	if always {
		over = min(time.Second, b.Now.Sub(b.countedAt))
	}
	if b.counts && (always || b.Now.Sub(b.began)%time.Minute == 30*time.Second) {
		b.countedAt = b.Now
		b.at("web").CPI = observe.CPI{At: b.Now, Over: over, Cycles: b.cycles() * (1 + 0.02*b.random.NormFloat64()), Usage: b.at("web").CPU.Usage}
	}
}

// monitor sets what resctrl counts: each ten seconds, or of the service each second if it is watched closely.
func (b *bus) monitor() {
	for i := range b.Containers {
		c := &b.Containers[i]
		switch {
		case !b.resctrl:
			c.Cache = observe.Cache{}
		case c.ID != "web":
			c.Cache.Occupancy, c.Cache.Bandwidth = int64(c.CPU.Usage)*2000, b.bandwidth(c.ID)*1e9
		default:
			if b.c.Closely() == "web" {
				c.Cache.At = b.Now
			}
			c.Cache.Occupancy, c.Cache.Bandwidth = 20e6, 4e8
			if b.lost() {
				c.Cache.Occupancy, c.Cache.Bandwidth = 5e6, 9e8
			}
		}
	}
}

func (b *bus) steps(seconds int) {
	for range seconds {
		b.step()
	}
}

// actions returns the decisions about pods as "seconds action", and fails if one is about another pod than of.
func (b *bus) actions(t *testing.T, of string) (all []string) {
	t.Helper()
	for _, line := range b.log {
		f := strings.Fields(line)
		if f[2] != "ns/"+of {
			t.Errorf("decided: %s", line)
		}
		all = append(all, f[0]+" "+f[1])
	}
	return all
}

// TestContention checks that a batch pod which takes a service's memory bandwidth is found, by what resctrl counts or else
// by the correlation of its CPU usage, although another pod uses more CPU; that the service is then as fast as alone; and
// that nobody else has a limit.
func TestContention(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resctrl, counts bool
		by              string
		why             string
	}{
		"by correlation":       {false, true, "job3", "ns/web needs more cycles per instruction when this pod uses more CPU (correlation 0."},
		"by bandwidth":         {true, true, "job3", "it uses 8"},
		"without cycles":       {true, false, "job3", "it uses 8"},
		"without cycles, text": {true, false, "job3", " % of batch work's memory bandwidth while ns/web waits for caches and memory: its memory traffic per CPU second is 125 % above the usual, since batch work holds cache that it had"},
		"cycles, text":         {true, true, "job3", " % of batch work's memory bandwidth while ns/web waits for caches and memory: its number of cycles per instruction is "},
	} {
		b := newBus()
		b.resctrl, b.counts = test.resctrl, test.counts
		b.slowedBy("job3")
		b.lost = func() bool { return b.bandwidth("job3") > 5 }
		b.steps(300) // alone
		b.work(2000)
		b.wants["job7"] = 9000 // uses more CPU, and little bandwidth
		b.steps(240)
		if len(b.log) > 0 {
			t.Fatalf("%s: with harmless batch work: %v", name, b.log)
		}
		b.wants["job3"], b.traffic["job3"] = 8000, 2
		began := b.Now.Sub(b.began).Seconds()
		b.steps(300)
		actions := b.actions(t, test.by)
		if len(actions) < 2 || !slices.ContainsFunc(actions, func(s string) bool { return strings.HasSuffix(s, "confirm") }) {
			t.Errorf("%s: begun at %v, decided %v", name, began, b.log)
			continue
		}
		if got := b.cycles(); got > 1.7 && test.counts {
			t.Errorf("%s: the service needs %.2f cycles per instruction in the end", name, got)
		}
		if !strings.Contains(b.why[0], test.why) {
			t.Errorf("%s: the reason is %q, want %q", name, b.why[0], test.why)
		}
		t.Logf("%s: begun at %v, %v: %s", name, began, actions, b.why[0])
	}
}

// TestContentionIsNobodys checks that batch pods lose little if a service needs more cycles for a reason of its own.
func TestContentionIsNobodys(t *testing.T) {
	t.Parallel()
	b := newBus()
	b.steps(300)
	b.work(3000)
	b.steps(120)
	b.cycles = func() float64 { return 2.4 }
	b.steps(3600)
	seconds := 0
	for _, n := range b.limited {
		seconds += n
	}
	t.Logf("limited for %v: %v", b.limited, b.log)
	if len(b.log) == 0 || seconds > 120 || len(b.limited) < 5 {
		t.Errorf("in an hour, %d pods had a limit for %d s of 36000", len(b.limited), seconds)
	}
}

// TestNoOutliers checks that a service is nobody's victim with two outliers among five counts, with too little CPU usage, or
// without knowledge of what is usual.
func TestNoOutliers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bus){
		"two of five": func(b *bus) {
			b.resctrl = true
			b.cycles = func() float64 {
				if n := int(b.Now.Sub(b.began).Minutes()); n%5 < 2 && n > 8 {
					return 2.4
				}
				return 1.2
			}
		},
		"hardly runs": func(b *bus) {
			b.at("web").CPU.Usage = 200
			b.slowedBy("job3")
		},
		"not learned": func(b *bus) {
			b.f = NewInterference(time.Second)
			b.slowedBy("job3")
		},
	} {
		b := newBus()
		b.steps(300)
		b.work(2000)
		b.wants["job3"], b.traffic["job3"] = 8000, 2
		change(b)
		b.steps(590)
		if len(b.log) > 0 {
			t.Errorf("%s: %v", name, b.log)
		}
	}
}

// TestCorrelation checks the example of CPI²'s formula: usage above the limit speaks for a suspect, usage below it against.
func TestCorrelation(t *testing.T) {
	t.Parallel()
	now := time.Hour
	c := &Cycles{LimitRatio: 2, now: 20 * time.Minute} // by another clock
	var always, bursts, against usageHistory
	for i, value := range []float64{4, 1, 4, 1} {
		ago := time.Duration(4-i) * time.Minute
		end := now - ago
		c.samples = append(c.samples, cycleSample{c.now - ago, 10 * time.Second, value})
		for at := range 10 {
			when := end + time.Duration(at-9)*time.Second
			always.enter(when, 1000)
			bursts.enter(when, workload.MilliCPU(4000*(1-i%2)))
			against.enter(when, workload.MilliCPU(4000*(i%2)))
		}
	}
	for name, test := range map[string]struct {
		of   *usageHistory
		want float64
	}{"always": {&always, 0}, "bursts": {&bursts, 0.5}, "against": {&against, -0.5}, "idle": {&usageHistory{}, 0}} {
		if got := c.correlation(now, test.of); math.Abs(got-test.want) > 0.01 {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	c.now += time.Hour
	if got := c.correlation(now+time.Hour, &bursts); got != 0 {
		t.Errorf("counts of an hour ago: %v", got)
	}
}

// TestMoments checks mean and deviation against the plain formulas, and that old values are forgotten.
func TestMoments(t *testing.T) {
	t.Parallel()
	var m moments
	for _, x := range []float64{1, 2, 3, 4} {
		m.enter(x)
	}
	if m.mean != 2.5 || math.Abs(m.variance-1.25) > 1e-9 {
		t.Errorf("mean %v, variance %v; want 2.5, 1.25", m.mean, m.variance)
	}
	for range 300 {
		m.enter(7)
	}
	if math.Abs(m.mean-7) > 0.01 || math.Abs(m.limit()-7.7) > 0.02 {
		t.Errorf("then mean %v, limit %v; want 7 and a tenth more", m.mean, m.limit())
	}
}

// TestUsualBesideBatchWork checks that contention shows on a node where batch work always runs: after ten counts beside it,
// those are the usual, and contention that goes on does not become usual soon.
func TestUsualBesideBatchWork(t *testing.T) {
	t.Parallel()
	b := newBus()
	b.work(2000)
	b.slowedBy("job3")
	b.steps(660)
	if len(b.log) > 0 {
		t.Fatalf("with harmless batch work: %v", b.log)
	}
	b.wants["job3"], b.traffic["job3"] = 8000, 2
	b.steps(250)
	if actions := b.actions(t, "job3"); len(actions) == 0 {
		t.Error("nobody is found")
	}
	d, _ := b.f.Step(&b.View)
	if c := d[0].Cycles; c == nil || !c.Learned || c.UsualRatio > 1.4 {
		t.Errorf("measured %+v", c)
	}
}
