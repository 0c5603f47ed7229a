package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/synth"
)

// giveBackNow restores everything while no plugin runs.
func (h *knobNode) giveBackNow() {
	h.t.Helper()
	if r, err := restore.Run(&restore.Host{Kernel: h.spy}, readJournal(h.t, h.o.Originals), false); err != nil || len(r.Newer) > 0 {
		h.t.Errorf("newer %v, %v", r.Newer, err)
	}
}

func pinned(name string) ask {
	return ask{name: name, milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}}
}

// TestKilledBeforeTheStart: the runtime makes containers with what Sluice has answered. If the plugin
// is killed before their start, the journal has what they would have had without.
func TestKilledBeforeTheStart(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.NoWayBack = false
		asks := []ask{granted("job/c"), pinned("db/c"), {name: "web/c", milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LS", "memory-qos.sluice.dev": "{minPercent: 50}"}}}
		for _, a := range asks {
			if err := h.create(a); err != nil {
				t.Fatal(err)
			}
			h.make(h.specs[a.name])
		}
		h.crash(t, h.o.Originals)
		h.giveBackNow()
		without := bare(t, h.Flavour, func(h *knobNode) {
			for _, a := range asks {
				h.record(a)
				h.make(h.specs[a.name])
			}
		})
		now := h.state()
		for file, text := range without {
			if inherited(file) {
				now[file] = text
			}
		}
		if diff := differences(without, now); diff != "" {
			t.Errorf("not as before:\n%s", diff)
		}
		h.launch("")
		synctest.Wait()
	})
}

// TestCarriedIsNoOriginal: after a restart, what the runtime's record has of Sluice's is not taken for
// the kubelet's, although the loop has written another value since.
func TestCarriedIsNoOriginal(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(granted("job/c"))
		dir := h.specs["job/c"].CgroupsPath
		h.loop(func() {
			e, _ := h.agent.Journal.Entry(dir, knobs.Quota)
			less := knobs.CPUQuota{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}
			h.agent.Journal.RecordWrite(dir, knobs.Quota, less)
			h.agent.Reconciler.Write([]knobs.Change{{Object: e.Object, Knob: knobs.Quota, From: e.Wrote, To: less}})
		})
		h.restart("")
		h.loop(func() {
			e, kept := h.agent.Journal.Entry(dir, knobs.Quota)
			if q, _ := e.Value.(knobs.CPUQuota); !kept || !q.Unlimited() {
				t.Errorf("%s counts as the kubelet's quota", q)
			}
		})
	})
}

// TestStartAfterRestore: a pin that lost its lifted quota to sluice restore gets it lifted again, and
// can be restored again, although the runtime's record has no quota of the kubelet's any more.
func TestStartAfterRestore(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(pinned("db/c"))
		read := func() string { return h.get("/kubepods/pod-db/c", "cpu.max", "cpu.cfs_quota_us") }
		lifted := read()
		for range 2 {
			h.stop()
			h.giveBackNow()
			if got := read(); got != "100000" && got != "100000 100000" {
				t.Errorf("restored to %s", got)
			}
			h.launch("")
			synctest.Wait()
			if got := read(); got != lifted {
				t.Errorf("%s after a start, it was %s", got, lifted)
			}
		}
	})
}

// TestFullDiskAndPins: while the journal can't be written, the runtime is told nothing that would have
// to be given back, and a pod's lifted quota is given back as soon as the journal can be written.
func TestFullDiskAndPins(t *testing.T) {
	for _, f := range mainlines() {
		t.Run(f.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			onFlavour(t, f, knobSetup{originals: filepath.Join(dir, "originals")}, func(t *testing.T, h *knobNode) {
				read := func(pod string) string { return h.get("/kubepods/"+pod, "cpu.max", "cpu.cfs_quota_us") }
				h.run(pinned("db/c"))
				before := read("pod-db/c")
				h.loop(func() { h.agent.Journal.Close() }) // it has to open its file again, as after a write that failed
				if err := os.Rename(dir, dir+".away"); err != nil {
					t.Fatal(err)
				}
				h.end("db/c")
				h.run(pinned("two/c"))
				if q := h.specs["two/c"].Resources.Quota; q < 0 {
					t.Errorf("the runtime is told to lift a quota that nobody has written down")
				}
				h.pass()
				if err := os.Rename(dir+".away", dir); err != nil {
					t.Fatal(err)
				}
				h.sleep(5 * time.Second)
				if got := read("pod-db"); got != "100000" && got != "100000 100000" {
					t.Errorf("a pod without a pin is left with %s", got)
				}
				if got := read("pod-two/c"); got != before {
					t.Errorf("the pin has %s, want %s", got, before)
				}
			})
		})
	}
}

