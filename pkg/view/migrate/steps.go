package migrate

import (
	"cmp"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// steps returns what to do, in order. Pods get their class while the node is drained: beside the
// static manager, Sluice refuses it.
func (f *Facts) steps(pods []Pod) []Step {
	node := cmp.Or(f.Node, "NODE")
	changed := 0
	for i := range pods {
		if !pods[i].Keeps {
			changed++
		}
	}
	all := []Step{
		{"Drain the node. This ends every pod on it but those of DaemonSets and static pods, and deletes emptyDir volumes.", []string{"kubectl drain " + node + " --ignore-daemonsets --delete-emptydir-data"}},
		f.stop(),
		{"Change the kubelet's configuration (" + f.Kubelet.From() + ", and its flags and drop-in files where they have the same keys): " + strings.Join(f.changes(), ", ") + ".", nil},
		{"Remove what the kubelet has recorded of its policy: it does not start with a record of another one.", []string{"rm " + strings.Join(f.records(), " ")}},
		f.start(),
		{"Check that there is nothing left to migrate. A running Sluice notices within 30 s, or when it is restarted.", []string{"sluice migrate static --plan"}},
	}
	if f.StatusProblem != "" {
		all = append(all, Step{"Start Sluice, if it does not run on this node: docs/install.md.", nil})
	}
	if changed > 0 {
		all = append(all, Step{"Add the annotations to the manifests of " + humanize.Count(changed, "pod") + ", in the pod templates of Deployments and the like. On nodes that still have the static policy and Sluice, Sluice refuses pods of class LSE and LSR.", nil})
	}
	all = append(all, Step{"Let pods return.", []string{"kubectl uncordon " + node}})
	if len(pods) > 0 {
		all = append(all, Step{"Check that the pods have CPUs of their own again.", []string{"sluice status"}})
	}
	return all
}

func (f *Facts) stop() Step {
	if f.Service {
		return Step{"Stop the kubelet.", []string{"systemctl stop kubelet"}}
	}
	return Step{"Stop the program that has the kubelet inside.", nil}
}

func (f *Facts) start() Step {
	if f.Service {
		return Step{"Start the kubelet.", []string{"systemctl start kubelet"}}
	}
	return Step{"Start that program.", nil}
}

// changes lists the changes of the kubelet's configuration.
func (f *Facts) changes() []string {
	var all []string
	if f.CPU.Static() {
		all = append(all, "set cpuManagerPolicy: none")
		if len(f.Kubelet.CPUManagerPolicyOptions) > 0 {
			all = append(all, "remove cpuManagerPolicyOptions")
		}
	}
	if f.Memory.Static() {
		all = append(all, "set memoryManagerPolicy: None")
		if len(f.Kubelet.ReservedMemory) > 0 {
			all = append(all, "remove reservedMemory")
		}
	}
	return all
}

// records lists the checkpoints to remove.
func (f *Facts) records() []string {
	var all []string
	if f.CPU.Static() {
		all = append(all, f.CPU.File)
	}
	if f.Memory.Static() {
		all = append(all, f.Memory.File)
	}
	return all
}
