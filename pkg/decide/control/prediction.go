package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	soon = 10 * time.Minute // for which pools and the short-term offer look ahead
	long = 24 * time.Hour   // for which the long-term offer does
)

// Forecasts are the peaks that decisions count with. An amount that is not trusted is 0.
type Forecasts struct {
	Pools []workload.MilliCPU // peak of the next ten minutes, by pool; may be shorter than the list of pools
	Soon  Amount              // peak of the next ten minutes of all but batch work, the system included
	Long  Amount              // the same for the next day
}

// pool returns the forecast of a pool; 0 without one.
func (f *Forecasts) pool(i int) workload.MilliCPU {
	if i < len(f.Pools) {
		return f.Pools[i]
	}
	return 0
}

// Prediction learns the usage of the node, of its pools, classes and workloads, and forecasts
// their peaks; see pkg/decide/predict.
type Prediction struct {
	cfg       PredictionConfig
	interval  time.Duration
	set       *predict.Set
	forecasts Forecasts

	pods    perID[podWorkload]
	uses    map[string]*podsUse // by workload
	free    []*podsUse          // that no workload of this step needed
	classes [workload.System]podsUse

	overAsks   []PeakForecast
	comparedAt time.Time // when overAsks was made
}

// podWorkload is the name of a pod's workload.
type podWorkload struct{ name, owner string }

// podsUse is what several pods use together.
type podsUse struct {
	cpu, memory float64
	request     workload.MilliCPU
	pods        int
	unknown     bool // for one of the pods
}

// NewPrediction returns the forecasts that go on with what an earlier run has learned; nil for
// nothing. Step must be called once per interval.
func NewPrediction(cfg PredictionConfig, interval time.Duration, set *predict.Set) *Prediction {
	if set == nil {
		set = predict.NewSet(cfg.Methods())
	}
	p := &Prediction{cfg: cfg, interval: interval, uses: map[string]*podsUse{}}
	p.Adopt(set)
	return p
}

// Methods returns how peaks are forecast.
func (c *PredictionConfig) Methods() predict.Config {
	m := predict.DefaultConfig()
	m.CPU.Percentile, m.CPU.HalfLife = float64(c.CPUPercentile)/100, c.CPUHalfLife
	m.Memory.Percentile, m.Memory.HalfLife = float64(c.MemoryPercentile)/100, c.MemoryHalfLife
	m.Margin, m.Trust = 1+float64(c.MarginPercent)/100, float64(c.ConfidencePercent)/100
	return m
}

// Check returns the values that are out of range.
func (c *PredictionConfig) Check() []Problem {
	var l limits
	l.percent("cpuPercentile", c.CPUPercentile, 50, 100)
	l.percent("memoryPercentile", c.MemoryPercentile, 50, 100)
	l.time("cpuHalfLife", c.CPUHalfLife, time.Hour, 30*24*time.Hour)
	l.time("memoryHalfLife", c.MemoryHalfLife, time.Hour, 30*24*time.Hour)
	l.percent("marginPercent", c.MarginPercent, 0, 100)
	l.percent("confidencePercent", c.ConfidencePercent, 0, 100)
	return l
}

// Adopt replaces what was learned by what an earlier run had learned.
func (p *Prediction) Adopt(set *predict.Set) {
	p.set = set
	p.set.Configure(p.cfg.Methods())
}

// Set returns what was learned.
func (p *Prediction) Set() *predict.Set { return p.set }

// Step learns from the view, and from the demand of all but batch work if it is known. It returns
// the forecasts, which are valid until the next step.
func (p *Prediction) Step(v *View, demand Amount, measured bool) *Forecasts {
	if measured {
		p.enter(v, predict.Node, "", demand)
	}
	for i := range max(0, len(v.Pools)-1) {
		if pool := &v.Pools[i]; known(v.Now, pool.At, p.interval) {
			p.set.Add(v.Now, poolKey(pool.Name), float64(pool.Usage)/1000)
		}
	}
	p.enterPods(v)
	p.set.Search(v.Now)
	p.compareRequests(v.Now)

	f := &p.forecasts
	f.Pools = f.Pools[:0]
	for i := range max(0, len(v.Pools)-1) {
		f.Pools = append(f.Pools, milli(p.peak(v.Now, poolKey(v.Pools[i].Name), soon)))
	}
	f.Soon, f.Long = p.demand(v.Now, soon), p.demand(v.Now, long)
	return f
}

