package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/manifest"
	"github.com/sluice-dev/sluice/topology"
)

// instance is one pod of the scenario.
type instance struct {
	*Pod
	name       string
	sandbox    *workload.Pod
	spec       workload.Container
	class      workload.Class
	pool       string
	start, end time.Duration
	late       time.Duration // how much later it starts than the first of its kind
	scale      float64       // factor of its load

	running *container
	made    int           // number of containers that it has had
	next    time.Duration // time of the next attempt to start it
	pause   time.Duration // wait before that attempt
	total   totals
}

// These are the kubelet's waits before it tries a container again (MaxContainerBackOff and
// backOffPeriod in pkg/kubelet).
const (
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute
)

// instances returns the pods of a scenario as the kubelet would describe them to the runtime.
func instances(s *Scenario, m *topology.Machine, vary float64) ([]*instance, error) {
	memory := m.Memory(m.MemoryNodes())
	var all []*instance
	for i := range s.Pods {
		p := &s.Pods[i]
		for n := range max(1, p.Count) {
			name := p.Name
			if p.Count > 0 {
				name += "-" + strconv.Itoa(n)
			}
			late := time.Duration(n) * p.Stagger
			in := &instance{Pod: p, name: name, start: p.Start + late, late: late, end: s.Duration, scale: 1}
			if p.End > 0 {
				in.end = p.End + late
			}
			if err := in.manifest(memory); err != nil {
				return nil, fmt.Errorf("pod %s: %w", name, err)
			}
			r, _, err := s.Config.Request(annotation.Facts{ThreadsPerCore: m.ThreadsPerCore(), Memory: memory}, in.sandbox, &in.spec)
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", name, err)
			}
			pools := s.Config.Policy()
			in.class, in.pool = r.Class, cmp.Or(r.Pool, pools.DefaultPool())
			if r.Class == workload.BE && r.Pool == "" {
				in.pool = pools.BatchPool()
			}
			if (r.Class == workload.BE) == (s.Vary == VaryBatch) {
				in.scale = vary
			}
			all = append(all, in)
		}
	}
	return all, nil
}

// manifest adds what pkg/workload/manifest derives from the pod.
func (in *instance) manifest(memory int64) error {
	resources := func(r Resources) map[string]string {
		out := map[string]string{}
		if r.CPU > 0 {
			out["cpu"] = strconv.Itoa(int(math.Round(float64(r.CPU)*1000))) + "m"
		}
		if r.Memory > 0 {
			out["memory"] = strconv.FormatInt(int64(r.Memory), 10)
		}
		return out
	}
	text, err := yaml.Marshal(map[string]any{
		"kind": "Pod",
		"metadata": map[string]any{
			"name": in.name, "namespace": "sim", "uid": in.name, "labels": in.Labels, "annotations": in.Annotations,
		},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "resources": map[string]any{"requests": resources(in.Requests), "limits": resources(in.Limits)},
		}}},
	})
	if err != nil {
		return err
	}
	pods, err := manifest.Parse(text, memory)
	if err != nil {
		return err
	}
	in.sandbox, in.spec = pods[0].Sandbox, pods[0].Containers[0]
	return nil
}

// kubelet starts and ends pods on the node, and informs the agent if there is one.
type kubelet struct {
	node      *simNode
	agent     *agent.Agent
	scenario  *Scenario
	instances []*instance
	kills     int // containers that were killed for lack of memory
	refused   int // number of starts that the agent refused
	evictions int
	evictor   evictor
}

// setUp makes the cgroups that hold pods.
func (k *kubelet) setUp() {
	for _, dir := range []string{"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"} {
		k.node.mkdir(dir)
	}
	k.node.set("/kubepods", map[knobs.Knob]knobs.Value{knobs.Weight: shares(float64(k.node.machine.Online.Size()))})
	k.node.set("/kubepods/besteffort", map[knobs.Knob]knobs.Value{knobs.Weight: knobs.Shares(2)})
	k.weigh()
}

// weigh gives the Burstable class the sum of its pods' requests, as the kubelet does
// (pkg/kubelet/cm/qos_container_manager_linux.go).
func (k *kubelet) weigh() {
	sum := 0.0
	for _, in := range k.instances {
		if in.running != nil && in.sandbox.QoS() == workload.Burstable {
			sum += float64(in.Requests.CPU)
		}
	}
	k.node.set("/kubepods/burstable", map[knobs.Knob]knobs.Value{knobs.Weight: shares(sum)})
}

// shares converts CPUs as MilliCPUToShares of pkg/kubelet/cm does.
func shares(cpus float64) knobs.Shares {
	return min(max(knobs.Shares(cpus*1024), knobs.MinShares), knobs.MaxShares)
}

// sync ends and starts the pods that are due, and reports whether anything changed.
func (k *kubelet) sync(now time.Duration) (changed bool) {
	for _, in := range k.instances {
		switch {
		case in.running != nil && now >= in.end:
			k.end(in)
			k.node.rmdir(in.sandbox.CgroupParent)
			changed = true
		case in.running == nil && now >= in.start && now < in.end && now >= in.next:
			k.begin(in, now)
			changed = true
		}
	}
	if changed {
		k.weigh()
	}
	return changed
}

