package rdtgroup

import (
	"strings"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// machine is a node with resctrl, its groups, and the number of repairs of a class.
type machine struct {
	*Groups
	kernel  *fake.Kernel
	drifted int
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	kernel := fake.New(fake.Intel())
	host, err := resctrl.New(kernel, fake.Proc{Kernel: kernel}, false)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open("", "boot")
	if err != nil {
		t.Fatal(err)
	}
	log, _ := logtest.NewNullLogger()
	m := &machine{kernel: kernel}
	m.Groups = New(host, j, func() { m.drifted++ }, log)
	return m
}

func layout(t *testing.T) Layout {
	t.Helper()
	c, err := config.Parse([]byte("rdt: {classes: {be: {l3: 0-30%}}}"))
	if err != nil {
		t.Fatal(err)
	}
	return Layout{Classes: c.RDT.List()}
}

func TestClass(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	asks := workload.RDT{Class: "be"}
	if _, lacks := m.Lack(asks); lacks {
		t.Error("a class lacks its group before any was made")
	}
	m.Setup(layout(t), true)
	m.kernel.Start(100, 100, 101)
	group, notes, done := m.Assign(Member{ContainerID: "a", PodUID: "u", RDT: asks}, []int{100})
	if in, _ := m.kernel.Of(101); !done || len(notes) > 0 || in != group || group != resctrl.ClassGroup("be") {
		t.Errorf("group %q, thread in %q, notes %v", group, in, notes)
	}
	if note, lacks := m.Lack(workload.RDT{Class: "gold"}); !lacks || !note.Missing || !strings.Contains(note.Text, "gold") {
		t.Errorf("note %+v", note)
	}
	m.End()
	if m.HasClass("be") {
		t.Error("a class has a group after the end")
	}
	if in, _ := m.kernel.Of(100); in != "" {
		t.Errorf("a process is in %q after the end", in)
	}
}

// A group that another program has removed is made again for the next container.
func TestVanishedGroup(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.Setup(layout(t), true)
	if err := m.kernel.Rmdir(resctrl.ClassGroup("be")); err != nil {
		t.Fatal(err)
	}
	m.kernel.Start(100, 100)
	group, notes, done := m.Assign(Member{ContainerID: "a", PodUID: "u", RDT: workload.RDT{Class: "be"}}, []int{100})
	if in, _ := m.kernel.Of(100); !done || len(notes) > 0 || in != group || m.drifted != 1 {
		t.Errorf("group %q, process in %q, notes %v, %d repairs", group, in, notes, m.drifted)
	}
}