// TestRefusedOnceIsTriedAgain: the kernel refuses that a process moves the cgroup in which its namespace
// begins. An error like that from another container does not leave it on the CPUs of pins, of later ones
// and of those that are there.
func TestRefusedOnceIsTriedAgain(t *testing.T) {
	for name, retry := range map[string]func(h *loopNode){
		"by a change of the ledger": func(h *loopNode) {
			m, err := synth.Machine(twoNodes + " offline " + h.pins()["db/c"].String())
			if err != nil {
				t.Fatal(err)
			}
			h.Plug(m.Online)
			h.agent.SetMachine(m) // the pin gets other CPUs, and no runtime waits for an answer that could move web
		},
		"by a later pass": func(h *loopNode) {
			h.sleep(5 * time.Minute)
			h.pass()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onLoop(t, fakekernel.MainlineV2(), knobSetup{}, func(_ *testing.T, h *loopNode) {
				h.run(service("web/c", 1000))
				h.Namespace("/kubepods/pod-web/c")
				h.run(pinned("db/c"))
				h.WriteFile("/kubepods/pod-web/c", "cpuset.cpus", "0-7")
				h.Unnamespace("/kubepods/pod-web/c")
				retry(h)
				h.exclusive()
				h.spy.refused = nil
			})
		})
	}
}

// tardyRuntime is a runtime that writes an update to the kernel only when the test says so, and converts
// shares as runc 1.3 and later does.
type tardyRuntime struct {
	h       *knobNode
	sent    []string
	updates chan struct{} // receives one value for each update to make
}

func (r *tardyRuntime) Update(u node.Update) error {
	r.sent = append(r.sent, u.ContainerID)
	<-r.updates
	s := r.h.specs[u.ContainerID]
	s.adjust(u.Settings)
	r.h.runc(s)
	for _, dir := range r.h.levels(s) {
		if r.h.V2 {
			r.h.put(dir, "cpu.weight", strconv.FormatInt(cgroupfs.RuncWeightOf(knobs.Shares(s.Resources.Shares)), 10))
		}
	}
	return nil
}

// inUpdate brings a node to the point at which the runtime is to update its record of job/c, a container
// of batch work that is older than the plugin. That record lacks the grant and the CPUs. It calls test with
// what the kernel had before the plugin, and the files to compare.
func inUpdate(t *testing.T, test func(t *testing.T, h *knobNode, r *tardyRuntime, read func() string, before string)) {
	t.Helper()
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.stop()
		h.NoWayBack = false
		h.make(h.record(granted("job/c")))
		dir := h.specs["job/c"].CgroupsPath
		read := func() string {
			return h.get(dir, "cpu.weight", "cpu.shares") + " " + h.get(dir, "cpu.max", "cpu.cfs_quota_us")
		}
		before := read()
		h.launch("")
		h.run(pinned("db/c")) // job/c has to leave its CPUs
		r := &tardyRuntime{h: h, updates: make(chan struct{})}
		h.loop(func() { h.agent.Config.RecordUpdates.Enabled = true })
		h.agent.Connected(r, status.Runtime{}, "")
		h.synchronize()
		h.sleep(h.agent.Config.RecordUpdates.Delay)
		if len(r.sent) != 1 || r.sent[0] != "job/c" {
			t.Fatalf("updates were sent of %q", r.sent)
		}
		test(t, h, r, read, before)
	})
}

