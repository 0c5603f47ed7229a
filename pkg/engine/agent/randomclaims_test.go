package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// claimWorld is a node with claims of several sizes, as its kubelet knows them.
type claimWorld struct {
	*testNode
	setup   setup
	whole   *topology.Machine       // with all CPUs
	claims  map[string]*claim.Claim // that are prepared, by UID; with the CPUs that they were given at first
	users   map[string][]string     // devices of the containers that have claims
	counter int
}

// TestRandomClaims prepares, uses and ends claims for CPUs of four NUMA nodes, of their L3 domains or of
// cores at random, beside pins and
// containers that share, while the node, the plugin and the runtime restart and CPUs go offline and return. A
// claim has the CPUs of its preparation until its end, no CPU is in two pins, and what is listed as free
// for claims is given to them. At the end all CPUs are back.
func TestRandomClaims(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	histories := 0
	bubbles(t, func(t *rapid.T) {
		histories++
		s := setup{machine: "2 packages 2 nodes 6 cores 2 threads l3 3 cores memory 64G", cdiDir: filepath.Join(dir, fmt.Sprint(histories)), stateDir: filepath.Join(dir, fmt.Sprint("state-", histories))}
		s.claimDevices = anyKind(t)
		n := newNode(t, s)
		w := &claimWorld{testNode: n, setup: s, whole: n.machine, claims: map[string]*claim.Claim{}, users: map[string][]string{}}
		defer func() { w.stop() }()
		w.connect("")
		w.synchronize()
		t.Repeat(map[string]func(*rapid.T){
			"":              w.check,
			"prepare":       w.prepareAny,
			"prepare more":  w.prepareAny,
			"repeat":        func(t *rapid.T) { w.prepareAgain(t, w.anyClaim(t)) },
			"broken disk":   w.prepareOnBrokenDisk,
			"use":           w.use,
			"use again":     w.use,
			"other":         w.other,
			"end container": func(t *rapid.T) { w.endContainer(w.anyContainer(t)) },
			"end claim":     func(t *rapid.T) { w.endClaim(t, w.anyClaim(t)) },
			"restart":       w.restart,
			"reboot":        w.reboot,
			"runtime lists": func(*rapid.T) { w.synchronize(); w.pass() },
			"hotplug":       w.hotplug,
			"reload":        w.reload,
		})
		w.plug(cpuset.Union(w.machine.Online, w.machine.Offline))
		w.check(t)
		for _, name := range slices.Sorted(maps.Keys(w.specs)) {
			w.endContainer(name)
		}
		for _, uid := range slices.Sorted(maps.Keys(w.claims)) {
			w.endClaim(t, uid)
		}
		w.check(t)
		if s := w.status(); !s.Machine.Pinned.IsEmpty() || s.Counters.Panics > 0 {
			t.Fatalf("CPUs %s are pinned at the end, and %d events panicked:\n%s", s.Machine.Pinned, s.Counters.Panics, w.log.text.String())
		}
	})
}

func (w *claimWorld) anyClaim(t *rapid.T) string { return anyOf(t, w.claims) }

func (w *claimWorld) anyContainer(t *rapid.T) string { return anyOf(t, w.specs) }

func anyOf[V any](t *rapid.T, all map[string]V) string {
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "one")
}

