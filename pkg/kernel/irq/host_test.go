package irq

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// tree returns the root folder of a host with these files.
func tree(t testing.TB, files map[string]string) (*Host, string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.root.Close() })
	return h, root
}

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	h, root := tree(t, map[string]string{
		"proc/irq/0/smp_affinity_list":          "0-1,32\n",
		"proc/irq/24/smp_affinity_list":         "3\n",
		"proc/irq/24/eth0/x":                    "",
		"proc/irq/25/node":                      "0\n", // its affinity file vanished
		"proc/irq/default_smp_affinity":         "1,0000000f\n",
		"sys/devices/virtual/workqueue/cpumask": "ff\n",
	})
	found, err := h.Read()
	want := map[File]cpuset.Set{"0": list("0-1,32"), "24": list("3"), Default: list("0-3,32"), Workqueues: list("0-7")}
	if err != nil || !maps.Equal(found, want) {
		t.Errorf("read %v, %v; want %v", found, err, want)
	}
	for file, test := range map[File]struct{ name, cpus, text string }{
		"24":       {"proc/irq/24/smp_affinity_list", "4-7,9", "4-7,9"},
		Default:    {"proc/irq/default_smp_affinity", "0,2,40-41", "00000300,00000005"},
		Workqueues: {"sys/devices/virtual/workqueue/cpumask", "1", "00000002"},
	} {
		if err := os.WriteFile(filepath.Join(root, test.name), nil, 0o644); err != nil { // the kernel's files have no length
			t.Fatal(err)
		}
		got, err := h.Write(Write{file, list(test.cpus)})
		text, _ := os.ReadFile(filepath.Join(root, test.name))
		if err != nil || got != list(test.cpus) || string(text) != test.text {
			t.Errorf("%s: wrote %q, read back %s, %v; want %q", file, text, got, err, test.text)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	h, root := tree(t, map[string]string{
		"proc/irq/1/smp_affinity_list":   "0-1\n",
		"proc/irq/2/smp_affinity_list/x": "", // neither read nor written
		"proc/irq/3/smp_affinity_list":   "0-x\n",
		"outside":                        "0\n",
	})
	if err := os.MkdirAll(filepath.Join(root, "proc/irq/4"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/oom_score_adj", filepath.Join(root, "proc/irq/4/smp_affinity_list")); err != nil {
		t.Fatal(err)
	}
	found, err := h.Read()
	if err == nil || len(found) != 1 || found["1"] != list("0-1") {
		t.Errorf("read %v, %v; want the one good file and an error", found, err)
	}
	for file, gone := range map[File]bool{"2": false, "4": false, "5": true, Default: true, Workqueues: true} {
		if _, err := h.Write(Write{file, list("0")}); err == nil || errors.Is(err, ErrGone) != gone {
			t.Errorf("%s: %v", file, err)
		}
	}
	empty, _ := tree(t, nil)
	if found, err := empty.Read(); err == nil {
		t.Errorf("read %v without /proc/irq", found)
	}
}

func TestBalancer(t *testing.T) {
	t.Parallel()
	for want, files := range map[string]map[string]string{
		"":   {"proc/1/comm": "systemd\n", "proc/self/comm": "irqbalance\n", "proc/3/comm": "irqbalanced\n"},
		"17": {"proc/1/comm": "systemd\n", "proc/17/comm": "irqbalance\n", "proc/18/stat": ""},
	} {
		h, _ := tree(t, files)
		if got := h.Balancer(); got != want {
			t.Errorf("process %q, want %q", got, want)
		}
	}
}

// TestKernel rewrites every affinity of the real kernel with its present value.
func TestKernel(t *testing.T) {
	t.Parallel()
	h, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer h.root.Close()
	found, err := h.Read()
	if err != nil {
		t.Skipf("SKIPPED, this machine's affinities can't be read: %v", err)
	}
	if found[Default].IsEmpty() || len(found) < 2 {
		t.Errorf("found %v", found)
	}
	written := 0
	for f, cpus := range found {
		switch got, err := h.Write(Write{f, cpus}); {
		case err == nil && got == cpus:
			written++
		case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO), errors.Is(err, ErrGone):
			t.Logf("%s: %v", f, err)
		default:
			t.Errorf("%s: wrote %s, read back %s, %v", f, cpus, got, err)
		}
	}
	if written == 0 {
		t.Skip("SKIPPED, none of this machine's affinities can be written")
	}
	t.Logf("%d of %d affinities written", written, len(found))
	if _, err := h.Write(Write{"4000000000", list("0")}); !errors.Is(err, ErrGone) {
		t.Errorf("an interrupt that is not there: %v", err)
	}
}

func BenchmarkRead(b *testing.B) {
	fake := map[string]string{"proc/irq/default_smp_affinity": "ff\n"}
	for n := range 2000 {
		fake["proc/irq/"+strconv.Itoa(n)+"/smp_affinity_list"] = "0-7\n"
	}
	many, _ := tree(b, fake)
	machine, err := Open("/")
	if err != nil {
		b.Fatal(err)
	}
	defer machine.root.Close()
	for name, h := range map[string]*Host{"machine": machine, "fake-2000": many} {
		found, err := h.Read()
		if err != nil {
			b.Skip(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportMetric(float64(len(found)), "files")
			for b.Loop() {
				if _, err := h.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/write", func(b *testing.B) {
			for b.Loop() {
				for f, cpus := range found {
					h.Write(Write{f, cpus})
				}
			}
		})
		b.Run(name+"/plan", func(b *testing.B) {
			d := Desire{IRQs: list("1"), Online: list("0-7")}
			for b.Loop() {
				Plan(found, true, nil, d)
			}
		})
	}
}
