package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const claimUID = "0f0e4d2c-1b7a-4a57-9f0c-7d1f7a1d3c55"

// twoCPUs asks for CPUs on the second NUMA node.
func twoCPUs(uid string) *claim.Claim {
	return &claim.Claim{UID: uid, Namespace: "shop", Name: "fast", Devices: []claim.Device{{Domain: claim.Domain{Kind: claim.NUMA, Number: 1}, CPUs: 2, Class: workload.LSE}}}
}

// claiming runs a test of a node whose CDI specs are in a folder.
func claiming(t *testing.T, test func(t *testing.T, n *testNode, s setup)) {
	t.Helper()
	s := setup{cdiDir: filepath.Join(t.TempDir(), "cdi")}
	inBubble(t, s, func(t *testing.T, n *testNode) { test(t, n, s) })
}

func (n *testNode) prepare(c *claim.Claim) {
	n.t.Helper()
	if err := n.agent.Claims.Prepare(c); err != nil {
		n.t.Fatal(err)
	}
}

// From its preparation on nobody else is on a claim's CPUs. They stay with it while its container is
// restarted, and go back to all at its end.
func TestClaimBecomesAPin(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, s setup) {
		n.run("web/c", "", 1)
		n.prepare(twoCPUs(claimUID))
		n.prepare(twoCPUs(claimUID)) // the kubelet repeats it
		n.expect(map[string]string{"web/c": "0-3,6-7"})
		n.claims["db/main"] = []string{claimUID + "-0"}
		n.run("db/main", "", 2)
		n.run("db/log", "", 1) // without the claim
		want := map[string]string{"db/main": "4-5", "db/log": "0-3,6-7", "web/c": "0-3,6-7"}
		n.expect(want)
		if c := n.container("db/main"); c.Class != workload.LSE || c.Mems != cpuset.Of(1) || !strings.Contains(c.Keys[0].Source, "claim shop/fast") {
			t.Errorf("db/main is %+v", c)
		}
		n.end("db/main")
		n.expect(map[string]string{"db/log": "0-3,6-7", "web/c": "0-3,6-7"})
		n.run("db/main", "", 2)
		n.expect(want)
		status := n.status().Claims
		if status == nil || len(status.Reserved) != 1 || status.Reserved[0].CPUs != cpuset.Of(4, 5) || status.Reserved[0].Device.String() != "numa1" || status.Devices[1].CPUs != 4 || status.Devices[0].CPUs != 2 {
			t.Errorf("the status has %+v", status)
		}
		n.end("db/main")
		for range 2 { // the kubelet repeats it
			if err := n.agent.Claims.End(claimUID); err != nil {
				t.Error(err)
			}
		}
		n.expect(map[string]string{"web/c": "all"})
		if left, err := os.ReadDir(s.cdiDir); err != nil || len(left) > 0 {
			t.Errorf("the claim has left %v: %v", left, err)
		}
	})
}

// Containers of one claim share its CPUs. One of them starts again beside the other, also while the
// runtime has not answered an update of the other's record.
func TestContainersShareAClaim(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, _ setup) {
		n.run("web/c", "", 1)
		n.prepare(twoCPUs(claimUID))
		for _, name := range []string{"db/main", "db/log"} {
			n.claims[name] = []string{claimUID + "-0"}
			n.run(name, "", 2)
		}
		want := map[string]string{"db/main": "4-5", "db/log": "4-5", "web/c": "0-3,6-7"}
		n.expect(want)
		n.runtime.hold()
		n.loop(func() {
			n.agent.record.Send(n.agent.Containers["db/main"], node.Settings{CPUs: cpuset.Of(4, 5)})
		})
		n.end("db/log")
		n.run("db/log", "", 2)
		n.expect(want)
		n.runtime.answer()
		synctest.Wait()
		if s := n.status(); s.Counters.Drift != 0 {
			t.Errorf("%d sets are counted as drift", s.Counters.Drift)
		}
		// A container that somebody else has put on CPUs of a claim that is not its own still leaves.
		n.kernel.change(n.specs["web/c"].CgroupsPath, func(g *group) { g.cpus = cpuset.Of(3, 4) })
		n.end("db/log")
		n.run("db/log", "", 2)
		n.expect(want)
		if s := n.status(); s.Counters.Drift != 1 {
			t.Errorf("%d sets are counted as drift, want that of web/c", s.Counters.Drift)
		}
	})
}

