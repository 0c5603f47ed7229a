package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const shopPod = "/kubepods/pod-shop"

func finite(cpus int) knobs.CPUQuota {
	return knobs.CPUQuota{Quota: time.Duration(cpus) * 100 * time.Millisecond, Period: 100 * time.Millisecond}
}

func (n *testNode) expectQuota(path, want string) {
	n.t.Helper()
	n.sleep(0)
	if got := n.quota(path); got != want {
		n.t.Errorf("quota of %s is %s, want %s", path, got, want)
	}
}

func TestPodQuota(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
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

// TestKubeletsQuotaStands checks that the original does not replace what the kubelet has written
// after Sluice.
func TestKubeletsQuotaStands(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *testNode) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		n.kernel.change(shopPod, func(g *group) { g.quota = finite(4) })
		n.end("shop/db")
		n.expectQuota(shopPod, "4 CPUs")
	})
}

// TestQuotaGivenBackLater checks a quota that the kernel refuses to restore at first.
func TestQuotaGivenBackLater(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *testNode) {
		n.run("shop/db", "LSR", 2)
		n.expectQuota(shopPod, "unlimited")
		n.kernel.refusing(func(knobs.Change) error { return errors.New("invalid argument") })
		n.end("shop/db")
		n.pass()
		n.expectQuota(shopPod, "unlimited")
		n.kernel.refusing(nil)
		n.pass()
		n.pass()
		n.expectQuota(shopPod, "2 CPUs")
	})
}

// TestOriginalOnDiskFirst checks that no quota is lifted unless the journal's file can be written.
func TestOriginalOnDiskFirst(t *testing.T) {
	s := setup{originals: filepath.Join(t.TempDir(), "missing", "originals")}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		n.run("shop/db", "LSR", 2)
		n.sleep(10 * time.Second)
		n.expectQuota(shopPod, "2 CPUs")
		if err := os.Mkdir(filepath.Dir(s.originals), 0o700); err != nil {
			t.Fatal(err)
		}
		n.pass()
		n.expectQuota(shopPod, "unlimited")
		for _, path := range []string{shopPod, n.specs["shop/db"].CgroupsPath} {
			if was, ok := readJournal(t, s.originals).Original(path, knobs.Quota); !ok || was != knobs.Value(finite(2)) {
				t.Errorf("the quota kept of %s is %v", path, was)
			}
		}
	})
}

func TestQuotaAcrossRestart(t *testing.T) {
	s := setup{originals: filepath.Join(t.TempDir(), "originals")}
	inBubble(t, s, func(_ *testing.T, n *testNode) {
		n.run("shop/db", "LSR", 2)
		n.sleep(2 * time.Second)
		n.restart(s)
		n.expectQuota(shopPod, "unlimited")
		n.end("shop/db")
		n.expectQuota(shopPod, "2 CPUs")
	})
}

func TestBadOriginals(t *testing.T) {
	s := setup{originals: filepath.Join(t.TempDir(), "originals")}
	if err := os.WriteFile(s.originals, []byte("{}\n{\"path\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"db": "0-1"})
		n.pass()
		if n.log.count("not read in full") != 1 {
			t.Error("nobody is told that the originals are lost")
		}
		if len(readJournal(t, s.originals).All()) == 0 {
			t.Error("the file was not replaced")
		}
	})
}
