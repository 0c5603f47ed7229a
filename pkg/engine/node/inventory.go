package node

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Inventory lists the node's containers and pods, by the runtime's events.
type Inventory struct {
	Containers map[string]*Container // by ID
	ByPath     map[string]*Container // by cgroup, without those whose cgroup is unknown
	Order      []*Container          // from the oldest to the newest
	Sandboxes  map[string]*Sandbox   // by the runtime's ID of the pod

	// Changes counts the changes of the inventory. Code that caches something derived from the
	// inventory stores the count and compares it.
	Changes uint64
	// LifecycleChanges counts the containers that have started, ended, or begun to be resized.
	LifecycleChanges uint64
}

// NewInventory makes an empty inventory with capacity for these numbers of containers and pods.
// changes continues the count of an earlier inventory.
func NewInventory(containers, pods int, changes uint64) Inventory {
	return Inventory{
		Containers: make(map[string]*Container, containers), ByPath: make(map[string]*Container, containers),
		Order: make([]*Container, 0, containers), Sandboxes: make(map[string]*Sandbox, pods),
		Changes: changes + 1,
	}
}

// Changed counts a change of the inventory: a container was added, started, ended, or changed
// its request.
func (i *Inventory) Changed() { i.Changes++ }

// Track adds a container to the inventory. It replaces one with the same ID.
func (n *Node) Track(pod *workload.Pod, spec workload.Container) *Container {
	n.Forget(spec.ID)
	pod = n.podOf(pod)
	c := &Container{Container: spec, Pod: pod, Ref: workload.Ref(pod, &spec)}
	path, err := cgroupfs.ContainerPath(spec.CgroupsPath)
	if err != nil {
		n.Log.WithField("container", c.Ref).WithError(err).Warn("Cgroup path not understood: the container is set through the runtime alone")
	}
	c.Path, c.PodRef = path, pod.Namespace+"/"+pod.Name
	if o, ok := PodObject(pod); ok {
		c.PodPath, c.Above = o.Path, colocation.Above(o.Path)
	}
	c.Uncontrolled = n.Config.RunsInVM(pod)
	c.Started = spec.State == workload.Running
	c.Ran = c.Started
	c.KeepQuota()
	n.Containers[spec.ID] = c
	if path != "" {
		n.ByPath[path] = c
	}
	n.Order = append(n.Order, c)
	n.Changed()
	return c
}

// Forget removes a container from the inventory.
func (n *Node) Forget(id string) {
	c, ok := n.Containers[id]
	if !ok {
		return
	}
	delete(n.Containers, id)
	n.leavePod(c.Pod)
	if n.ByPath[c.Path] == c {
		delete(n.ByPath, c.Path)
	}
	n.Changed()
	n.Reconciler.Forget(c.Path)
	if n.Kernel != nil {
		n.Kernel.Forget(c.Path)
	}
	n.Order = slices.DeleteFunc(n.Order, func(other *Container) bool { return other == c })
}

// Reaches reports whether Sluice can write the container's cgroup.
func (n *Node) Reaches(c *Container) bool {
	return n.Kernel != nil && c.Path != "" && !c.Uncontrolled
}

// SetsCPUs reports whether Sluice can write the container's cpuset.
func (n *Node) SetsCPUs(c *Container) bool { return n.Reaches(c) && c.Own.IsZero() }

// Shares reports whether the parent cgroup of a pod's containers also has containers of other
// pods.
func (n *Node) Shares(pod *workload.Pod) bool {
	return slices.ContainsFunc(n.Order, func(c *Container) bool {
		return c.Pod.CgroupParent == pod.CgroupParent && c.Pod.UID != pod.UID
	})
}

// Members lists the pod's containers that have, or will have, a cgroup that Sluice can write.
func (n *Node) Members(pod *workload.Pod) []*Container {
	var members []*Container
	for _, c := range n.Order {
		if c.Pod.UID == pod.UID && n.Reaches(c) {
			members = append(members, c)
		}
	}
	return members
}

// IsStarting reports whether no process of a container's or pod's cgroup has run yet except the
// runtime's own, which waits to become the container's first.
func (n *Node) IsStarting(path string) bool {
	if c := n.ByPath[path]; c != nil {
		return !c.Ran
	}
	found := false
	for _, c := range n.Order {
		if c.PodPath == path {
			if c.Ran {
				return false
			}
			found = true
		}
	}
	return found
}

// AllPods is the cgroup that contains all pods; "" if there is none.
func (n *Node) AllPods() string {
	for _, c := range n.Order {
		if dir := colocation.AllPodsCgroup(c.Above); dir != "" {
			return dir
		}
	}
	return ""
}
