package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
)

// TestWhatRuntimesTell checks that the runtime's answers take precedence over its configuration
// files.
func TestWhatRuntimesTell(t *testing.T) {
	t.Parallel()
	const socket = "run/containerd/containerd.sock"
	known := inspect.Facts{Name: "containerd", Version: "v2.4.2", From: "containerd's version service", Handlers: []string{"runc", "kata"}, Driver: "systemd"}
	with := func(nri inspect.NRI) *inspect.Facts {
		f := known
		f.NRI = nri
		return &f
	}
	for name, c := range map[string]struct {
		told  *inspect.Facts
		level Level
		want  []string
	}{
		"not asked": {nil, OK, []string{"ok runtime: containerd at /" + socket, "ok NRI: on, at /run/nri/nri.sock; its version"}},
		"all well": {with(inspect.NRI{State: inspect.Loaded}), Note, []string{
			"ok runtime: containerd v2.4.2 at /" + socket + ", as containerd's version service reports",
			"ok handlers: runc, kata; cgroup driver systemd, as CRI reports",
			"ok NRI: on, at /run/nri/nri.sock; its plugin is loaded, as containerd's introspection service reports",
			"note statistics: containerd v2.4.2 asks the shims of all containers at once every 1s"}},
		"NRI is not loaded": {with(inspect.NRI{State: inspect.Missing}), Fail, []string{"fail NRI: containerd has not loaded its NRI plugin, as"}},
		"NRI has failed":    {with(inspect.NRI{State: inspect.Broken, Why: "no room"}), Fail, []string{"fail NRI: containerd's NRI plugin has failed: no room, as"}},
		"it hangs":          {&inspect.Facts{Problems: []error{errors.New("deadline exceeded")}}, Warn, []string{"warn runtime: containerd at /" + socket + "; its process is not seen; it does not answer: deadline exceeded", "ok NRI: on"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(host(t, "2 cores", v2(), texts{socket: "", "run/nri/nri.sock": ""}), mainlineV2())
			if c.told != nil {
				f.Runtimes = map[string]*inspect.Facts{socket: c.told}
			}
			r := Examine(f)
			helpful(t, &r)
			var got []string
			level := OK
			for _, f := range r.Findings {
				if f.Area == "runtime" {
					got = append(got, f.Level.String()+" "+f.Name+": "+f.What)
					level = max(level, f.Level)
				}
			}
			text := strings.Join(got, "\n")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
			if level != c.level {
				t.Errorf("level %s, want %s:\n%s", level, c.level, text)
			}
		})
	}
}
