package colocation

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Siblings are the cgroups of pods and of the kubelet's QoS classes below one parent. The
// kernel compares CPU weights only between siblings.
type Siblings struct {
	Batch    bool // one of the siblings is batch work
	Services []Sibling
}

// Sibling is a cgroup whose CPU weight keeps its proportion to those of the other services.
type Sibling struct {
	Path    string
	Percent int  // configured percentage of the kubelet's weight
	Class   bool // whether it is the kubelet's cgroup of Burstable or BestEffort pods, whose weight the kubelet writes each minute
}

// HasPods reports whether one of the cgroups is a pod's.
func HasPods(all []Sibling) bool {
	return slices.ContainsFunc(all, func(s Sibling) bool { return !s.Class })
}

// Rank is how a pod competes for CPU time with its siblings.
type Rank int

// These are the ranks of pods.
const (
	RankService Rank = iota // keeps its proportion to all other services
	RankLow                 // not batch work, but asked for the lowest priority
	RankBatch               // only batch containers
)

// RankOf returns the rank of a pod whose containers were placed by these requests, and its
// weight in percent of the kubelet's.
func RankOf(requests []*workload.Request) (rank Rank, percent int) {
	low, batch := 0, 0
	for _, r := range requests {
		percent = max(percent, r.Weight)
		if r.Class == workload.BE {
			batch++
		}
		if r.Identity.Set && r.Identity.Value < 0 {
			low++
		}
	}
	if percent == 0 {
		percent = 100
	}
	switch len(requests) {
	case 0:
		return RankLow, percent
	case batch:
		return RankBatch, percent
	case low:
		return RankLow, percent
	}
	return RankService, percent
}

// FindSiblings returns the cgroups that compete with each other, by the path of their parent.
func FindSiblings(inv *Inventory) map[string]*Siblings {
	all := map[string]*Siblings{}
	below := func(parent string) *Siblings {
		if all[parent] == nil {
			all[parent] = &Siblings{}
		}
		return all[parent]
	}
	holds := map[string]map[Rank]bool{} // by the kubelet's cgroup of a QoS class
	for path, pod := range podsByCgroup(inv) {
		if pod.shared {
			continue // several pods share the cgroup
		}
		parent := Above(path)
		rank, percent := RankOf(pod.requests)
		s := below(parent)
		switch rank {
		case RankBatch:
			s.Batch = true
		case RankService:
			s.Services = append(s.Services, Sibling{Path: path, Percent: percent})
		}
		if IsBestEffort(parent) || IsBurstable(parent) {
			if holds[parent] == nil {
				holds[parent] = map[Rank]bool{}
			}
			holds[parent][rank] = true
		}
	}
	for class, has := range holds {
		s := below(Above(class))
		if has[RankBatch] && (IsBestEffort(class) || !has[RankService]) {
			s.Batch = true
		} else {
			s.Services = append(s.Services, Sibling{Path: class, Percent: 100, Class: true})
		}
	}
	return all
}

type podCgroup struct {
	uid      string
	shared   bool                // it has containers of several pods
	requests []*workload.Request // requests of its placed containers
}

func podsByCgroup(inv *Inventory) map[string]*podCgroup {
	pods := map[string]*podCgroup{}
	for i := range inv.Containers {
		c := &inv.Containers[i]
		if c.PodPath == "" {
			continue
		}
		pod := pods[c.PodPath]
		if pod == nil {
			pod = &podCgroup{uid: c.Pod.UID}
			pods[c.PodPath] = pod
		}
		pod.shared = pod.shared || pod.uid != c.Pod.UID
		if c.Request != nil {
			pod.requests = append(pod.requests, c.Request)
		}
	}
	return pods
}

// LSWeights decides by how much the CPU weights of everything but batch work are raised below
// each parent. The zero value raises none.
type LSWeights struct {
	raises map[string]*qos.LSWeight // by path of the parent
}

// Parents lists the parents below which weights are raised or might be. Step needs the room
// below these.
func (w *LSWeights) Parents(siblings map[string]*Siblings) (parents []string) {
	for parent, s := range siblings {
		if s.Batch || w.raises[parent] != nil {
			parents = append(parents, parent)
		}
	}
	slices.Sort(parents)
	return parents
}

// Step puts the percentages in force into want. The configured percentage is most. The room is
// the largest percentage that the kernel allows below each of the Parents.
func (w *LSWeights) Step(now time.Time, most int, siblings map[string]*Siblings, room map[string]int, want CPUDesired) {
	if w.raises == nil {
		w.raises = map[string]*qos.LSWeight{}
	}
	clear(want.LSWeights)
	for _, parent := range w.Parents(siblings) {
		if w.raises[parent] == nil {
			w.raises[parent] = &qos.LSWeight{}
		}
		if percent := w.raises[parent].Step(now, most, room[parent], siblings[parent].Batch); percent > 100 {
			want.LSWeights[parent] = percent
		} else if percent == 0 {
			delete(w.raises, parent)
		}
	}
	for parent := range w.raises {
		if siblings[parent] == nil {
			delete(w.raises, parent)
		}
	}
}

// Reset ends all raises.
func (w *LSWeights) Reset(want CPUDesired) {
	clear(want.LSWeights)
	clear(w.raises)
}
