package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// form says how to draw CPUs.
type form struct {
	load     bool   // draw a digit after the letter; otherwise the letter of a busy CPU is a capital
	core, l3 string // separators between two cores, and between two L3 domains
	joined   bool   // NUMA nodes continue on the same line
}

// forms lists the forms, the widest first.
func forms() []form {
	return []form{
		{load: true, core: " ", l3: " | "},
		{load: true, l3: "|"},
		{l3: "|"},
		{l3: "|", joined: true},
	}
}

// busy is the load from which a CPU without a digit gets a capital letter.
const busy = 50

// grid draws the CPUs by package, NUMA node, L3 domain and core, in the widest form that fits.
func (f *frame) grid(most int) []string {
	all := owners(f.Status)
	cpus := f.places()
	var lines []string
	var used form
	for _, used = range forms() {
		if lines = f.cells(cpus, all, used); len(lines)+1 < most {
			break
		}
	}
	legend := f.legend(all, used)
	if room := max(1, most-len(legend)); len(lines) > room {
		lines = clip(lines, room, func(n int) string {
			l := f.line()
			l.put(warn, "... and "+humanize.Count(n, "line")+" of CPUs more: the terminal is too small")
			return l.String()
		})
	}
	return append(legend, lines...)
}

// places returns the CPUs in drawing order.
func (f *frame) places() []topology.CPU {
	var cpus []topology.CPU
	if f.Machine != nil {
		cpus = slices.Clone(f.Machine.CPUs)
	} else {
		for cpu := range f.Status.Machine.Online.All() {
			cpus = append(cpus, topology.CPU{ID: cpu, Core: cpu})
		}
	}
	slices.SortFunc(cpus, func(a, b topology.CPU) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Node, b.Node), cmp.Compare(a.L3, b.L3), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	return cpus
}

// legend explains the letters, with their numbers of CPUs.
func (f *frame) legend(all []owner, used form) []string {
	items := []item{{title, "CPUS"}}
	for i := range all {
		o := &all[i]
		if o.cpus.IsEmpty() {
			continue
		}
		items = append(items, item{o.tone, fmt.Sprintf("%c %s %d", o.letter, fit(o.name, min(len(safe(o.name)), longName)), o.cpus.Size())})
	}
	how := "(capital: half busy or more)"
	if used.load {
		how = "(digit: tenths busy)"
	}
	if !f.loadKnown() {
		how = "(load not known)"
	}
	return f.words(len("CPUS  "), append(items, item{plain, how}))
}

// longName is the maximum length of a pool's name.
const longName = 40

// cells draws the CPUs in one form.
func (f *frame) cells(cpus []topology.CPU, all []owner, used form) []string {
	ownerOf := ownersByCPU(all)
	l := f.line()
	var lines []string
	indent := f.labelWidth()
	for i := 0; i < len(cpus); {
		first := &cpus[i]
		end := i + 1
		for end < len(cpus) && sameCore(first, &cpus[end]) {
			end++
		}
		width := end - i
		if used.load {
			width *= 2
		}
		separator := ""
		switch {
		case i == 0 || !sameNode(&cpus[i-1], first):
			if i > 0 && (!used.joined || l.left < len(gap)+indent+width) {
				lines, l = append(lines, l.String()), f.line()
			} else if i > 0 {
				l.put(plain, gap)
			}
			l.put(plain, fit(f.label(first), indent))
		case cpus[i-1].L3 != first.L3:
			separator = used.l3
		default:
			separator = used.core
		}
		if len(separator)+width > l.left && l.used > indent {
			lines, l, separator = append(lines, l.String()), f.line(), ""
			l.room(indent)
		}
		l.put(plain, separator)
		for ; i < end; i++ {
			at := ownerOf[cpus[i].ID]
			l.put(all[at].tone, f.cell(all[at].letter, cpus[i].ID, used))
		}
	}
	if len(cpus) == 0 {
		return nil
	}
	return append(lines, l.String())
}

// ownersByCPU returns the index of each CPU's owner.
func ownersByCPU(all []owner) []int {
	of := make([]int, cpuset.Max)
	for i := range of {
		of[i] = len(all) - 1
	}
	for i := range all {
		for cpu := range all[i].cpus.All() {
			of[cpu] = i
		}
	}
	return of
}

func sameCore(a, b *topology.CPU) bool { return a.Core == b.Core && a.L3 == b.L3 && sameNode(a, b) }

func sameNode(a, b *topology.CPU) bool { return a.Package == b.Package && a.Node == b.Node }

// label says where the CPUs after it are.
func (f *frame) label(c *topology.CPU) string {
	if f.Machine == nil {
		return ""
	}
	return fmt.Sprintf("P%d N%d ", c.Package, c.Node)
}

func (f *frame) labelWidth() int {
	if f.Machine == nil {
		return 0
	}
	width := 0
	for i := range f.Machine.CPUs {
		width = max(width, len(f.label(&f.Machine.CPUs[i])))
	}
	return width
}

// cell draws one CPU.
func (f *frame) cell(letter byte, cpu int, used form) string {
	load, known := f.load(cpu)
	switch {
	case used.load:
		return string([]byte{letter, digit(load, known)})
	case known && load >= busy:
		return strings.ToUpper(string(letter))
	}
	return string(letter)
}

// digit returns a load in tenths: '#' is 95 % and more, '.' is unknown.
func digit(load float64, known bool) byte {
	switch {
	case !known:
		return '.'
	case load >= 95:
		return '#'
	}
	return '0' + byte(max(0, load)/10)
}

// load returns a CPU's load in percent.
func (f *frame) load(cpu int) (percent float64, known bool) {
	if f.Status.Loop == nil || cpu >= len(f.Status.Loop.Node.CPULoadPercent) {
		return 0, false
	}
	percent = f.Status.Loop.Node.CPULoadPercent[cpu]
	return percent, percent >= 0
}

func (f *frame) loadKnown() bool {
	return f.Status.Loop != nil && slices.ContainsFunc(f.Status.Loop.Node.CPULoadPercent, func(load float64) bool { return load >= 0 })
}
