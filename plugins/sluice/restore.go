package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/agent"
	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/coresched"
	"github.com/sluice-dev/sluice/pkg/irq"
	"github.com/sluice-dev/sluice/pkg/lifeline"
	"github.com/sluice-dev/sluice/pkg/originals"
	"github.com/sluice-dev/sluice/pkg/resctrl"
	"github.com/sluice-dev/sluice/pkg/watermark"
	"github.com/sluice-dev/sluice/pkg/words"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// originalsFile is the file in the state folder that keeps original values.
const originalsFile = "originals.jsonl"

func newRestore() *cobra.Command {
	c := &cobra.Command{
		Use:   "restore",
		Short: "Give back every kernel setting that Sluice has changed",
		Long: `Give back every kernel setting that Sluice has changed: containers get all CPUs
and memory nodes, quotas, weights, bursts and all else are as they were. A value
that somebody else has written since is left alone.

Stopping the plugin changes nothing, so that a restart moves nothing. Restore is
for its removal: stop the plugin first.`,
		Example: `  # what would be given back
  sluice restore --dry-run
  sluice restore --dry-run -o json | jq '.changes[].setting'

  systemctl stop sluice && sluice restore`,
		Args: flagsAlone,
	}
	configFile := c.Flags().StringP("config", "c", "", "configuration `file` (default "+usualConfig+", where it is there)")
	stateDir := c.Flags().String("state-dir", "", "`folder` with the original values (default: the configuration's)")
	hostRoot := c.Flags().String("host-root", "/", "`folder` that holds the host's /sys and /proc")
	dry := c.Flags().Bool("dry-run", false, "tell, and change nothing")
	output := outputFlag(c, "table", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		dir, err := stateFolder(*stateDir, *configFile, *hostRoot)
		if err != nil {
			return err
		}
		if !*dry {
			unlock, err := lock(dir)
			if err != nil {
				return err
			}
			defer unlock()
			if err := lifeline.Forget(dir); err != nil {
				return fmt.Errorf("the lifeline of the plugin that was stopped would undo what is given back: %w", err)
			}
		}
		restored, err := restore(dir, *hostRoot, *dry)
		if output.value == "json" {
			err = errors.Join(err, writeJSON(c.OutOrStdout(), restoredReport(restored, *dry)))
		} else {
			fmt.Fprint(c.OutOrStdout(), restoredText(restored, dir, *dry))
		}
		if err != nil {
			return fmt.Errorf("not all could be given back: %w; it stays on record: run it again", err)
		}
		return nil
	}
	return c
}

func restore(stateDir, hostRoot string, dry bool) (r agent.Restored, err error) {
	host := os.DirFS(hostRoot)
	book, bad := originals.Read(filepath.Join(stateDir, originalsFile), agent.BootID(host))
	defer func() {
		if !dry {
			err = errors.Join(err, book.Close())
		}
		err = errors.Join(bad, err)
	}()
	machine, err := sysfs.Read(host)
	if err != nil {
		return r, fmt.Errorf("reading the machine below %s: %w", hostRoot, err)
	}
	all := agent.Host{Online: machine.Online, Cores: coresched.New()}
	if all.Affinities, err = irq.Open(hostRoot); err != nil {
		return r, err
	}
	if all.Watermarks, err = watermark.Open(hostRoot); err != nil {
		return r, err
	}
	driver, err := cgroupfs.Open(hostRoot)
	switch {
	case err == nil:
		defer driver.Close() //nolint:errcheck // nothing is left to lose
		all.Kernel = driver
	case !errors.Is(err, cgroupfs.ErrNoCgroups):
		return r, err
	}
	rdt, err := resctrl.Open(hostRoot)
	switch {
	case err == nil:
		defer rdt.Close() //nolint:errcheck // nothing is left to lose
		all.RDT = rdt
	case !errors.Is(err, resctrl.ErrNone):
		return r, err
	}
	if all.Kernel != nil {
		changes, _ := lifeline.Load(stateDir, agent.BootID(host)) // what can't be read was not carried out
		agent.Recall(driver, book, changes)
	}
	return agent.Restore(&all, book, dry)
}

// restoredText tells people what was, or would be, given back.
func restoredText(r agent.Restored, dir string, dry bool) string {
	var out strings.Builder
	if len(r.Changes)+len(r.Newer)+r.IRQs == 0 {
		return fmt.Sprintf("Nothing to give back: %s tells of no change since the node was started%s.\n", dir, absent(dir))
	}
	if len(r.Changes) > 0 {
		rows := [][]string{{"WHERE", "SETTING", "FROM", "TO"}}
		for _, c := range r.Changes {
			rows = append(rows, []string{c.Object.Name, c.Knob.String(), valueText(c.From), c.To.String()})
		}
		table(&out, "", columns, rows)
		out.WriteString("\n")
	}
	verb := "given back"
	if dry {
		verb = "to be given back"
	}
	fmt.Fprintf(&out, "%s %s", words.Count(len(r.Changes), "setting"), verb)
	if r.IRQs > 0 {
		fmt.Fprintf(&out, ", and the CPUs of %s", words.Count(r.IRQs, "IRQ"))
	}
	out.WriteString(".\n")
	if len(r.Newer) > 0 {
		paragraph(&out, "", "Left alone, as somebody else has changed them since: "+strings.Join(r.Newer, ", ")+".")
	}
	return out.String()
}

// givenBack is what was, or would be, given back, as data.
type givenBack struct {
	DryRun  bool              `json:"dryRun"`
	Changes []settingReturned `json:"changes"`
	IRQs    int               `json:"irqs"`      // whose CPUs were given back
	Newer   []string          `json:"leftAlone"` // as somebody else has changed them since
}

// settingReturned is one setting.
type settingReturned struct {
	Where   string `json:"where"`
	Setting string `json:"setting"`
	From    string `json:"from"`
	To      string `json:"to"`
}

func restoredReport(r agent.Restored, dry bool) givenBack {
	report := givenBack{DryRun: dry, Changes: []settingReturned{}, IRQs: r.IRQs, Newer: append([]string{}, r.Newer...)}
	for _, c := range r.Changes {
		report.Changes = append(report.Changes, settingReturned{c.Object.Name, c.Knob.String(), valueText(c.From), c.To.String()})
	}
	return report
}

func valueText(v fmt.Stringer) string {
	if v == nil {
		return "unknown"
	}
	return v.String()
}
