package vm

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/test/vm/boot"
)

// TestGuest boots the guests in the order of their list, as many at once as there are CPUs, and reports each of their tests
// as a subtest while they run. -run TestGuest/pins boots that guest alone, and -run
// TestGuest/pins/TestX runs only TestX there. TOPO is the machine of guests without one of their
// own, CHURN the number of containers that the churn creates, at about 2 s each, and HOLD the MiB
// of the containers whose pages move or are reclaimed.
func TestGuest(t *testing.T) {
	machine, err := boot.ParseTopology(cmp.Or(os.Getenv("TOPO"), "2x2x2"))
	if err != nil {
		t.Fatal(err)
	}
	churn, err := strconv.Atoi(cmp.Or(os.Getenv("CHURN"), "24"))
	if err != nil {
		t.Fatalf("CHURN: %v", err)
	}
	hold, err := strconv.Atoi(cmp.Or(os.Getenv("HOLD"), "384"))
	if err != nil {
		t.Fatalf("HOLD: %v", err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	g := guest{
		repository: repository,
		tools:      cmp.Or(os.Getenv("SLUICE_TOOLS"), filepath.Join(repository, "bin", "tools")),
		topology:   machine,
		churn:      churn,
		hold:       hold,
	}
	if err := g.unavailable(); err != nil {
		t.Skip(err)
	}
	if err := g.build(); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan share, len(shares()))
	for _, share := range shares() {
		waiting <- share
	}
	close(waiting)
	var slots sync.WaitGroup
	for range goruntime.GOMAXPROCS(0) { // t.Parallel would start the guests in no fixed order
		slots.Go(func() {
			for share := range waiting {
				one := g
				one.share = share
				if share.machine != (boot.Topology{}) {
					one.topology = share.machine
				}
				if hold > 512 {
					one.topology.Memory = max(one.topology.MemoryPerNode(), hold+1024)
				}
				t.Run(one.guest, func(t *testing.T) { runOrSkip(t, one) })
			}
		})
	}
	slots.Wait()
}

// runOrSkip runs a guest, unless its runtime is missing, and shows the end of its console if one of its tests fails.
func runOrSkip(t *testing.T, g guest) {
	if g.crio {
		if _, err := runtime.CRIOPrograms(g.crun); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
	run(t, g)
	if t.Failed() {
		t.Logf("the guest's console ends:\n%s", tail(g.consoleLog(), 40))
	}
}

// patience is the maximum time for a guest, unless go test's timeout is shorter. The churn takes
// most of it.
const patience = 50 * time.Minute

func run(t *testing.T, g guest) {
	limit := patience
	if deadline, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-30*time.Second)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	// The tests have a shorter timeout, so that they show where they hang.
	args := []string{"-test.v=test2json", fmt.Sprintf("-test.timeout=%s", limit*3/4), g.selection()}
	_, below, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	_, selection, selected := strings.Cut(below, "/")
	if selected { // the last flag takes effect
		args = append(args, "-test.run="+selection)
	}
	if err := g.prepare(); err != nil {
		t.Fatal(err)
	}

	// QEMU gets its parent-death signal when the thread that started it ends.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	start := time.Now()
	machine := g.command(ctx, args...)
	machine.Stderr = t.Output()
	output, err := machine.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	events, converter, err := convert(output)
	if err != nil {
		t.Fatal(err)
	}
	events.replay(t, "")
	if err := converter.Wait(); err != nil {
		t.Errorf("test2json: %v", err)
	}
	if err := machine.Wait(); err != nil {
		t.Errorf("QEMU: %v (%v)", err, context.Cause(ctx))
	}
	if events.began.IsZero() {
		t.Error("no test ran in the guest")
		return
	}
	if !events.passed {
		t.Error("the guest's tests as a whole did not pass")
	}
	for _, test := range events.ran {
		if !g.has(test) {
			t.Errorf("%s is in no guest's share, and runs in each: add it to one", test)
		}
	}
	for _, test := range g.tests {
		if !selected && !slices.Contains(events.ran, test) {
			// The failure is a subtest's, because a failed test runs again alone: see RERUN in the
			// Makefile.
			t.Run(test, func(t *testing.T) { t.Error("this test, of the guest's share, did not run") })
		}
	}
	t.Logf("the first test began after %.1f s, the guest ended after %.1f s", events.began.Sub(start).Seconds(), time.Since(start).Seconds())
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n") + "\n(all of it: " + path + ")"
}
