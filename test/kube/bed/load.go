package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// OwnLoad lets the node find a /proc/stat that counts what runs in its own cgroup, as LXCFS shows
// it to a container: the CPU time of the node's pods, spread evenly over the CPUs, and idle time
// for the rest. Without it, a node counts the other nodes of the bed, the control plane and the
// machine's other programs as its own system. Call it before pods mount the node's /proc.
func (n *Node) OwnLoad(t testing.TB) {
	t.Helper()
	machine, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(machine), "\nintr ")
	used, err := n.cluster.tree.CPUTime(n.CgroupRoot)
	if err != nil {
		t.Fatal(err)
	}
	load := ownLoad{began: time.Now(), before: used, rest: "intr " + rest}
	path := filepath.Join(n.dir, "stat")
	if err := os.WriteFile(path, []byte(load.stat(used)), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n.Run(t, "mount", "--bind", path, "/proc/stat")
	ctx := t.Context()
	go func() {
		defer file.Close()
		// Readers that find the same text twice do not know the load. A thread's priority stays with
		// it: the thread ends with this goroutine, which does not unlock it.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
		tick := time.NewTicker(userTick)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			used, err := n.cluster.tree.CPUTime(n.CgroupRoot)
			if err != nil {
				return // the node's cgroup is gone
			}
			_, _ = file.WriteAt([]byte(load.stat(used)), 0)
		}
	}()
}

// HighWeight gives the bed 16 times the usual CPU weight, so that its pods have the load that they
// make also on a busy machine. Call it before Node.
func (c *Cluster) HighWeight(t testing.TB) {
	t.Helper()
	c.tree.HighWeight = true
	file, unit := "cpu.shares", 1024
	if c.tree.V2() {
		file, unit = "cpu.weight", 100
	}
	err := c.tree.Write(c.tree.Name, file, strconv.Itoa(16*unit))
	pids, err2 := c.tree.PIDs(c.tree.Processes())
	err = errors.Join(err, err2)
	for _, pid := range pids { // also those that run already
		err = errors.Join(err, c.tree.Adopt(pid))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// userTick is the unit of /proc/stat: USER_HZ is 100 wherever Linux runs containers.
const userTick = 10 * time.Millisecond

// ownLoad is what a node's /proc/stat is made of.
type ownLoad struct {
	began  time.Time
	before time.Duration // CPU time that the node's cgroup had used at that time
	rest   string        // the machine's lines after those of the CPUs
}

// stat returns the text for a node that has used that much CPU time. Its length is always the
// same, so that a reader finds whole lines while it is written anew.
func (l *ownLoad) stat(used time.Duration) string {
	cpus := int64(runtime.NumCPU())
	busy, passed := int64((used-l.before)/userTick), int64(time.Since(l.began)/userTick)
	line := func(name string, busy, all int64) string {
		return fmt.Sprintf("%s %012d 0 0 %012d 0 0 0 0 0 0\n", name, busy, max(0, all-busy))
	}
	lines := []string{line("cpu ", busy, cpus*passed)}
	for i := range cpus {
		lines = append(lines, line(fmt.Sprint("cpu", i), (busy+i)/cpus, passed))
	}
	return strings.Join(append(lines, l.rest), "")
}
