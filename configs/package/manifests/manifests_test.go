// Package manifests checks the Kubernetes manifests against the API's types as strictly as an API
// server can: unknown and duplicate keys are errors.
package manifests

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

const plugin, restore = "sluice.yaml", "restore.yaml"

// objects returns the objects of a manifest in their order.
func objects(t *testing.T, file string) []runtime.Object {
	t.Helper()
	return decode(t, filepath.Join("../../../configs/kubernetes", file))
}

func decode(t *testing.T, file string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme, batch.AddToScheme, rbac.AddToScheme, resource.AddToScheme, scheduling.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		if strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			continue // of the Prometheus operator, whose types are elsewhere
		}
		object, _, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, object)
	}
	return all
}

// What the chart renders is of the API's types too.
func TestChart(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../test/helm/testdata/*.golden.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("golden files are %q, %v", files, err)
	}
	for _, file := range files {
		if all := decode(t, file); len(all) < 2 {
			t.Errorf("%s has %d objects", file, len(all))
		}
	}
}

// sluice-kube has the only token, nothing of the host but the folder with the socket, and no privilege.
func TestKubeIsUnprivileged(t *testing.T) {
	t.Parallel()
	found := 0
	for _, object := range decode(t, "../../../test/helm/testdata/kube.golden.yaml") {
		set, ok := object.(*apps.DaemonSet)
		if !ok {
			continue
		}
		pod := set.Spec.Template.Spec
		token := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Projected != nil })
		if !strings.HasPrefix(set.Name, "sluice-kube") {
			if token >= 0 || *pod.AutomountServiceAccountToken {
				t.Errorf("%s has a token", set.Name)
			}
			continue
		}
		found++
		var folders []string
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				folders = append(folders, v.HostPath.Path)
			}
		}
		s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
		if pod.HostPID || pod.HostNetwork || pod.HostIPC || token < 0 || !slices.Equal(folders, []string{"/run/sluice-kube"}) || *s.RunAsUser == 0 || !*s.RunAsNonRoot ||
			!*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
			t.Errorf("%s: %+v %+v, folders %q of the host", set.Name, s, c, folders)
		}
	}
	if found != 3 {
		t.Errorf("%d DaemonSets of sluice-kube, want one for each of the 3 groups that run Sluice or are given back", found)
	}
}

func one[T runtime.Object](t *testing.T, file string) T {
	t.Helper()
	for _, object := range objects(t, file) {
		if o, ok := object.(T); ok {
			return o
		}
	}
	t.Fatalf("there is no %T", *new(T))
	panic("unreachable")
}

// No pod talks to the API: there is no role, and the pods have no token.
func TestNoAPI(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]int{plugin: 4, restore: 3} {
		if all := objects(t, file); len(all) != want {
			t.Errorf("%s has %d objects, want Namespace, ServiceAccount and DaemonSet, and the plugin's ConfigMap", file, len(all))
		}
		pod := one[*apps.DaemonSet](t, file).Spec.Template.Spec
		account := one[*core.ServiceAccount](t, file)
		for _, automount := range []*bool{account.AutomountServiceAccountToken, pod.AutomountServiceAccountToken} {
			if automount == nil || *automount {
				t.Errorf("%s: the pod gets a token", file)
			}
		}
		if pod.ServiceAccountName != account.Name {
			t.Errorf("%s: the pod runs as %q", file, pod.ServiceAccountName)
		}
	}
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	c := one[*core.ConfigMap](t, plugin)
	if cfg, err := config.Parse([]byte(c.Data["sluice.yaml"])); err != nil || cfg.Mode != config.Preview {
		t.Errorf("%v; the manifest must start with step 1 of docs/install.md, mode: preview", err)
	}
	for _, v := range one[*apps.DaemonSet](t, plugin).Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name != c.Name {
			t.Errorf("volume %s is of ConfigMap %q", v.Name, v.ConfigMap.Name)
		}
	}
}

// TestOwnClass checks that the plugin's own pod is of class SYSTEM and has a higher weight than
// its request gives, by the configuration beside it.
func TestOwnClass(t *testing.T) {
	t.Parallel()
	set := one[*apps.DaemonSet](t, plugin)
	cfg, err := config.Parse([]byte(one[*core.ConfigMap](t, plugin).Data["sluice.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	pod := &workload.Pod{Namespace: set.Namespace, Name: "sluice-x", Labels: set.Spec.Template.Labels, CgroupParent: "/kubepods/burstable/pod1"}
	got, _, err := cfg.Request(annotation.Facts{ThreadsPerCore: 2}, pod, &workload.Container{Name: "sluice", Resources: workload.Resources{Shares: 102}})
	if err != nil || got.Class != workload.System || got.Weight < 500 {
		t.Errorf("it is %s with %d%% of its weight, %v", got.Class, got.Weight, err)
	}
}

// The pods have no more privileges than the service, and each mount has its volume. They can start
// where CAP_SYS_RESOURCE can't be given.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../../configs/systemd/sluice.service")
	if err != nil {
		t.Fatal(err)
	}
	_, bounds, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	bounds, _, _ = strings.Cut(bounds, "\n")
	want := slices.DeleteFunc(strings.Fields(bounds), func(c string) bool { return c == "CAP_SYS_RESOURCE" })
	for _, file := range []string{plugin, restore} {
		pod := one[*apps.DaemonSet](t, file).Spec.Template.Spec
		if pod.HostNetwork || pod.HostIPC {
			t.Errorf("%s: the pod has more of the host than it needs", file)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			s := c.SecurityContext
			if s.Privileged != nil && *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: %s may do more than it needs: %+v", file, c.Name, s)
			}
			var added []string
			for _, capability := range s.Capabilities.Add {
				added = append(added, "CAP_"+string(capability))
			}
			if !slices.Equal(added, want) || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("%s: %s adds %v and drops %v; want %v", file, c.Name, added, s.Capabilities.Drop, want)
			}
			for _, m := range c.VolumeMounts {
				if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
					t.Errorf("%s: there is no volume %s", file, m.Name)
				}
			}
			if len(c.VolumeMounts) != len(pod.Volumes) {
				t.Errorf("%s: %s has %d mounts of %d volumes", file, c.Name, len(c.VolumeMounts), len(pod.Volumes))
			}
		}
	}
}

// TestSockets checks that the runtime's CRI socket is where Sluice looks for it, that its folder
// may be missing, and that an unmount on the host also takes effect in the pod.
func TestSockets(t *testing.T) {
	t.Parallel()
	pod := one[*apps.DaemonSet](t, plugin).Spec.Template.Spec
	for _, path := range []string{"/run/containerd", "/run/crio"} {
		v := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.HostPath != nil && v.HostPath.Path == path })
		m := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/host"+path })
		if v < 0 || m < 0 {
			t.Errorf("%s is not mounted", path)
			continue
		}
		from, to := pod.Volumes[v], pod.Containers[0].VolumeMounts[m]
		if from.Name != to.Name || *from.HostPath.Type != core.HostPathDirectoryOrCreate || to.MountPropagation == nil || *to.MountPropagation != core.MountPropagationHostToContainer {
			t.Errorf("%s: %+v, %+v", path, from, to)
		}
	}
}

// TestRestoreIsOfThePlugin checks that the restore runs the plugin's image on the plugin's files.
func TestRestoreIsOfThePlugin(t *testing.T) {
	t.Parallel()
	running, restoring := one[*apps.DaemonSet](t, plugin).Spec.Template.Spec, one[*apps.DaemonSet](t, restore).Spec.Template.Spec
	for _, c := range slices.Concat(restoring.InitContainers, restoring.Containers) {
		if c.Image != running.Containers[0].Image {
			t.Errorf("%s runs image %s", c.Name, c.Image)
		}
	}
	for _, v := range restoring.Volumes {
		if !slices.ContainsFunc(running.Volumes, func(of core.Volume) bool { return of.Name == v.Name && reflect.DeepEqual(of, v) }) {
			t.Errorf("volume %s differs from the plugin's", v.Name)
		}
	}
	for _, m := range restoring.InitContainers[0].VolumeMounts {
		if !slices.ContainsFunc(running.Containers[0].VolumeMounts, func(of core.VolumeMount) bool { return reflect.DeepEqual(of, m) }) {
			t.Errorf("mount %s differs from the plugin's", m.Name)
		}
	}
}
