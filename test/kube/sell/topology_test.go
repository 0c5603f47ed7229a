package sell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	topology "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const topologyRules = bed.AgentRules + "- {apiGroups: [topology.node.k8s.io], resources: [noderesourcetopologies], verbs: [get, create, patch, delete]}\n"

// zoned lets the node have two NUMA nodes of four CPUs, of which new pins can have so many.
func zoned(free ...int) func(*status.Status) {
	return func(s *status.Status) {
		standin.Offers(s, 4000)
		s.Machine.PinnableCPUs, s.Machine.NUMANodes, s.Machine.Pinned = 0, nil, cpuset.Set{}
		for i, cpus := range free {
			s.Machine.PinnableCPUs += cpus
			s.Machine.NUMANodes = append(s.Machine.NUMANodes, status.NUMANode{ID: i, CPUs: cpuset.Range(4*i, 4*i+3), PinnableCPUs: cpus, Distances: []int{10 + 10*i, 20 - 10*i}})
		}
	}
}

func (s *stand) topology() (*topology.NodeResourceTopology, error) {
	body, err := s.client.Discovery().RESTClient().Get().AbsPath(bed.TopologiesPath, nodeName).DoRaw(context.Background())
	if err != nil {
		return nil, err
	}
	var object topology.NodeResourceTopology
	return &object, json.Unmarshal(body, &object)
}

// free are the CPUs for new pins by zone, as "3 4".
func free(object *topology.NodeResourceTopology) string {
	var all []string
	for _, z := range object.Zones {
		for _, r := range z.Resources {
			if r.Name == "sluice.dev/pinnable-cpu" {
				all = append(all, r.Available.String())
			}
		}
	}
	return strings.Join(all, " ")
}

func (s *stand) awaitTopology(want string) time.Duration {
	s.Helper()
	began := time.Now()
	bed.Await(s, "the zones to have "+want, func() error {
		object, err := s.topology()
		if err == nil && free(object) != want {
			err = fmt.Errorf("they have %s", free(object))
		}
		return err
	})
	return time.Since(began)
}

// write writes zones as another publisher does.
func write(t testing.TB, config *rest.Config, node, manager string, verb types.PatchType, zones string) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": %q}, "zones": %s}`, node, zones)
	return client.Discovery().RESTClient().Patch(verb).AbsPath(bed.TopologiesPath, node).Param("fieldManager", manager).Body([]byte(body)).Do(t.Context()).Error()
}

func TestTopology(t *testing.T) {
	c := bed.API(t)
	s := &stand{T: t, cluster: c, client: c.Client(t), plugin: standin.Start(t)}
	agent := c.Agent(t, nodeName, topologyRules)
	s.kubeconfig = c.Kubeconfig(t, "sluice", agent)
	s.patchStatus("nodes", nodeName, types.MergePatchType, "kubelet", `{"status": {"allocatable": {"cpu": "7500m", "memory": "30Gi", "hugepages-2Mi": "0", "ephemeral-storage": "9Gi"}}}`)
	s.plugin.Set(zoned(3, 4))
	run := func() { s.program = standin.Run(t, nodeName, s.kubeconfig, s.plugin.Socket, "--pins", "--topology") }
	logged := func(text string) {
		t.Helper()
		bed.Await(t, "sluice-kube to say: "+text, func() error {
			if n := strings.Count(s.program.Log(t), text); n != 1 {
				return fmt.Errorf("it says so %d times", n)
			}
			return nil
		})
	}

	// Without the definition everything else is published.
	run()
	s.await(4000, selling)
	logged("no custom resource definition of noderesourcetopologies.topology.node.k8s.io/v1alpha2")
	if n := has(s.node(), "sluice.dev/pinnable-cpu"); n != 7 {
		t.Errorf("the node has %d CPUs for pins, want 7", n)
	}
	s.program.Stop(t)

	c.InstallTopologies(t)
	run()
	t.Logf("the zones were there after %v", s.awaitTopology("3 4").Round(time.Millisecond))
	object, err := s.topology()
	if err != nil {
		t.Fatal(err)
	}
	if o := object.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != s.node().UID {
		t.Errorf("the owners are %+v", o)
	}
	if len(object.Attributes) != 2 || object.Zones[1].Name != "node-1" || object.Zones[1].Type != "Node" || len(object.Zones[1].Costs) != 2 || len(object.Zones[1].Resources) != 5 {
		t.Errorf("the object is %+v", object)
	}
	for _, r := range object.Zones[1].Resources {
		if want, whole := s.node().Status.Allocatable[corev1.ResourceName(r.Name)]; !whole || r.Name != "sluice.dev/pinnable-cpu" && r.Available.Cmp(want) != 0 {
			t.Errorf("a zone has %+v, and the node %s", r, want.String())
		}
	}
	s.plugin.Set(zoned(3, 1))
	fall := s.awaitTopology("3 1")
	s.pod("bound", "sluice.dev/pinnable-cpu", "1", false)
	t.Logf("a fall was there after %v, that of a bound pod after %v", fall.Round(time.Millisecond), s.awaitTopology("2 0").Round(time.Millisecond))

	t.Run("only the own node's", func(t *testing.T) {
		for _, node := range []string{"n2", nodeName} {
			err := write(t, agent, node, "sluice-kube", types.ApplyPatchType, "[]")
			if own := node == nodeName; (err == nil) != own || !own && !strings.Contains(err.Error(), "the agent of node n1 may not change the NodeResourceTopology of node n2") {
				t.Errorf("the agent of node %s writes that of node %s: %v", nodeName, node, err)
			}
		}
	})

	t.Run("another publisher", func(t *testing.T) {
		s.T = t
		if err := write(t, c.Admin(), nodeName, "nfd-master", types.MergePatchType, `[{"name": "node-0", "type": "Node"}]`); err != nil {
			t.Fatal(err)
		}
		s.plugin.Set(zoned(0, 0))
		logged("another program publishes it")
		s.uninstalls(nodeName, "", "nothing of Sluice")
		if object, err := s.topology(); err != nil || len(object.Zones) != 1 || free(object) != "" {
			t.Errorf("the object of the other publisher is %+v, %v", object, err)
		}
		s.program.Stop(t)
		if err := c.Client(t).Discovery().RESTClient().Delete().AbsPath(bed.TopologiesPath, nodeName).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	})
	s.T = t

	run()
	s.awaitTopology("0 0")
	s.program.Stop(t)
	if _, err := s.topology(); err != nil {
		t.Errorf("the object went with the program: %v", err)
	}
	s.uninstalls(nodeName, "--topology", "no NodeResourceTopology of Sluice")
	if _, err := s.topology(); !apierrors.IsNotFound(err) {
		t.Errorf("after the uninstallation the object is there: %v", err)
	}
	if has(s.node(), cpu) < 0 {
		t.Error("with --topology everything was removed")
	}
}

func (s *stand) uninstalls(node, flag, left string) {
	s.Helper()
	args := []string{"uninstall", "--node-name", node, "--kubeconfig", s.kubeconfig}
	if flag != "" {
		args = append(args, flag)
	}
	out, err := exec.CommandContext(s.Context(), "../../../bin/sluice-kube", args...).CombinedOutput()
	if want := "node " + node + ": " + left + " is published\n"; err != nil || string(out) != want {
		s.Fatal(errors.Join(err, fmt.Errorf("%s, want %s", out, want)))
	}
}
