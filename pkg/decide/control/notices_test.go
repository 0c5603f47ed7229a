package control

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// foreseen is a Forecaster that a test sets: what all others will use from a time on.
type foreseen struct {
	from  time.Time
	pools map[string]float64 // in CPUs
	all   Amount
}

func (f *foreseen) sees(now time.Time, horizon time.Duration) bool {
	return now.Add(horizon).After(f.from)
}

func (f *foreseen) peak(now time.Time, key predict.Key, horizon time.Duration) float64 {
	if !f.sees(now, horizon) {
		return 0
	}
	return f.pools[key.Name]
}

func (f *foreseen) demand(now time.Time, horizon time.Duration) Amount {
	if !f.sees(now, horizon) {
		return Amount{}
	}
	return f.all
}

// noticed is a node with 16 CPUs and 64 GiB on which batch work holds 10 GiB, with notices.
type noticed struct {
	*scene
	notices *Notices
	in      NoticeInputs
	told    Notice
	said    []Decision
}

func newNoticed(change func(*Config), exclusive bool) *noticed {
	s := newScene(16)
	s.Capacity, s.Isolated, s.ThreadsPerCore = 16000, true, 2
	s.BatchMemory = Held{Current: 12 * testGiB, Cache: 2 * testGiB}
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	law := []PoolConfig{{Name: "critical", High: 50}, {Name: "online", High: 60}, {Name: "batch", Min: 2}}
	return &noticed{scene: s, notices: NewNotices(&cfg, law, exclusive), in: NoticeInputs{Measured: true, Demand: Amount{4000, 10 * testGiB}}}
}

// run steps once a second for some time.
func (n *noticed) run(d time.Duration) {
	for range d / time.Second {
		v := n.second()
		n.BatchMemory.At = n.Now
		for i := range n.Pools {
			n.Pools[i].At = n.Now
		}
		var decisions []Decision
		n.told, decisions = n.notices.Step(v, n.in)
		n.said = append(n.said, decisions...)
	}
}

// gave returns the actions of the decisions since the last call.
func (n *noticed) gave() string {
	var words []string
	for _, d := range n.said {
		words = append(words, strings.TrimSpace(d.Action+" "+d.To))
	}
	n.said = nil
	return strings.Join(words, ", ")
}

// A forecast gives a notice with its beginning, which holds until the squeeze has been over for some
// time. It is one decision.
func TestNoticeByForecast(t *testing.T) {
	t.Parallel()
	n := newNoticed(nil, false)
	rise := n.Now.Add(20 * time.Minute)
	n.in.Forecast = &foreseen{from: rise, all: Amount{CPU: 15850}} // leaves 0.15 of 16 CPUs, less than the floor of 0.2
	if n.run(10 * time.Minute); n.told.Kind != "" || n.notices.WhyClosed() != "" {
		t.Fatalf("before the forecast sees it: %+v", n.told)
	}
	if n.run(29 * time.Second); n.gave() != "" {
		t.Error("a notice by a forecast of a moment")
	}
	if n.run(5 * time.Second); n.gave() != "give squeeze" || n.told.Cause != NoticeByForecast || n.told.BeginsAt.Sub(rise).Abs() > time.Minute || n.notices.WhyClosed() == "" {
		t.Fatalf("%+v", n.told)
	}
	if want := "within 10m0s, all others are expected to need 15.9 CPUs, beside which batch work has its floor of 0.2"; n.told.Why != want {
		t.Errorf("%q, want %q", n.told.Why, want)
	}
	begins := n.told.BeginsAt
	n.in.Demand.CPU = 15850
	if n.run(time.Hour); n.gave() != "" || !n.told.BeginsAt.Equal(begins) || n.told.EndsAt.Before(n.Now) || n.told.EndsAt.After(n.Now.Add(20*time.Minute)) {
		t.Errorf("an hour of squeeze: %+v", n.told)
	}
	n.in.Forecast, n.in.Demand.CPU = &foreseen{from: n.Now.Add(-time.Hour), all: Amount{CPU: 14000}}, 5000
	if n.run(4 * time.Minute); n.told.Kind == "" {
		t.Error("withdrawn at once")
	}
	n.run(8 * time.Minute)
	if d := n.said; len(d) != 1 || d[0].Action != "withdraw" || !strings.HasPrefix(d[0].Why, "it came and is over: ") || len(d[0].Facts) == 0 {
		t.Errorf("%+v", d)
	}
	if got := n.notices.Counts(); got != (NoticeCounts{Given: 1, Kept: 1}) || n.notices.WhyClosed() != "" {
		t.Errorf("counts %+v", got)
	}
}

