package knobs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
)

// every returns pods that request every knob of mainline kernels.
func every(t *testing.T) []runtime.PodSpec {
	batch := rowNamed(t, dialectRows(), "Koordinator batch").spec
	return []runtime.PodSpec{
		pod("every-ls", runtime.Whole(500, 64*mib), class, "LS", burst, "100%",
			memoryQoS, "{minPercent: 50, lowPercent: 100, oomGroup: true}", io, "{weight: 50, readBPS: 10Mi, writeIOPS: 100}"),
		// The runtime isn't told its request, so memory.high depends on the limit alone. This
		// machine's memory may grow between two starts of Sluice.
		pod("every-high", runtime.Resources{CPURequest: 100, CPULimit: 300, MemoryLimit: 64 * mib}, class, "LS", burst, "50%", memoryQoS, "{highPercent: 80}"),
		pod("every-lsr", pin(t), class, "LSR"),
		pod("every-be", runtime.Resources{}, class, "BE", io, "{weight: 10, writeBPS: 1Mi}"),
		pod("every-low", limited(100, 1000), class, "BE"),
		batch,
	}
}

// touched lists the names of files that Sluice sets at least once for the pods of every.
func (b *Bed) touched() []string {
	if b.RT.V2() {
		return []string{
			"cpuset.cpus.effective", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle",
			"memory.max", "memory.min", "memory.low", "memory.high", "memory.oom.group", "io.max", "io.weight", "io.bfq.weight",
		}
	}
	return []string{
		"cpuset.cpus", "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares", "cpu.idle",
		"memory.limit_in_bytes", "memory.soft_limit_in_bytes",
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.write_iops_device",
	}
}

// adopted starts Sluice beside running pods that request everything, and returns the texts of all
// files before and after.
func (b *Bed) adopted(t *testing.T) (pods []*runtime.Pod, before, after runtime.Dump) {
	t.Helper()
	for _, spec := range every(t) {
		pods = append(pods, b.run(t, spec))
	}
	before = b.dump(t)
	var err error
	b.Sluice, err = b.RT.StartSluice(runtime.SluiceOptions{})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sluice's log:\n%s", b.Sluice.Log())
			_ = b.Sluice.Kill()
		}
	})
	await(t, func() error {
		after = b.dump(t)
		var changed []string
		for _, file := range after.Changed(before) {
			changed = append(changed, filepath.Base(file))
		}
		for _, file := range b.touched() {
			if !slices.Contains(changed, file) {
				return fmt.Errorf("no cgroup's %s was changed; changed: %q", file, before.Differences(after))
			}
		}
		// The updates of the record repeat what the runtime has recorded.
		if s := b.status(t); s.Runtime.RecordUpdates == status.RecordUpdatesOn && s.Counters.RecordUpdates < len(pods) {
			return fmt.Errorf("the runtime was told of %d containers", s.Counters.RecordUpdates)
		}
		return nil
	})
	return pods, before, b.settled(t)
}

// settled waits until no file has changed during two passes over all containers.
func (b *Bed) settled(t *testing.T) runtime.Dump {
	t.Helper()
	last, since := b.dump(t), time.Now()
	await(t, func() error {
		now := b.dump(t)
		if changed := last.Differences(now); len(changed) > 0 {
			last, since = now, time.Now()
			return fmt.Errorf("files change all the while: %q", changed)
		}
		if still := time.Since(since); still < 2*pass {
			return fmt.Errorf("nothing has changed for %s", still)
		}
		return nil
	})
	return last
}

// Restore starts Sluice beside pods that request everything, ends it, and restores: every file of
// the cgroup trees is as it was. The same holds after crashes, which lose no original value and
// change nothing.
func Restore(t *testing.T, b *Bed) {
	pods, before, after := b.adopted(t)
	t.Logf("%d files were changed of %d", len(before.Differences(after)), len(before))
	for range 2 {
		must(t, b.Sluice.Restart()) // kills it first
		if changed := after.Differences(b.settled(t)); len(changed) > 0 {
			t.Errorf("a crash and a new start changed:\n%s", strings.Join(changed, "\n"))
		}
	}
	must(t, b.Sluice.Stop())
	if changed := after.Differences(b.dump(t)); len(changed) > 0 {
		t.Errorf("the plugin's end changed:\n%s", strings.Join(changed, "\n"))
	}
	told, err := b.Sluice.Command(append(shippedRestore(t), "--state-dir", b.Sluice.StateDir, "--runtime-dir", b.Sluice.RuntimeDir)...)
	must(t, err)
	if changed := before.Differences(b.dump(t)); len(changed) > 0 {
		t.Errorf("sluice restore left changed:\n%s\nIt told:\n%s", strings.Join(changed, "\n"), told)
	}
	b.ends(t, pods)
}

// shippedRestore returns the command line with which configs/kubernetes/restore.yaml restores a
// node, for the node's own root folder.
func shippedRestore(t *testing.T) []string {
	t.Helper()
	file, err := os.Open("../../configs/kubernetes/restore.yaml")
	must(t, err)
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	for {
		var object struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						InitContainers []struct{ Args []string } `yaml:"initContainers"`
					}
				}
			}
		}
		must(t, decoder.Decode(&object))
		if object.Kind != "DaemonSet" {
			continue
		}
		args := object.Spec.Template.Spec.InitContainers[0].Args
		if i := slices.Index(args, "/host"); i < 0 || args[0] != "restore" {
			t.Fatalf("restore.yaml runs %q", args)
		} else {
			args[i] = "/"
		}
		return args
	}
}

// ends removes the pods and ends the plugin.
func (b *Bed) ends(t *testing.T, pods []*runtime.Pod) {
	t.Helper()
	for _, pod := range pods {
		must(t, pod.Remove())
	}
	must(t, b.Sluice.Stop())
}

func (b *Bed) dump(t *testing.T) runtime.Dump {
	t.Helper()
	dump, err := b.RT.Dump()
	must(t, err)
	return dump
}

func rowNamed(t *testing.T, rows []row, name string) row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("the table has no row %q", name)
	}
	return rows[i]
}
