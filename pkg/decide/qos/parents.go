package qos

import (
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Group is a cgroup with its settings.
type Group struct {
	Path     string // below the root of each controller: "/kubepods/burstable"
	Settings []Setting
}

// Parents returns the settings of the cgroups above pods that the pods' settings need in order
// to work, by path. They are the sums of memory.min and memory.low, since no cgroup is
// protected more than its parents, and the switch that makes the kernel use memory priorities.
// The parents end at the kubelet's kubepods. Cgroups above it, or above pods outside of it, do
// not belong to Sluice.
func Parents(pods []Group) []Group {
	sums := map[string]*sum{}
	for _, pod := range pods {
		var s sum
		var heeds, ranked bool
		for _, setting := range pod.Settings {
			switch v := setting.Value.(type) {
			case knobs.Bytes:
				switch setting.Knob {
				case knobs.MemoryMin:
					s.least = v
				case knobs.MemoryLow:
					s.low = v
				}
			case knobs.Number:
				heeds = heeds || setting.Knob == knobs.PriorityOOM && v == 1
				ranked = ranked || setting.Knob == knobs.MemPriority && v > 0
			}
		}
		// Priority 0 is the default, and any pod may ask for it. Such a pod must not change how
		// the kernel chooses among other pods.
		s.priority = heeds && ranked
		if s == (sum{}) {
			continue
		}
		for _, dir := range parents(pod.Path) {
			if sums[dir] == nil {
				sums[dir] = &sum{}
			}
			sums[dir].add(s)
		}
	}
	groups := make([]Group, 0, len(sums))
	for dir, s := range sums {
		groups = append(groups, Group{Path: dir, Settings: s.settings()})
	}
	slices.SortFunc(groups, func(a, b Group) int { return strings.Compare(a.Path, b.Path) })
	return groups
}

type sum struct {
	least, low knobs.Bytes
	priority   bool
}

func (s *sum) add(pod sum) {
	s.least += pod.least
	s.low += pod.low
	s.priority = s.priority || pod.priority
}

func (s *sum) settings() []Setting {
	var settings []Setting
	if s.least > 0 {
		settings = append(settings, Setting{Knob: knobs.MemoryMin, Value: s.least, Why: "sum of its pods' memory.min"})
	}
	if s.low > 0 {
		settings = append(settings, Setting{Knob: knobs.MemoryLow, Value: s.low, Why: "sum of its pods' memory.low"})
	}
	if s.priority {
		settings = append(settings, Setting{Knob: knobs.PriorityOOM, Value: knobs.Number(1), Why: "memory-qos priority of its pods"})
	}
	return settings
}

// parents returns the cgroups above a pod's, up to kubepods, or none if there is no kubepods.
func parents(pod string) []string {
	var dirs []string
	for dir := path.Dir(path.Clean("/" + pod)); dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
		// Some installations, such as kind, put a prefix before it: "kubelet-kubepods.slice".
		if name := strings.TrimSuffix(path.Base(dir), ".slice"); name == "kubepods" || strings.HasSuffix(name, "-kubepods") {
			return dirs
		}
	}
	return nil
}
