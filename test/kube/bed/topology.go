package bed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
)

// TopologiesPath is the path of NodeResourceTopologies in the API.
const TopologiesPath = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

// InstallTopologies makes the custom resource definition of NodeResourceTopology, as its module has it.
func (c *Cluster) InstallTopologies(t testing.TB) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/k8stopologyawareschedwg/noderesourcetopology-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	definition, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "manifests/crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(definition))
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	Await(t, "the API server to serve NodeResourceTopologies", func() error {
		return client.Discovery().RESTClient().Get().AbsPath(TopologiesPath).Do(t.Context()).Error()
	})
}
