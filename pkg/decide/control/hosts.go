package control

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// HostApplication is batch work of the node outside of pods, such as a YARN NodeManager with its
// containers, or a systemd unit. It is known by the cgroup that holds all its processes.
type HostApplication struct {
	Name         string        `yaml:"name"`         // Name in reports: 1 to 63 small letters, digits and '-'.
	Cgroup       string        `yaml:"cgroup"`       // Path of its cgroup below the mount of each controller, for example /hadoop-yarn.
	CPU          CPUs          `yaml:"cpu"`          // CPU by which it is weighed among batch work, like the grant of a pod; 0 is one CPU.
	Tier         workload.Tier `yaml:"tier"`         // Its tier among batch work: mid, batch or free.
	OfferPercent int           `yaml:"offerPercent"` // Its part of what the node offers to batch work, in percent; pods are offered the rest.
	File         string        `yaml:"file"`         // Absolute path of the file that tells the application what it may use; empty for none.
}

// Weight is its weight among batch work.
func (a *HostApplication) Weight() int64 {
	cpu := workload.MilliCPU(a.CPU)
	if cpu == 0 {
		cpu = 1000
	}
	return a.Tier.Weight(cpu, 0)
}

var (
	hostApplicationName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	// everyonesCgroups hold the services that keep a node alive, such as the kubelet, the container
	// runtime and this plugin.
	everyonesCgroups = []string{"/", "/system.slice", "/user.slice", "/machine.slice", "/init.scope"}
)

// CheckHostApplications returns what is wrong in a list of host applications.
func CheckHostApplications(apps []HostApplication) (all []Problem) {
	offered := 0
	for i := range apps {
		a := &apps[i]
		fail := func(key, format string, args ...any) {
			all = append(all, Problem{fmt.Sprintf("[%d].%s", i, key), fmt.Sprintf(format, args...)})
		}
		if !hostApplicationName.MatchString(a.Name) {
			fail("name", "%.80q: must be 1 to 63 small letters, digits and '-'", a.Name)
		}
		switch {
		case !path.IsAbs(a.Cgroup) || path.Clean(a.Cgroup) != a.Cgroup:
			fail("cgroup", "%.200q: must be the path below the mount of the cgroup file system, with a '/' before it and none after it, such as /hadoop-yarn", a.Cgroup)
		case slices.Contains(everyonesCgroups, a.Cgroup):
			fail("cgroup", "%s holds other services of the node too; name the cgroup that holds the application alone, such as /system.slice/hadoop-nodemanager.service", a.Cgroup)
		case strings.Contains(a.Cgroup, "kubepods"):
			fail("cgroup", "%.200q is the kubelet's: its pods are batch work by their annotations, labels or QoS class", a.Cgroup)
		}
		if a.OfferPercent < 0 || a.OfferPercent > 100 {
			fail("offerPercent", "%d: must be 0 to 100", a.OfferPercent)
		}
		if a.File != "" && (!path.IsAbs(a.File) || path.Clean(a.File) != a.File || a.File == "/") {
			fail("file", "%.200q: must be the absolute path of a file, without '..', '//' or a '/' behind it, or empty for none", a.File)
		}
		for j := range apps[:i] {
			b := &apps[j]
			switch {
			case a.Name == b.Name:
				fail("name", "%s is there twice", a.Name)
			case IsWithin(a.Cgroup, b.Cgroup) || IsWithin(b.Cgroup, a.Cgroup):
				fail("cgroup", "%.200q and the cgroup of %s, %.200q, hold the same processes", a.Cgroup, b.Name, b.Cgroup)
			case a.File != "" && a.File == b.File:
				fail("file", "%.200q is the file of %s too", a.File, b.Name)
			}
		}
		offered += a.OfferPercent
	}
	if offered > 100 {
		all = append(all, Problem{"", fmt.Sprintf("the parts of the offer (offerPercent) add up to %d percent; at most 100 can be given", offered)})
	}
	return all
}

// IsWithin reports whether a cgroup is another one or below it.
func IsWithin(cgroup, other string) bool {
	return cgroup == other || strings.HasPrefix(cgroup, strings.TrimSuffix(other, "/")+"/")
}

// HostUse is what a host application uses, with what the configuration says about it.
type HostUse struct {
	*HostApplication
	CPU    Use  // its time is zero if it is unknown
	Memory Held // zero where its memory is not part of what View.Node counts
}

// use returns the CPU and memory that the application is known to use.
func (u *HostUse) use(v *View, interval time.Duration) (use Amount) {
	if known(v.Now, u.CPU.At, interval) {
		use.CPU = u.CPU.Usage
	}
	if knownSlowly(v.Now, u.Memory.At, interval) {
		use.MemoryBytes = u.Memory.NonCache()
	}
	return use
}

// LeftToBatch returns what a window or the switch, and bounds on waiting, leave batch work of an amount
// of CPU.
func (v *View) LeftToBatch(cpu workload.MilliCPU) workload.MilliCPU {
	if v.Batch.Squeeze {
		cpu = perCent(cpu, v.Batch.Percent)
	}
	return v.Share.of(cpu)
}

// PartOf returns what a host application may use of all that the node offers to batch work.
func (a *HostApplication) PartOf(all Amount) Amount {
	return Amount{perCent(all.CPU, a.OfferPercent), all.MemoryBytes / 100 * int64(a.OfferPercent)}
}
