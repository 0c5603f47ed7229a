package qos

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// io gives containers I/O weights and throttles. The pod competes with other pods and gets the
// highest weights of its containers. A container that asks for none counts with the default
// weight.
func (t *tuner) io() {
	var weights []knobs.Weights
	for i := range t.pod.Containers {
		r := &t.pod.Containers[i].Request
		devices := t.devices(i, r.IO.Devices)
		if w, ok := ioWeights(&r.IO, devices); ok && (t.has(knobs.IOWeight) || t.has(knobs.BFQWeight)) {
			t.ioWeight(w, func(k knobs.Knob, v knobs.Value) { t.set(i, k, v, "io weight") })
			weights = append(weights, w)
		} else if ok {
			t.missing(i, ioKey, "neither io.weight nor blkio weights are there on this kernel: its I/O has no weight")
		}
		t.throttle(i, &r.IO, devices)
		t.ioClass(i, r.IO.Priority)
	}
	if weights == nil {
		return
	}
	if len(weights) < len(t.pod.Containers) {
		weights = append(weights, knobs.Weights{Default: knobs.DefaultIOWeight})
	}
	t.ioWeight(highest(weights), func(k knobs.Knob, v knobs.Value) { t.setPod(k, v, "highest io weights of its containers") })
}

// ioClass puts a container's write-back, too, into the idle class. pkg/engine/groups does that for
// what its processes read and write themselves.
func (t *tuner) ioClass(i int, priority workload.IOPriority) {
	switch {
	case priority != workload.IOIdle:
	case t.has(knobs.IOClass):
		t.set(i, knobs.IOClass, knobs.IdleIO, "io priority idle")
	default:
		t.note(i, ioKey, "io.prio.class is not there (Linux 5.14 with CONFIG_BLK_CGROUP_IOPRIO): what it writes through the page cache has normal priority, and its processes can raise their own")
	}
}

// ioWeight sets weights where this kernel has them. Disks with the scheduler BFQ have a file of their
// own on v2. Where it exists, the weight of a single disk is for that file unless the disk has
// io.cost: the kernel refuses it in the file that the disk doesn't heed.
func (t *tuner) ioWeight(w knobs.Weights, set func(knobs.Knob, knobs.Value)) {
	if t.has(knobs.BFQWeight) {
		bfq := knobs.Weights{Default: w.Default, Devices: maps.Clone(w.Devices)}
		maps.DeleteFunc(bfq.Devices, func(d knobs.Device, _ int) bool { return t.hasCost(d) })
		set(knobs.BFQWeight, bfq.PerDevice())
		w.Devices = maps.Clone(w.Devices)
		maps.DeleteFunc(w.Devices, func(d knobs.Device, _ int) bool { return !t.hasCost(d) })
	}
	if t.has(knobs.IOWeight) {
		set(knobs.IOWeight, w.PerDevice())
	}
}

func (t *tuner) hasCost(d knobs.Device) bool { return slices.Contains(t.node.CostDisks, d.String()) }

// ClassWeights returns the I/O weights of the cgroups that hold the pods of a QoS class, from the
// weights of all their pods, by the pods' paths. The kernel compares siblings only, so that a class
// counts as much as one pod of class Guaranteed. A cgroup whose pods all have less than the default
// gets the highest of theirs. It never gets more than the default, which would also rank up pods
// that have not asked for it.
func ClassWeights(node *Node, pods map[string]knobs.Weights) []Group {
	heaviest := map[string]int{}
	for path, w := range pods {
		if dirs := parents(path); len(dirs) > 1 {
			heaviest[dirs[0]] = max(heaviest[dirs[0]], w.Default)
		}
	}
	var groups []Group
	for dir, weight := range heaviest {
		if weight >= knobs.DefaultIOWeight {
			continue
		}
		t := tuner{node: node}
		t.ioWeight(knobs.Weights{Default: weight}, func(k knobs.Knob, v knobs.Value) {
			t.setPod(k, v, "highest io weight of its pods")
		})
		groups = append(groups, Group{Path: dir, Settings: t.Pod})
	}
	return groups
}

// device is what a container asks for on a disk of this node.
type device struct {
	knobs.Device
	*workload.DeviceIO
}

// devices returns the disks that a container names.
func (t *tuner) devices(i int, requested []workload.DeviceIO) []device {
	var found []device
	for j := range requested {
		name := requested[j].Device
		number, known := t.node.DiskNames[name]
		if !known {
			number = name
		}
		d, err := knobs.ParseDevice(number)
		if err != nil || !slices.Contains(t.node.Disks, d.String()) {
			t.missing(i, ioKey, name+" is no disk of this node (its disks: "+strings.Join(t.node.Disks, ", ")+"): what is asked for it is left out")
			continue
		}
		found = append(found, device{d, &requested[j]})
	}
	return found
}

// ioWeights returns the weights that a container asks for, and whether it asks for any.
func ioWeights(io *workload.IO, devices []device) (w knobs.Weights, requested bool) {
	w.Default = knobs.DefaultIOWeight
	if io.Weight.Set {
		w.Default, requested = clampWeight(io.Weight.Value), true
	}
	for _, d := range devices {
		if d.Weight.Set {
			if w.Devices == nil {
				w.Devices = map[knobs.Device]int{}
			}
			w.Devices[d.Device], requested = clampWeight(d.Weight.Value), true
		}
	}
	return w, requested
}

func clampWeight(weight int) int { return max(1, min(10000, weight)) }

// highest returns the highest of several weights for each device.
func highest(all []knobs.Weights) knobs.Weights {
	top := knobs.Weights{Devices: map[knobs.Device]int{}}
	for _, w := range all {
		top.Default = max(top.Default, w.Default)
		for d := range w.Devices {
			top.Devices[d] = 0
		}
	}
	for d := range top.Devices {
		for _, w := range all {
			weight, own := w.Devices[d]
			if !own {
				weight = w.Default
			}
			top.Devices[d] = max(top.Devices[d], weight)
		}
	}
	return top
}

// throttle limits a container's I/O on the disks that it names, and by its default on all
// others.
func (t *tuner) throttle(i int, io *workload.IO, devices []device) {
	if io.Limits == (workload.IOLimits{}) && !slices.ContainsFunc(devices, func(d device) bool { return d.Limits != workload.IOLimits{} }) {
		return
	}
	if !t.has(knobs.IOMax) {
		t.missing(i, ioKey, "neither io.max nor blkio.throttle is there on this kernel: its I/O is not throttled")
		return
	}
	limits := knobs.Throttles{}
	buffered := false
	for _, disk := range t.node.Disks {
		if d, err := knobs.ParseDevice(disk); err == nil {
			limits[d] = knobs.Throttle(io.Limits)
		}
	}
	for _, d := range devices {
		limits[d.Device] = knobs.Throttle(d.Limits)
	}
	for _, l := range limits {
		buffered = buffered || l.WriteBPS > 0 || l.WriteIOPS > 0
	}
	if lines := limits.PerDevice(); lines != "" {
		t.set(i, knobs.IOMax, lines, "io limits")
	} else {
		t.missing(i, ioKey, "this node has no disk to throttle")
	}
	if buffered && !t.node.Features.Knobs[knobs.IOMax].V2 {
		t.note(i, ioKey, "cgroup v1 throttles direct writes alone: buffered ones are written by the kernel's threads, at their speed")
	}
}
