package config

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// machine has CPUs 0 to 7 with two threads per core, and CPUs 8 and 9, which are offline.
func machine() *topology.Machine {
	m := topology.Machine{Online: cpuset.Range(0, 7), Offline: cpuset.Range(8, 9)}
	for cpu := range 8 {
		m.CPUs = append(m.CPUs, topology.CPU{ID: cpu})
	}
	for core := range 4 {
		m.Cores = append(m.Cores, topology.Core{ID: core, CPUs: cpuset.Of(core, core+4)})
	}
	return topology.New(m)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, warning, err string }{
		"the default":           {},
		"an offline CPU":        {text: "reserved: 0,8"},
		"no such CPU":           {text: "reserved: 0,63", warning: "reserved: this machine has no CPUs 63; it has 0-9"},
		"no system CPU":         {text: "system: 9", warning: "SYSTEM containers share with LS"},
		"everything reserved":   {text: "reserved: 0-3\nsystem: 4-9", err: "reserved: reserved and system leave no CPU of 0-7"},
		"a pool elsewhere":      {text: "pools: {list: [{name: a, cpus: 8-9}, {name: b}, {name: c}]}", err: "pools.list[0].cpus: none of CPUs 8-9 is online"},
		"a pool half elsewhere": {text: "pools: {list: [{name: a, cpus: 7-10}, {name: b}, {name: c}]}", warning: "pools.list[0].cpus: this machine has no CPUs 10"},
		"pools too large":       {text: "reserved: 0\npools: {list: [{name: a, cpus: 4}, {name: b, cpus: 50%}, {name: c}]}", err: "take 8 CPUs, and this machine has 7"},
		"shares round up":       {text: "pools: {list: [{name: a, cpus: 30%}, {name: b, cpus: 4}, {name: c}]}"},
		"nothing for the rest":  {text: "pools: {list: [{name: a, cpus: 30%}, {name: b, cpus: 4}, {name: d}, {name: c}]}", err: "leaves nothing for pool d"},
		"exclusive, a rest":     {text: "pools: {mode: exclusive, list: [{name: a, cpus: 4}, {name: b, cpus: 3}, {name: c}]}"},
		"exclusive, no rest":    {text: "pools: {mode: exclusive, list: [{name: a, cpus: 4}, {name: b, cpus: 4}, {name: c}]}", err: "leaves nothing for pool c"},
		"one pool too large":    {text: "pools: {list: [{name: a, cpus: 9}]}", err: "take 9 CPUs"},
		"exclusive, few CPUs":   {text: "reserved: 0\npools: {mode: exclusive, list: [{name: a, cpus: 4}, {name: c}]}", warning: "divides 7 CPUs into 2 pools; below 8 mode overlap"},
		"exclusive, the loop's": {text: "control: {mode: on}\npools: {mode: exclusive}"},
		"minimums too large":    {text: "control: {mode: on}\npools: {mode: exclusive, list: [{name: a, min: 6}, {name: c, min: 3}]}", warning: "the pools' min are 9 CPUs together, and this machine has 8"},
		"a band in overlap":     {text: "pools: {list: [{name: a}, {name: b, band: 10-20%}, {name: c}]}", warning: "pools.list[1]: band, rcf and min of pool b have no effect in mode overlap"},
		"memory in overlap":     {text: "pools: {list: [{name: a, memory: 1Gi}, {name: c}]}"},
		"batch over all":        {text: "pools: {list: [{name: a, cpus: 8}, {name: c}]}"},
	} {
		config, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		warnings, err := config.Fit(machine())
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if all := strings.Join(warnings, "\n"); (all != "") != (c.warning != "") || !strings.Contains(all, c.warning) {
			t.Errorf("%s: warnings %q, want %q", name, all, c.warning)
		}
	}
}

// pools.mode auto is exclusive where there are enough cores, but not beside host applications.
func TestFitAuto(t *testing.T) {
	t.Parallel()
	const auto = "control: {mode: on}\npools: {mode: auto, list: [{name: a}, {name: c}]}\n"
	for text, want := range map[string]PoolMode{
		auto: Exclusive,
		"control: {mode: on, hostApplications: [{name: a, cgroup: /a}]}\npools: {mode: auto, list: [{name: a}, {name: c}]}\n": Overlap,
	} {
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Fit(machine()); err != nil || c.Pools.Mode != want {
			t.Errorf("%s: %s, %v; want %s", text, c.Pools.Mode, err, want)
		}
	}
}
