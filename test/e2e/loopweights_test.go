package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testWeights runs pods that request 2 CPUs, and then 16, 64 and 250, one of class SYSTEM, one with the
// runtime handler of a virtual machine, and the kubelet's cgroup of Burstable pods beside batch
// work. All of them are busy while their CPU time is measured, and stopped otherwise, because with
// 2 shares of so many runc itself takes minutes. Everything that isn't batch work keeps its
// proportions while weights are raised, and gets CPU time in these proportions. After the plugin's
// end, the weights are the kubelet's.
func testWeights(t *testing.T, rt *runtime.Runtime) {
	const mem = 64 * mib
	type sibling struct {
		name  string
		milli workload.MilliCPU
		class string
	}
	burstable, err := rt.Class(workload.Burstable)
	must(t, err)
	besteffort, err := rt.Class(workload.BestEffort)
	must(t, err)
	must(t, besteffort.WriteFile("cpu.shares", "2")) // the kubelet's value
	for _, round := range []struct {
		name   string
		factor int64
		pods   []sibling
	}{
		{"pods of 2 CPUs", 16, []sibling{{"service", 2000, "LS"}, {"system", 2000, "SYSTEM"}, {"vm", 2000, "LS"}, {"burstable", 4000, "LS"}}},
		{"the largest has 250 CPUs", 1, []sibling{{"service16", 16000, "LS"}, {"service64", 64000, "LS"}, {"service250", 250000, "LS"}, {"system", 16000, "SYSTEM"}, {"vm", 16000, "LS"}, {"burstable", 24000, "LS"}}},
	} {
		t.Run(round.name, func(t *testing.T) {
			t.Cleanup(func() { must(t, rt.RemoveAll()) })
			s := loopSluice(t, rt, "vmRuntimes: ["+runtime.Broken+"]\ncontrol: {mode: on, batch: {by: quota}}")
			files := map[string]func(string) (string, error){}
			due := map[string]int64{}
			sum := int64(0)
			batch := hog(t, rt, "batch")
			all := []*runtime.Container{batch.Container("c")}
			signal := func(one syscall.Signal) {
				for _, c := range all {
					must(t, c.Signal(one))
				}
			}
			signal(syscall.SIGSTOP)
			for _, p := range round.pods {
				spec := classed(p.name, p.class, runtime.Whole(p.milli, mem))
				if p.name == "vm" {
					spec.Handler = runtime.Broken
				}
				if p.name == "burstable" {
					spec.Containers[0].Resources = runtime.Resources{CPURequest: p.milli}
				}
				spec.Containers[0].Args = []string{"first", "burn=2"}
				pod := run(t, rt, spec)
				all = append(all, pod.Container("c"))
				signal(syscall.SIGSTOP)
				files[p.name], due[p.name] = pod.File, int64(p.milli)*1024/1000
				if p.name == "burstable" {
					files[p.name] = burstable.File
					must(t, burstable.WriteFile("cpu.shares", strconv.FormatInt(due[p.name], 10)))
				}
				sum += due[p.name]
			}
			files["batch"], due["batch"] = batch.ClassFile, 2
			weight := func(name string) int64 { return count(t, files[name], "cpu.shares") }
			await(t, "weights are raised", func() bool { return weight("burstable") == round.factor*due["burstable"] })
			signal(syscall.SIGCONT)
			time.Sleep(time.Second)
			before := map[string]int64{}
			for name := range files {
				before[name] = count(t, files[name], "cpuacct.usage")
			}
			time.Sleep(weighed)
			total, got := int64(0), map[string]int64{}
			for name := range files {
				got[name] = count(t, files[name], "cpuacct.usage") - before[name]
				total += got[name]
			}
			signal(syscall.SIGSTOP)
			var table strings.Builder
			w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "sibling\tkubelet's shares\tdue\tshares beside batch\tCPU time")
			for _, p := range append(round.pods, sibling{name: "batch"}) {
				name, factor := p.name, round.factor
				if name == "batch" {
					factor = 1
				}
				percent := func(part, of int64) float64 { return float64(part) * 100 / float64(of) }
				fmt.Fprintf(w, "%s\t%d\t%.1f %%\t%d\t%.1f %%\n", name, due[name], percent(due[name], sum), weight(name), percent(got[name], total))
				if weight(name) != factor*due[name] {
					t.Errorf("%s has %d shares, want %d times %d", name, weight(name), factor, due[name])
				}
				// The kernel divides two CPUs between many groups by averages over some 100 ms, so
				// this only distinguishes a sixteenth from the whole.
				if name != "batch" && got[name]*sum*4 < due[name]*total {
					t.Errorf("%s is due %.1f %% of the CPU time and has %.1f %%", name, percent(due[name], sum), percent(got[name], total))
				}
			}
			must(t, w.Flush())
			t.Logf("of %s of CPU time:\n%s", time.Duration(total).Round(10*time.Millisecond), table.String())

			sound(t, s) // checked now, because the failsafe's expected warning follows
			must(t, s.Kill())
			await(t, "the failsafe gives the weights back", func() bool {
				for name := range files {
					if weight(name) != due[name] {
						return false
					}
				}
				return true
			})
			must(t, s.Launch())
			await(t, "a plugin that comes back raises them again", func() bool { return weight("vm") == round.factor*due["vm"] })
			await(t, "it answers", func() bool { _, err := s.Status(); return err == nil })
			if n := statusOf(t, s).Counters; n.Panics > 0 || n.WriteErrors > 0 {
				t.Errorf("after the restart: %d panics and %d failed writes", n.Panics, n.WriteErrors)
			}
		})
	}
}

// weighed is how long siblings compete.
const weighed = 8 * time.Second

// count returns the number in a file of a cgroup.
func count(t *testing.T, file func(string) (string, error), name string) int64 {
	t.Helper()
	text, err := file(name)
	must(t, err)
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}
