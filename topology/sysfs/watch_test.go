package sysfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/topology"
)

// root writes a minimal machine to disk, because topology/synth can't be imported here.
func root(t *testing.T, online string) string {
	t.Helper()
	dir := t.TempDir()
	for _, cpu := range []string{"0", "1", "2", "3"} {
		for name, value := range map[string]string{
			"core_cpus_list": cpu, "core_id": cpu, "package_cpus_list": "0-3", "physical_package_id": "0",
		} {
			write(t, dir, cpuDir+"cpu"+cpu+"/topology/"+name, value)
		}
	}
	write(t, dir, cpuDir+"online", online)
	write(t, dir, "proc/meminfo", "MemTotal: 1024 kB")
	return dir
}

func write(t *testing.T, dir, name, value string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// watching runs watch for dir in a synctest bubble. told returns the reported machines since the
// last call.
func watching(t *testing.T, dir string, last *topology.Machine, test func(events chan struct{}, told func() string)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan struct{}, 1)
		ended := make(chan struct{})
		log := make(chan string, 100)
		go func() {
			defer close(ended)
			watch(ctx, os.DirFS(dir), last, events, func(m *topology.Machine, err error) {
				if err != nil {
					log <- "error: " + err.Error()
				} else {
					log <- m.Online.String()
				}
			})
		}()
		test(events, func() string {
			synctest.Wait()
			var lines []string
			for len(log) > 0 {
				lines = append(lines, <-log)
			}
			return strings.Join(lines, "; ")
		})
		cancel()
		<-ended
	})
}

func check(t *testing.T, when, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: told %q, want %q", when, got, want)
	}
}

func TestWatchPolls(t *testing.T) {
	t.Parallel()
	dir := root(t, "0-3")
	first, err := Read(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	watching(t, dir, first, func(_ chan struct{}, told func() string) {
		check(t, "the machine that is known", told(), "")
		time.Sleep(5 * time.Second)
		check(t, "no change", told(), "")

		write(t, dir, cpuDir+"online", "0-2")
		time.Sleep(pollEvery + settle)
		check(t, "a CPU gone", told(), "0-2")
		time.Sleep(5 * time.Second)
		check(t, "no further change", told(), "")
	})
}

func TestWatchFirst(t *testing.T) {
	t.Parallel()
	watching(t, root(t, "0-1"), nil, func(_ chan struct{}, told func() string) {
		check(t, "no machine known", told(), "0-1")
	})
}

func TestWatchSettles(t *testing.T) {
	t.Parallel()
	dir := root(t, "0-3")
	watching(t, dir, nil, func(events chan struct{}, told func() string) {
		check(t, "start", told(), "0-3")
		for _, online := range []string{"0-2", "0-1", "0"} {
			write(t, dir, cpuDir+"online", online)
			events <- struct{}{}
			time.Sleep(settle / 4)
			check(t, "an event a moment ago", told(), "")
		}
		time.Sleep(settle / 4)
		check(t, "the burst over", told(), "0")

		events <- struct{}{}
		time.Sleep(2 * settle)
		check(t, "an event without a change", told(), "")
	})
}

func TestWatchErrors(t *testing.T) {
	t.Parallel()
	dir := root(t, "0-3")
	watching(t, dir, nil, func(_ chan struct{}, told func() string) {
		check(t, "start", told(), "0-3")
		write(t, dir, cpuDir+"online", "0-")
		time.Sleep(4 * pollEvery)
		if got := told(); strings.Count(got, "error: ") != 1 || !strings.Contains(got, cpuDir+"online") {
			t.Errorf("a broken file: told %q, want one error that names it", got)
		}
		write(t, dir, cpuDir+"online", "0-3")
		time.Sleep(2 * pollEvery)
		check(t, "the old machine again", told(), "")
		write(t, dir, cpuDir+"online", "0-1")
		time.Sleep(2 * pollEvery)
		check(t, "another machine", told(), "0-1")
	})
}

// A failed read is tried again although no file of the poll has changed.
func TestWatchTriesAgain(t *testing.T) {
	t.Parallel()
	dir := root(t, "0-3")
	write(t, dir, cpuDir+"cpu2/topology/core_id", "x")
	watching(t, dir, nil, func(_ chan struct{}, told func() string) {
		time.Sleep(pollEvery)
		if got := told(); !strings.Contains(got, "cpu2/topology/core_id") {
			t.Errorf("a broken file: told %q, want an error that names it", got)
		}
		write(t, dir, cpuDir+"cpu2/topology/core_id", "2")
		time.Sleep(2 * pollEvery)
		check(t, "the file mended", told(), "0-3")
	})
}

// The real listener ends with its context, whether netlink is available or not.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	Watch(ctx, root(t, "0-3"), nil, func(m *topology.Machine, err error) {
		if err != nil || m.Online.String() != "0-3" {
			t.Errorf("told %v, %v", m, err)
		}
		cancel()
	})
}

func TestChangesMachine(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"offline@/devices/system/cpu/cpu1\x00ACTION=offline\x00DEVPATH=/devices/system/cpu/cpu1\x00SUBSYSTEM=cpu\x00SEQNUM=1\x00": true,
		"online@/devices/system/memory/memory33\x00SUBSYSTEM=memory\x00":                                                          true,
		"add@/devices/system/node/node1\x00SUBSYSTEM=node\x00":                                                                    true,
		"remove@/devices/pci0000:00/0000:00:02.0\x00SUBSYSTEM=pci\x00":                                                            true,
		"bind@/devices/pci0000:00/0000:00:02.0\x00SUBSYSTEM=pci\x00":                                                              false,
		"add@/devices/virtual/net/veth1\x00SUBSYSTEM=net\x00":                                                                     false,
		"add@/devices/x\x00SUBSYSTEM=cpufreq\x00":                                                                                 false,
		"add@/devices/x\x00XSUBSYSTEM=cpu\x00":                                                                                    false,
		"libudev\x00SUBSYSTEM=cpu\x00":                                                                                            false,
		"":                                                                                                                        false,
	} {
		if got := changesMachine([]byte(message)); got != want {
			t.Errorf("changesMachine(%q) = %v", message, got)
		}
	}
}

func FuzzChangesMachine(f *testing.F) {
	f.Add([]byte("online@/devices/system/cpu/cpu1\x00SUBSYSTEM=cpu\x00"))
	f.Add([]byte("@\x00\x00"))
	f.Add([]byte("libudev"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if changesMachine(message) && !strings.Contains(string(message), "\x00SUBSYSTEM=") {
			t.Errorf("%q has no subsystem", message)
		}
	})
}
