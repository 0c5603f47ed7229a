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

// quiet is a /proc/stat of a machine that runs nothing but the runtime's pods and its host application, so that the control
// loop's decisions do not depend on what else this machine does during a test.
type quiet struct {
	file  *os.File
	began time.Time
	cpus  []int // CPUs that are online
	pods  meter // of the cgroup of all pods
	host  meter // of the host application
	end   chan struct{}
	ended chan error
}

// meter adds up the CPU time of a cgroup that may go and come back.
type meter struct {
	last time.Duration // that the cgroup showed last
	used time.Duration // since the first reading, including that of earlier cgroups
}

func (m *meter) read(now time.Duration) {
	if now < m.last {
		m.last = 0
	}
	m.used, m.last = m.used+now-m.last, now
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
	if q.pods.last, err = rt.cpuTime(rt.kubepods()); err == nil {
		err = q.write(rt)
	}
	if err != nil {
		return "", err
	}
	go func() { q.ended <- q.run(rt) }()
	rt.quiet = q
	return path, nil
}

// cpuTime returns the CPU time that a cgroup has used: 0 before it exists, and again after it was
// removed, as systemd does with that of all pods after the last one.
func (rt *Runtime) cpuTime(cgroup string) (time.Duration, error) {
	used, err := rt.tree.CPUTime(cgroup)
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

// write writes the file at once and in place; its numbers keep their lengths. It divides the CPU
// time equally among all CPUs, because cgroup v2 doesn't say on which CPU it was spent.
func (q *quiet) write(rt *Runtime) error {
	now, err := rt.cpuTime(rt.kubepods())
	if err != nil {
		return err
	}
	q.pods.read(now)
	if a := rt.host.Load(); a != nil {
		if now, err = rt.cpuTime(a.Cgroup); err != nil {
			return err
		}
		q.host.read(now)
	}
	n := len(q.cpus)
	passed, busy := int64(time.Since(q.began)/userTick), int64((q.pods.used+q.host.used)/userTick)/int64(n)
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
