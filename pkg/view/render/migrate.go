package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
)

// migrationColumns is the width of a plan of a migration, whose table of pods has many columns.
const migrationColumns = 100

// Migration writes the plan of a node's migration, 100 columns wide.
func Migration(w io.Writer, p *migrate.Plan) error {
	var out strings.Builder
	table := func(indent string, rows [][]string) {
		terminal.Table(&out, indent, migrationColumns, rows)
	}
	heading := func(text string) { out.WriteString("\n" + text + "\n") }
	table("", [][]string{{migrationSummary(p)}})
	if len(p.Pods) > 0 {
		heading("CPUS OF THEIR OWN")
		table("  ", pinsNow(p.Pods))
		refusals(&out, p.Pods)
	}
	if rows := annotations(p.Pods); len(rows) > 0 {
		heading("ANNOTATIONS THAT MANIFESTS NEED")
		table("  ", rows)
	}
	if len(p.Options) > 0 {
		heading("THE KUBELET'S OPTIONS")
		for _, o := range p.Options {
			table("  ", [][]string{{o.Key + ": " + o.Value}})
			table("    ", [][]string{{o.Becomes}})
		}
	}
	if len(p.Steps) > 0 {
		heading("STEPS")
		for i, s := range p.Steps {
			table("  ", [][]string{{strconv.Itoa(i+1) + ".", s.Do}})
			for _, command := range s.Commands {
				out.WriteString("      " + terminal.Printable(command) + "\n")
			}
		}
	}
	if len(p.Notes) > 0 {
		heading("NOTES")
		for _, note := range p.Notes {
			table("  ", [][]string{{note}})
		}
	}
	return flush(w, &out)
}

func migrationSummary(p *migrate.Plan) string {
	switch {
	case !p.Static && !p.MemoryManagerStatic:
		return "The kubelet's CPU manager and its memory manager are not static: there is nothing to migrate."
	case !p.Static:
		return "The kubelet's memory manager is static, its CPU manager is not. The plan changes nothing."
	}
	containers, lose := 0, 0
	for i := range p.Pods {
		containers += len(p.Pods[i].Containers)
		if !p.Pods[i].Keeps {
			lose++
		}
	}
	if containers == 0 {
		return "The kubelet's static CPU manager is on and has given no container CPUs of its own. The plan changes nothing."
	}
	refused, _ := p.Refused()
	text := fmt.Sprintf("The kubelet has given CPUs %s to %s in %s, and all others share %s. Under Sluice, %d would get as many.",
		cpuList(p.Exclusive, "none"), humanize.Count(containers, "container"), humanize.Count(len(p.Pods), "pod"), setOr(p.Shared, "none"), containers-refused)
	if lose > 0 {
		text += fmt.Sprintf(" Without a change of manifests, %s would share CPUs.", humanize.Count(lose, "pod"))
	}
	return text + " The plan changes nothing."
}

func pinsNow(pods []migrate.Pod) [][]string {
	rows := [][]string{{"POD", "CONTAINER", "CPUS", "NOW", "NUMA", "CLASS", "UNDER SLUICE", "NUMA", "UNCHANGED"}}
	for i := range pods {
		p := &pods[i]
		unchanged := "shared"
		if p.Keeps {
			unchanged = "its own"
		}
		for _, c := range p.Containers {
			name := c.Name
			if c.Init {
				name += " (init)"
			}
			rows = append(rows, []string{
				p.Title(), name, strconv.Itoa(c.CPUs.Size()), c.CPUs.String(), c.Nodes.String(), c.Class.String(),
				setOr(c.NewCPUs, "refused"), setOr(c.NewNodes, "-"), unchanged,
			})
		}
	}
	return rows
}

// refusals writes why containers would be refused.
func refusals(out *strings.Builder, pods []migrate.Pod) {
	for i := range pods {
		for _, c := range pods[i].Containers {
			if c.Problem != "" {
				terminal.Table(out, "  ", migrationColumns, [][]string{{pods[i].Title() + "/" + c.Name + " would be refused: " + c.Problem + "."}})
			}
		}
	}
}

func annotations(pods []migrate.Pod) [][]string {
	var rows [][]string
	for i := range pods {
		for _, key := range slices.Sorted(maps.Keys(pods[i].Annotations)) {
			rows = append(rows, []string{pods[i].Title(), key + ": " + pods[i].Annotations[key]})
		}
	}
	return rows
}
