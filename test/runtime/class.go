package runtime

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/host"
)

// Cgroup is a cgroup of the runtime's tree.
type Cgroup struct {
	Path string // path below each controller's root

	tree *host.Tree
}

// Class makes the cgroup of a QoS class if it doesn't exist. The cgroup of Guaranteed pods is
// kubepods itself.
func (rt *Runtime) Class(qos workload.QoS) (Cgroup, error) {
	c := Cgroup{Path: rt.kubepods(), tree: &rt.tree}
	if qos != workload.Guaranteed {
		c.Path = filepath.Join(c.Path, strings.ToLower(qos.String()))
	}
	return c, rt.tree.Create(c.Path)
}

// Where returns the path of a file of the cgroup, for example "cpu.shares".
func (c Cgroup) Where(name string) (string, error) { return c.tree.Find(c.Path, name) }

// File returns the text of a file of the cgroup without surrounding blanks.
func (c Cgroup) File(name string) (string, error) { return c.tree.Read(c.Path, name) }

// WriteFile writes a file of the cgroup, as the kubelet or another agent would.
func (c Cgroup) WriteFile(name, value string) error { return c.tree.Write(c.Path, name, value) }

// Freeze stops the pod's processes, or lets them continue.
func (p *Pod) Freeze(frozen bool) error {
	file, states := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}
	if p.rt.tree.Of("freezer").V2 {
		file, states = "cgroup.freeze", map[bool]string{true: "1", false: "0"}
	}
	if err := p.WriteFile(file, states[frozen]); err != nil {
		return err
	}
	written := time.Now()
	return host.Poll("pod "+p.spec.Name+" to be "+states[frozen], func() error {
		state, err := p.File(file)
		if err != nil || state == states[frozen] {
			return err
		}
		// The freezer of cgroup v1 can miss processes that are being started. As runc does, thaw
		// the pod then, and freeze it again.
		if time.Since(written) > time.Second {
			written = time.Now()
			err = errors.Join(p.WriteFile(file, states[false]), p.WriteFile(file, states[frozen]))
		}
		return errors.Join(fmt.Errorf("it is %s", state), err)
	})
}

// Sandbox returns the cgroup of the pod's pause container.
func (p *Pod) Sandbox() Cgroup { return Cgroup{filepath.Join(p.Cgroup, p.rt.scope(p.ID)), &p.rt.tree} }

// Where returns the path of a file of the pod's own cgroup.
func (p *Pod) Where(name string) (string, error) { return p.rt.tree.Find(p.Cgroup, name) }

// Where returns the path of a file of the container's cgroup.
func (c *Container) Where(name string) (string, error) { return c.pod.rt.tree.Find(c.Cgroup, name) }

// PIDs lists the container's processes.
func (c *Container) PIDs() ([]int, error) { return c.pod.rt.tree.PIDs(c.Cgroup) }
