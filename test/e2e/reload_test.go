package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestReload replaces the plugin's configuration as editors do, every second time by a broken
// file, while containers come, are resized and go. The pin stays where it is, the settings of
// classes come and go, and in the end a restart changes nothing.
func TestReload(t *testing.T) {
	for _, version := range newest {
		t.Run(nameOf(version), func(t *testing.T) { testReload(t, start(t, runtime.Options{Containerd: version})) })
	}
}

func testReload(t *testing.T, rt *runtime.Runtime) {
	must(t, run(t, rt, classed("first", "LS", runtime.Resources{})).Remove()) // leaves the cgroups of its class behind
	before, err := rt.ClassSettings()
	must(t, err)
	s := startSluice(t, rt, runtime.SluiceOptions{})
	pinPod, cpu := pinOf(t, rt, "pin", "LSR")
	pin := pinPod.Container("c")
	lsPod := run(t, rt, classed("ls", "LS", runtime.Whole(300, 64*mib)))
	ls := lsPod.Container("c")
	shared := cpuset.Difference(online(t), cpu)
	weights := map[string]int64{}
	good := []string{
		"classes: {LS: {weight: 200%}}\n",
		"pools: {mode: exclusive, list: [{name: online}, {name: batch, cpus: 50%}]}\ncontrol: {mode: \"on\"}\n",
		"",
		"mode: preview\n",
		"control: {mode: preview}\n",
	}
	broken := []string{"mode: of\n", fmt.Sprintf("reserved: %q\n", cpu), "pools: {list: [\n", "stateDir: here\n"}
	const reloads = 20
	for i := range reloads {
		text := good[i/2%len(good)]
		if i%2 == 1 {
			text = broken[i/2%len(broken)]
		}
		replace(t, s, text)
		await(t, fmt.Sprintf("reload %d", i), func() bool { return statusOf(t, s).Config.Reloads > i })
		c := statusOf(t, s).Config
		if c.Refused != (i+1)/2 || (c.Problem != "") != (i%2 == 1) {
			t.Fatalf("%q: status %+v, want %d refused", text, c, (i+1)/2)
		}
		isOn(t, pin, cpu)
		if i%2 == 1 {
			continue
		}
		isOn(t, ls, shared)
		weights[text] = share(t, ls)
		must(t, ls.Resize(runtime.Whole(workload.MilliCPU(300+100*(i%3)), 64*mib)))
		if !strings.HasPrefix(text, "mode: preview") {
			must(t, run(t, rt, classed(fmt.Sprintf("more%d", i), "LS", runtime.Resources{})).Remove())
		}
	}
	if weights[good[0]] <= weights[""] {
		t.Errorf("weights by configuration: %v", weights)
	}
	replace(t, s, "")
	await(t, "the last reload", func() bool { return statusOf(t, s).Config.Reloads > reloads })
	consistent(t, rt, s)
	settings, err := rt.Settings()
	must(t, err)
	must(t, s.Restart())
	consistent(t, rt, s)
	after, err := rt.Settings()
	must(t, err)
	for _, d := range settings.Differences(after) {
		t.Errorf("a restart with the same file changed %s", d)
	}
	must(t, pinPod.Remove())
	must(t, lsPod.Remove())
	empties(t, rt, s)
	end, err := rt.ClassSettings()
	must(t, err)
	for _, d := range before.Differences(end) {
		t.Errorf("left of it all: %s", d)
	}
}

// replace replaces the configuration by another file.
func replace(t *testing.T, s *runtime.Sluice, text string) {
	t.Helper()
	next := s.ConfigFile() + ".new"
	must(t, os.WriteFile(next, []byte(text), 0o600))
	must(t, os.Rename(next, s.ConfigFile()))
}

// share returns a container's CPU weight from the file that this kernel has.
func share(t *testing.T, c *runtime.Container) int64 {
	t.Helper()
	text, err := c.File("cpu.shares")
	if err != nil {
		text, err = c.File("cpu.weight")
	}
	must(t, err)
	return number(t, text)
}
