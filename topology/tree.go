package topology

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// width is the number of columns of a tree.
const width = 80

// Tree writes the machine as text in 80 columns: packages, their NUMA nodes, and the L3s and
// cores of these nodes. It omits packages that are smaller than nodes.
//
// Cores are written by their threads: "0-3+8-11" are four cores of two threads,
// 0 and 8, 1 and 9 and so on; "0-7/2" are four cores of two threads side by
// side; "4-7" are four of one; a tilde marks efficiency cores.
func (m *Machine) Tree(w io.Writer) error {
	t := &treeWriter{m: m}
	t.summary()
	if m.packagesAbove() {
		for i := range m.Packages {
			p := &m.Packages[i]
			t.line(0, fmt.Sprintf("package %d, CPUs", p.ID), []string{shorten(p.CPUs.String())})
			for j := range m.Nodes {
				if m.Nodes[j].CPUs.Overlaps(p.CPUs) {
					t.node(1, &m.Nodes[j], p.CPUs)
				}
			}
		}
	} else {
		for i := range m.Nodes {
			if !m.Nodes[i].CPUs.IsEmpty() {
				t.node(0, &m.Nodes[i], m.Online)
			}
		}
	}
	for i := range m.Nodes {
		if m.Nodes[i].CPUs.IsEmpty() {
			t.node(0, &m.Nodes[i], cpuset.Set{})
		}
	}
	t.devices(0, None, "devices of no known node")
	_, err := io.WriteString(w, t.out.String())
	return err
}

// packagesAbove reports whether packages contain nodes rather than nodes packages.
func (m *Machine) packagesAbove() bool {
	for i := range m.Packages {
		for j := range m.Nodes {
			if n := m.Nodes[j].CPUs; n.Overlaps(m.Packages[i].CPUs) && !n.SubsetOf(m.Packages[i].CPUs) {
				return false
			}
		}
	}
	return true
}

type treeWriter struct {
	m   *Machine
	out strings.Builder
}

// line writes a title and words. It breaks the line before width and indents the rest.
func (t *treeWriter) line(indent int, title string, words []string) {
	line := strings.Repeat("  ", indent) + title
	margin := strings.Repeat("  ", indent+2)
	for _, word := range words {
		space := " "
		for _, part := range fold(word, width-len(margin)) {
			if len(line)+len(space)+len(part) > width {
				t.out.WriteString(line + "\n")
				line = margin + part
			} else {
				line += space + part
			}
			space = ""
		}
	}
	t.out.WriteString(line + "\n")
}

// fold breaks a long list after commas.
func fold(list string, most int) []string {
	var parts []string
	for len(list) > most {
		comma := strings.LastIndexByte(list[:most], ',')
		if comma < 0 {
			break
		}
		parts = append(parts, list[:comma+1])
		list = list[comma+1:]
	}
	return append(parts, list)
}

// shorten cuts a list that would fill more than three lines.
func shorten(list string) string {
	if len(list) <= 3*width {
		return list
	}
	parts := fold(list, 2*width)
	return parts[0] + "...," + list[strings.LastIndexByte(list, ',')+1:]
}

func (t *treeWriter) summary() {
	m := t.m
	words := []string{humanize.Count(len(m.Cores), "core") + ","}
	efficient := 0
	for i := range m.Cores {
		if m.Cores[i].Kind == Efficiency {
			efficient++
		}
	}
	if efficient > 0 {
		words = append(words, fmt.Sprintf("%d of them for efficiency,", efficient))
	}
	if threads := m.ThreadsPerCore(); threads > 1 {
		words = append(words, fmt.Sprintf("up to %d threads each,", threads))
	}
	if len(m.Clusters) > 0 {
		words = append(words, humanize.Count(len(m.Clusters), "cluster")+",")
	}
	if len(m.Dies) != len(m.Packages) {
		words = append(words, humanize.Count(len(m.Dies), "die")+",")
	}
	words = append(words, humanize.Count(len(m.L3s), "L3")+",", humanize.Count(len(m.Packages), "package")+",",
		humanize.Count(len(m.Nodes), "node")+",", memoryText(m.Memory(m.MemoryNodes())))
	t.line(0, humanize.Count(m.Online.Size(), "CPU")+",", strings.Fields(strings.Join(words, " ")))
	for _, set := range []struct {
		name string
		cpus cpuset.Set
	}{{"offline", m.Offline}, {"isolated", m.Isolated}, {"no tick", m.NoHzFull}} {
		if !set.cpus.IsEmpty() {
			t.line(0, fmt.Sprintf("%s (%d)", set.name, set.cpus.Size()), []string{shorten(set.cpus.String())})
		}
	}
}

