package annotation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const everyAction = workload.Throttle | workload.Demote | workload.Reclaim | workload.EvictPod

// maxBurst is the largest burst in percent of the quota, as in Koordinator.
const maxBurst = 10000

// setTuning does the work of set for keys that do not place a container.
func setTuning(t *workload.Tuning, k key, value string) (err error) {
	switch k {
	case cpuBurstKey:
		t.Burst, err = parseBurst(value)
	case cpuIdentityKey:
		t.Identity, err = parseNumber(value, -1, 2)
	case coreSchedKey:
		t.CoreSched, err = parseName(value)
	case memoryQoSKey:
		t.Memory, err = parseMemoryQoS(value)
	case rdtClassKey:
		t.RDT.Class, err = parseName(value)
	case ioKey:
		t.IO, err = parseIO(value)
	case requiredKey:
		t.Required, err = parseRequired(value)
	case allowKey:
		t.Allow, err = parseActions(value)
	case evictKey:
		t.Evict, err = parseEvict(value)
	case tierKey:
		var tier workload.Tier
		tier, err = workload.ParseTier(value)
		t.Tier = workload.Some(tier)
	case noticeKey:
		t.Notice, err = choose(value, choice[bool]{"file", true}, choice[bool]{"none", false})
	case sloKey:
		t.SLO, err = parseSLO(value)
	case egressKey:
		t.Egress, err = parseEgress(value)
	case weightKey:
		if t.Weight, err = parsePercent(value, maxBurst); err != nil {
			err = fmt.Errorf("must be a share of the weight that the kubelet gives, 1%% to %d%%", maxBurst)
		}
	case oomScoreKey:
		t.OOMScore, err = parseNumber(value, -1000, 1000)
	case netClassKey:
		t.NetClass, err = parseNetClass(value)
	}
	return err
}

// fillTuning does the work of fill for keys that do not place a container.
func (k key) fillTuning(to, from *workload.Tuning) {
	switch k {
	case cpuBurstKey:
		to.Burst = from.Burst
	case cpuIdentityKey:
		to.Identity = from.Identity
	case coreSchedKey:
		to.CoreSched = from.CoreSched
	case memoryQoSKey:
		fillMemory(&to.Memory, &from.Memory)
	case rdtClassKey:
		to.RDT = from.RDT
	case ioKey:
		to.IO = from.IO
	case requiredKey:
		to.Required = from.Required
	case allowKey:
		to.Allow = from.Allow
	case evictKey:
		to.Evict = from.Evict
	case tierKey:
		to.Tier = from.Tier
	case noticeKey:
		to.Notice = from.Notice
	case sloKey:
		to.SLO = from.SLO
	case egressKey:
		to.Egress = from.Egress
	case weightKey:
		to.Weight = from.Weight
	case oomScoreKey:
		to.OOMScore = from.OOMScore
	case netClassKey:
		to.NetClass = from.NetClass
	case batchKey:
		to.Batch = from.Batch
	}
}

func fillMemory(to, from *workload.MemoryQoS) {
	fillOptional(&to.MinPercent, from.MinPercent)
	fillOptional(&to.LowPercent, from.LowPercent)
	fillOptional(&to.HighPercent, from.HighPercent)
	fillOptional(&to.WmarkRatio, from.WmarkRatio)
	fillOptional(&to.WmarkScale, from.WmarkScale)
	fillOptional(&to.WmarkMinAdj, from.WmarkMinAdj)
	fillOptional(&to.Priority, from.Priority)
	fillOptional(&to.OOMGroup, from.OOMGroup)
	fillOptional(&to.Offload, from.Offload)
	fillOptional(&to.Swap, from.Swap)
}

func fillOptional[T comparable](to *workload.Optional[T], from workload.Optional[T]) {
	if !to.Set {
		*to = from
	}
}

// parseNumber parses a whole number.
func parseNumber(value string, least, most int) (workload.Optional[int], error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return workload.Optional[int]{}, fmt.Errorf("must be a whole number, %d to %d", least, most)
	}
	return workload.Some(n), nil
}

