package qos

import "slices"

// Note says that something asked for is had in another way than the best, or not
// at all.
type Note struct {
	Key     string // the own key that asks for it: "cpu-burst"
	Missing bool   // it is not there at all
	Text    string // what this kernel lacks, and what is done instead
}

// The keys of notes: own keys without their domain, and what the node's config
// alone asks for.
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

// Missing reports whether a container can't have what a key asks for:
// core-sched where group identity is in force, for one.
func Missing(notes []Note, key string) bool {
	return slices.ContainsFunc(notes, func(n Note) bool { return n.Missing && n.Key == key })
}

// Unmet lists, a sentence each, what a container requires and this node doesn't
// have.
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