// node writes a node with those L3s that have CPUs in a package.
func (t *treeWriter) node(indent int, n *Node, within cpuset.Set) {
	m := t.m
	words := []string{memoryText(n.MemoryBytes)}
	if n.Tier != None {
		words = append(words, fmt.Sprintf("tier %d", n.Tier))
	}
	if len(m.Nodes) > 1 {
		words = append(words, "distances")
		for _, d := range n.Distances {
			words = append(words, strconv.Itoa(d))
		}
	}
	t.line(indent, fmt.Sprintf("node %d", n.ID), words)
	for i := range m.L3s {
		l3 := &m.L3s[i]
		here := cpuset.Intersect(cpuset.Intersect(l3.CPUs, n.CPUs), within)
		if here.IsEmpty() {
			continue
		}
		title := "L3"
		if l3.SizeBytes > 0 {
			title += " " + memoryText(l3.SizeBytes)
		} else {
			title += " unknown"
		}
		if !l3.CPUs.SubsetOf(here) {
			title += " in part"
		}
		t.line(indent+1, title+", cores", m.cores(here))
	}
	t.devices(indent+1, n.ID, "devices")
}

func (t *treeWriter) devices(indent, node int, title string) {
	var addresses []string
	for _, device := range t.m.Devices {
		if device.Node == node {
			addresses = append(addresses, device.Address)
		}
	}
	if len(addresses) > 0 {
		t.line(indent, title, addresses)
	}
}

// cores formats the cores that have a CPU in cpus, in runs.
func (m *Machine) cores(cpus cpuset.Set) []string {
	var runs []string
	var run []*Core
	for i := range m.Cores {
		core := &m.Cores[i]
		if !core.CPUs.Overlaps(cpus) {
			continue
		}
		if len(run) > 0 && !extends(run, core) {
			runs = append(runs, runText(run))
			run = nil
		}
		run = append(run, core)
	}
	if len(run) > 0 {
		runs = append(runs, runText(run))
	}
	return runs
}

// step returns the number that leads from each thread of a to the same thread of b; 0 if there
// is none.
func step(a, b *Core) int {
	left, right := slices.Collect(a.CPUs.All()), slices.Collect(b.CPUs.All())
	if len(left) != len(right) || a.Kind != b.Kind {
		return 0
	}
	by := right[0] - left[0]
	for i := range left {
		if right[i]-left[i] != by {
			return 0
		}
	}
	return by
}

// extends reports whether core continues the run: by 1, or side by side.
func extends(run []*Core, core *Core) bool {
	by := step(run[len(run)-1], core)
	if len(run) > 1 && by != step(run[0], run[1]) {
		return false
	}
	return by == 1 || adjacent(core) && by == core.CPUs.Size()
}

// adjacent reports whether the core's several threads are side by side.
func adjacent(core *Core) bool {
	threads := core.CPUs.Size()
	return threads > 1 && core.CPUs.Last()-core.CPUs.First() == threads-1
}

func runText(run []*Core) string {
	first, last := run[0], run[len(run)-1]
	var text strings.Builder
	if first.Kind == Efficiency {
		text.WriteByte('~')
	}
	if adjacent(first) {
		fmt.Fprintf(&text, "%d-%d/%d", first.CPUs.First(), last.CPUs.Last(), first.CPUs.Size())
		return text.String()
	}
	separator := ""
	for cpu := range first.CPUs.All() {
		text.WriteString(separator + cpuset.Range(cpu, cpu+len(run)-1).String())
		separator = "+"
	}
	return text.String()
}

// memoryText formats the memory of a node, which may have none.
func memoryText(bytes int64) string {
	if bytes == 0 {
		return "no memory"
	}
	return humanize.Bytes(bytes)
}
