// Package manifests checks the Kubernetes manifests against the API's own types, as
// an API server that validates strictly would: an unknown or doubled key is an error.
package manifests

import (
	"os"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sluice-dev/sluice/pkg/config"
)

// objects are those of the manifest, in their order.
func objects(t *testing.T) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile("../../../configs/kubernetes/sluice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object, _, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, object)
	}
	return all
}

func one[T runtime.Object](t *testing.T) T {
	t.Helper()
	for _, object := range objects(t) {
		if o, ok := object.(T); ok {
			return o
		}
	}
	t.Fatalf("there is no %T", *new(T))
	panic("unreachable")
}

// Nothing talks to the API: there is no role, and no token in the pod.
func TestNoAPI(t *testing.T) {
	t.Parallel()
	if all := objects(t); len(all) != 4 {
		t.Errorf("%d objects, want Namespace, ServiceAccount, ConfigMap and DaemonSet", len(all))
	}
	pod := one[*apps.DaemonSet](t).Spec.Template.Spec
	account := one[*core.ServiceAccount](t)
	for _, automount := range []*bool{account.AutomountServiceAccountToken, pod.AutomountServiceAccountToken} {
		if automount == nil || *automount {
			t.Error("the pod gets a token")
		}
	}
	if pod.ServiceAccountName != account.Name {
		t.Errorf("the pod runs as %q", pod.ServiceAccountName)
	}
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	c := one[*core.ConfigMap](t)
	if _, err := config.Parse([]byte(c.Data["sluice.yaml"])); err != nil {
		t.Error(err)
	}
	for _, v := range one[*apps.DaemonSet](t).Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name != c.Name {
			t.Errorf("volume %s is of ConfigMap %q", v.Name, v.ConfigMap.Name)
		}
	}
}

// The pod can do no more than the service, and each mount has its volume.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	pod := one[*apps.DaemonSet](t).Spec.Template.Spec
	c := pod.Containers[0]
	s := c.SecurityContext
	if s.Privileged != nil && *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || pod.HostNetwork || pod.HostIPC {
		t.Errorf("it may do more than it needs: %+v", s)
	}
	unit, err := os.ReadFile("../../../configs/systemd/sluice.service")
	if err != nil {
		t.Fatal(err)
	}
	_, bounds, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	bounds, _, _ = strings.Cut(bounds, "\n")
	var added []string
	for _, capability := range s.Capabilities.Add {
		added = append(added, "CAP_"+string(capability))
	}
	if want := strings.Fields(bounds); !slices.Equal(added, want) || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("it adds %v and drops %v; the unit has %v", added, s.Capabilities.Drop, want)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	if len(c.VolumeMounts) != len(pod.Volumes) {
		t.Errorf("%d mounts of %d volumes", len(c.VolumeMounts), len(pod.Volumes))
	}
}
