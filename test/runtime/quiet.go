package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// quiet is a /proc/stat of a machine that does the runtime's work and nothing else, so
// that what the control loop decides does not hang on what else this machine does
// while a test runs.
type quiet struct {
	file  *os.File
	began time.Time
	start []int64 // nanoseconds of each CPU at that time
	cpus  []int   // that are online
	end   chan struct{}
	ended chan error
}

// underStat runs a program, $1, that finds the file $0 in place of /proc/stat: in a
// mount namespace of its own, as the same process.
const underStat = `exec unshare --mount --propagation private -- /bin/sh -c 'mount --bind "$0" /proc/stat && exec "$@"' "$0" "$@"`

// userTick is the unit of /proc/stat.
const userTick = 10 * time.Millisecond

// quietStat is the path of the file, which is written from the first call on.
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
	if q.start, err = rt.tree.perCPU(); err == nil {
		err = q.write(&rt.tree)
	}
	if err != nil {
		return "", err
	}
	go func() { q.ended <- q.run(&rt.tree) }()
	rt.quiet = q
	return path, nil
}

// perCPU is the time that the tree's containers have used of each possible CPU.
func (t *tree) perCPU() ([]int64, error) {
	text, err := t.read(t.name, "cpuacct.usage_percpu")
	if err != nil {
		return nil, err
	}
	var all []int64
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func (q *quiet) run(t *tree) error {
	ticker := time.NewTicker(userTick)
	defer ticker.Stop()
	for {
		select {
		case <-q.end:
			return nil
		case <-ticker.C:
			if err := q.write(t); err != nil {
				return err
			}
		}
	}
}

// write writes the file at once and in place, its numbers ever as long as before.
func (q *quiet) write(t *tree) error {
	used, err := t.perCPU()
	if err != nil {
		return err
	}
	passed := int64(time.Since(q.began) / userTick)
	var lines strings.Builder
	var allBusy, allIdle int64
	for _, i := range q.cpus {
		busy := (used[i] - q.start[i]) / int64(userTick)
		idle := max(0, passed-busy)
		allBusy, allIdle = allBusy+busy, allIdle+idle
		fmt.Fprintf(&lines, "cpu%d %012d 0 0 %012d 0 0 0 0 0 0\n", i, busy, idle)
	}
	_, err = q.file.WriteAt(fmt.Appendf(nil, "cpu  %012d 0 0 %012d 0 0 0 0 0 0\n%sintr 0\n", allBusy, allIdle, lines.String()), 0)
	return err
}

func (q *quiet) close() error {
	close(q.end)
	err := <-q.ended
	_ = q.file.Close()
	return err
}
