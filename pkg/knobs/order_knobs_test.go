package knobs

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// scenario parses changes such as "/pod/a cpu.burst 100000 -> 0"; "?" stands for an unknown old
// value. The depth of the path determines the level.
func scenario(t interface{ Fatalf(string, ...any) }, lines string) []Change {
	var changes []Change
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		head, to, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		parts := strings.SplitN(head, " ", 3)
		knob, ok := KnobByName(parts[1])
		if !ok || to == "" {
			t.Fatalf("%q is no change", line)
		}
		c := Change{Object: Object{Path: parts[0], Name: parts[0], Level: Level(strings.Count(parts[0], "/") - 1)}, Knob: knob}
		var err error
		if parts[2] != "?" {
			if c.From, err = ParseValue(knob, parts[2]); err != nil {
				t.Fatalf("%s", err)
			}
		}
		if c.To, err = ParseValue(knob, to); err != nil {
			t.Fatalf("%s", err)
		}
		changes = append(changes, c)
	}
	return changes
}

func told(changes []Change) string {
	var text strings.Builder
	for _, c := range changes {
		from := "?"
		if c.From != nil {
			from = FormatValue(c.From)
		}
		fmt.Fprintf(&text, "%s %s %s -> %s\n", c.Object.Path, c.Knob, from, FormatValue(c.To))
	}
	return text.String()
}

func TestOrderOfKnobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ changes, want string }{
		"a burst alone grows from the pod down": {`
			/k/pod/a cpu.burst 0 -> 50000
			/k/pod cpu.burst 0 -> 50000`, `
			/k/pod cpu.burst 0 -> 50000
			/k/pod/a cpu.burst 0 -> 50000`},
		"a first limit waits for its parent to be opened": {`
			/k/pod cpu.quota max -> 300000 100000
			/k cpu.quota 220000 100000 -> max`, `
			/k cpu.quota 220000 100000 -> max
			/k/pod cpu.quota max -> 300000 100000`},
		"a limit is lifted before its parent shrinks": {`
			/k cpu.quota 400000 100000 -> 100000 100000
			/k/pod cpu.quota 300000 100000 -> max`, `
			/k/pod cpu.quota 300000 100000 -> max
			/k cpu.quota 400000 100000 -> 100000 100000`},
		"a burst grows after its quota": {`
			/k/pod/a cpu.burst 50000 -> 100000
			/k/pod/a cpu.quota 50000 100000 -> 100000 100000`, `
			/k/pod/a cpu.quota 50000 100000 -> 100000 100000
			/k/pod/a cpu.burst 50000 -> 100000`},
		"a burst that stays is written after its quota": {`
			/k/pod/a cpu.burst 50000 -> 50000
			/k/pod/a cpu.quota 100000 100000 -> 60000 100000`, `
			/k/pod/a cpu.quota 100000 100000 -> 60000 100000
			/k/pod/a cpu.burst 50000 -> 50000`},
		"a burst goes before its quota is lowered": {`
			/k/pod/a cpu.quota 100000 100000 -> 50000 100000
			/k/pod/a cpu.burst 100000 -> 0`, `
			/k/pod/a cpu.burst 100000 -> 0
			/k/pod/a cpu.quota 100000 100000 -> 50000 100000`},
		"a smaller burst is nothing in between": {`
			/k/pod/a cpu.quota 100000 100000 -> 50000 100000
			/k/pod/a cpu.burst 100000 -> 50000`, `
			/k/pod/a cpu.burst 100000 -> 0
			/k/pod/a cpu.quota 100000 100000 -> 50000 100000
			/k/pod/a cpu.burst 0 -> 50000`},
		"a smaller burst with a larger quota too": {`
			/k/pod/a cpu.quota 100000 100000 -> max
			/k/pod/a cpu.burst 100000 -> 50000`, `
			/k/pod/a cpu.burst 100000 -> 0
			/k/pod/a cpu.quota 100000 100000 -> max
			/k/pod/a cpu.burst 0 -> 50000`},
		"an unknown burst is nothing in between": {`
			/k/pod/a cpu.burst ? -> 50000
			/k/pod/a cpu.quota ? -> 50000 100000`, `
			/k/pod/a cpu.burst ? -> 0
			/k/pod/a cpu.quota ? -> 50000 100000
			/k/pod/a cpu.burst 0 -> 50000`},
		"an unlimited quota has a stale burst": {`
			/k/pod/a cpu.quota max -> 50000 100000
			/k/pod/a cpu.burst 300000 -> 50000`, `
			/k/pod/a cpu.burst 300000 -> 0
			/k/pod/a cpu.quota max -> 50000 100000
			/k/pod/a cpu.burst 0 -> 50000`},
		"a whole pod shrinks": {`
			/k/pod cpu.quota 200000 100000 -> 100000 100000
			/k/pod cpu.burst 200000 -> 100000
			/k/pod/a cpu.quota 200000 100000 -> 100000 100000
			/k/pod/a cpu.burst 200000 -> 100000`, `
			/k/pod/a cpu.burst 200000 -> 0
			/k/pod/a cpu.quota 200000 100000 -> 100000 100000
			/k/pod cpu.burst 200000 -> 0
			/k/pod cpu.quota 200000 100000 -> 100000 100000
			/k/pod cpu.burst 0 -> 100000
			/k/pod/a cpu.burst 0 -> 100000`},
		"an unknown quota goes before its parent shrinks": {`
			/k/pod cpu.quota 200000 100000 -> 100000 100000
			/k/pod/a cpu.quota ? -> 50000 100000`, `
			/k/pod/a cpu.quota ? -> 50000 100000
			/k/pod cpu.quota 200000 100000 -> 100000 100000`},
		"an unknown quota goes after its parent grows": {`
			/k/pod/a cpu.quota ? -> 50000 100000
			/k cpu.quota 100000 100000 -> max`, `
			/k cpu.quota 100000 100000 -> max
			/k/pod/a cpu.quota ? -> 50000 100000`},
		"idle is off before the weight changes": {`
			/k/pod cpu.weight 2 -> 1024
			/k/pod cpu.idle 1 -> 0`, `
			/k/pod cpu.idle 1 -> 0
			/k/pod cpu.weight 2 -> 1024`},
		"idle is on after the weight changed": {`
			/k/pod cpu.idle 0 -> 1
			/k/pod cpu.weight 1024 -> 2`, `
			/k/pod cpu.weight 1024 -> 2
			/k/pod cpu.idle 0 -> 1`},
		"idle that may be on is off in between": {`
			/k/pod cpu.idle ? -> 1
			/k/pod cpu.weight 1024 -> 2`, `
			/k/pod cpu.idle ? -> 0
			/k/pod cpu.weight 1024 -> 2
			/k/pod cpu.idle 0 -> 1`},
		"idle alone is written once": {`
			/k/pod cpu.idle ? -> 1`, `
			/k/pod cpu.idle ? -> 1`},
		"memory grows from the class down and from the limit down": {`
			/k/pod/a memory.min 0 -> 4096
			/k/pod/a memory.low 0 -> 4096
			/k/pod/a memory.high 8192 -> 16384
			/k/pod/a memory.max 8192 -> max
			/k/pod memory.min 0 -> 4096
			/k memory.min 0 -> 4096`, `
			/k memory.min 0 -> 4096
			/k/pod memory.min 0 -> 4096
			/k/pod/a memory.max 8192 -> max
			/k/pod/a memory.high 8192 -> 16384
			/k/pod/a memory.low 0 -> 4096
			/k/pod/a memory.min 0 -> 4096`},
		"memory shrinks from the container up and from the minimum up": {`
			/k memory.min 4096 -> 0
			/k/pod memory.min 4096 -> 0
			/k/pod/a memory.max max -> 8192
			/k/pod/a memory.high 16384 -> 8192
			/k/pod/a memory.low 4096 -> 0
			/k/pod/a memory.min 4096 -> 0`, `
			/k/pod/a memory.min 4096 -> 0
			/k/pod/a memory.low 4096 -> 0
			/k/pod/a memory.high 16384 -> 8192
			/k/pod/a memory.max max -> 8192
			/k/pod memory.min 4096 -> 0
			/k memory.min 4096 -> 0`},
		"the last goes offline from the container up": {`
			/k/pod cpu.qos_level 0 -> -1
			/k/pod/a cpu.qos_level 0 -> -1`, `
			/k/pod/a cpu.qos_level 0 -> -1
			/k/pod cpu.qos_level 0 -> -1`},
		"a pod comes back online from the pod down": {`
			/k/pod/a cpu.qos_level -1 -> 0
			/k/pod cpu.qos_level -1 -> 0`, `
			/k/pod cpu.qos_level -1 -> 0
			/k/pod/a cpu.qos_level -1 -> 0`},
		"a TencentOS priority falls from the container up": {`
			/k/pod cgroup.priority ? -> 7
			/k/pod/a cgroup.priority ? -> 7`, `
			/k/pod/a cgroup.priority ? -> 7
			/k/pod cgroup.priority ? -> 7`},
		"a TencentOS priority rises from the pod down": {`
			/k/pod/a cpu.offline 1 -> 0
			/k/pod/a cgroup.priority 7 -> 0
			/k/pod cgroup.priority 7 -> 0`, `
			/k/pod cgroup.priority 7 -> 0
			/k/pod/a cpu.offline 1 -> 0
			/k/pod/a cgroup.priority 7 -> 0`},
		"what bounds nothing keeps its order": {`
			/k/pod/b memory.wmark_ratio 0 -> 95
			/k/pod/a io.max  -> 8:0 rbps=1
			/k/pod/a net_cls.classid 0 -> 1`, `
			/k/pod/b memory.wmark_ratio 0 -> 95
			/k/pod/a io.max  -> 8:0 rbps=1
			/k/pod/a net_cls.classid 0 -> 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := scenario(t, test.changes)
			before := slices.Clone(changes)
			if got, want := told(Order(changes)), told(scenario(t, test.want)); got != want {
				t.Errorf("order:\n%swant:\n%s", got, want)
			}
			if !slices.Equal(changes, before) {
				t.Error("Order changed its argument")
			}
		})
	}
}

// tree holds values by path and knob, with the rules of a cgroup v1 tree.
type tree map[string]*[Knobs]Value

func newTree() tree {
	paths := []string{"/k", "/k/pod", "/k/pod/a", "/k/pod/b"}
	t := tree{}
	for _, p := range paths {
		t[p] = &[Knobs]Value{
			Quota: CPUQuota{Quota: -1}, Burst: CPUBurst(0), Weight: Shares(1024), Idle: Number(0),
			CPUQoS: Number(0), CgroupPriority: Number(0),
			MemoryMin: Bytes(0), MemoryLow: Bytes(0), MemoryHigh: Max, MemoryMax: Max,
		}
	}
	return t
}

// refusal says why the tree is impossible or unsafe; "" if it is neither.
func (t tree) refusal() string {
	for p, has := range t {
		quota, burst := has[Quota].(CPUQuota), has[Burst].(CPUBurst)
		if !quota.Unlimited() && time.Duration(burst) > quota.Quota {
			return p + ": burst above the quota"
		}
		parent := t[path.Dir(p)]
		for above := path.Dir(p); t[above] != nil; above = path.Dir(above) {
			if !quota.Unlimited() && t[above][Quota].(CPUQuota).Compare(quota) < 0 {
				return p + ": quota above a parent's"
			}
		}
		if parent != nil && has[CgroupPriority].(Number) < parent[CgroupPriority].(Number) {
			return p + ": priority above the parent's"
		}
		within := []Bytes{has[MemoryMin].(Bytes), has[MemoryLow].(Bytes), has[MemoryHigh].(Bytes), has[MemoryMax].(Bytes)}
		if !sortedBytes(within) {
			return p + ": min, low, high and max are out of order"
		}
	}
	for _, k := range []Knob{MemoryMin, MemoryLow} {
		if t["/k/pod/a"][k].(Bytes)+t["/k/pod/b"][k].(Bytes) > t["/k/pod"][k].(Bytes) || t["/k"][k].(Bytes) < t["/k/pod"][k].(Bytes) {
			return k.String() + ": more promised than the parent has"
		}
	}
	return ""
}

func sortedBytes(b []Bytes) bool {
	for i := range b[1:] {
		if b[i+1].Compare(b[i]) < 0 {
			return false
		}
	}
	return true
}

// write returns the kernel's error for one write, or "".
func (t tree) write(c Change) string {
	has, parent := t[c.Object.Path], t[path.Dir(c.Object.Path)]
	if c.Knob == Weight && has[Idle] == Number(1) {
		return c.Object.Path + ": a weight while idle"
	}
	if c.Knob == CPUQoS && parent != nil && parent[CPUQoS] == Number(-1) && has[CPUQoS] != c.To {
		return c.Object.Path + ": child of an offline parent"
	}
	has[c.Knob] = c.To
	why := t.refusal()
	switch {
	case c.Knob == Idle && c.To == Number(0): // the kernel's default comes back
		has[Weight] = Shares(1024)
	case c.Knob == Quota: // before Linux 6.10
		has[Burst] = CPUBurst(time.Duration(has[Burst].(CPUBurst)) / 1000)
	}
	return why
}

func drawTree(t *rapid.T, label string) tree {
	drawn := newTree()
	amount := func(limit int64, what string) int64 { return rapid.Int64Range(0, limit).Draw(t, label+what) }
	for _, p := range []string{"/k", "/k/pod", "/k/pod/a", "/k/pod/b"} {
		has, parent := drawn[p], drawn[path.Dir(p)]
		if rapid.Bool().Draw(t, label+p+" limited") {
			period := time.Duration(rapid.SampledFrom([]int{50, 100}).Draw(t, label+p+" period")) * time.Millisecond
			has[Quota] = CPUQuota{Quota: time.Duration(1+amount(9, p+" quota")) * period, Period: period}
		}
		for above := path.Dir(p); drawn[above] != nil; above = path.Dir(above) {
			if q, own := drawn[above][Quota].(CPUQuota), has[Quota].(CPUQuota); !q.Unlimited() && !own.Unlimited() && q.Compare(own) < 0 {
				has[Quota] = q
			}
		}
		burst := 20 * 100 * time.Millisecond
		if q := has[Quota].(CPUQuota); !q.Unlimited() {
			burst = q.Quota
		}
		has[Burst] = CPUBurst(burst / 4 * time.Duration(amount(4, p+" burst")))
		if rapid.Bool().Draw(t, label+p+" idle") {
			has[Idle] = Number(1)
		}
		has[Weight] = Shares(rapid.SampledFrom([]int64{2, 1024}).Draw(t, label+p+" weight"))
		has[CPUQoS] = Number(rapid.IntRange(-1, 0).Draw(t, label+p+" level"))
		has[CgroupPriority] = Number(amount(7, p+" priority"))
		if parent != nil {
			has[CPUQoS] = min(has[CPUQoS].(Number), parent[CPUQoS].(Number))
			has[CgroupPriority] = max(has[CgroupPriority].(Number), parent[CgroupPriority].(Number))
		}
		room := int64(64)
		if parent != nil {
			room = int64(parent[MemoryMin].(Bytes)) / 2
		}
		least := amount(room, p+" min")
		has[MemoryMin], has[MemoryLow] = Bytes(least), Bytes(least)
		if rapid.Bool().Draw(t, label+p+" bounded") {
			high := least + amount(64, p+" high")
			has[MemoryHigh], has[MemoryMax] = Bytes(high), Bytes(high+amount(64, p+" max"))
		}
	}
	return drawn
}

// Between any two states that the kernel allows, no change in Order's order is refused, even if
// the old burst or idle isn't known.
func TestOrderIsNeverRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, want := drawTree(t, "old "), drawTree(t, "new ")
		if now.refusal() != "" || want.refusal() != "" {
			t.Fatalf("the drawn trees are impossible: %q, %q", now.refusal(), want.refusal())
		}
		var changes []Change
		for p := range now {
			for k := range Knobs {
				// The weight is lost when idle ends, and can't be written while idle is on.
				weight := k == Weight && want[p][Idle] == Number(0)
				burst := k == Burst && now[p][Quota] != want[p][Quota]
				if from, to := now[p][k], want[p][k]; to != nil && (from != to && k != Weight || weight || burst) {
					if k == Burst && rapid.Bool().Draw(t, "unknown") {
						from = nil
					}
					object := Object{Path: p, Name: p, Level: Level(strings.Count(p, "/") - 1)}
					changes = append(changes, Change{Object: object, Knob: k, From: from, To: to})
				}
			}
		}
		slices.SortFunc(changes, func(a, b Change) int {
			return strings.Compare(a.Object.Path+a.Knob.String(), b.Object.Path+b.Knob.String())
		})
		changes = rapid.Permutation(changes).Draw(t, "changes")
		ordered := Order(changes)
		for i, c := range ordered {
			if why := now.write(c); why != "" {
				t.Fatalf("change %d refused: %s\n%s", i, why, told(ordered))
			}
		}
		for _, c := range changes {
			if got := now[c.Object.Path][c.Knob]; got != c.To {
				t.Fatalf("%s %s is %s in the end, want %s\n%s", c.Object.Path, c.Knob, got, c.To, told(ordered))
			}
		}
	})
}

// BenchmarkOrderBursts orders a resize of 250 pods of two containers with all bursts in force.
func BenchmarkOrderBursts(b *testing.B) {
	var changes []Change
	for i := range 250 {
		pod := fmt.Sprintf("/k/pod%d", i)
		for _, p := range []string{pod, pod + "/a", pod + "/b"} {
			object := Object{Path: p, Level: Level(strings.Count(p, "/") - 1)}
			changes = append(changes, Change{Object: object, Knob: Quota, From: limit(2000), To: limit(1000)},
				Change{Object: object, Knob: Burst, From: CPUBurst(200 * time.Millisecond), To: CPUBurst(100 * time.Millisecond)})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(Order(changes)) != 750*3 {
			b.Fatal("a change is missing")
		}
	}
}