// With cores as devices a claim has all of a core, without saying how many CPUs that is. The status says
// what is true of each device.
func TestClaimOfACore(t *testing.T) {
	s := setup{machine: "2 nodes 4 cores 2 threads l3 2 cores", cdiDir: t.TempDir(), claimDevices: claim.Core}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		c := &claim.Claim{UID: claimUID, Namespace: "shop", Name: "fast", Devices: []claim.Device{
			{Domain: claim.Domain{Kind: claim.Core, Number: 6}, Class: workload.LSE}, {Domain: claim.Domain{Kind: claim.Core, Number: 7}, Class: workload.LSE},
		}}
		n.prepare(c)
		n.claims["db/main"] = []string{c.ID(0), c.ID(1)}
		n.run("db/main", "", 4)
		n.run("web/c", "", 1)
		n.expect(map[string]string{"db/main": "6-7,14-15", "web/c": "0-5,8-13"})
		n.claims["few/c"] = n.claims["db/main"]
		if err := n.create("few/c", "", 3); err == nil || !strings.Contains(err.Error(), "4 CPUs are more than") {
			t.Errorf("a container that requests 3 CPUs has cores with 4: %v", err)
		}
		want := status.ClaimDevice{Device: c.Devices[0].Domain, CPUs: 2, Nodes: cpuset.Of(1), ThreadsPerCore: 2, Distances: []int{12, 10}, L3: 6, L3Bytes: 32 << 20, CoreKind: "performance"}
		devices := n.status().Claims.Devices
		if len(devices) != 8 || !reflect.DeepEqual(devices[6], want) || devices[0].CPUs != 0 || devices[1].CPUs != 2 {
			t.Errorf("the status has %+v, want %+v among 8", devices, want)
		}
	})
}

// A restart of the plugin loses no claim, whether or not its container runs, and gives its CPUs to
// nobody else.
func TestClaimsOutliveThePlugin(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, s setup) {
		const idle = "11111111-2222-3333-4444-555555555555"
		n.prepare(twoCPUs(claimUID))
		n.prepare(twoCPUs(idle))
		n.claims["db/main"] = []string{claimUID + "-0"}
		n.run("db/main", "", 2)
		n.run("web/c", "", 1)
		want := map[string]string{"db/main": "4-5", "web/c": "0-3"}
		n.expect(want)
		if err := os.WriteFile(filepath.Join(s.cdiDir, claim.FileOf("broken")), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.stop()
		n.launch(s)
		if err := n.agent.Claims.Prepare(twoCPUs("early")); err == nil || !strings.Contains(err.Error(), "has not listed its containers yet") {
			t.Errorf("before Synchronize a claim is prepared: %v", err)
		}
		n.connect("")
		n.synchronize()
		synctest.Wait()
		n.expect(want)
		if n.log.count("can't be restored from its CDI spec") == 0 {
			t.Error("the log says nothing of a broken spec")
		}
		if err := n.create("pin/c", "LSE", 3); err != nil {
			t.Fatal(err)
		}
		n.claims["late/c"] = []string{idle + "-0"}
		n.run("late/c", "", 2)
		want["late/c"], want["web/c"] = "6-7", "3"
		n.expect(want)
		if err := n.agent.Claims.Prepare(twoCPUs("one-more")); err == nil || !strings.Contains(err.Error(), "claim shop/fast") {
			t.Errorf("more claims than CPUs: %v", err)
		}
		// The configuration is applied anew as it is.
		if _, err := n.agent.Reconfigure(Reload{Config: config.Default()}); err != nil {
			t.Error(err)
		}
		n.expect(want)
	})
}

