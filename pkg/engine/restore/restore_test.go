package restore

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	container = "/kubepods/pod-web/app"
	inner     = container + "/container"
)

// bed is a container on a kernel with cgroup v2, whose processes are in a cgroup below its own.
type bed struct {
	*fakekernel.Kernel
	t       *testing.T
	journal *journal.Journal
}

func newBed(t *testing.T, files map[string]string) *bed {
	t.Helper()
	b := &bed{Kernel: fakekernel.New(fakekernel.MainlineV2()), t: t}
	b.Mkdir(inner)
	if err := b.Populate(inner, 1); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := b.WriteFile(path.Dir(file), path.Base(file), text); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.journal, err = journal.Open("", ""); err != nil {
		t.Fatal(err)
	}
	return b
}

// driver is that of a process of its own, which knows nothing of the container yet.
func (b *bed) driver() *cgroupfs.Driver {
	b.t.Helper()
	d, err := b.Driver()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { d.Close() })
	return d
}

// set sets the container's knobs as the plugin does.
func (b *bed) set(plugin *cgroupfs.Driver, values map[knobs.Knob]knobs.Value) {
	b.t.Helper()
	o := knobs.Object{Path: container, Name: "ns/web/app", Level: knobs.ContainerLevel}
	var changes []knobs.Change
	for knob, to := range values {
		have, err := plugin.Read(container, knob)
		if err != nil {
			b.t.Fatal(err)
		}
		b.journal.Record(o, knob, have)
		b.journal.RecordWrite(container, knob, to)
		changes = append(changes, knobs.Change{Object: o, Knob: knob, From: have, To: to})
	}
	if err := plugin.Apply(knobs.Order(changes)); err != nil {
		b.t.Fatal(err)
	}
}

// restores runs sluice restore, and checks that these files are as they were.
func (b *bed) restores(before map[string]string) {
	b.t.Helper()
	set := b.Dump()
	dry, err := Run(&Host{Kernel: b.driver()}, b.journal, true)
	if err != nil || len(dry.Changes) != len(b.journal.All()) || !maps.Equal(b.Dump(), set) {
		b.t.Errorf("a dry run lists %v of %v, %v", dry.Changes, b.journal.All(), err)
	}
	r, err := Run(&Host{Kernel: b.driver()}, b.journal, false)
	if err != nil || len(r.Newer) > 0 || len(b.journal.All()) > 0 {
		b.t.Errorf("newer %v, %v; left %v", r.Newer, err, b.journal.All())
	}
	after := b.Dump()
	for _, file := range slices.Sorted(maps.Keys(before)) {
		if after[file] != before[file] {
			b.t.Errorf("%s has %q, and had %q", file, after[file], before[file])
		}
	}
}

// TestNestedLimits checks that limits which crun has set below the container's own cgroup alone are
// restored, whether the container had some before or none.
func TestNestedLimits(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"limited": {inner + "/cpu.max": "200000 100000", inner + "/memory.max": "67108864"},
		"free":    {},
		"both":    {container + "/cpu.max": "200000 100000", inner + "/cpu.max": "200000 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, files)
			before := b.Dump()
			plugin := b.driver()
			plugin.Nest(container)
			b.set(plugin, map[knobs.Knob]knobs.Value{
				knobs.Quota: knobs.MicroQuota(166_667, 100_000), knobs.MemoryMax: knobs.Bytes(32 << 20), knobs.MemoryHigh: knobs.Bytes(16 << 20),
			})
			b.restores(before)
		})
	}
}

// TestNestedLimitBeforeTheLast checks that a limit below the container's own cgroup is restored although
// another write was recorded after it, which a plugin that was killed had not made, and so is one that was
// about to be lifted.
func TestNestedLimitBeforeTheLast(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]func(*journal.Journal){
		"raised": func(j *journal.Journal) { j.RecordWrite(container, knobs.Quota, knobs.UnlimitedQuota()) },
		"lifted": func(j *journal.Journal) { j.RecordLift(container, knobs.Quota) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, map[string]string{inner + "/cpu.max": "200000 100000"})
			before := b.Dump()
			plugin := b.driver()
			plugin.Nest(container)
			b.set(plugin, map[knobs.Knob]knobs.Value{knobs.Quota: knobs.MicroQuota(166_667, 100_000)})
			record(b.journal)
			b.restores(before)
		})
	}
}

// TestOwnCgroup checks that what Sluice has set on a container is restored although the container has made
// a cgroup below, where it is not set.
func TestOwnCgroup(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{container + "/cpu.max": "200000 100000"})
	before := b.Dump()
	plugin := b.driver()
	b.Rmdir(inner)
	plugin.Nest(container) // at the container's start
	b.set(plugin, map[knobs.Knob]knobs.Value{
		knobs.Quota: knobs.MicroQuota(166_667, 100_000), knobs.MemoryMin: knobs.Bytes(16 << 20), knobs.MemoryHigh: knobs.Bytes(32 << 20),
	})
	b.Mkdir(inner)
	if err := b.Populate(inner, 1); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(before, func(file, _ string) bool { return strings.Contains(file, inner) }) // the container's own affair
	b.restores(before)
}
