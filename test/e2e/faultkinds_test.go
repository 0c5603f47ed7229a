package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// faultConfigs returns configurations under which Sluice writes a lot.
func faultConfigs() []string {
	return []string{
		squeeze(control.On, control.ByBoth) + "\nclasses: {BE: {cpu-identity: -1, weight: 10%}}\n",
		squeeze(control.On, control.ByQuota),
		squeeze(control.On, control.ByCPUSet) + "\nclasses: {LS: {cpu-burst: 100%}, BE: {cpu-identity: -1}}\n",
	}
}

// fault is a kind of fault. It is over when do returns.
type fault struct {
	name string
	do   func(n *faultyNode)
}

func faultKinds() []fault {
	return []fault{
		{"plugin killed", func(n *faultyNode) { n.killed(false) }},
		{"plugin killed and away", func(n *faultyNode) { n.killed(true) }},
		{"plugin killed and given back", (*faultyNode).restored},
		{"plugin stalls", (*faultyNode).stalls},
		{"failsafe killed", (*faultyNode).failsafeKilled},
		{"runtime killed", func(n *faultyNode) { n.runtimeKilled(false) }},
		{"runtime and plugin killed", func(n *faultyNode) { n.runtimeKilled(true) }},
		{"containers end by themselves", (*faultyNode).containersEnd},
		{"another program writes", (*faultyNode).foreignWrites},
		{"disk full", (*faultyNode).diskFull},
		{"state torn", (*faultyNode).torn},
		{"configuration reloaded", (*faultyNode).reloads},
	}
}

// killed kills the plugin while pods come and go. It is away for longer than the failsafe waits, or
// comes back soon.
func (n *faultyNode) killed(away bool) {
	n.while(n.s.Kill)
	if away {
		n.live()
		time.Sleep(6 * time.Second)
	}
	must(n.t, n.s.Restart())
}

func (n *faultyNode) restored() {
	n.while(n.s.Kill)
	_, err := n.s.Restore()
	must(n.t, err)
	n.live()
	must(n.t, n.s.Restart())
}

func (n *faultyNode) stalls() {
	must(n.t, n.s.Signal(syscall.SIGSTOP))
	time.Sleep(time.Duration(n.IntN(8000)) * time.Millisecond)
	must(n.t, n.s.Signal(syscall.SIGCONT))
	n.live()
}

func (n *faultyNode) failsafeKilled() {
	n.while(func() error {
		pids, err := n.s.Failsafes()
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
		}
		return err
	})
}

func (n *faultyNode) runtimeKilled(both bool) {
	synchronized := n.s.Synchronizations()
	n.while(n.rt.Kill)
	if both {
		must(n.t, n.s.Kill())
	}
	must(n.t, n.rt.Restart())
	if both {
		must(n.t, n.s.Restart())
		return
	}
	await(n.t, "the plugin is synchronized again", func() bool { return n.s.Synchronizations() > synchronized })
}

// containersEnd kills the processes of some containers.
func (n *faultyNode) containersEnd() {
	for _, p := range n.pods {
		if n.IntN(2) == 0 {
			n.tell("%s ends", p.spec.Name)
			must(n.t, p.Container("c").Kill())
			p.gone = true
		}
	}
	n.live()
}

// foreignWrites changes what Sluice has written, as another agent on the node would.
func (n *faultyNode) foreignWrites() {
	for _, p := range n.pods {
		c := p.Container("c")
		for file, value := range map[string]string{"cpuset.cpus": online(n.t).String(), "cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"} {
			if p.class == "BE" && n.IntN(2) == 0 || file == "cpuset.cpus" {
				n.tell("another program writes %s to %s of %s: %v", value, file, p.spec.Name, c.WriteFile(file, value))
			}
		}
	}
	time.Sleep(time.Duration(n.IntN(1500)) * time.Millisecond)
	n.live()
}

// diskFull fills the disk with the journal while pods come and go, and perhaps until the plugin dies.
func (n *faultyNode) diskFull() {
	must(n.t, unix.Mount("", n.s.RuntimeDir, "", unix.MS_REMOUNT, "size=1m"))
	filler := filepath.Join(n.s.RuntimeDir, "filler")
	err := os.WriteFile(filler, make([]byte, 2<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		n.t.Fatalf("the disk took more than it has: %v", err)
	}
	n.live()
	n.live()
	dies := n.IntN(2) == 0
	if dies {
		must(n.t, n.s.Kill())
	}
	must(n.t, os.Remove(filler))
	if dies {
		must(n.t, n.s.Restart())
	}
}

// torn damages the files that the plugin keeps, except for the journal of what is to be given back.
func (n *faultyNode) torn() {
	must(n.t, n.s.Kill())
	for _, dir := range []string{n.s.StateDir, n.s.RuntimeDir} {
		files, err := os.ReadDir(dir)
		must(n.t, err)
		for _, f := range files {
			if !f.Type().IsRegular() || strings.HasPrefix(f.Name(), "originals") || n.IntN(2) == 0 {
				continue
			}
			path := filepath.Join(dir, f.Name())
			data, err := os.ReadFile(path)
			must(n.t, err)
			n.tell("%s is torn", f.Name())
			must(n.t, os.WriteFile(path, data[:n.IntN(len(data)+1)], 0o600))
		}
	}
	must(n.t, n.s.Restart())
}

// reloads makes the plugin read another configuration, or one with an error, which changes nothing.
func (n *faultyNode) reloads() {
	all := append(faultConfigs(), "control: {mode: sometimes}\n")
	text := all[n.IntN(len(all))]
	n.tell("a reload of %q", text)
	must(n.t, n.s.Configure(text))
	must(n.t, n.s.Signal(syscall.SIGHUP))
	n.live()
	must(n.t, n.s.Configure(faultConfigs()[0]))
	must(n.t, n.s.Signal(syscall.SIGHUP))
}
