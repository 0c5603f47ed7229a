package qos

import "slices"

// Note says that this kernel provides something only in a lesser way than asked for, or not at
// all.
type Note struct {
	Key     string // annotation key that asks for it: "cpu-burst"
	Missing bool   // whether it is not provided at all
	Text    string // what the kernel lacks, and what is done instead
}

// These are the keys of notes: Sluice's annotation keys without their domain, and names for
// what only the node's configuration asks for.
const (
	burstKey     = "cpu-burst"
	identityKey  = "cpu-identity"
	coreSchedKey = "core-sched"
	memoryKey    = "memory-qos"
	ioKey        = "io"
	batchKey     = "batch-resources"
	weightKey    = "weight"
	netClassKey  = "net-class"
	pageCacheKey = "page-cache"
)

func (t *tuner) note(i int, key, text string) {
	t.Notes[i] = append(t.Notes[i], Note{Key: key, Text: text})
}

func (t *tuner) missing(i int, key, text string) {
	t.Notes[i] = append(t.Notes[i], Note{Key: key, Missing: true, Text: text})
}

// Missing reports whether a container can't have what a key asks for. An example is core-sched
// where group identity is in force.
func Missing(notes []Note, key string) bool {
	return slices.ContainsFunc(notes, func(n Note) bool { return n.Missing && n.Key == key })
}

// Unmet lists, one sentence each, what a container requires and this node does not have.
func Unmet(required []string, notes []Note) []string {
	var unmet []string
	for _, key := range required {
		for _, n := range notes {
			if n.Missing && n.Key == key {
				unmet = append(unmet, key+" is required and not to be had on this node: "+n.Text)
			}
		}
	}
	return unmet
}
