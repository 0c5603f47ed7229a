package node

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Inventory is what runs on the node, as the runtime has told.
type Inventory struct {
	Containers map[string]*Container // by ID
	ByPath     map[string]*Container // by cgroup; those whose cgroup is known
	Order      []*Container          // from the oldest to the newest
	Sandboxes  map[string]*Sandbox   // by the pods' IDs at the runtime

	// Changes counts the changes of what runs: who derives something from the inventory
	// compares it with the count at which that was derived.
	Changes uint64
	// Lives counts the containers that have started, ended, or begun to be resized.
	Lives uint64
}

// NewInventory is empty, with room for so many containers and pods. It continues the count
// of changes of another one.
func NewInventory(containers, pods int, changes uint64) Inventory {
	return Inventory{
		Containers: make(map[string]*Container, containers), ByPath: make(map[string]*Container, containers),
		Order: make([]*Container, 0, containers), Sandboxes: make(map[string]*Sandbox, pods),
		Changes: changes + 1,
	}
}

// Changed counts a change of what runs: a container that came, started, ended, or asks for
// something else.
func (i *Inventory) Changed() { i.Changes++ }

// Track begins to keep a container. It replaces one of the same ID.
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

// Forget ends the keeping of a container.
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

// Reaches reports whether the container's cgroup can be written.
func (n *Node) Reaches(c *Container) bool {
	return n.Kernel != nil && c.Path != "" && !c.Uncontrolled
}

// Shares reports whether the cgroup above a pod's containers is not its own, since other
// pods have containers in it.
func (n *Node) Shares(pod *workload.Pod) bool {
	return slices.ContainsFunc(n.Order, func(c *Container) bool {
		return c.Pod.CgroupParent == pod.CgroupParent && c.Pod.UID != pod.UID
	})
}

// Members are the pod's containers that have, or will have, a cgroup to write.
func (n *Node) Members(pod *workload.Pod) []*Container {
	var members []*Container
	for _, c := range n.Order {
		if c.Pod.UID == pod.UID && n.Reaches(c) {
			members = append(members, c)
		}
	}
	return members
}

// IsStarting reports whether no process of a container's or pod's cgroup has run yet, but for
// the runtime's own, which waits to become the container's first.
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

// AllPods is the cgroup that holds all pods; "" where there is none.
func (n *Node) AllPods() string {
	for _, c := range n.Order {
		if dir := colocation.AllPodsCgroup(c.Above); dir != "" {
			return dir
		}
	}
	return ""
}