// begin creates and starts a container.
func (k *kubelet) begin(in *instance, now time.Duration) {
	in.made++
	spec := in.spec
	spec.ID = in.name + "-" + strconv.Itoa(in.made)
	spec.CgroupsPath = in.sandbox.CgroupParent + "/" + spec.ID
	spec.PID = 0
	podMade := k.podCgroup(in)
	var reply node.Adjustment
	if k.agent != nil {
		var err error
		if reply, _, err = k.agent.CreateContainer(context.Background(), in.sandbox, spec); err != nil {
			k.refused++
			k.retry(in, now)
			if podMade {
				k.node.rmdir(in.sandbox.CgroupParent)
			}
			return
		}
	}
	if !reply.CPUs.IsEmpty() {
		spec.Resources.CPUs = reply.CPUs.String()
	}
	path := spec.CgroupsPath
	k.node.mkdir(path)
	k.node.set(path, settings(spec.Resources))
	k.node.set(path, adjusted(reply))
	spec.PID = 1000 + len(k.instances)*in.made + slices.Index(k.instances, in)
	spec.State = workload.Created
	if k.agent != nil {
		if err := k.agent.StartContainer(context.Background(), in.sandbox, spec); err != nil {
			k.refused++
			k.agent.RemoveContainer(spec.ID) //nolint:errcheck // only a closed agent returns an error
			k.node.rmdir(path)
			k.retry(in, now)
			return
		}
	}
	k.node.run(path, spec.PID)
	in.running = &container{
		Pod: in.Pod, pod: in, id: spec.ID, ref: workload.Ref(in.sandbox, &spec), path: path, class: in.class, score: spec.OOMScoreAdj,
		load: newSource(in.Load, k.scenario.Seed, in.name), since: now, speed: 1, spec: spec,
	}
	k.node.containers = append(k.node.containers, in.running)
}

// runs lists what the runtime would report to a plugin that connects.
func (k *kubelet) runs() (pods []*workload.Pod, containers []workload.Container) {
	for _, in := range k.instances {
		if in.running != nil {
			spec := in.running.spec
			spec.State = workload.Running
			pods, containers = append(pods, in.sandbox), append(containers, spec)
		}
	}
	return pods, containers
}

// podCgroup makes the pod's own cgroup, and reports whether it is new.
func (k *kubelet) podCgroup(in *instance) bool {
	dir := in.sandbox.CgroupParent
	if _, err := k.node.Read(dir, knobs.Weight); err == nil {
		return false
	}
	k.node.mkdir(dir)
	k.node.set(dir, settings(in.spec.Resources))
	return true
}

// settings returns the kernel's settings for OCI resources.
func settings(r workload.Resources) map[knobs.Knob]knobs.Value {
	out := map[knobs.Knob]knobs.Value{knobs.Weight: knobs.Shares(r.Shares)}
	if r.Quota > 0 {
		out[knobs.Quota] = knobs.MicroQuota(r.Quota, r.Period)
	}
	if r.MemoryLimit > 0 {
		out[knobs.MemoryMax] = knobs.Bytes(r.MemoryLimit)
	}
	return out
}

// adjusted returns the settings that the agent's reply changes.
func adjusted(a node.Adjustment) map[knobs.Knob]knobs.Value {
	out := map[knobs.Knob]knobs.Value{}
	for k, v := range a.Carried {
		if v != nil {
			out[knobs.Knob(k)] = v
		}
	}
	if !a.CPUs.IsEmpty() {
		out[knobs.CPUs] = knobs.CPUSet(a.CPUs)
	}
	if !a.Mems.IsEmpty() {
		out[knobs.Mems] = knobs.CPUSet(a.Mems)
	}
	if a.Unlimited {
		out[knobs.Quota] = knobs.UnlimitedQuota()
	}
	return out
}

// retry delays the next attempt, twice as long each time.
func (k *kubelet) retry(in *instance, now time.Duration) {
	in.pause = min(max(firstPause, 2*in.pause), lastPause)
	in.next = now + in.pause
}

// kill does what the kernel's OOM killer does. The container ends, and the kubelet creates it
// again later.
func (k *kubelet) kill(c *container, now time.Duration) {
	k.kills++
	k.end(c.pod)
	k.retry(c.pod, now)
}

// evictor collects the agent's evictions, which the kubelet carries out after the step.
type evictor struct {
	mu   sync.Mutex
	uids []string
}

// Evict records a pod to evict.
func (e *evictor) Evict(_ context.Context, pod evict.Pod) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uids = append(e.uids, pod.UID)
	return nil
}

// evict ends the recorded pods. The kubelet creates them again as soon as the agent no longer
// refuses them.
func (k *kubelet) evict(now time.Duration) (changed bool) {
	k.evictor.mu.Lock()
	uids := slices.Clone(k.evictor.uids)
	k.evictor.uids = k.evictor.uids[:0]
	k.evictor.mu.Unlock()
	for _, in := range k.instances {
		if in.running != nil && slices.Contains(uids, in.sandbox.UID) {
			k.end(in)
			k.retry(in, now)
			k.evictions++
			changed = true
		}
	}
	return changed
}

// end removes a pod's container.
func (k *kubelet) end(in *instance) {
	c := in.running
	if c == nil {
		return
	}
	in.running = nil
	k.node.containers = slices.DeleteFunc(k.node.containers, func(o *container) bool { return o == c })
	k.node.run(c.path, 0)
	if k.agent != nil {
		k.agent.StopContainer(context.Background(), c.id) //nolint:errcheck // only a closed agent returns an error
	}
	k.node.rmdir(c.path)
	if k.agent != nil {
		k.agent.RemoveContainer(c.id) //nolint:errcheck // only a closed agent returns an error
	}
}
