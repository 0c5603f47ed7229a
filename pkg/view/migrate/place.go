package migrate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// class is the class that gives containers what the kubelet gave them.
func (f *Facts) class() workload.Class {
	if f.has("full-pcpus-only") {
		return workload.LSE
	}
	return workload.LSR
}

// annotate adds the annotations that a container needs to the pod's.
func (p *Pod) annotate(f *Facts, c *Container) {
	set := func(key, value string) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key+".sluice.dev/container."+c.Name] = value
	}
	set("class", c.Class.String())
	switch {
	case f.Kubelet.TopologyManagerPolicy == "single-numa-node" && c.Nodes.Size() == 1:
		set("numa", "single")
	case f.has("distribute-cpus-across-numa") && c.Nodes.Size() > 1 && c.Nodes.Size() == len(f.Machine.Nodes):
		set("numa", "spread")
	}
	if f.has("distribute-cpus-across-cores") {
		set("smt", "one-per-core")
	}
}

// place enters everything else that runs on the node, and then the pods one after another, as if they
// started in this order on the drained node.
func (f *Facts) place(pods []Pod) {
	ledger := placement.New(f.Config.Policy(), f.Machine)
	pinned := map[[2]string]bool{}
	for _, pin := range f.CPU.Pins {
		pinned[[2]string{pin.PodUID, pin.Container}] = true
	}
	for _, c := range f.others() {
		if !pinned[[2]string{c.who.Pod, c.who.Container}] {
			ledger.PlaceShared(c.who, c.request, "", time.Time{})
		}
	}
	for i := range pods {
		f.placePod(ledger, &pods[i])
	}
}

func (f *Facts) placePod(ledger *placement.Ledger, p *Pod) {
	namespace, name, _ := strings.Cut(p.Title(), "/")
	pod := &workload.Pod{UID: p.UID, Namespace: namespace, Name: name, Annotations: p.requested(), CgroupParent: "/kubepods/pod" + p.UID}
	containers := make([]workload.Container, len(p.Containers))
	for i, c := range p.Containers {
		granted := f.Record.Of(p.UID, c.Name)
		granted.Pod, granted.Container, granted.CPU = true, true, workload.MilliCPU(c.CPUs.Size()*1000) //nolint:mnd // thousandths
		containers[i] = workload.Container{Name: c.Name, Granted: granted}
		if c.Init {
			containers[i].State = workload.Stopped
		}
	}
	parse := func(c *workload.Container) (workload.Request, []string, error) {
		facts := annotation.Facts{ThreadsPerCore: f.Machine.ThreadsPerCore(), Memory: f.Machine.Memory(f.Machine.MemoryNodes()), Granted: c.Granted}
		r, _, err := f.Config.Request(facts, pod, c)
		return r, nil, err
	}
	for i, a := range status.WhatIf(ledger, pod, containers, parse, time.Time{}) {
		c := &p.Containers[i]
		if c.Problem = a.Problem; a.Problem == "" {
			c.NewCPUs, c.NewNodes = a.CPUs, f.Machine.NodesOf(a.CPUs)
		}
	}
}

// requested returns the annotations that the pod needs, and the class of containers that need none.
func (p *Pod) requested() map[string]string {
	all := map[string]string{}
	for _, c := range p.Containers {
		all["class.sluice.dev/container."+c.Name] = c.Class.String()
	}
	maps.Copy(all, p.Annotations)
	return all
}

// other is a container without CPUs of its own.
type other struct {
	who     placement.Identity
	request workload.Request
}

// others returns what runs on the node: by the plugin, or else by the kubelet's record, which does
// not know classes, so that all of it counts as LS.
func (f *Facts) others() []other {
	var all []other
	for _, c := range f.Containers {
		who := placement.Identity{ID: c.ID, Pod: c.PodUID, Container: c.Ref[strings.LastIndexByte(c.Ref, '/')+1:], Ref: c.Ref}
		class := c.Class
		if class.Pinned() {
			class = workload.LS // it has no CPUs of its own now
		}
		all = append(all, other{who, workload.Request{Class: class, Milli: c.Requested, Memory: c.RequestedMemoryBytes}})
	}
	if f.StatusProblem == "" {
		return all
	}
	for uid, container := range f.Record.All() {
		granted := f.Record.Of(uid, container)
		id := uid + "/" + container
		all = append(all, other{placement.Identity{ID: id, Pod: uid, Container: container, Ref: id}, workload.Request{Class: workload.LS, Milli: granted.CPU, Memory: granted.Memory}})
	}
	slices.SortFunc(all, func(a, b other) int { return strings.Compare(a.who.ID, b.who.ID) })
	return all
}
