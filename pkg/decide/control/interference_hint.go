package control

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Suspect is a BE pod with its share of a resource's usage by all BE pods.
type Suspect struct {
	Pod           int     `json:"-"`             // in View.Pods
	Ref           string  `json:"pod"`           // Batch pod as "namespace/name".
	UsageFraction float64 `json:"usageFraction"` // Share of what all batch pods used of the resource, 0 to 1.
}

// hintKind is the resource by which BE pods are compared.
type hintKind int

const (
	ofCPU hintKind = iota
	ofMemory
	ofIO
	hintKinds
)

// The resources for which pods contend without waiting for them. Suspects come from what resctrl counts, or, where it counts
// nothing, from CPU usage that rises and falls with the cycles per instruction of the victim.
const (
	ofBandwidth hintKind = hintKinds + iota
	ofCache
	ofCorrelation
)

// users are the largest users of a resource, in descending order.
type users struct {
	top [3]Suspect // the fields hold amounts until share divides them by the sum
	n   int
	all float64
}

func (u *users) enter(pod int, ref string, amount float64) {
	if amount <= 0 {
		return
	}
	u.all += amount
	one := Suspect{pod, ref, amount}
	for i := range u.top {
		if i == u.n {
			u.top[i] = one
			u.n++
			return
		}
		if one.UsageFraction > u.top[i].UsageFraction {
			one, u.top[i] = u.top[i], one
		}
	}
}

// share divides the amounts by their sum.
func (u *users) share() {
	for i := range u.top[:u.n] {
		u.top[i].UsageFraction /= u.all
	}
}

func (u *users) most() []Suspect { return u.top[:u.n] }

// batch sums up the usage of BE pods and host applications, and returns their CPU usage. It is
// not sure if the usage of one is unknown now, and not complete if there is a container whose
// usage can't be measured: nobody knows then whether the load is light.
func (f *Interference) batch(v *View) (cpu workload.MilliCPU, complete, sure bool) {
	f.users = [hintKinds]users{}
	complete, sure = true, true
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		var use [hintKinds]float64
		for k := range v.Containers[p.First : p.First+p.Count] {
			c := &v.Containers[p.First+k]
			if c.Unseen {
				complete = false
				continue
			}
			if !uses(v, c, f.interval) {
				sure = false
				continue
			}
			cpu += c.CPU.Usage
			use[ofCPU] += float64(c.CPU.Usage)
			if knownSlowly(v.Now, c.Container.Memory.At, f.interval) {
				use[ofMemory] += float64(c.Container.Memory.Current)
			}
			if knownSlowly(v.Now, c.IO.At, f.interval) {
				use[ofIO] += c.IO.ReadBPS + c.IO.WriteBPS
			}
		}
		for r := range hintKinds {
			f.users[r].enter(i, p.Ref, use[r])
		}
	}
	for i := range v.HostApplications {
		if u := &v.HostApplications[i]; known(v.Now, u.CPU.At, f.interval) {
			cpu += u.CPU.Usage
		} else {
			sure = false
		}
	}
	for r := range hintKinds {
		f.users[r].share()
	}
	return cpu, complete, sure
}

// reportSuffering returns the decision that reports a pod as suffering.
func (f *Interference) reportSuffering(v *View, p *Pod, s *suffering, part int, used workload.MilliCPU) Decision {
	name, r := strainName(part)
	calm, excess := *s.calm.part(part), *s.excess.part(part)
	base := "its calm baseline of " + inPercent(calm)
	if s.learned[part] < learnTime {
		base = "the " + inPercent(calm) + " that were the least seen, since it was never alone for long"
	}
	why := fmt.Sprintf("while BE uses %s of %s CPUs, its %s is %s above %s",
		inCPUs(used), inCPUs(v.Allocatable), name, inPercent(excess), base)
	if hints := f.users[r].most(); len(hints) > 0 {
		texts := make([]string, len(hints))
		for i, h := range hints {
			texts[i] = h.Ref + " (" + inPercent(h.UsageFraction) + ")"
		}
		why += fmt.Sprintf("; of all that BE used of %s then, most was used by %s: a hint, no proof",
			[hintKinds]string{"CPU", "memory", "disks"}[r], strings.Join(texts, ", "))
	}
	return Decision{
		Controller: "interference", Object: p.Ref, Action: "suffers", From: inPercent(calm), To: inPercent(calm + excess), Why: why,
		Facts: []Fact{{"calm", calm}, {"excess", excess}, {"be_cpus", float64(used) / 1000}},
	}
}

// reportEnd returns the decision that reports the end of a pod's suffering, because its excess is below ends.
func (f *Interference) reportEnd(p *Pod, name string, calm, excess, ends float64) Decision {
	return Decision{
		Controller: "interference", Object: p.Ref, Action: "calm", To: inPercent(calm + excess),
		Why:   fmt.Sprintf("its %s is no more than %s above its calm baseline again", name, inPercent(ends)),
		Facts: []Fact{{"calm", calm}, {"excess", excess}},
	}
}
