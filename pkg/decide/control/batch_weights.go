package control

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// BatchWeights are the weights by which the pods of batch work share what they have together: by tier and by
// grant of CPU. The pods of a namespace and tier without a grant weigh as much as one pod, so that their number
// gains nothing.
type BatchWeights struct {
	ungranted map[tenant]int // pods without a grant
}

// tenant is a namespace's batch work of one tier.
type tenant struct {
	namespace string
	tier      workload.Tier
}

func tenantOf(p *Pod) tenant {
	namespace, _, _ := strings.Cut(p.Ref, "/")
	return tenant{namespace, p.Tier}
}

// Count counts the pods without a grant. Of speaks of the view that was counted last.
func (w *BatchWeights) Count(v *View) {
	if w.ungranted == nil {
		w.ungranted = map[tenant]int{}
	}
	clear(w.ungranted)
	for i := range v.Pods {
		if p := &v.Pods[i]; p.Class == workload.BE && grantOf(v, p) == 0 {
			w.ungranted[tenantOf(p)]++
		}
	}
}

// Of returns the weight of a pod of batch work; see Tier.Weight.
func (w *BatchWeights) Of(v *View, p *Pod) int64 {
	if grant := grantOf(v, p); grant > 0 {
		return p.Tier.Weight(grant, 0)
	}
	return p.Tier.Weight(0, w.ungranted[tenantOf(p)])
}

// grantOf returns what the batch containers of a pod were granted.
func grantOf(v *View, p *Pod) (grant workload.MilliCPU) {
	for i := p.First; i < p.First+p.Count; i++ {
		if c := &v.Containers[i]; c.Class == workload.BE {
			grant += c.Request
		}
	}
	return grant
}
