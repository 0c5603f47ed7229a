package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The highest pool can take CPUs from those below it in time while it is small in comparison:
// as long as it causes at most a fifth of the online load.
const (
	outgrownFrom  = 0.20
	outgrownTo    = 0.18
	outgrownTime  = 5 * time.Minute // time constant of the means; advice is given after so long at the earliest
	outgrownLeast = 500             // thousandths of a CPU of online load, below which shares say nothing
)

// Outgrown watches the share of the highest pool in the usage of all pools but the batch pool.
// It needs at least three pools.
type Outgrown struct {
	interval      time.Duration
	watch         stopwatch
	first, online float64 // means in thousandths of a CPU
	watched       time.Duration
	reported      bool
	percent       float64 // share for which text was written
	text          string
	advice        []Advice
}

// NewOutgrown returns the watch over the highest pool. Step must be called once per interval.
func NewOutgrown(interval time.Duration) *Outgrown { return &Outgrown{interval: interval} }

// Step returns advice where the highest pool has outgrown its share. The list is valid until
// the next step.
func (o *Outgrown) Step(v *View) []Advice {
	passed := o.watch.lap(v.Now, o.interval)
	o.advice = o.advice[:0]
	if len(v.Pools) < 3 {
		return nil
	}
	if first, online, ok := onlineUse(v, o.interval); ok {
		part := min(1, passed.Seconds()/outgrownTime.Seconds())
		if o.watched == 0 {
			part = 1
		}
		o.first += (float64(first) - o.first) * part
		o.online += (float64(online) - o.online) * part
		o.watched += passed
	}
	if o.watched < outgrownTime {
		return nil
	}
	share := 0.0
	if o.online >= outgrownLeast {
		share = o.first / o.online
	}
	o.reported = share > outgrownFrom || o.reported && share >= outgrownTo
	if !o.reported {
		o.text = ""
		return nil
	}
	if percent := math.Round(share * 100); o.text == "" || percent != o.percent {
		o.percent = percent
		o.text = fmt.Sprintf("it uses %s of the %s CPUs of online work, %s: above a fifth there is too little below it to take from when it needs more; keep it for the few pods that need it, and move the others to pool %s",
			inCPUs(workload.MilliCPU(o.first)), inCPUs(workload.MilliCPU(o.online)), inPercent(share), v.Pools[1].Name)
	}
	o.advice = append(o.advice, Advice{"pool " + v.Pools[0].Name, o.text})
	return o.advice
}

// onlineUse returns the usage of the highest pool and that of all pools but the batch pool. It
// returns false if one is unknown. A pool that was never measured is empty.
func onlineUse(v *View, interval time.Duration) (first, online workload.MilliCPU, ok bool) {
	for i := range v.Pools[:len(v.Pools)-1] {
		p := &v.Pools[i]
		if p.At.IsZero() {
			continue
		}
		if !known(v.Now, p.At, interval) {
			return 0, 0, false
		}
		if i == 0 {
			first = p.Usage
		}
		online, ok = online+p.Usage, true
	}
	return first, online, ok
}
