package daemon

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
)

// A kubelet that takes weights for requests leaves the weights alone, at once and after a restart, unless
// they are configured.
func TestKubelet(t *testing.T) {
	t.Parallel()
	const key = "control.batch.onlineWeight"
	n := newPartsNode(t, "control: {mode: preview}\n")
	tell := func(version string) {
		t.Helper()
		await(t, func() error { return kubesocket.NewClient(n.o.KubeSocket).SetKubelet(t.Context(), version) })
	}
	n.start()
	n.has("without a version", "[]", "", key, "default")
	tell("v1.37.2")
	n.has("a kubelet that takes weights", "[]", "", key, "100")
	n.start()
	n.has("after a restart", "[]", "", key, "100")
	n.write("control: {batch: {onlineWeight: 800}}\n")
	n.s.reload.read(false)
	n.has("with a configured weight", "[]", "", key, "800")
	n.write("control: {batch: {floorCPUs: 1}}\n")
	n.s.reload.read(false)
	n.has("without one again", "[]", "", key, "100")
	tell("v1.36.3-gke.1")
	n.has("an older kubelet", "[]", "", key, "default")
	for _, wrong := range []string{"", "1.37", "v1", strings.Repeat("v1.37", 100)} {
		if err := kubesocket.NewClient(n.o.KubeSocket).SetKubelet(t.Context(), wrong); err == nil {
			t.Errorf("the version %q is taken", wrong)
		}
	}
	n.has("after impossible versions", "[]", "", key, "default")
}

func TestTakesWeights(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v1.36.9": false, "v1.37.0-rc.0": true, "v1.37.2+k3s1": true, "v1.40.1": true, "v2.0.0": true, "v1.9.3": false, "": false, "main": false,
	} {
		if takesWeights(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}
