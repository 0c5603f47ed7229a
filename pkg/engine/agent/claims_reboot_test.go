package agent

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// rebooting runs a test of a node that has prepared a claim for CPUs 4-5 and lost its power since. reboot
// starts the plugin.
func rebooting(t *testing.T, test func(t *testing.T, n *testNode, s *setup, reboot func())) {
	t.Helper()
	s := setup{cdiDir: filepath.Join(t.TempDir(), "cdi"), stateDir: t.TempDir()}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		n.prepare(twoCPUs(claimUID))
		n.powerOff(s)
		test(t, n, &s, func() { n.boot(s) })
	})
}

// powerOff ends the plugin and all containers, and empties the folder of CDI specs.
func (n *testNode) powerOff(s setup) {
	n.stop()
	for _, spec := range n.specs {
		n.kernel.remove(spec.CgroupsPath)
	}
	clear(n.specs)
	if err := os.RemoveAll(s.cdiDir); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) boot(s setup) {
	n.launch(s)
	n.connect("")
	n.synchronize()
	synctest.Wait()
}

// expectClaims checks which CPUs the status has for claims, by their UIDs, and whose copies are on disk.
func (n *testNode) expectClaims(s *setup, want map[string]string) {
	n.t.Helper()
	synctest.Wait()
	got := map[string]string{}
	for _, r := range n.status().Claims.Reserved {
		got[strings.TrimSuffix(r.ID, "-0")] = r.CPUs.String()
	}
	if !maps.Equal(got, want) {
		n.t.Errorf("reserved are %v, want %v", got, want)
	}
	entries, err := os.ReadDir(filepath.Join(s.stateDir, "claims"))
	if err != nil {
		n.t.Fatal(err)
	}
	var files, claims []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	for uid := range want {
		claims = append(claims, claim.FileOf(uid))
	}
	if slices.Sort(claims); !slices.Equal(files, claims) {
		n.t.Errorf("on disk are %v, want %v", files, claims)
	}
}

// After a reboot a pin that starts before the kubelet prepares the claim leaves the claim its CPUs.
func TestClaimsOutliveAReboot(t *testing.T) {
	rebooting(t, func(t *testing.T, n *testNode, s *setup, reboot func()) {
		reboot()
		if err := n.create("big/c", "LSE", 6); err == nil {
			t.Error("a pin has CPUs of the claim")
		}
		n.run("pin/c", "LSE", 5)
		for range 2 { // the kubelet repeats it
			n.prepare(twoCPUs(claimUID))
		}
		n.claims["db/main"] = []string{claimUID + "-0"}
		n.run("db/main", "", 2)
		n.expect(map[string]string{"pin/c": "0-3,6", "db/main": "4-5"})
		n.sleep(time.Hour)
		n.expectClaims(s, map[string]string{claimUID: "4-5"})
		if err := n.agent.Claims.End(claimUID); err != nil {
			t.Error(err)
		}
		n.expectClaims(s, nil)
	})
}

// A claim of before a reboot whose CDI spec can't be written is not prepared, so that its CPUs wait for the
// kubelet no longer than without the attempt.
func TestClaimOfBeforeARebootWithoutSpec(t *testing.T) {
	rebooting(t, func(t *testing.T, n *testNode, s *setup, reboot func()) {
		reboot()
		if err := os.WriteFile(s.cdiDir, nil, 0o600); err != nil { // no folder can be made there
			t.Fatal(err)
		}
		if err := n.agent.Claims.Prepare(twoCPUs(claimUID)); err == nil {
			t.Error("a claim is prepared without its CDI spec")
		}
		n.expectClaims(s, map[string]string{claimUID: "4-5"})
		n.sleep(11 * time.Minute)
		n.expectClaims(s, nil)
	})
}

// CPUs wait for a claim for some minutes, unless the scheduler gives them to another claim, or the same
// claim was allocated anew.
func TestEndedClaimsOfBeforeAReboot(t *testing.T) {
	other := twoCPUs("another")
	other.Devices[0].CPUs = 4
	moved := twoCPUs(claimUID)
	moved.Devices[0].Domain.Number = 0
	for name, test := range map[string]struct {
		then func(n *testNode)
		want map[string]string
	}{
		"the kubelet ends it":             {func(n *testNode) { n.agent.Claims.End(claimUID) }, nil},
		"nobody prepares it":              {func(n *testNode) { n.sleep(11 * time.Minute) }, nil},
		"it is early":                     {func(n *testNode) { n.sleep(9 * time.Minute) }, map[string]string{claimUID: "4-5"}},
		"a claim needs all of its node":   {func(n *testNode) { n.prepare(other) }, map[string]string{"another": "4-7"}},
		"a claim has CPUs beside it":      {func(n *testNode) { n.prepare(twoCPUs("another")) }, map[string]string{claimUID: "4-5", "another": "6-7"}},
		"it was allocated on another one": {func(n *testNode) { n.prepare(moved) }, map[string]string{claimUID: "0-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			rebooting(t, func(_ *testing.T, n *testNode, s *setup, reboot func()) {
				reboot()
				test.then(n)
				n.expectClaims(s, test.want)
			})
		})
	}
}

// Where a copy is broken, or the machine has fewer CPUs, the kubelet prepares the claim as a new one.
func TestClaimsOfBeforeAReboot(t *testing.T) {
	t.Run("broken", func(t *testing.T) {
		rebooting(t, func(t *testing.T, n *testNode, s *setup, reboot func()) {
			if err := os.Truncate(filepath.Join(s.stateDir, "claims", claim.FileOf(claimUID)), 5); err != nil {
				t.Fatal(err)
			}
			reboot()
			n.expectClaims(s, nil)
			if n.log.count("A claim of before the reboot can't be read") == 0 {
				t.Error("the log says nothing of it")
			}
		})
	})
	t.Run("offline", func(t *testing.T) {
		rebooting(t, func(_ *testing.T, n *testNode, s *setup, reboot func()) {
			n.plug(cpuset.Of(0, 1, 2, 3, 5, 6, 7))
			reboot()
			n.expectClaims(s, nil)
			n.prepare(twoCPUs(claimUID))
			n.expectClaims(s, map[string]string{claimUID: "5-6"})
		})
	})
	t.Run("preview", func(t *testing.T) {
		rebooting(t, func(t *testing.T, n *testNode, s *setup, reboot func()) {
			s.config = func(c *config.Config) { c.Mode = config.Preview }
			reboot()
			if err := n.agent.Claims.Prepare(twoCPUs(claimUID)); err == nil || !strings.Contains(err.Error(), "only previews") {
				t.Errorf("a claim of before the reboot: %v", err)
			}
		})
	})
}

// reboot ends everything. Some claims end as well, pins come first, and then the kubelet prepares each claim
// that is left, which has its CPUs again. After a minute it ends those that have no pod.
func (w *claimWorld) reboot(t *rapid.T) {
	w.plug(cpuset.Union(w.machine.Online, w.machine.Offline))
	w.powerOff(w.setup)
	clear(w.users)
	w.boot(w.setup)
	for range rapid.IntRange(0, 4).Draw(t, "others") {
		w.other(t)
	}
	var ended []string
	for _, uid := range rapid.Permutation(slices.Sorted(maps.Keys(w.claims))).Draw(t, "order") {
		if rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
			ended = append(ended, uid)
		} else {
			w.prepareAgain(t, uid)
		}
	}
	for _, uid := range ended {
		w.endClaim(t, uid)
	}
	w.pass()
}
