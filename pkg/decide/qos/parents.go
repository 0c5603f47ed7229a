package qos

import (
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Group is a cgroup by its path, and what it gets.
type Group struct {
	Path     string // below each controller's root: "/kubepods/burstable"
	Settings []Setting
}

// Parents returns what the cgroups above pods need for the pods' settings to work,
// by path: the sums of memory.min and memory.low, since none protects more than
// its parents do, and the switch that makes the kernel heed memory priorities.
// Parents are those up to the kubelet's kubepods; above it, and above pods outside
// of it, the tree is somebody else's.
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
		// Priority 0 is what all have, and any pod may ask for: none may have the choice
		// among others' pods made in another way by it.
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

// parents are the cgroups above a pod's, up to kubepods; none where there is no
// kubepods.
func parents(pod string) []string {
	var dirs []string
	for dir := path.Dir(path.Clean("/" + pod)); dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
		// kind and others put a prefix before it: "kubelet-kubepods.slice".
		if name := strings.TrimSuffix(path.Base(dir), ".slice"); name == "kubepods" || strings.HasSuffix(name, "-kubepods") {
			return dirs
		}
	}
	return nil
}
