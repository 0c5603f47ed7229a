package bed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// AwaitReady waits until the pod is ready, and returns it.
func (c *Cluster) AwaitReady(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	Await(t, fmt.Sprintf("pod %s/%s to be ready", namespace, name), func() error {
		var err error
		pod, err = c.Client(t).CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !Ready(pod) {
			err = errors.New(Trouble(pod))
		}
		return err
	})
	return pod
}

// Ready tells whether the pod is ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// RolledOut tells whether a DaemonSet's pods are all new and available, as `kubectl rollout status` does.
func RolledOut(d *appsv1.DaemonSet) bool {
	s := &d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled
}

// Trouble tells what the pod waits for, as far as its status does.
func Trouble(pod *corev1.Pod) string {
	said := []string{string(pod.Status.Phase), pod.Status.Reason, pod.Status.Message}
	for _, condition := range pod.Status.Conditions {
		said = append(said, condition.Message)
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := container.State.Waiting; waiting != nil {
			said = append(said, container.Name+": "+waiting.Reason+" "+waiting.Message)
		}
		if ended := container.LastTerminationState.Terminated; ended != nil {
			said = append(said, fmt.Sprintf("%s ended with %d, %s %s", container.Name, ended.ExitCode, ended.Reason, ended.Message))
		}
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), "; ")
}

// Exec runs a command in a container of the pod, as `kubectl exec` does, and returns what
// it prints to its standard output.
func (c *Cluster) Exec(t testing.TB, pod *corev1.Pod, container string, command ...string) (string, error) {
	t.Helper()
	request := c.Client(t).CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.admin, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, wrong bytes.Buffer
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &wrong}); err != nil {
		return out.String(), fmt.Errorf("%q in pod %s/%s: %w: %s", command, pod.Namespace, pod.Name, err, wrong.String())
	}
	return out.String(), nil
}

// Cgroup is the cgroup of the pod, or of its container if that is not "", below the root
// of each hierarchy. The pod must have been read after its start.
func (n *Node) Cgroup(t testing.TB, pod *corev1.Pod, container string) string {
	t.Helper()
	parts := []string{n.CgroupRoot, "kubepods"}
	if class := pod.Status.QOSClass; class != corev1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	parts = append(parts, "pod"+string(pod.UID))
	if container != "" {
		parts = append(parts, containerID(t, pod, container))
	}
	return filepath.Join(parts...)
}

// containerID is the runtime's name of a container of the pod, which must have been read after the container's start.
func containerID(t testing.TB, pod *corev1.Pod, container string) string {
	t.Helper()
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if _, id, found := strings.Cut(status.ContainerID, "://"); found && status.Name == container {
			return id
		}
	}
	t.Fatalf("pod %s/%s has no container %q that was started", pod.Namespace, pod.Name, container)
	return ""
}

// CgroupFile reads a file of a cgroup, trimmed: "cpu.shares", in the hierarchy that has it.
func (n *Node) CgroupFile(t testing.TB, cgroup, file string) string {
	t.Helper()
	text, err := n.cluster.tree.Read(cgroup, file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// CPUTime is the CPU time that a cgroup has used.
func (n *Node) CPUTime(t testing.TB, cgroup string) time.Duration {
	t.Helper()
	used, err := n.cluster.tree.CPUTime(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// V2 tells whether the machine has cpu and cpuset in cgroup v2.
func (n *Node) V2() bool { return n.cluster.tree.V2() }

// Log is what the container has logged on this node, of all its starts. The kubelet keeps
// the files for as long as the pod exists.
func (n *Node) Log(pod *corev1.Pod, container string) string {
	pattern := fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/*.log", pod.Namespace, pod.Name, pod.UID, container)
	files, _ := filepath.Glob(n.Path(pattern)) // the pattern is well-formed
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
		all.Write(text)
	}
	return all.String()
}
