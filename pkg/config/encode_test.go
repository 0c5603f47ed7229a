package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

const everything = `
mode: preview
reserved: "0"
pools:
  mode: exclusive
  list:
  - {name: critical, cpus: 25%, band: 30-50%, rcf: 50-100%, min: 2, memory: 2Gi, set: {weight: 200%, io: {weight: 20}}}
  - {name: online, cpus: 4-4}
  - {name: batch, cpus: 8}
classify: [{namespaces: [a, "b*"], labels: {x: "5"}, set: {class: BE}}]
rdt:
  partitions: {jobs: {l3: 0-30%, mb: 40%}}
  classes: {be: {partition: jobs, l3: "0-30%, 1=0x7", mb: 50%}}
control:
  batch: {mode: "on", reserved: 1500m}
  rules: [{name: r, metric: node.cpu, watermark: 80, action: refuse, mode: preview}]
  windows: [{from: "09:30", to: "17:00", days: [mon], grace: 90m}]
`

// Parsing what YAML has written gives the same configuration, and YAML writes that in the same
// way.
func TestYAML(t *testing.T) {
	t.Parallel()
	shippedText, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(shippedText), everything} {
		want, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		written, err := want.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if diff := Compare(Values(want), Values(got)); len(diff) > 0 {
			t.Errorf("read back: %v\n%s", diff, written)
		}
		again, err := got.YAML()
		if err != nil || string(again) != string(written) {
			t.Errorf("%v; written again:\n%s\nbefore:\n%s", err, again, written)
		}
		if got.Pools.List[0].Memory != want.Pools.List[0].Memory || got.Control.Batch.Reserved != want.Control.Batch.Reserved || !reflect.DeepEqual(got.RDT, want.RDT) {
			t.Errorf("amounts differ:\n%s", written)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	parse := func(text string) *Config {
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	from := parse("reserved: \"1\"\npools: {list: [{name: a}, {name: b, cpus: 2}]}\nclasses: {BE: {weight: 50%}}\n")
	to := parse("mode: preview\nreserved: \"1\"\npools: {list: [{name: a, cpus: 50%}, {name: b}]}\ncontrol: {burst: {all: true}}\nclasses: {BE: {}}\n")
	got := Compare(Values(from), Values(to))
	want := []Change{
		{"mode", "on", "preview"}, {"pools.list[0].cpus", "", "50%"}, {"pools.list[1].cpus", "2", ""},
		{"classes.BE.weight", "50%", ""}, {"control.burst.all", "false", "true"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRunning(t *testing.T) {
	t.Parallel()
	old, next := Default(), Default()
	next.StateDir, next.Control.Interval, next.VMRuntimes, next.RoundUp = "/x", 5*old.Control.Interval, []string{"vm"}, true
	taken, restart := next.Running(old)
	if strings.Join(restart, " ") != "vmRuntimes stateDir control.interval" {
		t.Errorf("restart for %v", restart)
	}
	if !taken.RoundUp || taken.StateDir != old.StateDir || taken.Control.Interval != old.Control.Interval {
		t.Errorf("taken over: %+v", taken)
	}
	if next.StateDir != "/x" {
		t.Error("the file's own was changed")
	}
	if _, restart := old.Running(old); len(restart) > 0 {
		t.Errorf("nothing differs, and yet a restart for %v", restart)
	}
}

// docs/config.md lists the keys whose change takes a restart.
func TestRestartKeysAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, paragraph, _ := strings.Cut(string(page), "\nThese keys take effect only after a restart")
	paragraph, _, _ = strings.Cut(paragraph, "\n\n")
	for _, k := range RestartKeys() {
		if !strings.Contains(paragraph, "`"+k.Key+"`") {
			t.Errorf("docs/config.md does not name %s among the keys that take a restart", k.Key)
		}
	}
}

func TestLoopMode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]control.Mode{
		"": control.Preview, "control: {mode: \"off\"}": control.Off, "control: {mode: \"off\", burst: {mode: \"on\"}}": control.On,
		"control: {mode: \"off\", rules: [{name: r, metric: node.cpu, watermark: 80, action: refuse, mode: preview}]}": control.Preview,
	} {
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.LoopMode(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Compare says that the token differs, without either token.
func TestCompareHidesTheToken(t *testing.T) {
	t.Parallel()
	from, to := Default(), Default()
	from.Web.Token, to.Web.Token = "0123456789abcdef", "fedcba9876543210"
	if got := Compare(Values(from), Values(to)); len(got) != 1 || got[0] != (Change{"web.token", "(not shown)", "(not shown)"}) {
		t.Errorf("%+v", got)
	}
}