// check compares what the plugin, the disk and the kernel have with what was prepared.
func (w *claimWorld) check(t *rapid.T) {
	synctest.Wait()
	s := w.status()
	reserved := map[string]cpuset.Set{}
	for _, r := range s.Claims.Reserved {
		reserved[r.ID] = r.CPUs
	}
	var files []string
	var taken cpuset.Set
	for uid, c := range w.claims {
		files = append(files, claim.FileOf(uid))
		for i, d := range c.Devices {
			has, known := reserved[c.ID(i)]
			want := cpuset.Intersect(d.Reserved, w.kernel.online)
			if more := cpuset.Difference(has, want); !known || !want.SubsetOf(has) || !more.SubsetOf(w.whole.Siblings(d.Reserved)) {
				t.Fatalf("%s has CPUs %s, want %s and siblings of them", c.ID(i), has, want)
			}
			if cpuset.Union(has, d.Reserved).Overlaps(taken) {
				t.Fatalf("%s has CPUs of another claim", c.ID(i))
			}
			taken = cpuset.Union(taken, cpuset.Union(has, d.Reserved))
			delete(reserved, c.ID(i))
		}
	}
	if len(reserved) > 0 {
		t.Fatalf("the plugin has reserved CPUs for claims that have ended: %v", reserved)
	}
	slices.Sort(files)
	if got := w.specFiles(t); !slices.Equal(got, files) {
		t.Fatalf("there are the specs %v, want %v", got, files)
	}
	pins := map[string]cpuset.Set{}
	for i := range s.Containers {
		c := &s.Containers[i]
		if _, claims := w.users[c.ID]; claims || !c.Class.Pinned() || c.Pool != "" {
			continue
		}
		if c.CPUs.Overlaps(taken) {
			t.Fatalf("%s is pinned to CPUs %s, which another pin or a claim has as well", c.ID, c.CPUs)
		}
		taken, pins[c.ID] = cpuset.Union(taken, c.CPUs), c.CPUs
	}
	for name, spec := range w.specs {
		if spec.State != workload.Running {
			continue
		}
		on := w.kernel.groups[spec.CgroupsPath].cpus
		devices, claims := w.users[name]
		pin, pinned := pins[name]
		switch want := w.given(devices); {
		case claims && on != want && !want.IsEmpty():
			t.Fatalf("%s runs on CPUs %s, and its claims have %s\n%s", name, on, want, w.log.text.String())
		case pinned && on != pin:
			t.Fatalf("%s runs on CPUs %s, and is pinned to %s", name, on, pin)
		case !claims && !pinned && (on.Overlaps(taken) || on.IsEmpty()):
			t.Fatalf("%s shares CPUs, and runs on %s; others have %s for themselves", name, on, taken)
		}
	}
}

// ledger is who has which CPUs, as text.
func (w *claimWorld) ledger() string {
	synctest.Wait()
	s := w.status()
	text := fmt.Sprintf("%v\n%v\n", s.Pools, s.Claims)
	for i := range s.Containers {
		c := &s.Containers[i]
		text += fmt.Sprintln(c.ID, c.State, c.CPUs, c.Mems)
	}
	return text
}

