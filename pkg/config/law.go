package config

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Band is a range of percent: "30-50%".
type Band struct{ Low, High int }

// UnmarshalText reads a band.
func (b *Band) UnmarshalText(text []byte) error {
	wrong := errors.New("must be a range of percent like 30-50%")
	low, high, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(string(text)), "%"), "-")
	if !ok {
		return wrong
	}
	var err [2]error
	var n [2]uint64
	n[0], err[0] = strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(low), "%"), 10, 16)
	n[1], err[1] = strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	if errors.Join(err[0], err[1]) != nil || n[0] > n[1] || n[1] == 0 {
		return wrong
	}
	*b = Band{int(n[0]), int(n[1])}
	return nil
}

// poolsFollow reports whether the control loop sets the sizes of the pools.
func (c *Config) poolsFollow() bool {
	return c.Pools.Mode != Overlap && c.Mode == On && cmp.Or(c.Control.Pools.Mode, c.Control.Mode) == control.On
}

// PoolLaw returns the control loop's configuration of the pools. A pool without a band gets the
// one that Meituan's LAR uses for pools of its kind.
func (c *Config) PoolLaw() []control.PoolConfig {
	law := make([]control.PoolConfig, len(c.Pools.List))
	for i, p := range c.Pools.List {
		band := p.Band
		if band == (Band{}) {
			switch {
			case i == len(law)-1:
				band = Band{50, 80}
			case p.Name == "critical":
				band = Band{30, 50}
			default:
				band = Band{45, 60}
			}
		}
		law[i] = control.PoolConfig{Name: p.Name, Low: band.Low, High: band.High, RCFMin: p.RCF.Low, RCFMax: p.RCF.High, Min: p.Min, Memory: int64(p.Memory)}
	}
	return law
}

// longestInterval bounds control.interval. An idle node is measured once in each, and an idle
// container once in four: the failsafe waits 5 s for a measurement (failsafe.Silence), and CPU usage
// over more than 10 s counts as unknown (observe.Meter).
const longestInterval = 2 * time.Second

// checkLaw reports mistakes in the configuration of the control loop.
func (d *decoder) checkLaw(c *Config) {
	law := c.PoolLaw()
	keys := map[string]string{"low": "band", "high": "band", "rcfMin": "rcf", "rcfMax": "rcf", "min": "min"}
	ends := map[string]string{"low": "the lower end ", "high": "the upper end ", "rcfMin": "the lower end ", "rcfMax": "the upper end "}
	for i := range law {
		for _, p := range law[i].Check() {
			d.fail("pools.list["+strconv.Itoa(i)+"]."+keys[p.Key], "%s%s", ends[p.Key], p.Text)
		}
	}
	l := &c.Control
	if l.Mode == "" {
		d.fail("control.mode", "must be on, preview or off")
	}
	d.between("control.fastInterval", l.FastInterval, 50*time.Millisecond, time.Second)
	if l.Interval < l.FastInterval || l.Interval > longestInterval {
		d.fail("control.interval", "%v: must be %v to %v, because the failsafe acts after 5s without a measurement, and an idle node is measured once in each interval", l.Interval, l.FastInterval, longestInterval)
	}
	d.problems("control.pools.", l.Pools.Check())
	d.problems("control.batch.", l.Batch.Check())
	d.problems("control.burst.", l.Burst.Check())
	d.problems("control.demotion.", l.Demotion.Check())
	d.problems("control.memory.", l.Memory.Check())
	d.problems("control.cache.", l.Cache.Check())
	d.problems("control.eviction.", l.Eviction.Check())
	d.globs("control.eviction.never", l.Eviction.Never)
	d.problems("control.slo.", l.SLO.Check())
	d.problems("control.egress.", l.Egress.Check())
	d.problems("control.offer.", l.Offer.Check())
	d.problems("control.prediction.", l.Prediction.Check())
	d.problems("control.notices.", l.Notices.Check())
	d.problems("control.rules", control.CheckRules(l.Rules, c.Pools.Names()))
	d.problems("control.windows", control.CheckWindows(l.Windows, c.Pools.Names()))
	d.problems("control.hostApplications", control.CheckHostApplications(l.HostApplications))
	if len(l.HostApplications) > 0 {
		d.checkBoundsByQuota(c)
	}
	if class := l.Cache.Class; class != "" {
		if _, there := c.RDT.Classes[class]; !there {
			d.fail("control.cache.class", "%s: is not under rdt.classes%s", quote(class), known(class, slices.Sorted(maps.Keys(c.RDT.Classes))))
		}
	}
}

// checkBoundsByQuota reports what excludes host applications: their CPU is bounded by quotas alone,
// because Sluice moves no process to other CPUs that is not in a container.
func (d *decoder) checkBoundsByQuota(c *Config) {
	if c.Pools.Mode == Exclusive {
		d.fail("control.hostApplications", "need pools.mode overlap or auto: with %s, batch work has CPUs of its own, to which Sluice moves only containers", c.Pools.Mode)
	}
	if by := c.Control.Batch.By; by == control.ByCPUSet {
		d.fail("control.hostApplications", "need control.batch.by auto, quota or both: with %s, nothing would bound them", by)
	}
}

func (d *decoder) problems(at string, found []control.Problem) {
	for _, p := range found {
		d.fail(at+p.Key, "%s", p.Text)
	}
}