// parsePercent parses a percentage such as "85%", from 1%.
func parsePercent(value string, most int) (int, error) {
	number, ok := strings.CutSuffix(value, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil || n < 1 || n > uint64(most) {
		return 0, fmt.Errorf("must be 1%% to %d%%", most)
	}
	return int(n), nil
}

// autoBurst is the automatic burst: the largest static burst that every kernel allows, and the
// raise of the quota.
func autoBurst() workload.Burst { return workload.Burst{Percent: 100, Auto: true} }

func parseBurst(value string) (workload.Burst, error) {
	switch value {
	case "off":
		return workload.Burst{}, nil
	case "auto":
		return autoBurst(), nil
	}
	percent, err := parsePercent(value, maxBurst)
	if err != nil {
		return workload.Burst{}, fmt.Errorf("must be off, auto or a percentage of the CPU limit, 1%% to %d%%", maxBurst)
	}
	return workload.Burst{Percent: percent}, nil
}

// parseNetClass parses a class of the kernel's net_cls, as "0x100001" or in the form of tc,
// "10:1".
func parseNetClass(value string) (workload.Optional[uint32], error) {
	major, minor, handle := strings.Cut(value, ":")
	if handle {
		high, err := strconv.ParseUint(major, 16, 16)
		low, err2 := strconv.ParseUint(minor, 16, 16)
		if err == nil && err2 == nil && high > 0 {
			return workload.Some(uint32(high<<16 | low)), nil
		}
	} else if n, err := strconv.ParseUint(value, 0, 32); err == nil && !strings.Contains(value, "_") {
		return workload.Some(uint32(n)), nil
	}
	return workload.Optional[uint32]{}, errors.New("must be a class as tc writes it (10:1), or its number (0x100001)")
}

// words splits a list at its commas.
func words(value string) []string {
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// unknownWord returns the error for a word that is not in the list of known ones.
func unknownWord(word string, known []string) error {
	if near := suggest.To(word, known); near != "" {
		return fmt.Errorf("%s is not known here; did you mean %s?", quote(word), near)
	}
	return fmt.Errorf("%s is not known here; there are %s", quote(word), strings.Join(known, ", "))
}

// parseRequired parses the names of keys that a kernel or runtime may lack.
func parseRequired(value string) ([]string, error) {
	known := keyNames[cpuBurstKey:requiredKey]
	var list []string
	seen := map[string]bool{}
	for _, word := range words(value) {
		if k, ok := keyOf(word); !ok || k < cpuBurstKey || k >= requiredKey {
			return nil, unknownWord(word, known)
		}
		if !seen[word] {
			list = append(list, word)
		}
		seen[word] = true
	}
	return list, nil
}

func parseActions(value string) (workload.Optional[workload.Actions], error) {
	known := []string{"throttle", "demote", "reclaim", "evict"}
	var actions workload.Actions
	if value == "none" {
		return workload.Some(actions), nil
	}
	for _, word := range words(value) {
		var one workload.Actions
		for i, name := range known {
			if word == name {
				one = 1 << i
			}
		}
		if one == 0 {
			return workload.Optional[workload.Actions]{}, unknownWord(word, append(known, "none"))
		}
		actions |= one
	}
	return workload.Some(actions), nil
}

func parseEvict(value string) (workload.Evict, error) {
	if value == "never" {
		return workload.Evict{Never: true}, nil
	}
	order, err := parseNumber(value, math.MinInt32, math.MaxInt32)
	if err != nil {
		return workload.Evict{}, errors.New("must be never or a whole number, the lower of which goes first")
	}
	return workload.Evict{Order: order}, nil
}

// describe formats the meaning of a dialect's value in terms of Sluice's own keys.
func describe(parts ...string) string {
	var shown []string
	for _, part := range parts {
		if part != "" {
			shown = append(shown, part)
		}
	}
	return cmp.Or(strings.Join(shown, ", "), "off")
}
