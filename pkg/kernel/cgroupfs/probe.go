package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// probePrefix is the start of a probe cgroup's name; the process ID follows.
const probePrefix = "/sluice-probe-"

// Probe finds out which knobs this kernel supports. It creates its own cgroup in each
// hierarchy, writes a value to each knob's file and reads it back. It removes that cgroup, and
// those of probes that were killed. An error says what prevented the probe; the knobs in
// question are then Inconclusive.
func (d *Driver) Probe() (knobs.Features, error) {
	p := probe{Driver: d, dir: probePrefix + strconv.Itoa(os.Getpid()), failed: map[*hierarchy]error{}}
	var f knobs.Features
	for _, h := range d.trees {
		p.clear(h)
	}
	for knob := range knobs.Knobs {
		f.Knobs[knob] = p.knob(knob)
	}
	if f.Has(knobs.Quota) && f.Has(knobs.Burst) {
		f.BurstOverQuota = p.burstOverQuota()
	}
	f.Reclaim = p.reclaim()
	var errs []error
	for h, err := range p.failed {
		errs = append(errs, fmt.Errorf("probing the cgroup hierarchy %s: %w", h, err))
	}
	return f, errors.Join(errs...)
}

type probe struct {
	*Driver
	dir    string
	failed map[*hierarchy]error
}

// knob tries one knob in a new cgroup, so that no knob affects another.
func (p *probe) knob(knob knobs.Knob) knobs.Feature {
	s, h, err := p.at(knob)
	if err != nil {
		h := p.hierarchyOf(specs[knob].Controller)
		return knobs.Feature{State: knobs.Unsupported, V2: h != nil && h.v2, Why: err.Error()}
	}
	f := knobs.Feature{State: knobs.Inconclusive, File: s.Files(h.v2)[0], V2: h.v2}
	if release := p.release(); knob.GroupIdentity() && knobs.GroupIdentityCrashes(release) {
		f.State, f.Why = knobs.Unsupported, "kernel "+release+" crashes the host when group identity is used, so it is not tried; 4.19.91-25.6 is the first that is safe"
		return f
	}
	done, err := p.fresh(h)
	if err != nil {
		f.Why = err.Error()
		return f
	}
	defer done()
	err = h.with(p.dir, func(c *cgroup) error {
		file, err := c.first(s.Files(h.v2))
		if err == nil {
			f.File = file
		}
		return err
	})
	if errors.Is(err, ErrUnsupported) {
		f.State = knobs.Unsupported
		f.Why = fmt.Sprintf("this kernel has no %s (%s)", f.File, h)
		if h.v2 && !p.enabled(h, s.Controller) {
			f.Cause = knobs.NotEnabled
			f.Why = fmt.Sprintf("the %s controller is not enabled for the cgroups below the root: write +%s to cgroup.subtree_control", s.Controller, s.Controller)
		}
		return f
	}
	if err != nil {
		f.Why = err.Error()
		return f
	}
	if why := p.gate(s.Gate); why != "" {
		f.State, f.Cause, f.Why = knobs.Unsupported, knobs.SwitchedOff, why
		return f
	}
	f.State, f.Why = p.try(knob, s, f.File)
	return f
}

// release returns the running kernel's release.
func (p *probe) release() string {
	text, _ := fs.ReadFile(p.host, "proc/sys/kernel/osrelease") // a synthetic host has no such file
	return strings.TrimSpace(string(text))
}

// try writes the test value and reads it back.
func (p *probe) try(knob knobs.Knob, s *Spec, file string) (knobs.Support, string) {
	if knob == knobs.IOMax {
		return p.tryThrottle()
	}
	err := p.apply(knobs.Change{Object: knobs.Object{Path: p.dir}, Knob: knob, To: s.test})
	if err != nil {
		return verdict(file+" takes no "+s.test.String(), err)
	}
	v, err := p.Read(p.dir, knob)
	if err != nil {
		return verdict(file+" can't be read", err)
	}
	if _, set := v.(knobs.CPUSet); !set && !p.Same(knob, s.test, v) {
		return knobs.Unsupported, fmt.Sprintf("%s takes %s and shows %s", file, s.test, v)
	}
	return knobs.Supported, ""
}

