package bed_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// pod is a pod NAME on the node NODE.
const pod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/sluice/bed:1
    command: [sh, -c, "echo started; exec sleep infinity"]
    resources: {requests: {cpu: 250m}, limits: {memory: 64Mi}}
`

// Two nodes beside each other: pods run on both, with the kubelets' kernel files, reach the
// API server by the environment that Kubernetes gives them, and outlive the services.
func TestNodes(t *testing.T) {
	var dir string
	before := settings(t)
	t.Cleanup(func() {
		if after := settings(t); after != before {
			t.Errorf("the machine's settings were\n%s\nand are\n%s", before, after)
		}
		if left := remains(t, dir); len(left) > 0 {
			t.Errorf("the bed left %q", left)
		}
	})
	c := bed.API(t)
	dir = c.Dir
	pods := map[string]*corev1.Pod{}
	nodes := map[string]*bed.Node{}
	for _, name := range []string{"n1", "n2"} {
		began := time.Now()
		nodes[name] = c.Node(t, name)
		t.Logf("node %s was ready after %s", name, time.Since(began).Round(time.Millisecond))
		c.Apply(t, strings.NewReplacer("NAME", "on-"+name, "NODE", name).Replace(pod))
	}
	for name, node := range nodes {
		pod := c.AwaitReady(t, "default", "on-"+name)
		pods[name] = pod
		if got := node.CgroupFile(t, node.Cgroup(t, pod, "main"), weightFile(node)); got != weight(node) {
			t.Errorf("%s of the container on %s is %q", weightFile(node), name, got)
		}
		bed.Await(t, "the container on "+name+" to log that it has started", func() error {
			if log := node.Log(pod, "main"); !strings.Contains(log, "started") {
				return fmt.Errorf("it has logged %q", log)
			}
			return nil
		})
		out, err := c.Exec(t, pod, "main", "sh", "-c", "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached")
		if err != nil || !strings.Contains(out, "reached") {
			t.Errorf("the pod on %s prints %q (%v): it doesn't reach the API server", name, out, err)
		}
	}
	if pods["n1"].Status.PodIP == pods["n2"].Status.PodIP {
		t.Error("both pods have the same address")
	}

	n1 := nodes["n1"]
	n1.Kubelet.Kill(t)
	n1.Containerd.Kill(t)
	n1.Containerd.Start(t)
	n1.Kubelet.Start(t)
	restarted := metav1.Now()
	bed.Await(t, "the kubelet to report again", func() error { return c.Reported(t, "n1", restarted) })
	after := c.AwaitReady(t, "default", "on-n1")
	if after.Status.ContainerStatuses[0].ContainerID != pods["n1"].Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the container is another one after restarts of the kubelet and containerd: %s", bed.Trouble(after))
	}
}

func weightFile(n *bed.Node) string {
	if n.V2() {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// weight is that of 250m.
func weight(n *bed.Node) string {
	if n.V2() {
		return "35" // as runc 1.5 converts 256 shares
	}
	return "256"
}

// A test program that is killed has no time to clean up: its keeper does so.
func TestAKilledTestLeavesNothing(t *testing.T) {
	if os.Getenv("BED_VICTIM") != "" {
		c := bed.API(t)
		c.Node(t, "n1")
		c.Apply(t, strings.NewReplacer("NAME", "p1", "NODE", "n1").Replace(pod))
		c.AwaitReady(t, "default", "p1")
		fmt.Println(c.Dir, c.Logs)
		select {}
	}
	victim := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "BED_VICTIM=yes")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	dir, logs, _ := strings.Cut(readLine(t, out), " ")
	defer os.RemoveAll(logs) // they stay, for whoever asks why a test was killed
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the bed's folder %q: %v", dir, err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	victim.Wait()
	bed.Await(t, dir+" to go", func() error {
		if _, err := os.Stat(dir); err == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	if left := remains(t, dir); len(left) > 0 {
		t.Errorf("it left %q", left)
	}
}