// What does not come is a false alarm, whether the forecast changes or is trusted no longer.
func TestFalseNotice(t *testing.T) {
	t.Parallel()
	n := newNoticed(nil, false)
	n.in.Forecast = &foreseen{all: Amount{CPU: 16000}}
	n.run(time.Minute)
	n.in.Forecast = &foreseen{}
	n.run(6 * time.Minute)
	if n.gave() != "give squeeze, withdraw" || n.notices.Counts() != (NoticeCounts{Given: 1, False: 1}) {
		t.Errorf("%+v", n.notices.Counts())
	}
	n.in.Forecast = &foreseen{all: Amount{CPU: 16000}}
	n.run(time.Minute)
	n.in.Forecast = nil
	n.run(6 * time.Minute)
	if last := n.said[len(n.said)-1]; !strings.Contains(last.Why, "no forecast to be trusted") || n.notices.Counts().False != 2 {
		t.Errorf("%+v", last)
	}
}

func TestNoticeOfWhat(t *testing.T) {
	t.Parallel()
	off := func(c *Config) { c.Notices.Within = 0 }
	for name, test := range map[string]struct {
		change    func(*Config)
		exclusive bool
		stays     bool // batch work does not yield at once
		forecast  foreseen
		evicts    bool
		want      NoticeKind
	}{
		"enough is left":                      {forecast: foreseen{all: Amount{CPU: 15300, MemoryBytes: 34 * testGiB}}, evicts: true},
		"no notices":                          {change: off, forecast: foreseen{all: Amount{CPU: 16000}}},
		"memory, with eviction":               {forecast: foreseen{all: Amount{MemoryBytes: 36 * testGiB}}, evicts: true, want: NoticeEvict}, // 70 % are 44.8 GiB, and batch work holds 10
		"memory, without eviction":            {forecast: foreseen{all: Amount{MemoryBytes: 36 * testGiB}}, want: NoticeSqueeze},
		"CPU evicts nobody":                   {forecast: foreseen{all: Amount{CPU: 16000}}, evicts: true, want: NoticeSqueeze},
		"the lower threshold":                 {stays: true, forecast: foreseen{all: Amount{CPU: 10300}}, want: NoticeSqueeze}, // 65 % are 10.4
		"a configured threshold":              {change: func(c *Config) { c.Batch.ThresholdPercent = 60 }, forecast: foreseen{all: Amount{CPU: 9500}}, want: NoticeSqueeze},
		"pools that fit":                      {exclusive: true, forecast: foreseen{pools: map[string]float64{"online": 8.4}}}, // 14 CPUs, and 2 for batch work
		"pools that do not":                   {exclusive: true, forecast: foreseen{pools: map[string]float64{"online": 8.5}}, want: NoticeSqueeze},
		"a pool without a forecast has load":  {exclusive: true, forecast: foreseen{pools: map[string]float64{"critical": 6.5}}, want: NoticeSqueeze},
		"the node's CPU is not that of pools": {exclusive: true, forecast: foreseen{all: Amount{CPU: 16000}}},
	} {
		n := newNoticed(test.change, test.exclusive)
		n.Pools[1].Usage, n.Isolated = 1000, !test.stays
		n.in.Forecast, n.in.Evicts = &test.forecast, test.evicts
		if n.run(time.Minute); n.told.Kind != test.want {
			t.Errorf("%s: %+v, want %q", name, n.told, test.want)
		}
	}
}

// While the node is not measured, a notice stays as it is.
func TestNoticeWithoutMeasurement(t *testing.T) {
	t.Parallel()
	n := newNoticed(nil, false)
	n.in.Forecast = &foreseen{all: Amount{CPU: 16000}}
	n.run(time.Minute)
	n.in.Measured, n.in.Forecast = false, nil
	if n.run(time.Hour); n.told.Kind != NoticeSqueeze || n.gave() != "give squeeze" {
		t.Errorf("%+v", n.told)
	}
}

