package agent

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// podOf makes the pod and its cgroup, as the kubelet does.
func (h *knobNode) podOf(a *ask) *workload.Pod {
	name, container, _ := strings.Cut(a.name, "/")
	if h.pods[name] == nil {
		parent := path.Join("/kubepods", a.qos, "pod-"+name)
		h.pods[name] = &workload.Pod{ID: "sandbox-" + name, UID: name, Namespace: "ns", Name: name, CgroupParent: parent, Annotations: map[string]string{}}
		h.Mkdir(parent)
		if a.qos != "besteffort" {
			h.kubelet(parent, cmp.Or(a.pod, a.milli))
		} else {
			h.weight(parent, 2)
		}
	}
	for k, v := range a.annotations {
		if strings.HasSuffix(k, ".sluice.dev") {
			k += "/container." + container
		}
		h.pods[name].Annotations[k] = v
	}
	return h.pods[name]
}

// kubelet writes the files of a pod's own cgroup.
func (h *knobNode) kubelet(dir string, milli int) {
	h.t.Helper()
	h.weight(dir, int64(milli)*1024/1000)
	h.quota(dir, int64(milli)*100)
}

func (h *knobNode) weight(dir string, shares int64) {
	h.t.Helper()
	if h.V2 {
		h.put(dir, "cpu.weight", strconv.FormatInt(cgroupfs.WeightOf(knobs.Shares(shares)), 10))
		return
	}
	h.put(dir, "cpu.shares", strconv.FormatInt(shares, 10))
}

func (h *knobNode) quota(dir string, micros int64) {
	h.t.Helper()
	if !h.V2 {
		h.put(dir, "cpu.cfs_quota_us", strconv.FormatInt(micros, 10))
		return
	}
	text := "max 100000"
	if micros > 0 {
		text = strconv.FormatInt(micros, 10) + " 100000"
	}
	h.put(dir, "cpu.max", text)
}

// put writes a file as the kubelet or the runtime. The write must succeed unless mayFail is set.
func (h *knobNode) put(dir, file, value string) {
	h.t.Helper()
	if err := h.WriteFile(dir, file, value); err != nil && !h.mayFail {
		h.t.Errorf("%s/%s takes no %q: %v", dir, file, value, err)
	}
}

// get returns the text of the first of the files that exists.
func (h *knobNode) get(dir string, files ...string) string {
	synctest.Wait() // writes that may take long are made outside of the event loop
	for _, file := range files {
		if text, err := h.ReadFile(dir, file); err == nil {
			return text
		}
	}
	return "-"
}

// levels returns the container's cgroup, and the one that the runtime makes below it, if any.
func (h *knobNode) levels(s *spec) []string {
	if h.inner == "" {
		return []string{s.CgroupsPath}
	}
	return []string{s.CgroupsPath, path.Join(s.CgroupsPath, h.inner)}
}

// runc writes a container's record to its cgroup as runc does, or to both levels as crun does.
func (h *knobNode) runc(s *spec) {
	h.t.Helper()
	for _, dir := range h.levels(s) {
		h.write(s, dir)
	}
}

func (h *knobNode) write(s *spec, dir string) {
	h.t.Helper()
	r := s.Resources
	if r.CPUs != "" {
		h.put(dir, "cpuset.cpus", r.CPUs)
	}
	if r.Mems != "" {
		h.put(dir, "cpuset.mems", r.Mems)
	}
	if r.MemoryLimit != 0 {
		file := "memory.limit_in_bytes"
		if h.V2 {
			file = "memory.max"
		}
		h.put(dir, file, strconv.FormatInt(r.MemoryLimit, 10))
	}
	h.weight(dir, int64(r.Shares))
	if r.Quota != 0 {
		h.quota(dir, r.Quota)
	}
	for _, file := range slices.Sorted(maps.Keys(s.unified)) {
		h.put(dir, file, s.unified[file])
	}
}

func (s *spec) adjust(set node.Settings) {
	adjust(&s.Container, set)
	r := &s.Resources
	for k, value := range set.Carried {
		switch v := value.(type) {
		case knobs.Shares:
			r.Shares = uint64(v)
		case knobs.CPUQuota:
			if !v.Unlimited() {
				r.Quota, r.Period = v.Quota.Microseconds(), uint64(v.Period.Microseconds())
			}
		case knobs.Bytes:
			if knobs.Knob(k) == knobs.MemoryMax {
				r.MemoryLimit = int64(v)
			} else {
				s.unified[knobs.Knob(k).String()] = knobs.FormatValue(v)
			}
		}
	}
}

