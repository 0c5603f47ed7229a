package firstday

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// kubeletStatic are keys of a kubelet that gives whole CPUs away, all but one.
const kubeletStatic = `
cpuManagerPolicy: static
cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"}
kubeReserved: {cpu: 100m}
`

// guaranteed are a Deployment with all CPUs that the kubelet gives away, one with a part of a CPU, and a DaemonSet, which
// a drain leaves alone. The node has no room for two pods of the first, and its pod may be back before the annotation: a
// scheduler that has not seen yet that the node is cordoned binds it there.
const guaranteed = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: data}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: db, image: %q, command: [sleep, infinity], resources: {limits: {cpu: %d, memory: 16Mi}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: data}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: %[1]q, command: [sleep, infinity], resources: {limits: {cpu: 500m, memory: 16Mi}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log, namespace: data}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: log, image: %[1]q, command: [sleep, infinity]}]
`

// migration is a node whose kubelet gives CPUs away, and a page whose commands move it to Sluice.
type migration struct {
	*page
	cluster *bed.Cluster
	node    *bed.Node
	plugin  *bed.Service
}

// TestMigrateStatic follows docs/migrate-static.md. Before and after, a container has as many CPUs of its own.
func TestMigrateStatic(t *testing.T) {
	own := runtime.NumCPU() - 1
	if own == 0 {
		t.Skip("SKIPPED: the kubelet needs a second CPU to give one away")
	}
	c := bed.API(t)
	m := &migration{cluster: c, node: c.Node(t, "n1", kubeletStatic)}
	config := filepath.Join(c.Dir, "node-n1", "kubelet.yaml")
	m.page = open(t, "migrate-static.md", c.Kubeconfig(t, "operator", c.Admin()), "NODE", m.node.Name, "/var/lib/kubelet/config.yaml", config)
	m.plugin = m.node.Program(t, m.program("sluice"), "run")
	c.Namespace(t, "data", nil)
	c.Apply(t, fmt.Sprintf(guaranteed, bed.Image, own))
	before, log := m.pod("db"), m.pod("log")
	m.pod("web")
	had := m.apart("db", "web", "log")

	plan := m.onNode("sluice migrate static --plan")
	m.says(plan, "data/"+before.Name, had.String(), "class.sluice.dev/container.db: LSR", "rm /var/lib/kubelet/cpu_manager_state", "1 container in 1 pod")
	if strings.Contains(plan, "data/web") || strings.Contains(plan, "refused:") {
		t.Errorf("the plan has a pod without CPUs of its own, or refuses one:\n%s", plan)
	}

	m.run("kubectl drain")
	m.onNode("systemctl stop kubelet")
	m.onNode("sed -i")
	m.onNode("rm ")
	m.says(m.onNode("systemctl restart sluice"), "there is nothing to migrate")
	m.run("kubectl -n data patch")
	m.run("kubectl uncordon")
	m.says(m.onNode("sluice status"), m.pod("db").Name)
	m.close()

	m.pod("web")
	if has := m.apart("db", "web", "log"); has.Size() != had.Size() {
		t.Errorf("the container has CPUs %s, and had %s of the kubelet", has, had)
	}
	if after := m.pod("log"); after.UID != log.UID {
		t.Error("the pod of the DaemonSet was replaced, so that no pod has stayed")
	}
}

func (m *migration) program(name string) string {
	m.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		m.Fatal(err)
	}
	return path
}

// pod waits until an app has exactly one pod, which is ready.
func (m *migration) pod(app string) *corev1.Pod {
	m.Helper()
	var found *corev1.Pod
	bed.Await(m.T, "one pod of "+app, func() error {
		list, err := m.cluster.Client(m.T).CoreV1().Pods("data").List(m.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || !bed.Ready(&list.Items[0]) {
			trouble := ""
			for i := range list.Items {
				trouble += "; " + bed.Trouble(&list.Items[i])
			}
			return fmt.Errorf("there are %d pods%s", len(list.Items), trouble)
		}
		found = &list.Items[0]
		return nil
	})
	return found
}

// apart waits until the container of the first app has CPUs that those of the others do not have, and
// returns them.
func (m *migration) apart(app string, others ...string) cpuset.Set {
	m.Helper()
	var own cpuset.Set
	bed.Await(m.T, "CPUs of "+app+" alone", func() error {
		own = m.cpus(app)
		for _, other := range others {
			if cpus := m.cpus(other); own.IsEmpty() || cpus.IsEmpty() || own.Overlaps(cpus) {
				return fmt.Errorf("%s has the CPUs %q, and %s %q", app, own, other, cpus)
			}
		}
		return nil
	})
	return own
}

// cpus are those of an app's container in the kernel.
func (m *migration) cpus(app string) cpuset.Set {
	m.Helper()
	file := "cpuset.cpus"
	if m.node.V2() {
		file = "cpuset.cpus.effective"
	}
	text := m.node.CgroupFile(m.T, m.node.Cgroup(m.T, m.pod(app), app), file)
	cpus, err := cpuset.Parse(text)
	if err != nil {
		m.Fatalf("the CPUs of %s are %q: %v", app, text, err)
	}
	return cpus
}

// onNode runs the next block of commands on the node. In place of systemctl, it stops and starts the bed's programs.
func (m *migration) onNode(begins string) string {
	m.Helper()
	block := m.next(begins)
	var said strings.Builder
	for line := range strings.Lines(m.fill.Replace(block.Text)) {
		switch line = strings.TrimSpace(line); line {
		case "systemctl stop kubelet":
			m.node.Kubelet.Stop(m.T)
		case "systemctl start kubelet":
			m.node.Kubelet.Start(m.T)
		case "systemctl restart sluice":
			m.plugin.Restart(m.T)
			bed.Await(m.T, "Sluice's status", func() error { return m.node.Command(m.program("sluice"), "status").Run() })
		default:
			said.WriteString(m.node.Run(m.T, "env", "PATH="+filepath.Dir(m.program("sluice"))+":"+os.Getenv("PATH"), "bash", "-euo", "pipefail", "-c", line))
		}
	}
	m.Logf("line %d of the page:\n%s", block.Line, said.String())
	return said.String()
}
