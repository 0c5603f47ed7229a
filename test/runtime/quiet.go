package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// quiet is a /proc/stat of a machine that runs nothing but the runtime's pods, so that the control
// loop's decisions do not depend on what else this machine does during a test.
type quiet struct {
	file  *os.File
	began time.Time
	cpus  []int         // CPUs that are online
	last  time.Duration // CPU time that the cgroup of all pods showed last
	used  time.Duration // CPU time of pods since then, including that of earlier cgroups of all pods
	end   chan struct{}
	ended chan error
}

// userTick is the unit of /proc/stat.
const userTick = 10 * time.Millisecond

// quietStat returns the path of the file, which is updated from the first call on.
func (rt *Runtime) quietStat() (string, error) {
	path := filepath.Join(rt.Dir, "stat")
	if rt.quiet != nil {
		return path, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	q := &quiet{file: file, began: time.Now(), end: make(chan struct{}), ended: make(chan error, 1)}
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return "", err
	}
	online, err := cpuset.Parse(string(text))
	if err != nil {
		return "", err
	}
	q.cpus = slices.Collect(online.All())
	if q.last, err = rt.podsCPU(); err == nil {
		err = q.write(rt)
	}
	if err != nil {
		return "", err
	}
	go func() { q.ended <- q.run(rt) }()
	rt.quiet = q
	return path, nil
}

// podsCPU returns the CPU time that the cgroup of all pods has used: 0 before it exists, and again
// after systemd has removed it with the last pod.
func (rt *Runtime) podsCPU() (time.Duration, error) {
	used, err := rt.tree.CPUTime(rt.kubepods())
	if host.Gone(err) {
		return 0, nil
	}
	return used, err
}

func (q *quiet) run(rt *Runtime) error {
	ticker := time.NewTicker(userTick)
	defer ticker.Stop()
	for {
		select {
		case <-q.end:
			return nil
		case <-ticker.C:
			if err := q.write(rt); err != nil {
				return err
			}
		}
	}
}

// write writes the file at once and in place; its numbers keep their lengths. It divides the pods'
// time equally among all CPUs, because cgroup v2 doesn't say on which CPU it was spent.
func (q *quiet) write(rt *Runtime) error {
	now, err := rt.podsCPU()
	if err != nil {
		return err
	}
	if now < q.last {
		q.last = 0
	}
	q.used, q.last = q.used+now-q.last, now
	n := len(q.cpus)
	passed, busy := int64(time.Since(q.began)/userTick), int64(q.used/userTick)/int64(n)
	idle := max(0, passed-busy)
	var text strings.Builder
	fmt.Fprintf(&text, "cpu  %012d 0 0 %012d 0 0 0 0 0 0\n", busy*int64(n), idle*int64(n))
	for _, i := range q.cpus {
		fmt.Fprintf(&text, "cpu%d %012d 0 0 %012d 0 0 0 0 0 0\n", i, busy, idle)
	}
	_, err = q.file.WriteAt([]byte(text.String()+"intr 0\n"), 0)
	return err
}

func (q *quiet) close() error {
	close(q.end)
	err := <-q.ended
	_ = q.file.Close()
	return err
}