// The end of a claim does at once what the end of a pin does: it completes a pin that lacks CPUs, and
// a container that still runs on the claim's CPUs has its pod's quota again.
func TestEndedClaimIsFreed(t *testing.T) {
	claiming(t, func(_ *testing.T, n *testNode, _ setup) {
		n.prepare(twoCPUs(claimUID))
		n.claims["db/main"] = []string{claimUID + "-0"}
		n.run("db/main", "", 2)
		n.run("big/c", "LSE", 4)
		n.run("one/c", "LSE", 1)
		n.plug(cpuset.Range(1, 7))
		n.expect(map[string]string{"db/main": "4-5", "big/c": "1-3"})
		n.expectQuota("/kubepods/pod-db", "unlimited")
		if err := n.agent.Claims.End(claimUID); err != nil {
			n.t.Fatal(err)
		}
		if c := n.container("big/c"); c.CPUs.Size() != 4 {
			n.t.Errorf("big/c has %s still: %s", c.CPUs, c.Why)
		}
		n.expectQuota("/kubepods/pod-db", "2 CPUs")
	})
}

// A claim that is known is prepared again by a kubelet that starts, also where no other would be:
// before the runtime has listed its containers, and in preview.
func TestKnownClaimIsNotRefused(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, s setup) {
		n.prepare(twoCPUs(claimUID))
		n.stop()
		s.config = func(c *config.Config) { c.Mode = config.Preview }
		n.launch(s)
		n.prepare(twoCPUs(claimUID))
		n.connect("")
		n.synchronize()
		n.prepare(twoCPUs(claimUID))
		other := twoCPUs(claimUID)
		other.Devices = append(other.Devices, other.Devices[0])
		if err := n.agent.Claims.Prepare(other); err == nil || !strings.Contains(err.Error(), "only previews") {
			t.Errorf("a device that is not known: %v", err)
		}
		elsewhere := twoCPUs(claimUID)
		elsewhere.Devices[0].Domain.Number = 0
		if err := n.agent.Claims.Prepare(elsewhere); err == nil || !strings.Contains(err.Error(), "end the pods with this claim") {
			t.Errorf("the claim is on another NUMA node now: %v", err)
		}
	})
}

// A claim of which one part is refused reserves nothing of the others.
func TestRefusedClaimReservesNothing(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, _ setup) {
		c := twoCPUs(claimUID)
		c.Devices = append(c.Devices, claim.Device{Domain: claim.Domain{Kind: claim.NUMA, Number: 1}, CPUs: 4, Class: workload.LSE})
		if err := n.agent.Claims.Prepare(c); err == nil || !strings.Contains(err.Error(), "claim shop/fast") {
			t.Errorf("6 of the node's 4 CPUs: %v", err)
		}
		if s := n.status(); len(s.Claims.Reserved) > 0 || !s.Machine.Pinned.IsEmpty() {
			t.Errorf("CPUs %s are reserved: %+v", s.Machine.Pinned, s.Claims.Reserved)
		}
	})
}

// A container that can't have its claim does not start, and the error says what to do.
func TestClaimIsRefused(t *testing.T) {
	claiming(t, func(t *testing.T, n *testNode, s setup) {
		n.prepare(twoCPUs(claimUID))
		for name, test := range map[string]struct {
			cpus   int
			claims []string
			want   string
		}{
			"few/c":     {1, []string{claimUID + "-0"}, "2 CPUs are more than the whole CPUs in the container's request of 1000m"},
			"none/c":    {0, []string{claimUID + "-0"}, "request of 0m"},
			"unknown/c": {2, []string{"another-0"}, "are not reserved here"},
		} {
			n.claims[name] = test.claims
			if err := n.create(name, "", test.cpus); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", name, err, test.want)
			}
		}
		if err := os.Chmod(s.cdiDir, 0o500); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 { // root writes all the same
			if err := n.agent.Claims.Prepare(twoCPUs("unwritten")); err == nil {
				t.Error("a claim without a spec is prepared")
			}
		}
	})
}

// Where Sluice may not set cpusets it reserves nothing, and offers nothing to claims.
func TestClaimsInPreview(t *testing.T) {
	s := setup{cdiDir: t.TempDir(), config: func(c *config.Config) { c.Mode = config.Preview }}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		if err := n.agent.Claims.Prepare(twoCPUs(claimUID)); err == nil || !strings.Contains(err.Error(), "only previews") {
			t.Error(err)
		}
		for _, d := range n.status().Claims.Devices {
			if d.CPUs != 0 {
				t.Errorf("%s offers %d CPUs", d.Device, d.CPUs)
			}
		}
	})
}