// tryThrottle tries the I/O limits, for which it needs a disk.
func (p *probe) tryThrottle() (knobs.Support, string) {
	names, err := fs.Glob(p.host, "sys/block/*/dev")
	if err != nil || len(names) == 0 {
		return knobs.Inconclusive, "there is no disk in /sys/block to try it on"
	}
	for _, name := range names {
		var dev []byte
		if dev, err = fs.ReadFile(p.host, name); err != nil {
			continue
		}
		want := knobs.PerDevice(strings.TrimSpace(string(dev)) + " rbps=1048576")
		if err = p.apply(knobs.Change{Object: knobs.Object{Path: p.dir}, Knob: knobs.IOMax, To: want}); err != nil {
			continue
		}
		v, err := p.Read(p.dir, knobs.IOMax)
		if err == nil && p.Same(knobs.IOMax, want, v) {
			return knobs.Supported, ""
		}
	}
	return verdict("no disk takes a limit", err)
}

// verdict judges an error: a refusal by the kernel answers the question, a lack of permission
// doesn't.
func verdict(what string, err error) (knobs.Support, string) {
	why := fmt.Sprintf("%s: %v", what, err)
	for _, errno := range []error{syscall.EINVAL, syscall.ERANGE, syscall.EOPNOTSUPP, syscall.ENOENT, syscall.ENOSYS} {
		if errors.Is(err, errno) {
			return knobs.Unsupported, why
		}
	}
	return knobs.Inconclusive, why
}

// gate says how to turn on a switch that is off; it returns "" if the switch is on or doesn't
// exist.
func (p *probe) gate(name string) string {
	if name == "" {
		return ""
	}
	text, err := fs.ReadFile(p.host, name)
	if err != nil || strings.TrimSpace(string(text)) != "0" {
		return "" // the file can't be read: writing the knob will show
	}
	return fmt.Sprintf("it is switched off: write 1 to /%s and restart Sluice", name)
}

func (p *probe) burstOverQuota() bool {
	done, err := p.fresh(p.cpu)
	if err != nil {
		return false
	}
	defer done()
	object := knobs.Object{Path: p.dir}
	over := knobs.CPUBurst(60 * time.Millisecond)
	for _, c := range []knobs.Change{{Object: object, Knob: knobs.Quota, To: quotaSpec.test}, {Object: object, Knob: knobs.Burst, To: over}} {
		if p.apply(c) != nil {
			return false
		}
	}
	v, err := p.Read(p.dir, knobs.Burst)
	return err == nil && p.Same(knobs.Burst, over, v)
}

func (p *probe) reclaim() bool {
	if p.memory == nil || !p.memory.v2 {
		return false
	}
	done, err := p.fresh(p.memory)
	if err != nil {
		return false
	}
	defer done()
	return p.memory.with(p.dir, func(c *cgroup) error {
		_, err := c.first([]string{"memory.reclaim"})
		return err
	}) == nil
}

// enabled reports whether a v2 root delegates a controller to its children. If that can't be
// read, it assumes so.
func (p *probe) enabled(h *hierarchy, controller string) bool {
	enabled := true
	err := h.with("/", func(c *cgroup) error {
		text, err := c.read("cgroup.subtree_control")
		enabled = strings.Contains(" "+text+" ", " "+controller+" ")
		return err
	})
	return enabled || err != nil
}

// fresh creates the probe's cgroup in a hierarchy; done removes it.
func (p *probe) fresh(h *hierarchy) (done func(), err error) {
	if err := p.failed[h]; err != nil {
		return nil, err
	}
	err = h.tree.Mkdir(relative(p.dir))
	if errors.Is(err, syscall.EEXIST) {
		// The cgroup is left from an earlier process with this ID: in a container it is often
		// 1.
		if err = h.remove(p.dir); err == nil {
			err = h.tree.Mkdir(relative(p.dir))
		}
	}
	if err != nil {
		p.failed[h] = fmt.Errorf("making the cgroup %s: %w; root and a writable cgroup mount are needed", p.dir, err)
		return nil, p.failed[h]
	}
	return func() {
		if err := h.remove(p.dir); err != nil {
			p.failed[h] = fmt.Errorf("removing the cgroup %s: %w", p.dir, err)
		}
	}, nil
}

func (h *hierarchy) remove(dir string) error {
	h.forget(dir)
	err := h.tree.Remove(relative(dir))
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// clear removes the cgroups of probes whose process has ended. One that can't be removed does
// no harm.
func (p *probe) clear(h *hierarchy) {
	var names []string
	err := h.with("/", func(c *cgroup) (err error) {
		names, err = c.children()
		return err
	})
	if err != nil {
		return
	}
	for _, name := range names {
		pid, ok := strings.CutPrefix(name, probePrefix)
		if _, err := strconv.ParseUint(pid, 10, 32); !ok || err != nil {
			continue
		}
		if _, err := fs.Stat(p.host, "proc/"+pid); errors.Is(err, fs.ErrNotExist) {
			h.remove(name) //nolint:errcheck // see above
		}
	}
}
