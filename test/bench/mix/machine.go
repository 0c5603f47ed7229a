package main

import (
	"bytes"
	"os"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
)

func machine() (report.Machine, error) {
	m := report.Machine{CPUs: goruntime.NumCPU()}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	release, _, _ := bytes.Cut(name.Release[:], []byte{0})
	m.Kernel = string(release)
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(cpus)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.Model = strings.TrimSpace(value)
			break
		}
	}
	m.Memory, err = runtime.NodeMemory()
	return m, err
}
