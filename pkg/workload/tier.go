package workload

import "errors"

// Tier is the rank of a BE pod among batch work. Pods of a lower tier get less CPU, and their memory
// is reclaimed and they are evicted, before pods of a higher one. The zero value is TierBatch.
type Tier int8

// The tiers, the lowest first.
const (
	TierFree  Tier = iota - 1 // has what the other tiers leave
	TierBatch                 // the default
	TierMid                   // goes before the others
)

var tierNames = [...]string{"free", "batch", "mid"}

func (t Tier) String() string { return tierNames[t-TierFree] }

// ParseTier parses the name of a tier.
func ParseTier(name string) (Tier, error) {
	for i, known := range tierNames {
		if name == known {
			return TierFree + Tier(i), nil
		}
	}
	return TierBatch, errors.New("must be mid, batch or free")
}

// MarshalText returns the name of the tier.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the name of a tier.
func (t *Tier) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTier(string(text))
	return err
}

// TierOfPriority returns the tier of a pod by its Kubernetes priority: that of one of Sluice's priority
// classes (configs/kubernetes/policies/priorities.yaml), or one in Koordinator's ranges for batch work
// (apis/extension/priority.go in Koordinator).
func TierOfPriority(priority int32) (t Tier, known bool) {
	switch {
	case priority == -1500, 3000 <= priority && priority <= 3999:
		return TierFree, true
	case priority == -1000, priority == -500, 5000 <= priority && priority <= 5999:
		return TierBatch, true
	case priority == -250, 7000 <= priority && priority <= 7999:
		return TierMid, true
	}
	return TierBatch, false
}

// Percent is the CPU weight of a pod of the tier in percent of a pod of TierBatch with the same grant.
func (t Tier) Percent() int { return [...]int{10, 100, 400}[t-TierFree] }

// leastWeighed is the grant by which a pod without one is weighed, in thousandths of a CPU.
const leastWeighed MilliCPU = 100

// mostWeight keeps sums of weights far from overflow.
const mostWeight MilliCPU = 1_000_000

// Weight returns the weight by which a pod of the tier shares CPU with the other pods of batch work: its
// grant times the tier's percentage. Several pods of one tenant without a grant weigh as much as one,
// so that their number gains nothing; ungranted is how many they are, and 0 if the pod has a grant. The
// weight is at least 1, and grows no more above 1,000 CPUs.
func (t Tier) Weight(grant MilliCPU, ungranted int) int64 {
	grant = max(grant, leastWeighed) / MilliCPU(max(ungranted, 1))
	return max(1, int64(min(grant, mostWeight))*int64(t.Percent())/100)
}
