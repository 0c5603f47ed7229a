package scenarios

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/test/protocol"
)

// changes prints each container whose record has changed since it was last printed.
func (s *scenario) changes(out *strings.Builder) {
	for _, c := range s.Containers() {
		if now := line(c); c.Live() && now != s.shown[c.Label] {
			s.shown[c.Label] = now
			fmt.Fprintf(out, "%s: %s\n", c.Label, now)
		}
	}
}

// line describes a container: its CPUs, its memory nodes if they are restricted, and its quota if
// it has one.
func line(c *protocol.Container) string {
	cpu := c.Linux.Resources.Cpu
	text := "cpus " + orAll(cpu.Cpus)
	if cpu.Mems != "" {
		text += ", mems " + cpu.Mems
	}
	switch quota := cpu.GetQuota().GetValue(); {
	case quota < 0:
		text += ", no quota"
	case quota > 0:
		text += ", quota " + strconv.FormatFloat(float64(quota)/float64(cpu.GetPeriod().GetValue()), 'g', -1, 64)
	}
	return text
}

func orAll(list string) string {
	if list == "" {
		return "all"
	}
	return list
}

// check checks the invariants while sluice runs.
func (s *scenario) check() error {
	if s.plugin == nil {
		return nil
	}
	if err := s.Check(s.online); err != nil {
		return err
	}
	state, err := s.plugin.Status()
	if err != nil {
		return err
	}
	if state.Counters.Panics > 0 {
		return fmt.Errorf("sluice panicked:\n%s", s.plugin.Log)
	}
	return s.CheckStatus(state)
}

func (s *scenario) status(out *strings.Builder) error {
	state, err := s.plugin.Status()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "mode %s\n", state.Mode)
	if state.Why != "" {
		fmt.Fprintf(out, "reason: %s\n", state.Why)
	}
	for _, n := range state.Neighbours {
		fmt.Fprintf(out, "beside %s: %s\n", n.Kind, n.Evidence)
	}
	for _, set := range []struct{ name, cpus string }{
		{"reserved", state.Machine.Reserved.String()}, {"system", state.Machine.System.String()},
		{"external", state.Machine.External.String()}, {"pinned", state.Machine.Pinned.String()},
	} {
		if set.cpus != "" {
			fmt.Fprintf(out, "%s: %s\n", set.name, set.cpus)
		}
	}
	for _, p := range state.Pools {
		fmt.Fprintf(out, "pool %s: %s\n", p.Name, p.CPUs)
	}
	return nil
}

func (s *scenario) explain(c *protocol.Container, out *strings.Builder) error {
	state, err := s.plugin.Status()
	if err != nil {
		return err
	}
	for _, e := range state.Containers {
		if e.ID != c.Id {
			continue
		}
		fmt.Fprintf(out, "class %s, %s: cpus %s", e.Class, e.State, orAll(e.CPUs.String()))
		if !e.Mems.IsEmpty() {
			fmt.Fprintf(out, ", mems %s", e.Mems)
		}
		fmt.Fprintf(out, "\nwhy: %s\n", e.Why)
		for _, set := range e.Keys {
			fmt.Fprintf(out, "%s = %s (%s)\n", set.Key, set.Value, set.Source)
		}
		for _, w := range e.Warnings {
			fmt.Fprintf(out, "warning: %s\n", w)
		}
		return nil
	}
	return fmt.Errorf("sluice does not know %s", c.Label)
}
