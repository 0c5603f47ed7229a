package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
)

// Beside a kubelet that takes weights for requests, those of pods stay as they are, at once and after a
// restart, unless onlineWeight is configured.
func TestKubelet(t *testing.T) {
	t.Parallel()
	n := newPartsNode(t, "control: {mode: preview}\n")
	keeps := func(what string, want bool) {
		t.Helper()
		await(t, func() error {
			now, err := n.a.Status()
			if err == nil && now.Config.KeepWeights != want {
				err = fmt.Errorf("%s: the weights are kept: %v", what, !want)
			}
			return err
		})
	}
	tell := func(version string) {
		t.Helper()
		await(t, func() error { return kubesocket.NewClient(n.o.KubeSocket).SetKubelet(t.Context(), version) })
	}
	n.start()
	keeps("without a version", false)
	tell("v1.37.2")
	keeps("a kubelet that takes weights", true)
	n.start()
	keeps("after a restart", true)
	n.write("control: {batch: {onlineWeight: 800}}\n")
	n.s.reload.read(false)
	keeps("with a configured weight", false)
	n.write("control: {batch: {floorCPUs: 1}}\n")
	n.s.reload.read(false)
	keeps("without one again", true)
	tell("v1.36.3-gke.1")
	keeps("an older kubelet", false)
	for _, wrong := range []string{"", "1.37", "v1", strings.Repeat("v1.37", 100)} {
		if err := kubesocket.NewClient(n.o.KubeSocket).SetKubelet(t.Context(), wrong); err == nil {
			t.Errorf("the version %q is taken", wrong)
		}
	}
	keeps("after impossible versions", false)
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
