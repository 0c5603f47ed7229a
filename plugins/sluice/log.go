package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// logOptions are the flags of `sluice log`.
type logOptions struct {
	config, stateDir string
	since            time.Duration
	object           string
	controller       string
	why              bool
	output           *choice
}

func newLogCommand() *cobra.Command {
	o := logOptions{}
	c := &cobra.Command{
		Use:   "log",
		Short: "Show the control loop's decisions and their reasons",
		Long: `Show the control loop's decisions, oldest first. They are read from the audit
trail in the state folder, so that the command also works while the plugin is
not running. Decisions marked preview were not carried out. Several steps in
the same direction are shown as one decision with its duration.`,
		Example: `  sluice log --since 10m
  sluice log --pod data/db-0 --why
  sluice log --controller pools -o json`,
		Args: flagsAlone,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+usualConfig+", if it exists)")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` of the audit trail (default: the configuration's)")
	f.DurationVar(&o.since, "since", 0, "only decisions of the last `duration`, e.g. 10m or 24h")
	f.StringVar(&o.object, "pod", "", "only decisions about this pod, container or pool, e.g. `namespace/name`")
	f.StringVar(&o.controller, "controller", "", "only decisions of this controller, e.g. pools or eviction")
	f.BoolVar(&o.why, "why", false, "show the measurements that each decision was based on")
	o.output = outputFlag(c, "text", "json")
	socket := socketFlag(c)
	complete(c, "controller", func(string) []string { return controllers() })
	complete(c, "pod", func(begun string) []string { return completePods(*socket, begun) })
	return c
}

// controllers are the names that decisions are made under.
func controllers() []string {
	return []string{"batch", "burst", "cache", "demotion", "eviction", "interference", "failsafe", "memory", "noisy", "pools", "rules", "sell", "windows"}
}

func (o *logOptions) run(c *cobra.Command) error {
	dir, err := stateFolder(o.stateDir, o.config, "/")
	if err != nil {
		return err
	}
	filter := audit.Filter{Object: o.object, Controller: o.controller}
	if o.since > 0 {
		filter.Since = time.Now().Add(-o.since)
	}
	out := c.OutOrStdout()
	found := false
	broken, err := audit.Read(os.DirFS(dir), filter, func(e audit.Entry) error {
		found = true
		if o.output.value == "json" {
			return writeIndented(out, e, "")
		}
		_, err := fmt.Fprint(out, entryText(&e, o.why))
		return err
	})
	if err != nil {
		return err
	}
	if broken > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s of the trail left out, which can't be read\n", humanize.Count(broken, "line"))
	}
	if !found && o.output.value == "text" {
		fmt.Fprintf(out, "No such decision in %s%s.\n", dir, absent(dir))
	}
	return nil
}

// entryText is a decision as people read it, in lines of at most 80 columns.
func entryText(e *audit.Entry, why bool) string {
	told := control.Told(*e)
	head := e.Time.Local().Format(time.DateTime) + "  " + e.Object + ": " + told.Change()
	if e.Mode != "on" {
		head += " (" + string(e.Mode) + ")"
	}
	var text strings.Builder
	const indent = "    "
	for i, line := range fold(printable(head), columns-len(indent)) {
		if i > 0 {
			text.WriteString(indent)
		}
		text.WriteString(line + "\n")
	}
	for _, line := range fold(printable(e.Controller+": "+e.Why), columns-len(indent)) {
		text.WriteString(indent + line + "\n")
	}
	if why && len(e.Facts) > 0 {
		for _, line := range fold(printable(factsText(&e.Decision)), columns-len(indent)) {
			text.WriteString(indent + line + "\n")
		}
	}
	return text.String()
}

// factsText lists the numbers that a decision was made from; of a movement those of its
// first and of its last step, where they differ.
func factsText(d *control.Decision) string {
	facts := make([]string, len(d.Facts))
	for i, f := range d.Facts {
		name, value := factText(f)
		if i < len(d.FirstFacts) && d.FirstFacts[i].Name == f.Name {
			if _, first := factText(d.FirstFacts[i]); first != value {
				value = first + " to " + value
			}
		}
		facts[i] = name + " " + value
	}
	return strings.Join(facts, ", ")
}

// factText is a fact's name and its value with its unit, which the end of the name tells.
func factText(f control.Fact) (name, value string) {
	for _, unit := range []struct {
		suffix string
		text   func(float64) string
	}{
		{"_bytes_per_second", func(x float64) string { return size(int64(x)) + "/s" }},
		{"_bytes", func(x float64) string { return size(int64(x)) }},
		{"_cpus", func(x float64) string {
			if x == 1 {
				return "1 CPU"
			}
			return fmt.Sprintf("%.4g CPUs", x)
		}},
		{"_percent", func(x float64) string { return fmt.Sprintf("%.4g%%", x) }},
		{"_seconds", func(x float64) string { return fmt.Sprintf("%.4g s", x) }},
	} {
		if name, has := strings.CutSuffix(f.Name, unit.suffix); has {
			return strings.ReplaceAll(name, "_", " "), unit.text(f.Value)
		}
	}
	return strings.ReplaceAll(f.Name, "_", " "), fmt.Sprintf("%.6g", f.Value)
}
