package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
)

// sold are how the names of the resources that sluice-kube can publish begin.
var sold = []string{"batch.sluice.dev/", "mid.sluice.dev/", "sluice.dev/", "kubernetes.io/batch-", "kubernetes.io/mid-", "resource.katalyst.kubewharf.io/"}

// Leftovers lists what is left of Sluice's in the API server outside of its namespace: resources, conditions,
// annotations and fields of nodes, and what Unscoped lists.
func (c *Cluster) Leftovers(t testing.TB) []string {
	t.Helper()
	nodes, err := c.Client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left := c.Unscoped(t, "sluice")
	for i := range nodes.Items {
		for _, what := range published(&nodes.Items[i]) {
			left = append(left, what+" of node "+nodes.Items[i].Name)
		}
	}
	return left
}

// published lists what a node object has of Sluice's.
func published(node *corev1.Node) (all []string) {
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for name := range list {
			if slices.ContainsFunc(sold, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) }) {
				all = append(all, "resource "+string(name))
			}
		}
	}
	for _, condition := range node.Status.Conditions {
		if strings.HasPrefix(string(condition.Type), "Sluice") {
			all = append(all, "condition "+string(condition.Type))
		}
	}
	for name := range node.Annotations {
		if strings.HasPrefix(name, "sluice.dev/") {
			all = append(all, "annotation "+name)
		}
	}
	for _, entry := range node.ManagedFields {
		if strings.HasPrefix(entry.Manager, "sluice") {
			all = append(all, "fields of manager "+entry.Manager)
		}
	}
	return all
}

// Leftovers lists what is left of Sluice's in the node's folders for what runs, but for what an uninstallation leaves
// there until the next reboot: a journal without settings, and the list of Sluice's own CPUs.
func (n *Node) Leftovers(t testing.TB) []string {
	t.Helper()
	var left []string
	for _, dir := range []string{"/run/sluice", "/run/sluice-kube"} {
		files, err := os.ReadDir(n.Path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, file := range files {
			if name := file.Name(); dir != "/run/sluice" || name != "originals.jsonl" && name != "own-cpus" {
				left = append(left, filepath.Join(dir, name)+" on node "+n.Name)
			}
		}
	}
	boot, err := os.ReadFile(n.Path("/proc/sys/kernel/random/boot_id"))
	if err != nil {
		t.Fatal(err)
	}
	settings, err := journal.Read(n.Path("/run/sluice/originals.jsonl"), strings.TrimSpace(string(boot)))
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range settings.All() {
		left = append(left, fmt.Sprintf("%v in the journal of node %s", setting, n.Name))
	}
	return left
}
