package agent

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// fault is a kind of fault. It is over when do returns.
type fault struct {
	name string
	do   func(f *faultNode)
}

func faultKinds() []fault {
	return []fault{
		{"plugin killed at a write", func(f *faultNode) { f.dies(nil) }},
		{"plugin killed while it writes the journal", func(f *faultNode) { f.dies(&f.dice) }},
		{"plugin killed and away", (*faultNode).away},
		{"plugin killed and given back", (*faultNode).givenBack},
		{"plugin stalls", (*faultNode).stalls},
		{"failsafe killed", (*faultNode).failsafeKilled},
		{"runtime reconnects", (*faultNode).reconnects},
		{"cgroup vanishes", (*faultNode).cgroupVanishes},
		{"kernel refuses writes", func(f *faultNode) { f.refuses(true) }},
		{"kernel refuses reads", func(f *faultNode) { f.refuses(false) }},
		{"kernel blocks", (*faultNode).blocks},
		{"another program writes", (*faultNode).foreignWrites},
		{"CPUs go offline", (*faultNode).hotplug},
		{"disk full", (*faultNode).diskFull},
		{"state folders vanish", (*faultNode).foldersVanish},
		{"state torn", (*faultNode).torn},
		{"journal torn", (*faultNode).journalTorn},
		{"nothing is measured", func(f *faultNode) { f.blind = true; f.live(); f.pause(3 * time.Second); f.blind = false }},
		{"clock jumps", (*faultNode).clockJumps},
		{"configuration reloaded", (*faultNode).reloads},
	}
}

// dies kills the plugin at one of its next writes, or after them.
func (f *faultNode) dies(tears *dice) {
	plan := planned{kills: 1 + f.IntN(40)}
	if tears != nil {
		plan.tears, plan.journal = tears.Rand, f.files()[f.o.Originals]
	}
	f.trouble.plan(plan)
	for range 4 {
		if !f.killed() {
			f.live()
		}
	}
	f.tell("the plugin dies")
	f.die()
	f.pause(time.Duration(f.IntN(40)) * 100 * time.Millisecond)
	f.rise()
}

// away leaves the node alone for longer than the failsafe waits.
func (f *faultNode) away() {
	f.tell("the plugin dies, and stays away")
	f.die()
	f.live()
	f.pause(2 * failsafe.Silence)
	f.live()
	f.rise()
}

func (f *faultNode) givenBack() {
	f.trouble.plan(planned{kills: f.IntN(20)})
	f.live()
	f.tell("the plugin dies, and all is given back")
	f.die()
	if err := failsafe.Forget(f.runDir()); err != nil { // as sluice restore does
		f.t.Errorf("forget the plan: %v", err)
	}
	f.giveAllBack()
	for _, name := range f.names(f.running) { // the runtime's record still has Sluice's quota
		if f.specs[name].Resources.Quota > 0 && f.specs[name].Resources != f.without.specs[name].Resources {
			f.vanish(name)
		}
	}
	f.rise()
}

func (f *faultNode) stalls() {
	f.tell("the plugin stalls")
	time.Sleep(failsafe.Silence + time.Duration(f.IntN(50))*100*time.Millisecond)
	synctest.Wait()
	f.live()
}

func (f *faultNode) failsafeKilled() {
	f.tell("the failsafe dies")
	f.watch()
	f.pulse.Close() // it never fails
	f.live()
	if f.IntN(2) == 0 {
		f.pause(12 * time.Second) // it is started again
	}
}

// reconnects lets the runtime end the connection. Some containers end, and others come, before it is
// back.
func (f *faultNode) reconnects() {
	f.tell("the runtime is away")
	f.agent.Disconnected()
	f.alive.Store(false) // for what happens meanwhile
	for range f.IntN(3) {
		f.live()
	}
	for _, name := range f.names(f.running) {
		if f.IntN(4) == 0 {
			f.rewrite(name, knobs.CPUs)
			f.unpinned = true // a pin that is not on its CPUs may move
		}
	}
	f.alive.Store(true)
	f.agent.Connected(nil, status.Runtime{}, "")
	f.synchronize()
}