// A window and the switch give a notice as well: what is planned comes before what is expected, and
// an eviction before a squeeze.
func TestPlannedNotices(t *testing.T) {
	t.Parallel()
	n := newNoticed(nil, false)
	n.in.Forecast = &foreseen{all: Amount{CPU: 16000}}
	n.run(time.Minute)
	at := n.Now.Add(5 * time.Minute)
	n.in.Planned = Notice{Kind: NoticeSqueeze, Cause: NoticeByWindow, BeginsAt: at, EndsAt: at.Add(time.Hour), Why: "window"}
	n.run(time.Minute)
	if n.gave() != "give squeeze, give squeeze" || n.told != n.in.Planned {
		t.Errorf("%+v", n.told)
	}
	n.in.Planned = Notice{Kind: NoticeEvict, Cause: NoticeBySwitch, BeginsAt: n.Now, Why: "switch"}
	n.run(time.Second)
	begins := n.told.BeginsAt
	n.in.Planned.BeginsAt = n.Now.Add(time.Hour)
	n.run(time.Hour)
	if n.gave() != "give evict" || !n.told.BeginsAt.Equal(begins) || !n.told.EndsAt.After(n.Now) || n.told.EndsAt.After(n.Now.Add(20*time.Minute)) {
		t.Errorf("%+v", n.told)
	}
	n.in.Planned, n.in.Forecast = Notice{}, nil
	if n.run(10 * time.Minute); n.gave() != "give squeeze, withdraw" {
		t.Errorf("%+v", n.told)
	}
}

func TestWindowsComing(t *testing.T) {
	t.Parallel()
	day := Window{From: "09:00", To: "18:00", Evict: true}
	slow := Window{From: "08:00", To: "20:00", Percent: 40, Labels: map[string]string{"app": "shop"}}
	for name, test := range map[string]struct {
		windows []Window
		at      string
		to      Switch
		want    string // kind, cause, beginning, end
	}{
		"too early":               {[]Window{day}, "08:49", Switch{}, ""},
		"ten minutes before":      {[]Window{day}, "08:50", Switch{}, "evict window 09:00 18:00"},
		"in it":                   {[]Window{day}, "12:00", Switch{}, "evict window 09:00 18:00"},
		"at its end":              {[]Window{day}, "18:00", Switch{}, ""},
		"with a grace":            {[]Window{{From: "09:00", To: "18:00", Grace: time.Hour}}, "08:00", Switch{}, "squeeze window 09:00 18:00"},
		"the strictest":           {[]Window{slow, day}, "08:55", Switch{}, "evict window 09:00 18:00"},
		"not of these pods":       {[]Window{slow}, "12:00", Switch{}, ""},
		"while the switch is on":  {[]Window{day}, "12:00", Switch{To: SwitchOn}, ""},
		"that will be off again":  {[]Window{day}, "12:00", Switch{To: SwitchOn, Until: clockAt(t, "2026-03-06 12:05:00 +0000")}, "evict window 12:05 18:00"},
		"that stays on until end": {[]Window{day}, "17:55", Switch{To: SwitchOn, Until: clockAt(t, "2026-03-06 18:01:00 +0000")}, ""},
		"off":                     {nil, "12:00", Switch{To: SwitchOff}, "squeeze switch 12:00 -"},
		"off with eviction":       {[]Window{day}, "12:00", Switch{To: SwitchOff, Evict: true, Until: clockAt(t, "2026-03-06 13:00:00 +0000")}, "evict switch 12:00 13:00"},
	} {
		w := newWindows(t, "UTC", test.windows...)
		v := View{Now: clockAt(t, "2026-03-06 "+test.at+":00 +0000")}
		w.Step(&v, test.to)
		got, n := "", w.Coming(&v, test.to, 10*time.Minute)
		if n.Kind != "" {
			end := "-"
			if !n.EndsAt.IsZero() {
				end = n.EndsAt.UTC().Format("15:04")
			}
			got = strings.Join([]string{string(n.Kind), string(n.Cause), n.BeginsAt.UTC().Format("15:04"), end}, " ")
		}
		if got != test.want || n.Kind != "" && n.Why == "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Whatever is forecast, batch work keeps its budget, nobody is evicted, no offer rises, and a notice
// holds for a bounded time from now on. It is given once in some minutes at most.
func TestNoticesAreHarmless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := newNoticed(nil, rapid.Bool().Draw(t, "exclusive"))
		n.Isolated = rapid.Bool().Draw(t, "yields")
		job := n.scene.run("job", workload.BE, 1000, 0)
		cfg := DefaultConfig()
		cfg.Eviction.By = EvictKubernetes
		var twins [2]struct {
			batch    *Batch
			offering *Offering
			eviction *Eviction
		}
		for i := range twins {
			twins[i].batch, twins[i].offering = NewBatch(cfg.Batch, time.Second), newOffering(Peaks{})
			twins[i].eviction = NewEviction(cfg.Eviction, On, time.Second)
		}
		seconds := 0
		amount := rapid.Custom(func(t *rapid.T) Amount {
			return Amount{workload.MilliCPU(rapid.IntRange(0, 40000).Draw(t, "cpu")), rapid.Int64Range(0, 100*testGiB).Draw(t, "memory")}
		})
		for range rapid.IntRange(1, 40).Draw(t, "turns") {
			n.in.Forecast = nil
			if rapid.Bool().Draw(t, "forecast") {
				n.in.Forecast = &foreseen{from: n.Now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "from")) * time.Minute), all: amount.Draw(t, "expected"),
					pools: map[string]float64{"critical": rapid.Float64Range(0, 40).Draw(t, "critical"), "online": rapid.Float64Range(0, 40).Draw(t, "online")}}
			}
			n.in.Measured, n.in.Demand = rapid.IntRange(0, 9).Draw(t, "measured") > 0, amount.Draw(t, "demand")
			if rapid.IntRange(0, 19).Draw(t, "jump") == 0 {
				n.Now = n.Now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "jump by")) * time.Second)
			}
			n.Node.CPU.Usage, job.CPU.Usage = n.in.Demand.CPU, 500
			for range rapid.IntRange(1, 90).Draw(t, "seconds") {
				n.run(time.Second)
				seconds++
				checkHarmless(t, n, func(v *View, twin int) (Budget, Offer, *Victim) {
					budget, _ := twins[twin].batch.Step(v)
					offer, _ := twins[twin].offering.Step(v, nil)
					evict, _ := twins[twin].eviction.Step(v, 0, nil)
					return budget, offer, evict.Evict
				})
			}
		}
		if c := n.notices.Counts(); c.Kept+c.False > c.Given || c.Given > 1+seconds/int((withdrawAfter+noticeAfter)/time.Second) {
			t.Fatalf("in %d seconds: %+v", seconds, c)
		}
	})
}

