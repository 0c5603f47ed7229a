package reconcile

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Cgroup is a cgroup with declared settings.
type Cgroup struct {
	knobs.Object
	pod      string // of the pod; "" for a cgroup above pods
	settings []*Setting
}

// Pod is the UID of the pod whose cgroup this is, or which the container belongs to; "" for a
// cgroup above pods.
func (c *Cgroup) Pod() string { return c.pod }

// Settings are the cgroup's declared settings. The caller must not change them.
func (c *Cgroup) Settings() []*Setting { return c.settings }

// find returns the cgroup's setting of a knob, or nil.
func (c *Cgroup) find(k knobs.Knob) *Setting {
	i := slices.IndexFunc(c.settings, func(s *Setting) bool { return s.Knob == k })
	if i < 0 {
		return nil
	}
	return c.settings[i]
}

// Setting is one declared setting of a cgroup, with the result of writing it.
type Setting struct {
	qos.Setting
	expected bool        // a program that Sluice expects to write the knob may have written it: a difference is no drift
	problem  string      // why the kernel doesn't have the setting; "" if it has
	before   knobs.Value // what Sluice wrote before its last write; nil for nothing
	drift    int         // number of repairs after changes by other programs
	suspect  string      // the program that probably made the last such change
	contest  Backoff
	shown    knobs.Value // the value whose text the status cached; nil for none
	text     string
}

// Problem is why the kernel doesn't have the setting; "" if it has.
func (s *Setting) Problem() string { return s.problem }