// cgroupVanishes ends a container before one of the next accesses to any file. Nobody tells the plugin
// for a while.
func (f *faultNode) cgroupVanishes() {
	all := f.names(f.running)
	if len(all) == 0 {
		return
	}
	name := oneOf(f.dice, all)
	var gone atomic.Bool
	dir, at := f.specs[name].CgroupsPath, 1+f.IntN(60)
	f.trouble.plan(planned{vanishes: at, victim: func() { gone.Store(true); f.Rmdir(dir) }})
	f.tell("%s is to vanish at access %d", name, at)
	f.pause(2 * time.Second)
	f.arrive()
	f.pass()
	if f.trouble.plan(planned{}); gone.Load() || f.IntN(2) == 0 {
		f.depart(name)
	}
}

// refuses makes accesses to some files fail.
func (f *faultNode) refuses(writes bool) {
	errno := oneOf(f.dice, errnos())
	share := oneOf(f.dice, []int{1, 3, 10})
	only := ""
	if all := f.names(f.running); len(all) > 0 && f.IntN(2) == 0 {
		only = f.specs[oneOf(f.dice, all)].CgroupsPath
	}
	f.tell("1 of %d accesses (write %t) fail with %v, of %q", share, writes, errno, only)
	f.trouble.plan(planned{answers: func(a fakekernel.Access) error {
		pods := a.File == "cpuset.cpus" && path.Base(a.Dir) != "c" // Sluice writes these after hotplug alone
		if a.Write == writes && !pods && f.IntN(share) == 0 && strings.HasPrefix(a.Dir, only) {
			return errno
		}
		return nil
	}})
	f.mayFail = true // cgroup v1 refuses what does not fit into a parent that Sluice could not change
	f.live()
	f.pass()
	f.live()
	f.mayFail, f.denied = false, writes
	f.trouble.plan(planned{})
}

// blocks makes writes that the kernel may take long over take a minute.
func (f *faultNode) blocks() {
	f.tell("the kernel blocks")
	f.trouble.plan(planned{answers: func(a fakekernel.Access) error {
		if f.mayTakeLong(a) {
			f.trouble.mu.Unlock()
			defer f.trouble.mu.Lock()
			time.Sleep(time.Minute)
		}
		return nil
	}})
	began := time.Now()
	f.live()
	if took := time.Since(began); took > 10*time.Second {
		f.t.Errorf("events waited for the kernel: %s", took)
	}
	f.trouble.plan(planned{})
	f.pause(time.Minute)
}

// rewrite writes a knob of a container, or of its pod, as another program.
func (f *faultNode) rewrite(name string, knob knobs.Knob) {
	if knob == knobs.CPUs {
		f.tell("another program puts %s on %s", name, f.online)
		f.WriteFile(f.specs[name].CgroupsPath, "cpuset.cpus", f.online.String()) // the kernel may refuse it
		return
	}
	for _, dir := range []string{f.specs[name].CgroupsPath, path.Dir(f.specs[name].CgroupsPath)} {
		if e, kept := f.agent.Journal.Entry(dir, knob); kept && e.Value != nil && e.Wrote != nil {
			f.tell("another program sets %s of %s to %s", knob, dir, e.Value)
			f.spy.Driver.Apply([]knobs.Change{{Object: e.Object, Knob: knob, To: e.Value}}) // the kernel may refuse it
		}
	}
}

func (f *faultNode) foreignWrites() {
	all := f.names(f.running)
	if len(all) == 0 {
		return
	}
	for range 1 + f.IntN(3) {
		name := oneOf(f.dice, all)
		f.loop(func() {
			f.rewrite(name, oneOf(f.dice, []knobs.Knob{knobs.CPUs, knobs.Quota, knobs.Burst, knobs.MemoryHigh, knobs.MemoryLow, knobs.CPUIdentity, knobs.IOWeight}))
		})
		f.pause(time.Duration(f.IntN(15)) * 100 * time.Millisecond)
	}
	f.pass()
}

func (f *faultNode) hotplug() {
	away := f.V2 && f.IntN(4) == 0 // cgroup v1 gives CPUs that came back to no set, and only a plugin that saw it knows
	if away {
		f.tell("the plugin dies")
		f.die()
	}
	off := cpuset.Of(1+f.IntN(fakekernel.CPUs-1), 1+f.IntN(fakekernel.CPUs-1))
	f.plug(cpuset.Difference(cpuset.Range(0, fakekernel.CPUs-1), off))
	f.live()
	if away {
		f.rise()
	}
	f.live()
	if f.IntN(3) > 0 {
		f.plug(cpuset.Range(0, fakekernel.CPUs-1))
	}
	f.live()
}