// specFiles lists the specs on disk.
func (w *claimWorld) specFiles(t *rapid.T) (names []string) {
	entries, err := os.ReadDir(w.setup.cdiDir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// given are the CPUs that claims' devices have, which check has compared with what they were given.
func (w *claimWorld) given(devices []string) (cpus cpuset.Set) {
	for _, r := range w.status().Claims.Reserved {
		if slices.Contains(devices, r.ID) {
			cpus = cpuset.Union(cpus, r.CPUs)
		}
	}
	return cpus
}

func (w *claimWorld) draw(t *rapid.T) *claim.Claim {
	w.counter++
	c := &claim.Claim{UID: fmt.Sprintf("uid-%d", w.counter), Namespace: "shop", Name: fmt.Sprintf("c%d", w.counter)}
	class := rapid.SampledFrom([]workload.Class{workload.LSE, workload.LSR}).Draw(t, "class")
	offered := w.status().Claims.Devices
	for range rapid.IntRange(1, 3).Draw(t, "devices") {
		d := claim.Device{Domain: rapid.SampledFrom(offered).Draw(t, "device").Device, Class: class}
		if d.Domain.Kind != claim.Core {
			d.CPUs = rapid.SampledFrom([]int{2, 4, 6}).Draw(t, "cpus")
		}
		c.Devices = append(c.Devices, d)
	}
	return c
}

// fits reports whether a claim asks for no more than the scheduler finds: what is listed, without what
// it has given to other claims.
func (w *claimWorld) fits(c *claim.Claim) bool {
	free, given := map[claim.Domain]int{}, map[claim.Domain]bool{}
	for _, d := range w.status().Claims.Devices {
		free[d.Device] = d.CPUs
	}
	for _, known := range w.claims {
		for _, d := range known.Devices {
			free[d.Domain] -= d.CPUs
			given[d.Domain] = true
		}
	}
	fits := true
	for _, d := range c.Devices {
		free[d.Domain] -= d.CPUs
		fits = fits && free[d.Domain] >= 0 && (d.Domain.Kind != claim.Core || free[d.Domain] > 0 && !given[d.Domain])
		given[d.Domain] = true
	}
	return fits
}

// prepareAny prepares a new claim. It is granted if it fits into what is listed.
func (w *claimWorld) prepareAny(t *rapid.T) {
	c := w.draw(t)
	fits := w.fits(c)
	before := w.ledger()
	err := w.agent.Claims.Prepare(c)
	switch {
	case err == nil:
		w.claims[c.UID] = c
	case fits || !placement.IsShortage(err):
		t.Fatalf("%+v: %v; listed: %+v", c, err, w.status().Claims)
	default:
		if after := w.ledger(); after != before {
			t.Fatalf("a claim was refused (%v), and yet: before\n%s\nafter\n%s", err, before, after)
		}
	}
}

// prepareAgain is what a kubelet does that starts: it knows the claim, and not its CPUs.
func (w *claimWorld) prepareAgain(t *rapid.T, uid string) {
	known := w.claims[uid]
	again := *known
	again.Devices = slices.Clone(known.Devices)
	for i := range again.Devices {
		again.Devices[i].Reserved = cpuset.Set{}
		if again.Devices[i].Domain.Kind == claim.Core {
			again.Devices[i].CPUs = 0
		}
	}
	if err := w.agent.Claims.Prepare(&again); err != nil {
		t.Fatalf("%s is prepared again: %v", uid, err)
	}
	for i, d := range known.Devices {
		if d.CPUs != again.Devices[i].CPUs || !d.Reserved.SubsetOf(again.Devices[i].Reserved) {
			t.Fatalf("%s has %+v, and had %+v", uid, again.Devices, known.Devices)
		}
	}
}

func (w *claimWorld) prepareOnBrokenDisk(t *rapid.T) {
	c, hidden, before := w.draw(t), w.setup.cdiDir+".hidden", w.ledger()
	err := os.Rename(w.setup.cdiDir, hidden)
	if os.IsNotExist(err) {
		err = os.Mkdir(hidden, 0o700)
	}
	if err == nil {
		err = os.WriteFile(w.setup.cdiDir, nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.agent.Claims.Prepare(c) == nil {
		t.Fatal("a claim without a spec is prepared")
	}
	for uid := range w.claims {
		if w.agent.Claims.End(uid) == nil {
			t.Fatal("a claim has ended whose spec may still be on disk")
		}
	}
	if after := w.ledger(); after != before {
		t.Fatalf("the disk was broken, and yet: before\n%s\nafter\n%s", before, after)
	}
	if err := os.Remove(w.setup.cdiDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, w.setup.cdiDir); err != nil {
		t.Fatal(err)
	}
}

// container names a new container that has some devices of claims of one class, and returns how many
// CPUs it must request.
func (w *claimWorld) container(t *rapid.T) (name string, cpus int) {
	class, several := w.claims[w.anyClaim(t)].Devices[0].Class, rapid.IntRange(1, 3).Draw(t, "several")
	var devices []string
	for _, uid := range slices.Sorted(maps.Keys(w.claims)) {
		c := w.claims[uid]
		for i, d := range c.Devices {
			if d.Class == class && len(devices) < several && rapid.Bool().Draw(t, "device") {
				devices, cpus = append(devices, c.ID(i)), cpus+d.CPUs
			}
		}
	}
	if len(devices) == 0 {
		t.Skip("it has no device")
	}
	w.counter++
	name = fmt.Sprintf("p%d/c", w.counter)
	w.users[name], w.testNode.claims[name] = devices, devices
	return name, cpus
}

// use starts a container with claims, which is refused only if none of its CPUs is online.
func (w *claimWorld) use(t *rapid.T) {
	name, cpus := w.container(t)
	none := w.given(w.users[name]).IsEmpty()
	err := w.create(name, "", cpus)
	if err == nil {
		err = w.begin(name)
	}
	if (err != nil) != none {
		t.Fatalf("%s with %v: %v", name, w.users[name], err)
	}
}

// other starts a container without claims.
func (w *claimWorld) other(t *rapid.T) {
	w.counter++
	name := fmt.Sprintf("p%d/c", w.counter)
	class := rapid.SampledFrom([]string{"LSE", "LSR", "LS", "BE"}).Draw(t, "class")
	if w.create(name, class, rapid.IntRange(1, 6).Draw(t, "cpus")) == nil && rapid.Bool().Draw(t, "starts") {
		if err := w.begin(name); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *claimWorld) endContainer(name string) {
	w.end(name)
	delete(w.users, name)
}

// endClaim is what the kubelet does: it ends a claim once the containers have ended.
func (w *claimWorld) endClaim(t *rapid.T, uid string) {
	for _, name := range slices.Sorted(maps.Keys(w.users)) {
		if _, runs := w.specs[name]; runs && slices.ContainsFunc(w.users[name], func(id string) bool { return claim.IsOf(id, uid) }) {
			w.endContainer(name)
		}
	}
	if err := w.agent.Claims.End(uid); err != nil {
		t.Fatal(err)
	}
	delete(w.claims, uid)
}

func anyKind(t *rapid.T) claim.DomainKind {
	return rapid.SampledFrom([]claim.DomainKind{claim.NUMA, claim.L3, claim.Core}).Draw(t, "kind")
}

// restart ends the plugin and starts it anew from what is on disk, perhaps with devices of another kind.
// In between, containers start and end without it.
func (w *claimWorld) restart(t *rapid.T) {
	w.stop()
	for _, name := range slices.Sorted(maps.Keys(w.specs)) {
		if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
			w.kernel.remove(w.specs[name].CgroupsPath)
			delete(w.specs, name)
			delete(w.users, name)
		}
	}
	if len(w.claims) > 0 && rapid.Bool().Draw(t, "starts") {
		uid := w.anyClaim(t)
		c := w.claims[uid]
		w.counter++
		name := fmt.Sprintf("p%d/c", w.counter)
		w.users[name], w.testNode.claims[name] = []string{c.ID(0)}, []string{c.ID(0)}
		w.pod(name, "", c.Devices[0].CPUs)
		w.runc(name)
	}
	w.setup.claimDevices = anyKind(t)
	w.launch(w.setup)
	if len(w.claims) > 0 && rapid.Bool().Draw(t, "prepares") {
		w.prepareAgain(t, w.anyClaim(t))
	}
	w.connect("")
	w.synchronize()
	w.pass()
	if strings.Contains(w.log.text.String(), "can't be restored") {
		t.Fatal(w.log.text.String())
	}
}

// reload may fail for a pin that was left with half a core, and never for a claim.
func (w *claimWorld) reload(t *rapid.T) {
	_, err := w.agent.Reconfigure(Reload{Config: config.Default()})
	for i := range w.status().Containers {
		c := &w.status().Containers[i]
		if _, claims := w.users[c.ID]; !claims && err != nil && strings.Contains(err.Error(), "container "+c.Ref+" has CPUs") {
			return
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hotplug leaves a core to those that share.
func (w *claimWorld) hotplug(t *rapid.T) {
	all := cpuset.Union(w.machine.Online, w.machine.Offline)
	pools := w.status().Pools
	shared := pools[len(pools)-1].CPUs
	keep := w.machine.Siblings(cpuset.Of(shared.First()))
	off := cpuset.Of(rapid.SliceOfN(rapid.IntRange(1, all.Last()), 0, 3).Draw(t, "off")...)
	w.plug(cpuset.Difference(all, cpuset.Difference(off, keep)))
	w.pass()
}
