package groups

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// SetUp makes the resctrl groups that the configuration needs, and repairs what other programs
// have changed in them. If it needs none, SetUp removes those of an earlier run.
func (j *Joiner) SetUp() { j.setUp(false) }

// setUp is SetUp with isNew for a layout that may be new: then a difference in a group is no
// drift.
func (j *Joiner) setUp(isNew bool) {
	switch may := j.Authority(); {
	case may.RDT:
		r := &j.Config.RDT
		j.rdt.Setup(rdtgroup.Layout{Classes: j.classes(), MaxMBps: r.MaxMBps, Monitor: r.Monitor}, isNew)
	case may.Writes && j.HasRDT:
		j.rdt.End()
	}
}

// classes lists the configured RDT classes, with batch work's reduced to its present share.
func (j *Joiner) classes() []schemata.Class {
	classes := j.Config.RDT.List()
	for i := range classes {
		if (j.batchShare != control.CacheShare{}) && classes[i].Name == j.Config.Control.Cache.Class {
			classes[i] = schemata.Narrow(classes[i], j.batchShare.Cache, j.batchShare.Bandwidth)
		}
	}
	return classes
}

// ShareCache reduces the RDT class of batch work to a part of its configured cache and
// bandwidth. The zero value stands for all of them.
func (j *Joiner) ShareCache(share control.CacheShare) {
	if j.batchShare != share {
		j.batchShare = share
		j.setUp(true)
	}
}

// AtCreation is the resctrl group in which the runtime should start a container; "" for the
// default group. Pods' own groups are made when their containers start.
func (j *Joiner) AtCreation(c *node.Container) string {
	h, ok := j.Ledger.Holder(c.ID)
	if !ok || c.Uncontrolled || !j.Authority().RDT || !j.rdt.HasClass(h.Request.RDT.Class) {
		return ""
	}
	return resctrl.ClassGroup(h.Request.RDT.Class)
}

// assign puts processes of a container into its resctrl group. It returns what failed, and
// whether the processes need no further attempt.
func (j *Joiner) assign(c *node.Container, request workload.RDT, pids []int) (failed []qos.Note, done bool) {
	if !j.Authority().RDT {
		return nil, true
	}
	group, failed, done := j.rdt.Assign(rdtgroup.Member{ContainerID: c.ID, PodUID: c.Pod.UID, RDT: request}, pids)
	if group != "" {
		c.RDTGroup = group
	}
	return failed, done
}

// lacksRDT explains why this node has no resctrl group for a request that needs one.
func (j *Joiner) lacksRDT(r *workload.Request) (note qos.Note, lacks bool) {
	if j.Config.RDT.Mode != config.RDTOn || r.RDT == (workload.RDT{}) {
		return qos.Note{}, false
	}
	if !j.HasRDT {
		return qos.Note{Key: rdtgroup.Key, Missing: true, Text: j.noRDT}, true
	}
	return j.rdt.Lack(r.RDT)
}

// pruneRDT removes the resctrl groups of pods and containers that are gone.
func (j *Joiner) pruneRDT() {
	if !j.Authority().RDT {
		return
	}
	var pods, containers []string
	for _, c := range j.Order {
		pods, containers = append(pods, c.Pod.UID), append(containers, c.ID)
	}
	j.rdt.Prune(pods, containers)
}

// Leave removes the resctrl groups that were made for a container that is no longer in the
// inventory, and for its pod if that was the pod's last.
func (j *Joiner) Leave(c *node.Container) {
	if !j.Authority().RDT {
		return
	}
	if j.Config.RDT.Monitor {
		j.rdt.Leave(c.ID)
	}
	if len(j.Members(c.Pod)) == 0 {
		j.rdt.LeavePod(c.Pod.UID)
	}
}

// Reconfigure moves all processes to the groups of the configuration in force, and removes the
// other groups. before is the configuration that it replaced; wrote reports whether Sluice
// could write under that one.
func (j *Joiner) Reconfigure(before *config.Config, wrote bool) {
	if !j.HasRDT || wrote && SameRDT(before, j.Config) {
		j.rejoin()
		return
	}
	if before.RDT.Monitor && !j.Config.RDT.Monitor {
		for _, c := range j.Order {
			j.rdt.Leave(c.ID)
		}
	}
	j.setUp(true)
	if !j.Authority().RDT {
		j.rdt.Forget() // until Sluice may write again, other programs may remove them
	}
	j.rejoin()
	j.pruneRDT()
}

// SameRDT reports whether two configurations ask for the same resctrl groups.
func SameRDT(a, b *config.Config) bool {
	values := func(c *config.Config) []config.Value {
		return slices.DeleteFunc(config.Values(c), func(v config.Value) bool { return !strings.HasPrefix(v.Key, "rdt.") })
	}
	return slices.Equal(values(a), values(b))
}

// rejoin makes all processes join their groups again, even if the group is the same.
func (j *Joiner) rejoin() {
	for _, c := range j.Order {
		h, ok := j.Ledger.Holder(c.ID)
		if !ok {
			continue
		}
		if (h.Request.RDT.Own == workload.RDTShare{}) {
			j.rdt.LeavePod(c.Pod.UID)
		}
		was := c.RDTGroup
		c.Processes, c.RDTGroup = nil, ""
		if c.Started {
			j.Join(c)
		}
		if was != "" && c.RDTGroup == "" && j.Authority().RDT && j.Kernel != nil {
			for _, pid := range j.processes(c) {
				j.rdt.ToDefault(pid)
			}
		}
	}
}
