package guest

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	kubepods   = "kubepods.slice"
	bestEffort = kubepods + "/kubepods-besteffort.slice"
	burstable  = kubepods + "/kubepods-burstable.slice"
)

// awaitSettings waits until all containers have what Sluice gives them: the pod lsr a CPU of its own, always the same one,
// without a quota; the others the rest; and the batch pod what it bought, and no CPU that a service wants.
func (s *session) awaitSettings(t *testing.T) {
	t.Helper()
	began := time.Now()
	attempts := 0
	bed.Await(t, "the settings of all pods", func() error {
		attempts++
		return s.settings(t)
	})
	t.Logf("all pods have their settings after %s (%d attempts)", time.Since(began).Round(100*time.Millisecond), attempts)
}

func (s *session) settings(t *testing.T) error {
	t.Helper()
	files := s.files(t, "lsr", "ls", "batch")
	online, err := cpuset.Parse(s.online(t))
	if err != nil {
		t.Fatal(err)
	}
	pin, err := cpuset.Parse(files["lsr/main/cpuset.cpus"])
	if err != nil {
		t.Fatal(err)
	}
	if pin.Size() != 1 || !s.pin.IsEmpty() && pin != s.pin {
		return fmt.Errorf("the LSR container has CPUs %q, and had %s", files["lsr/main/cpuset.cpus"], s.pin)
	}
	s.pin = pin
	rest := cpuset.Difference(online, pin).String()
	quota, bytes := fmt.Sprintf("%d 100000", bought*100), fmt.Sprint(memory)
	var errs []error
	for file, want := range map[string]string{
		"lsr/cpu.max":            "max 100000",
		"lsr/main/cpu.max":       "max 100000",
		"ls/main/cpuset.cpus":    rest,
		"batch/main/cpuset.cpus": rest,
		"batch/cpu.idle":         "1",
		"batch/cpu.max":          quota,
		"batch/main/cpu.max":     quota,
		"batch/memory.max":       bytes,
		"batch/main/memory.max":  bytes,
	} {
		if got := files[file]; got != want {
			errs = append(errs, fmt.Errorf("%s is %q, want %q", file, got, want))
		}
	}
	if quota := files["besteffort/cpu.max"]; strings.HasPrefix(quota, "max") {
		errs = append(errs, fmt.Errorf("all batch work has the quota %q, want a limit", quota))
	}
	return errors.Join(errs...)
}

// apart checks that a pin has a CPU in the kernel that none of the other pods' containers has.
func (s *session) apart(t *testing.T, pin string, others ...string) {
	t.Helper()
	files := s.files(t, append(others, pin)...)
	cpus := func(name string) cpuset.Set {
		set, err := cpuset.Parse(files[name+"/main/cpuset.cpus"])
		if err != nil || set.IsEmpty() {
			t.Errorf("the container of pod %s has CPUs %q: %v", name, files[name+"/main/cpuset.cpus"], err)
		}
		return set
	}
	own := cpus(pin)
	if own.Size() != 1 {
		t.Errorf("pod %s has CPUs %s, want one", pin, own)
	}
	for _, name := range others {
		if has := cpus(name); has.Overlaps(own) {
			t.Errorf("pod %s has CPUs %s, and pod %s has %s", pin, own, name, has)
		}
	}
}

func (s *session) online(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(s.node.Run(t, "cat /sys/devices/system/cpu/online"))
}

// files reads what can be written of the cgroups of the node's pods, as "burstable/cpu.weight", and of these pods and their
// containers, as "lsr/main/cpuset.cpus". Pressure files are left out: what they show is not what was written. A container
// that was never given CPUs has all, as one that was given all.
func (s *session) files(t *testing.T, pods ...string) map[string]string {
	t.Helper()
	names := map[string]string{kubepods: "kubepods", bestEffort: "besteffort", burstable: "burstable"}
	for _, name := range pods {
		names[s.node.Cgroup(t, s.pods[name], "")] = name
		names[s.node.Cgroup(t, s.pods[name], s.pods[name].Spec.Containers[0].Name)] = name + "/main"
	}
	var script strings.Builder
	script.WriteString("cd /sys/fs/cgroup; find")
	for cgroup := range names {
		script.WriteString(" " + cgroup)
	}
	script.WriteString(` -maxdepth 1 -type f -perm -200 ! -name 'cgroup.*' ! -name '*.pressure' ! -name memory.reclaim -exec grep -H "" {} +`)
	files := map[string]string{}
	for line := range strings.Lines(s.node.Run(t, script.String())) {
		file, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		name := names[path.Dir(file)]
		if name == "" {
			t.Fatalf("the guest prints %q", line)
		}
		files[name+"/"+path.Base(file)] += value
	}
	all := s.online(t)
	for file, value := range files {
		if path.Base(file) == "cpuset.cpus" && value == "" {
			files[file] = all
		}
	}
	return files
}

// differences tells which files differ, nil if none does.
func differences(before, after map[string]string) error {
	var errs []error
	for file, was := range before {
		if is, found := after[file]; !found || is != was {
			errs = append(errs, fmt.Errorf("%s is %q (found: %t), and was %q", file, is, found, was))
		}
	}
	for file := range after {
		if _, found := before[file]; !found {
			errs = append(errs, fmt.Errorf("%s is new", file))
		}
	}
	return errors.Join(errs...)
}
