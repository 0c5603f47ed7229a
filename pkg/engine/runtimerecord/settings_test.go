package runtimerecord

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// What the runtime's record has of a found container is the kubelet's where the journal says that
// Sluice wrote it, and the journal's original is replaced where somebody has written a newer
// value.
func TestFound(t *testing.T) {
	const original, ours, newer = knobs.Shares(100), knobs.Shares(200), knobs.Shares(300)
	for name, test := range map[string]struct {
		recorded       knobs.Shares
		kept           bool
		want, kubelets knobs.Shares // in the container's resources, and in the journal
	}{
		"never changed":             {original, false, original, 0},
		"Sluice's value":            {ours, true, original, original},
		"the original again":        {original, true, original, original},
		"the kubelet's newer value": {newer, true, newer, newer},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				c := b.track("web")
				if test.kept {
					b.Journal.Record(c.Object(), knobs.Weight, original)
					b.Journal.RecordWrite(c.Path, knobs.Weight, ours)
				}
				c.Resources = workload.Resources{CPUs: "2-3", Mems: "1", Quota: -1, Shares: uint64(test.recorded)}
				b.Found(c)
				if r := c.Recorded; r.CPUs.String() != "2-3" || r.Mems.String() != "1" || !r.Unlimited {
					t.Errorf("recorded %+v", r)
				}
				e, _ := b.Journal.Entry(c.Path, knobs.Weight)
				if kept, _ := e.Value.(knobs.Shares); knobs.Shares(c.Resources.Shares) != test.want || kept != test.kubelets {
					t.Errorf("the kubelet's weight is %d, and %d in the journal", c.Resources.Shares, kept)
				}
				if test.kept && e.Wrote != knobs.Value(ours) {
					t.Errorf("Sluice wrote %v", e.Wrote)
				}
			})
		})
	}
}

// A record that is no list of CPUs is none.
func TestFoundNonsense(t *testing.T) {
	in(t, func(b *bed) {
		c := b.track("web")
		c.Resources = workload.Resources{CPUs: "all", Mems: "-"}
		if b.Found(c); (c.Recorded != node.Settings{}) {
			t.Errorf("recorded %+v", c.Recorded)
		}
	})
}

// The answer to a request of the runtime has what only the runtime can set, once for each
// change. What the runtime has not read comes again.
func TestUpdatesInAnswers(t *testing.T) {
	in(t, func(b *bed) {
		remote, near := b.track("remote"), b.track("near")
		for _, c := range []*node.Container{remote, near} {
			b.share(c)
		}
		remote.Path = "" // its cgroup is unknown
		b.pin("db", 2)
		list := func(skip string) (all []string) {
			for _, u := range b.Updates(skip) {
				all = append(all, u.ContainerID+" "+u.CPUs.String())
			}
			return all
		}
		if got := list("remote"); len(got) > 0 {
			t.Errorf("the container of the request itself is among %q", got)
		}
		b.replied = node.LedgerState{}
		if got := strings.Join(list("db"), ", "); got != "remote 2-7" || remote.Recorded.CPUs.String() != "2-7" {
			t.Fatalf("the answer has %q", got)
		}
		if got := list("db"); len(got) > 0 {
			t.Errorf("the next answer repeats %q", got)
		}
		b.Ledger.Release("db")
		if got := strings.Join(list("db"), ", "); got != "remote 0-7" {
			t.Errorf("without the pin the answer has %q", got)
		}
		b.Unread()
		if remote.Recorded.CPUs.String() != "2-7" || remote.Has.CPUs.String() != "2-7" {
			t.Errorf("unread, it counts as made: %+v, %+v", remote.Recorded, remote.Has)
		}
		if got := strings.Join(list("db"), ", "); got != "remote 0-7" {
			t.Errorf("after one that was not read the answer has %q", got)
		}
		b.Config.Mode = "preview"
		b.pin("more", 1)
		if got := list("more"); len(got) > 0 {
			t.Errorf("in preview the answer has %q", got)
		}
	})
}

// A container that once had CPUs of its own is given all by number, since the runtime can't say
// "as the parent".
func TestReply(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*bed, *node.Container)
		cpus    string
		mems    string
		none    bool
	}{
		"never set":            {func(*bed, *node.Container) {}, "", "", true},
		"set before":           {func(_ *bed, c *node.Container) { c.Touched = true }, "0-7", "", false},
		"with memory before":   {func(_ *bed, c *node.Container) { c.Touched, c.Recorded.Mems = true, cpuset.Of(1) }, "0-7", "0-1", false},
		"in a virtual machine": {func(_ *bed, c *node.Container) { c.Touched, c.Uncontrolled = true, true }, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				c := b.track("web")
				b.share(c)
				test.prepare(b, c)
				as, _ := b.Ledger.Assignment("web")
				set := b.Reply(c, as)
				if set.CPUs.String() != test.cpus || set.Mems.String() != test.mems || (set == node.Settings{}) != test.none {
					t.Errorf("it sets %+v", set)
				}
				if !test.none && c.Recorded != set {
					t.Errorf("the record has %+v", c.Recorded)
				}
			})
		})
	}
}

// The runtime sets what it can; what the kubelet sets itself stays, and a container that requires
// what this node lacks is refused, except in preview.
func TestPrepare(t *testing.T) {
	request := workload.Request{Class: workload.LS, Milli: 1000, Tuning: workload.Tuning{CoreSched: "all"}}
	for name, test := range map[string]struct {
		required []string
		mode     string
		refused  bool
	}{
		"not required":         {nil, "on", false},
		"required":             {[]string{"core-sched"}, "on", true},
		"required, in preview": {[]string{"core-sched"}, "preview", false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				b.Config.Mode = "on"
				if test.mode == "preview" {
					b.Config.Mode = "preview"
				}
				c := b.track("web")
				asks := request
				asks.Required = test.required
				b.Ledger.PlaceShared(c.Identity(), asks, "", b.Now())
				err := b.Prepare(c)
				if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "core-sched is required") {
					t.Errorf("%v", err)
				}
				if len(c.Notes) != 1 || c.Notes[0].Key != "core-sched" {
					t.Errorf("notes %+v", c.Notes)
				}
			})
		})
	}
}