// record makes a pod, if it is new, and the runtime's record of one of its containers.
func (h *knobNode) record(a ask) *spec {
	h.t.Helper()
	pod := h.podOf(&a)
	_, name, _ := strings.Cut(a.name, "/")
	h.made++
	s := &spec{unified: map[string]string{}, Container: workload.Container{
		ID: a.name, PodID: pod.ID, Name: name, CgroupsPath: path.Join(pod.CgroupParent, name), CreatedNanos: h.made,
		Resources: workload.Resources{Shares: uint64(max(2, cmp.Or(a.request, a.milli)*1024/1000)), MemoryLimit: a.memory * mebi},
	}}
	if a.milli > 0 {
		s.Resources.Quota, s.Resources.Period = int64(a.milli)*100, 100000
	}
	h.specs[a.name] = s
	return s
}

func (h *knobNode) create(a ask) error {
	h.t.Helper()
	s := h.record(a)
	pod := *h.podOfName(a.name)
	set, updates, err := h.agent.CreateContainer(context.Background(), &pod, s.Container)
	if err != nil {
		delete(h.specs, a.name)
		return err
	}
	s.adjust(set.Settings)
	s.score = set.OOMScoreAdj
	h.apply(updates)
	return h.agent.PostCreateContainer(a.name)
}

func (h *knobNode) apply(updates []node.Update) {
	h.t.Helper()
	for _, u := range updates {
		if s := h.specs[u.ContainerID]; s != nil {
			s.adjust(u.Settings)
			h.runc(s)
		}
	}
}

func (h *knobNode) begin(name string) {
	h.t.Helper()
	s := h.specs[name]
	h.make(s)
	pod := *h.podOfName(name)
	if err := h.agent.StartContainer(context.Background(), &pod, s.Container); err != nil {
		h.t.Errorf("start %s: %v", name, err)
	}
}

// make makes a container's cgroup and its process, as the runtime does before it reports the start.
func (h *knobNode) make(s *spec) {
	h.t.Helper()
	for _, dir := range h.levels(s) {
		h.Mkdir(dir)
		h.write(s, dir)
	}
	if err := h.Populate(path.Join(s.CgroupsPath, h.inner), 1); err != nil {
		h.t.Errorf("populate: %v", err)
	}
	s.State, s.PID = workload.Running, int(h.made)+1000
}

func (h *knobNode) run(asks ...ask) {
	h.t.Helper()
	for _, a := range asks {
		if err := h.create(a); err != nil {
			h.t.Fatalf("create: %v", err)
		}
		h.begin(a.name)
	}
}

func (h *knobNode) end(name string) {
	h.t.Helper()
	s := h.specs[name]
	if s.State == workload.Running {
		h.Rmdir(s.CgroupsPath)
	}
	delete(h.specs, name)
	if _, err := h.agent.StopContainer(context.Background(), name); err != nil {
		h.t.Errorf("stop: %v", err)
	}
}

// announce runs a resize up to the point at which the runtime writes.
func (h *knobNode) announce(name string, milli int) (updates []node.Update) {
	h.t.Helper()
	updates, err := h.tryAnnounce(name, milli)
	if err != nil {
		h.t.Errorf("update %s: %v", name, err)
	}
	return updates
}

// tryAnnounce is announce for a resize that Sluice may refuse.
func (h *knobNode) tryAnnounce(name string, milli int) ([]node.Update, error) {
	h.t.Helper()
	s := h.specs[name]
	change := workload.Resources{Quota: int64(milli) * 100, Period: 100000, Shares: uint64(milli) * 1024 / 1000}
	pod := *h.podOfName(name)
	updates, err := h.agent.UpdateContainer(context.Background(), &pod, s.Container, change)
	if err == nil {
		s.Resources = s.Resources.With(change)
	}
	return updates, err
}

// resize runs the kubelet's resize of a pod of one container. It grows the pod before the
// container, and shrinks it after.
func (h *knobNode) resize(name string, from, to int) {
	h.t.Helper()
	if err := h.tryResize(name, from, to); err != nil {
		h.t.Errorf("update %s: %v", name, err)
	}
}

// tryResize is resize for one that Sluice may refuse. If the pod was to grow, it has grown by
// then.
func (h *knobNode) tryResize(name string, from, to int) error {
	h.t.Helper()
	if to > from {
		h.resizePod(name, to)
	}
	updates, err := h.tryAnnounce(name, to)
	if err != nil {
		return err
	}
	for _, u := range updates {
		h.specs[u.ContainerID].adjust(u.Settings)
	}
	h.runc(h.specs[name])
	if err := h.agent.PostUpdateContainer(name); err != nil {
		h.t.Errorf("post: %v", err)
	}
	if to < from {
		h.resizePod(name, to)
	}
	return nil
}

// resizePod writes the pod's own cgroup as the kubelet does in a resize.
func (h *knobNode) resizePod(name string, to int) {
	h.t.Helper()
	pod := h.podOfName(name)
	h.kubelet(pod.CgroupParent, to)
	if err := h.agent.UpdatePod(context.Background(), pod.ID, workload.Resources{Shares: uint64(to) * 1024 / 1000, Quota: int64(to) * 100, Period: 100000}); err != nil {
		h.t.Errorf("update pod: %v", err)
	}
}