// checkHarmless compares a step with and without the notice.
func checkHarmless(t *rapid.T, n *noticed, step func(v *View, twin int) (Budget, Offer, *Victim)) {
	if told := n.told; told.Kind == NoticeEvict || told.Kind != "" && n.in.Measured && (told.EndsAt.Before(n.Now) || told.EndsAt.After(n.Now.Add(21*time.Minute)) || told.BeginsAt.After(n.Now.Add(10*time.Minute))) {
		t.Fatalf("at %v: %+v", n.Now, told)
	}
	n.Batch = BatchState{}
	budget, offer, _ := step(&n.View, 0)
	n.Batch = BatchState{Closed: n.notices.WhyClosed() != "", Why: n.notices.WhyClosed()}
	closed, less, victim := step(&n.View, 1)
	floor := DefaultConfig().Batch
	if closed != budget || !closed.Unlimited && !closed.Hold && closed.Amount < floor.Floor(&n.View) || victim != nil {
		t.Fatalf("budget %+v, without a notice %+v; evicts %+v", closed, budget, victim)
	}
	if n.Batch.Closed && (less.ShortTerm != Amount{} || less.LongTerm != Amount{}) {
		t.Fatalf("in spite of the notice, the offer is %+v; without one %+v", less, offer)
	}
	if less.ShortTerm.CPU-offer.ShortTerm.CPU > max(offerCPU, offer.ShortTerm.CPU/5) { // an offer does not change for less than a tenth
		t.Fatalf("after the notice, the offer is %+v, without one %+v", less, offer)
	}
}

func TestNoticesCheck(t *testing.T) {
	t.Parallel()
	for within, ok := range map[time.Duration]bool{0: true, time.Minute: true, time.Hour: true, time.Second: false, -time.Minute: false, 2 * time.Hour: false} {
		if got := (&NoticesConfig{Within: within}).Check(); (len(got) == 0) != ok {
			t.Errorf("%v: %v", within, got)
		}
	}
}

func TestNoticesAllocateNothing(t *testing.T) {
	n := NewNotices(new(DefaultConfig()), []PoolConfig{{High: 50}, {High: 60}, {Min: 2}}, false)
	p := NewPrediction(DefaultConfig().Prediction, time.Second, nil)
	s := fiveHundred()
	s.CPUs = make([]observe.CPU, 64)
	stepsWithout(t, s, func(v *View) {
		n.Step(v, NoticeInputs{Measured: true, Demand: Amount{CPU: 5000, MemoryBytes: testGiB}, Forecast: p})
	})
}

func BenchmarkNotices(b *testing.B) {
	n := NewNotices(new(DefaultConfig()), []PoolConfig{{High: 50}, {High: 60}, {Min: 2}}, false)
	p := NewPrediction(DefaultConfig().Prediction, time.Second, nil)
	benchSteps(b, func(v *View) {
		p.enter(v, predict.Node, "", Amount{CPU: 5000, MemoryBytes: testGiB})
		n.Step(v, NoticeInputs{Measured: true, Demand: Amount{CPU: 5000, MemoryBytes: testGiB}, Forecast: p})
	})
}