// TestKilledInARecordUpdate: what the runtime writes for a plugin that was killed meanwhile counts as
// Sluice's, although it differs from what the plugin wrote: runc converts shares to another weight, and
// the loop's quota is not in the record.
func TestKilledInARecordUpdate(t *testing.T) {
	inUpdate(t, func(t *testing.T, h *knobNode, r *tardyRuntime, read func() string, before string) {
		dir := h.specs["job/c"].CgroupsPath
		h.loop(func() {
			for _, milliseconds := range []time.Duration{60, 50} { // the journal has the last two
				e, _ := h.agent.Journal.Entry(dir, knobs.Quota)
				less := knobs.CPUQuota{Quota: milliseconds * time.Millisecond, Period: 100 * time.Millisecond}
				h.agent.Journal.RecordWrite(dir, knobs.Quota, less)
				h.agent.Reconciler.Write([]knobs.Change{{Object: e.Object, Knob: knobs.Quota, From: e.Wrote, To: less}})
			}
		})
		wrote := read()
		h.crash(t, h.o.Originals)
		r.updates <- struct{}{}
		synctest.Wait()
		if read() == wrote {
			t.Fatalf("the runtime has changed nothing of %s", wrote)
		}
		h.giveBackNow()
		if got := read(); got != before {
			t.Errorf("restored to %s, want %s", got, before)
		}
	})
}

// TestStartAfterARecordUpdate: a plugin that starts after one which was killed in a record update takes
// nothing in the record, nor in the kernel, for the kubelet's.
func TestStartAfterARecordUpdate(t *testing.T) {
	inUpdate(t, func(t *testing.T, h *knobNode, r *tardyRuntime, read func() string, before string) {
		wrote := read()
		h.crash(t, h.o.Originals)
		r.updates <- struct{}{}
		synctest.Wait()
		h.launch("")
		synctest.Wait()
		if got := read(); got != wrote {
			t.Errorf("after a start the container has %s, want %s", got, wrote)
		}
		if s, err := h.agent.Status(); err != nil || s.Counters.Drift > 0 {
			t.Errorf("%d repairs of what somebody else is said to have written, %v", s.Counters.Drift, err)
		}
		h.stop()
		h.giveBackNow()
		if got := read(); got != before {
			t.Errorf("restored to %s, want %s", got, before)
		}
	})
}

// TestLeave: before its end the plugin waits for the update under way, for a bounded time, repairs what
// the runtime has written, and sends no other.
func TestLeave(t *testing.T) {
	inUpdate(t, func(t *testing.T, h *knobNode, r *tardyRuntime, read func() string, _ string) {
		wrote, began := read(), time.Now()
		h.agent.Leave()
		if took := time.Since(began); took != leaveTime {
			t.Errorf("without an answer it waits %s, want %s", took, leaveTime)
		}
		left := make(chan struct{})
		go func() { h.agent.Leave(); close(left) }()
		synctest.Wait()
		r.updates <- struct{}{}
		<-left
		h.agent.Disconnected()
		h.stop()
		if got := read(); got != wrote {
			t.Errorf("it leaves %s, want %s", got, wrote)
		}
		if len(r.sent) != 1 {
			t.Errorf("updates were sent of %q", r.sent)
		}
	})
}

// TestMadeUpdate: once the runtime has made an update, an earlier value in its record is the kubelet's.
func TestMadeUpdate(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(granted("job/c"))
		dir := h.specs["job/c"].CgroupsPath
		var before, after journal.Entry
		h.loop(func() {
			before, _ = h.agent.Journal.Entry(dir, knobs.Weight)
			h.agent.Journal.RecordCarried(dir, knobs.Weight, knobs.Shares(777))
		})
		if err := h.agent.PostUpdateContainer("job/c"); err != nil {
			t.Fatal(err)
		}
		h.loop(func() { after, _ = h.agent.Journal.Entry(dir, knobs.Weight) })
		if before.Carried == nil || after.Carried != before.Carried || after.CarriedBefore != nil {
			t.Errorf("the record has %v, or %v; want %v", after.Carried, after.CarriedBefore, before.Carried)
		}
	})
}
