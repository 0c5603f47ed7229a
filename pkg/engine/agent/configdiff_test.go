package agent

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
)

// ConfigDiff reports exactly what a reload then changes, and changes nothing itself.
func TestConfigDiff(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("pin", "LSR", 2)
		n.run("job", "BE", 0)
		before := n.dump()
		const next = "pools: {list: [{name: critical}, {name: online}, {name: batch, cpus: 2}]}\nlog: {format: json}\nrecordUpdates: {enabled: false}\n"
		d, err := n.agent.ConfigDiff([]byte(next))
		if err != nil || d.Problem != "" || strings.Join(d.Restart, " ") != "log.format" {
			t.Fatalf("%+v, %v", d, err)
		}
		if len(d.Keys) != 3 || d.Keys[0] != (status.KeyChange{Key: "pools.list[2].cpus", To: "2"}) {
			t.Errorf("keys %v", d.Keys)
		}
		if len(d.Pools) != 1 || len(d.Containers) != 1 || d.Containers[0].Ref != "default/job/c" {
			t.Fatalf("pools %v, containers %+v", d.Pools, d.Containers)
		}
		for text, want := range map[string]string{"mode: of\n": "line 1: mode", "reserved: \"0\"\n": "would be reserved"} {
			if d, err := n.agent.ConfigDiff([]byte(text)); err != nil || !strings.Contains(d.Problem, want) {
				t.Errorf("%q: %+v, %v", text, d, err)
			}
		}
		if after := n.dump(); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
		mustReload(t, n.agent, strings.TrimSuffix(next, "recordUpdates: {enabled: false}\n"))
		if got := n.cpus("job"); got != d.Containers[0].To.CPUs.String() {
			t.Errorf("job is on %s, was to be on %s", got, d.Containers[0].To.CPUs)
		}
	})
}
