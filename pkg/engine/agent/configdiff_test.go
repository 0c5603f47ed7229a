package agent

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

// configDiff returns what a text would change.
func configDiff(t *testing.T, a *Agent, text string) *status.ConfigDiff {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := a.ConfigDiff(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ConfigDiff reports exactly what a reload then changes, and changes nothing itself.
func TestConfigDiff(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("pin", "LSR", 2)
		n.run("job", "BE", 0)
		before := n.dump()
		const next = "pools: {list: [{name: critical}, {name: online}, {name: batch, cpus: 2}]}\nlog: {format: json}\nrecordUpdates: {enabled: false}\n"
		d := configDiff(t, n.agent, next)
		if d.Problem != "" || strings.Join(d.Restart, " ") != "log.format" {
			t.Fatalf("%+v", d)
		}
		if len(d.Keys) != 3 || d.Keys[0] != (status.KeyChange{Key: "pools.list[2].cpus", To: "2"}) {
			t.Errorf("keys %v", d.Keys)
		}
		if len(d.Pools) != 1 || len(d.Containers) != 1 || d.Containers[0].Ref != "default/job/c" {
			t.Fatalf("pools %v, containers %+v", d.Pools, d.Containers)
		}
		if d := configDiff(t, n.agent, "reserved: \"0\"\n"); !strings.Contains(d.Problem, "would be reserved") {
			t.Errorf("%+v", d)
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