func poolKey(name string) predict.Key {
	return predict.Key{Kind: predict.Pool, Name: name, Resource: predict.CPU}
}

func (p *Prediction) enter(v *View, kind predict.Kind, name string, use Amount) {
	p.set.Add(v.Now, predict.Key{Kind: kind, Name: name, Resource: predict.CPU}, float64(use.CPU)/1000)
	p.set.Add(v.Now, predict.Key{Kind: kind, Name: name, Resource: predict.Memory}, float64(use.MemoryBytes))
}

// enterPods enters the usage of the classes, and of the workloads beside batch work. One of whose
// pods the usage is unknown is left out for this step.
func (p *Prediction) enterPods(v *View) {
	for name, use := range p.uses {
		p.free = append(p.free, use)
		delete(p.uses, name)
	}
	clear(p.classes[:])
	p.pods.begin()
	for i := range v.Pods {
		pod := &v.Pods[i]
		if pod.Class == workload.System {
			continue
		}
		class := pod.Class
		if class == workload.Unclassified { // as the annotations' rules say
			class = workload.LS
		}
		p.classes[class].add(v, pod, p.interval)
		if pod.Class != workload.BE {
			p.use(p.pods.at(pod.UID).of(pod, v.APIPods[pod.UID].Owner)).add(v, pod, p.interval)
		}
	}
	p.pods.end()
	for name, use := range p.uses {
		p.enterUse(v, predict.Workload, name, use)
	}
	for i := range p.classes {
		if use, class := &p.classes[i], workload.Class(i); use.pods > 0 || p.set.Has(classKey(class, predict.CPU)) {
			p.enterUse(v, predict.Class, class.String(), use)
		}
	}
}

func classKey(c workload.Class, r predict.Resource) predict.Key {
	return predict.Key{Kind: predict.Class, Name: c.String(), Resource: r}
}

func (p *Prediction) enterUse(v *View, kind predict.Kind, name string, use *podsUse) {
	if !use.unknown {
		p.enter(v, kind, name, Amount{workload.MilliCPU(use.cpu), int64(use.memory)})
	}
}

// use returns the use of a workload in this step.
func (p *Prediction) use(name string) *podsUse {
	use := p.uses[name]
	if use != nil {
		return use
	}
	if last := len(p.free) - 1; last >= 0 {
		use, p.free = p.free[last], p.free[:last]
		*use = podsUse{}
	} else {
		use = &podsUse{}
	}
	p.uses[name] = use
	return use
}

func (u *podsUse) add(v *View, pod *Pod, interval time.Duration) {
	u.pods++
	for k := range v.Containers[pod.First : pod.First+pod.Count] {
		c := &v.Containers[pod.First+k]
		u.request += c.Request
		if c.Unseen {
			continue
		}
		if !uses(v, c, interval) || !knownSlowly(v.Now, c.Container.Memory.At, interval) {
			u.unknown = true
		}
		u.cpu += float64(c.CPU.Usage)
		u.memory += float64(c.Container.Memory.WorkingSet)
	}
}

// of returns the name of the pod's workload: "namespace/name" of its owner if that is known, or
// of the pod itself, without what is different in each pod of an owner.
func (w *podWorkload) of(pod *Pod, owner string) string {
	if w.name == "" || w.owner != owner {
		w.name, w.owner = workload.NameOf(pod.Ref, owner), owner
	}
	return w.name
}

// demand returns the trusted peaks of all but batch work.
func (p *Prediction) demand(now time.Time, horizon time.Duration) Amount {
	return Amount{
		CPU:         milli(p.peak(now, predict.Key{Kind: predict.Node, Resource: predict.CPU}, horizon)),
		MemoryBytes: int64(p.peak(now, predict.Key{Kind: predict.Node, Resource: predict.Memory}, horizon)),
	}
}

// peak returns a peak that is trusted, or 0.
func (p *Prediction) peak(now time.Time, key predict.Key, horizon time.Duration) float64 {
	if f := p.set.Forecast(now, key, horizon); f.Trusted {
		return f.Peak
	}
	return 0
}

func milli(cpus float64) workload.MilliCPU { return workload.MilliCPU(cpus * 1000) }
