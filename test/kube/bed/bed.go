// Package bed runs a real Kubernetes for tests: etcd and the API server in some seconds,
// and nodes with containerd and a kubelet where a test needs them.
//
//	func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }
//
//	func TestPods(t *testing.T) {
//		cluster := bed.API(t)
//		pods, err := cluster.Client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
//		...
//	}
//
// `make kube-tools` builds the programs. The variable KUBERNETES chooses the minor version,
// "1.36" where it is not set. All processes of a bed are in one cgroup, all files in one
// folder, and all of it is gone after the test, also where the test program was killed.
// Beds of several test programs run beside each other, and beside another cluster's node.
//
// Where a test fails, it names the folder that keeps the logs of programs and containers.
package bed

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/test/host"
)

// Cluster is a control plane, with the nodes that were added.
type Cluster struct {
	Dir  string // every file but the logs; it is gone after the test
	Logs string // of programs and, in a folder for each node, of containers; they stay after a test that failed

	Etcd, APIServer *Service
	// ControllerManager and Scheduler are nil until StartControllers or Node.
	ControllerManager, Scheduler *Service

	slot      slot
	tree      *host.Tree
	programs  string // folder of the programs
	authority *authority
	tokens    *ecdsa.PrivateKey // signs service accounts' tokens
	etcdURL   string
	url       string
	admin     *rest.Config
	nodes     int // that were added
}

// API starts etcd and kube-apiserver, with further flags of the latter. Its users are
// client certificates (User) and service accounts (PodToken); authorization is Node and
// RBAC; the plugin NodeRestriction is on. Nothing runs pods, sets conditions of nodes, or
// removes what an owner left: see StartControllers and Node.
func API(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the bed's processes are in cgroups of their own, which needs root")
	}
	c, keeper, err := newCluster(t)
	if keeper != nil {
		t.Cleanup(func() { c.close(t, keeper) })
	}
	if err == nil {
		err = c.startAPI(flags)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newCluster takes a slot, removes what a killed test has left in it, and makes the folders.
func newCluster(t testing.TB) (*Cluster, *keeper, error) {
	programs, err := folder()
	if err != nil {
		return nil, nil, err
	}
	slot, held, err := take()
	if err != nil {
		return nil, nil, err
	}
	if err := slot.clean(); err != nil {
		return nil, nil, errors.Join(err, held.Close())
	}
	keeper, err := startKeeper(slot, held)
	if err != nil {
		return nil, nil, err
	}
	c := &Cluster{Dir: slot.dir(), slot: slot, programs: programs}
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		return c, keeper, err
	}
	name := strings.NewReplacer("/", "-", "*", "").Replace(t.Name())
	if c.Logs, err = os.MkdirTemp("", "sluicebed-logs-"+name+"-"); err != nil {
		return c, keeper, err
	}
	if c.tree, err = slot.tree(); err != nil {
		return c, keeper, err
	}
	if err := c.tree.Create(c.tree.Processes()); err != nil {
		return c, keeper, err
	}
	if c.authority, err = newAuthority(); err != nil {
		return c, keeper, err
	}
	c.tokens, err = newKey()
	return c, keeper, err
}

// close removes everything, and keeps the logs of a test that failed.
func (c *Cluster) close(t testing.TB, keeper *keeper) {
	if err := keeper.close(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		t.Logf("the logs of programs and containers are in %s", c.Logs)
	} else if err := os.RemoveAll(c.Logs); err != nil {
		t.Error(err)
	}
}

// Version is the minor version of Kubernetes that the variable KUBERNETES chooses.
func Version() string {
	if version := os.Getenv("KUBERNETES"); version != "" {
		return version
	}
	return "1.36"
}

// folder has the programs that `make kube-tools` builds.
func folder() (string, error) {
	root, err := repository()
	dir := filepath.Join(root, "bin", "kube", Version())
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "kube-apiserver"))
	}
	if err != nil {
		return "", fmt.Errorf("run make kube-tools KUBERNETES=%s: %w", Version(), err)
	}
	return dir, nil
}

// repository is the repository's root, which has the folder bin.
func repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(text), "module github.com/sluice-dev/sluice\n") {
			return dir, nil
		}
	}
	return "", errors.Join(err, errors.New("the working directory is outside the repository"))
}

// startAPI starts etcd and the API server, and makes the service account that pods of the
// namespace "default" need.
func (c *Cluster) startAPI(flags []string) error {
	etcd, err := c.describeEtcd()
	if err != nil {
		return err
	}
	if err := etcd.start(); err != nil {
		return err
	}
	port, err := c.slot.port(2)
	if err != nil {
		return err
	}
	c.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	if c.admin, err = c.user("admin", "system:masters"); err != nil {
		return err
	}
	if err := c.describeAPIServer(port, flags); err != nil {
		return err
	}
	if err := c.APIServer.start(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	return createServiceAccount(context.Background(), client, "default")
}

// serviceIP is the address of the service "kubernetes", at which pods find the API server.
func (c *Cluster) serviceIP() net.IP { return c.slot.address(0, 1) }
