package doctor

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

func TestNewidle(t *testing.T) {
	t.Parallel()
	locked := errors.New("permission denied: run Sluice as root, on a kernel that is not locked down")
	const always = "newidleBalance: always"
	for name, test := range map[string]struct {
		found  newidle.Search
		err    error
		config string
		level  Level
		want   string // in what and do
	}{
		"it loses CPU time":         {found: newidle.Sometimes, level: Note, want: "some percent of the node idle|" + always + " in the configuration"},
		"an old kernel":             {found: newidle.Plain, want: "each time"},
		"an old kernel, wanted":     {found: newidle.Plain, config: always, want: "each time"},
		"done":                      {found: newidle.Always, config: always, want: "each time"},
		"a new kernel":              {found: newidle.Rated, want: "unless that happens often"},
		"a new kernel, wanted":      {found: newidle.Rated, config: always, level: Warn, want: "although the configuration has|start the plugin"},
		"wanted, and not done":      {found: newidle.Sometimes, config: always, level: Warn, want: "although the configuration has|start the plugin"},
		"in preview":                {found: newidle.Sometimes, config: "mode: preview\n" + always, level: Note, want: "changes nothing in preview|mode: on"},
		"locked down":               {err: locked, level: Note, want: "not known|not locked down"},
		"wanted, and it can't read": {err: locked, config: always, level: Warn, want: "has no effect|not locked down"},
	} {
		f := facts(fstest.MapFS{}, mainlineV2())
		f.Newidle, f.NewidleErr = test.found, test.err
		if test.config != "" {
			var err error
			if f.Config, err = config.Parse([]byte(test.config)); err != nil {
				t.Fatal(err)
			}
		}
		expectOne(t, name, (&node{Facts: f}).newidle(), test.level, test.want)
	}
	f := facts(fstest.MapFS{}, has(true, map[knobs.Knob]string{knobs.Weight: "cpu.weight"}))
	f.Newidle = newidle.Sometimes
	if got := (&node{Facts: f}).newidle(); got != nil {
		t.Errorf("without an idle class: %+v", got)
	}
}