// diskFull fills the disk while the node lives, and perhaps until the plugin dies.
func (f *faultNode) diskFull() {
	f.tell("the disk is full")
	name := filepath.Join(f.disk, filler)
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err == nil { // without a disk of its own
		os.Remove(name) // it is in a test's own folder
		return
	}
	if left := f.IntN(3) * 1000; left > 0 {
		info, err := os.Stat(name)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := os.Truncate(name, max(0, info.Size()-int64(left))); err != nil {
			f.t.Fatal(err)
		}
	}
	f.live()
	f.live()
	if f.IntN(3) == 0 {
		f.tell("the plugin dies on the full disk")
		f.trouble.kill()
	}
	if err := os.Remove(name); err != nil {
		f.t.Fatal(err)
	}
	if f.killed() {
		f.die()
		f.rise()
	}
}

func (f *faultNode) foldersVanish() {
	f.tell("the state folders vanish")
	must := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	both := func(from, to string) {
		must(os.Rename(filepath.Join(from, "run"), filepath.Join(to, "run")))
		must(os.Rename(filepath.Join(from, "state"), filepath.Join(to, "state")))
	}
	away := filepath.Join(f.disk, "away")
	must(os.Mkdir(away, 0o700))
	both(f.disk, away)
	f.live()
	f.live()
	both(away, f.disk)
	must(os.Remove(away))
}

// garble damages a file: it is cut, or some of its bytes are others.
func (f *faultNode) garble(data []byte) []byte {
	switch f.IntN(4) {
	case 0:
		return nil
	case 1:
		return data[:f.IntN(len(data)+1)]
	case 2:
		return []byte("\x00\xff{]\n")
	}
	for range min(len(data), 3) {
		data[f.IntN(len(data))] = byte(f.IntN(256))
	}
	return data
}

// torn damages files that the plugin reads at its start, or while it runs.
func (f *faultNode) torn() {
	if err := batchswitch.Write(f.stateDir(), batchswitch.Setting{To: oneOf(f.dice, []control.SwitchState{"", control.SwitchOn, control.SwitchOff})}); err != nil {
		f.t.Fatal(err)
	}
	f.pause(time.Second)
	dies := f.IntN(2) == 0
	if dies {
		f.die()
	}
	for name, data := range f.files() {
		if name == f.o.Originals || f.IntN(2) == 0 {
			continue
		}
		f.tell("%s is garbled", filepath.Base(name))
		if err := os.WriteFile(name, f.garble(data), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	if dies {
		f.pause(time.Duration(f.IntN(8)) * time.Second)
		f.rise()
	}
	f.live()
	if err := batchswitch.Write(f.stateDir(), batchswitch.Setting{}); err != nil {
		f.t.Fatal(err)
	}
}

// journalTorn damages the journal while the plugin is away. What it has lost can't be given back, and
// is left out of later comparisons.
func (f *faultNode) journalTorn() {
	f.tell("the journal is torn")
	f.die()
	was, _ := journal.Read(f.o.Originals, "") // it may be torn already
	before := was.All()
	data, err := os.ReadFile(f.o.Originals)
	if err != nil {
		f.t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	for range 1 + f.IntN(3) {
		i := f.IntN(len(lines))
		if strings.Contains(lines[i], `"other"`) {
			continue // on cgroup v1 nobody else knows which CPUs were offline
		}
		lines[i] = string(f.garble([]byte(lines[i])))
	}
	if err := os.WriteFile(f.o.Originals, []byte(strings.Join(lines, "")), 0o600); err != nil {
		f.t.Fatal(err)
	}
	after, _ := journal.Read(f.o.Originals, "") // it tells what is lost
	for _, e := range before {
		if now, kept := after.Entry(e.Object.Path, e.Knob); !kept || now != e {
			f.garbled[e.Object.Path] = true
		}
	}
	for _, e := range after.All() { // an older value, or a garbled one
		if !slices.Contains(before, e) {
			f.garbled[e.Object.Path] = true
		}
	}
	f.rise()
}

func (f *faultNode) clockJumps() {
	f.skew = oneOf(f.dice, []time.Duration{-time.Hour, -10 * time.Second, 10 * time.Second, time.Hour, 24 * time.Hour})
	f.tell("the clock jumps by %s", f.skew)
	f.live()
	f.pause(2 * time.Second)
	if f.IntN(2) == 0 {
		f.skew = 0
		f.pause(2 * time.Second)
	}
	f.skew = 0
}

func (f *faultNode) reloads() {
	text := oneOf(f.dice, append(faultConfigs(), brokenConfigs()...))
	f.tell("a reload of %q: %v", text, f.reload(text))
	f.live()
}
