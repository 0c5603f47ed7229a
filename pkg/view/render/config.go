package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ConfigDiff writes what a new configuration would change.
func ConfigDiff(to io.Writer, d *status.ConfigDiff) error {
	var w strings.Builder
	if len(d.Keys) == 0 {
		w.WriteString("no key has another value\n")
		return flush(to, &w)
	}
	keyRows := func(changes []status.KeyChange) (rows [][]string) {
		for _, k := range changes {
			rows = append(rows, []string{k.Key, cmp.Or(k.From, "none"), "→", cmp.Or(k.To, "none")})
		}
		return rows
	}
	w.WriteString("Keys\n")
	terminal.Table(&w, "  ", terminal.Columns, keyRows(d.Keys))
	if len(d.Restart) > 0 {
		fmt.Fprintf(&w, "Only after a restart of Sluice: %s\n", terminal.Printable(strings.Join(d.Restart, ", ")))
	}
	if len(d.Pools) > 0 {
		w.WriteString("Pools\n")
		var rows [][]string
		for _, p := range d.Pools {
			rows = append(rows, []string{p.Name, setOr(p.From, "none"), "→", setOr(p.To, "none")})
		}
		terminal.Table(&w, "  ", terminal.Columns, rows)
	}
	if len(d.Containers) > 0 {
		w.WriteString("Containers\n")
	}
	for i := range d.Containers {
		c := &d.Containers[i]
		fmt.Fprintf(&w, "  %s\n", terminal.Printable(c.Ref))
		if c.From != c.To {
			terminal.Table(&w, "    ", terminal.Columns, [][]string{{placeText(c.From), "→", placeText(c.To)}})
		}
		terminal.Table(&w, "    ", terminal.Columns, keyRows(c.Keys))
		if c.Problem != "" {
			terminal.Table(&w, "    ", terminal.Columns, [][]string{{"!", c.Problem}})
		}
	}
	for _, warning := range d.Warnings {
		fmt.Fprintf(&w, "Warning: %s\n", terminal.Printable(warning))
	}
	return flush(to, &w)
}

func placeText(p status.Place) string {
	text := p.Class.String()
	if p.Pool != "" {
		text += " in " + p.Pool
	}
	text += " on CPUs " + setOr(p.CPUs, "all")
	if p.Mems != (cpuset.Set{}) {
		text += ", nodes " + p.Mems.String()
	}
	return text
}

// ConfigSummary summarizes a configuration in one line; machine may be nil.
func ConfigSummary(c *config.Config, machine *topology.Machine) string {
	text := fmt.Sprintf("mode %s, pools %s (%s), reserved CPUs %s, system CPUs %s",
		c.Mode, strings.Join(c.Pools.Names(), ", "), c.Pools.Mode, setOr(c.Reserved, "none"), setOr(c.System, "none"))
	if machine != nil {
		text += fmt.Sprintf("; fits the machine's CPUs %s", machine.Online)
	}
	return text
}
