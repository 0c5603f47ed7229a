package runtime

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/test/host"
)

// HostApplication is work of the node outside of pods, in a cgroup of its own.
type HostApplication struct {
	Cgroup string // path below each controller's root

	rt      *Runtime
	process *host.Process
}

// RunHostApplication starts a process that keeps that many CPUs busy. A runtime has one at a time,
// whose CPU time the quiet machine shows.
func (rt *Runtime) RunHostApplication(name string, cpus int) (*HostApplication, error) {
	a := &HostApplication{Cgroup: filepath.Join(rt.CgroupRoot(), name), rt: rt}
	if err := rt.tree.Create(a.Cgroup); err != nil {
		return nil, err
	}
	var err error
	if a.process, err = rt.tree.Start(filepath.Join(rt.Dir, name+".log"), nil, rt.tools.of("", "probe"), fmt.Sprintf("burn=%d", cpus)); err != nil {
		return nil, err
	}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids"} {
		if err := rt.tree.Enter(a.Cgroup, controller, a.process.PID()); err != nil {
			return nil, errors.Join(err, a.process.Kill())
		}
	}
	rt.host.Store(a)
	return a, nil
}

// File returns the text of a file of its cgroup without surrounding blanks.
func (a *HostApplication) File(name string) (string, error) { return a.rt.tree.Read(a.Cgroup, name) }

// CPUTime returns the CPU time that the application has used.
func (a *HostApplication) CPUTime() (time.Duration, error) { return a.rt.tree.CPUTime(a.Cgroup) }

// Remove ends the application and removes its cgroup.
func (a *HostApplication) Remove() error {
	a.rt.host.Store(nil)
	return errors.Join(a.process.Kill(), a.rt.tree.Remove(a.Cgroup))
}
