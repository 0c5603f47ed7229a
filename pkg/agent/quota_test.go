package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/plan"
)

const shopPod = "/kubepods/pod-shop"

func finite(cpus int) plan.CPUQuota {
	return plan.CPUQuota{Quota: time.Duration(cpus) * 100 * time.Millisecond, Period: 100 * time.Millisecond}
}

func (n *node) expectQuota(path, want string) {
	n.t.Helper()
	n.sleep(0)
	if got := n.quota(path); got != want {
		n.t.Errorf("quota of %s is %s, want %s", path, got, want)
	}
}

func TestPodQuota(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *node) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		if err := n.create("shop/web", "LS", 1); err != nil {
			t.Fatal(err)
		}
		if err := n.begin("shop/web"); err != nil {
			t.Fatal(err)
		}
		n.expectQuota(shopPod, "2 CPUs")
		n.end("shop/web")
		n.expectQuota(shopPod, "unlimited")
		// The kubelet resizes the pod.
		n.kernel.change(shopPod, func(g *group) { g.quota = finite(3) })
		n.pass()
		n.expectQuota(shopPod, "unlimited")
		n.end("shop/db")
		n.expectQuota(shopPod, "3 CPUs")
	})
}

// TestKubeletsQuotaStands: what the kubelet wrote after Sluice is not overwritten
// with what there was before.
func TestKubeletsQuotaStands(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *node) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		n.kernel.change(shopPod, func(g *group) { g.quota = finite(4) })
		n.end("shop/db")
		n.expectQuota(shopPod, "4 CPUs")
	})
}

// TestQuotaGivenBackLater where the kernel refuses it at first.
func TestQuotaGivenBackLater(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *node) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		n.kernel.refusing(func(plan.Change) error { return errors.New("invalid argument") })
		n.end("shop/db")
		n.pass()
		n.expectQuota(shopPod, "unlimited")
		n.kernel.refusing(nil)
		n.pass()
		n.expectQuota(shopPod, "2 CPUs")
	})
}

// TestOriginalOnDiskFirst: no file, no lifted quota.
func TestOriginalOnDiskFirst(t *testing.T) {
	s := setup{checkpoint: filepath.Join(t.TempDir(), "missing", "checkpoint")}
	inBubble(t, s, func(t *testing.T, n *node) {
		n.run("shop/db", "LSR", 2)
		n.sleep(10 * time.Second)
		n.expectQuota(shopPod, "2 CPUs")
		if err := os.Mkdir(filepath.Dir(s.checkpoint), 0o700); err != nil {
			t.Fatal(err)
		}
		n.pass()
		n.expectQuota(shopPod, "unlimited")
		state, err := readCheckpoint(s.checkpoint)
		if err != nil || state.Pods["shop"].Original != finite(2) || state.Containers["shop/db"].Quota != finite(2) {
			t.Errorf("the checkpoint has %+v, %v", state, err)
		}
	})
}

func TestQuotaAcrossRestart(t *testing.T) {
	s := setup{checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
	inBubble(t, s, func(_ *testing.T, n *node) {
		n.run("shop/db", "LSR", 2)
		n.sleep(2 * time.Second)
		n.restart(s)
		n.expectQuota(shopPod, "unlimited")
		n.end("shop/db")
		n.expectQuota(shopPod, "2 CPUs")
	})
}

func TestBadCheckpoints(t *testing.T) {
	for name, text := range map[string]string{
		"empty":    "",
		"half":     `{"sha256":"e3`,
		"tampered": `{"sha256":"00","state":{"version":1}}`,
		"newer":    `{"sha256":"a4e7b6b8","state":{"version":99}}`,
		"null":     "null",
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
			if err := os.WriteFile(s.checkpoint, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readCheckpoint(s.checkpoint); err == nil {
				t.Error("read without an error")
			}
			inBubble(t, s, func(t *testing.T, n *node) {
				n.run("db", "LSR", 2)
				n.expect(map[string]string{"db": "0-1"})
				n.pass()
				n.pass()
				if _, err := readCheckpoint(s.checkpoint); err != nil {
					t.Errorf("not replaced: %v", err)
				}
			})
		})
	}
}

// FuzzCheckpoint: no file can make the plugin panic.
func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"sha256":"","state":{"version":1,"pods":{"a":null}}}`))
	file := filepath.Join(f.TempDir(), "checkpoint")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if state, err := readCheckpoint(file); err != nil && len(state.Pods)+len(state.Containers) > 0 {
			t.Error("an error, and still a state")
		}
	})
}
