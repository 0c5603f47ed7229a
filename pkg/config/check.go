package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const maxPools = 16

// check reports mistakes that don't depend on the machine.
func (d *decoder) check(c *Config) {
	if both := cpuset.Intersect(c.Reserved, c.System); !both.IsEmpty() {
		d.fail("system", "CPUs %s are reserved too; a CPU is one or the other", both)
	}
	d.checkPools(c)
	d.checkRules(c)
	d.checkClasses(c)
	d.checkLaw(c)
	d.checkRDT(c)
	if c.RDT.MaxMBps < 0 {
		d.fail("rdt.maxMBps", "%d: must be a number of MB per second, or 0 for unknown", c.RDT.MaxMBps)
	}
	if n := c.Memory.BEPageCachePercent; n < 0 || n > 100 {
		d.fail("memory.bePageCachePercent", "%d: must be 0 to 100; 0 is no limit", n)
	}
	d.checkIOCost(&c.IOCost)
	d.globs("vmRuntimes", c.VMRuntimes)
	d.between("reserveTimeout", c.ReserveTimeout, 10*time.Second, 24*time.Hour)
	d.between("driftInterval", c.DriftInterval, 100*time.Millisecond, time.Hour)
	d.between("recordUpdates.delay", c.RecordUpdates.Delay, 100*time.Millisecond, 10*time.Minute)
	d.absolute("stateDir", c.StateDir)
	d.absolute("runtimeDir", c.RuntimeDir)
	d.absolute("statusSocket", c.StatusSocket)
	d.checkMetrics(c)
	d.checkWeb(&c.Web)
	if c.Log.File != "" && !path.IsAbs(c.Log.File) {
		d.fail("log.file", "%s: must be an absolute path, or empty for stderr", quote(c.Log.File))
	}
}

func (d *decoder) absolute(key, value string) {
	if !path.IsAbs(value) {
		d.fail(key, "%s: must be an absolute path", quote(value))
	}
}

func (d *decoder) between(key string, value, least, most time.Duration) {
	if value < least || value > most {
		d.fail(key, "%v: must be %v to %v", value, least, most)
	}
}

func (d *decoder) checkPools(c *Config) {
	if n := len(c.Pools.List); n == 0 || n > maxPools {
		d.fail("pools.list", "there are %d pools; there must be 1 to %d", n, maxPools)
		return
	}
	names := map[string]bool{}
	for i, p := range c.Pools.List {
		at := fmt.Sprintf("pools.list[%d]", i)
		if !poolName(p.Name) {
			d.fail(at+".name", "%s: must be 1 to 63 small letters, digits and '-'", quote(p.Name))
		} else if names[p.Name] {
			d.fail(at+".name", "%s is there twice", p.Name)
		}
		names[p.Name] = true
		d.checkGiven(c, at+".set", p.Set, annotation.ForPool, workload.Unclassified)
		if both := cpuset.Intersect(p.CPUs.Set, cpuset.Union(c.Reserved, c.System)); !both.IsEmpty() {
			d.fail(at+".cpus", "CPUs %s are reserved or the system's; no pool can have them", both)
		}
	}
	var taken cpuset.Set
	var rest []string
	percent := 0
	for i, p := range c.dividing() {
		at := fmt.Sprintf("pools.list[%d].cpus", i)
		if both := cpuset.Intersect(p.CPUs.Set, taken); !both.IsEmpty() {
			d.fail(at, "CPUs %s are in a pool before this one too", both)
		}
		taken = cpuset.Union(taken, p.CPUs.Set)
		percent += p.CPUs.Percent
		if p.CPUs.isRest() {
			rest = append(rest, p.Name)
		}
	}
	switch {
	case percent > 100:
		d.fail("pools.list", "the shares add up to %d%%; at most 100%% can be given", percent)
	case percent == 100 && len(rest) > 0:
		d.fail("pools.list", "the shares add up to 100%%, which leaves nothing for %s", strings.Join(rest, " and "))
	}
	if c.Pools.Mode != Overlap && len(rest) > 1 && !c.poolsFollow() {
		d.fail("pools.list", "%s have no cpus; in mode %s one pool may be the rest, the others need a size, unless the loop sets it (control.pools.mode: on)", strings.Join(rest, " and "), c.Pools.Mode)
	}
}

// dividing returns the pools that divide the CPUs among them: all pools, except that in overlap
// mode the batch pool covers the others' CPUs.
func (c *Config) dividing() []Pool {
	if c.Pools.Mode == Overlap && len(c.Pools.List) > 1 {
		return c.Pools.List[:len(c.Pools.List)-1]
	}
	return c.Pools.List
}

func poolName(name string) bool {
	return len(name) >= 1 && len(name) <= 63 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (d *decoder) checkRules(c *Config) {
	for _, def := range []struct {
		key   string
		class workload.Class
	}{{"guaranteed", c.Defaults.Guaranteed}, {"burstable", c.Defaults.Burstable}, {"besteffort", c.Defaults.BestEffort}} {
		if def.class == workload.System {
			d.fail("defaults."+def.key, "must be LSE, LSR, LS or BE: SYSTEM is for pods that a classify rule or an annotation names")
		}
	}
	for i := range c.Classify {
		rule := &c.Classify[i]
		at := fmt.Sprintf("classify[%d]", i)
		d.globs(at+".namespaces", rule.Namespaces)
		d.globs(at+".runtimeHandlers", rule.RuntimeHandlers)
		d.labels(at+".labels", rule.Labels)
		if len(rule.Set) == 0 && !d.failedBelow(at+".set.") {
			d.fail(at, "sets nothing; give it a key, as in set: {class: BE}")
		}
		d.checkGiven(c, at+".set", rule.Set, annotation.ForPods, workload.Unclassified)
	}
	for i := range c.Authorize {
		rule := &c.Authorize[i]
		at := fmt.Sprintf("authorize[%d]", i)
		d.globs(at+".namespaces", rule.Namespaces)
		d.labels(at+".labels", rule.Labels)
		if len(rule.Features) == 0 {
			d.fail(at, "allows nothing; name features: %s", strings.Join(annotation.Features(), ", "))
		}
		if len(rule.Namespaces)+len(rule.Labels) == 0 {
			d.fail(at, `is for no pod; name namespaces or labels, for all pods namespaces: ["*"]`)
		}
	}
}

// failedBelow reports whether a key with that prefix has a mistake.
func (d *decoder) failedBelow(prefix string) bool {
	return slices.ContainsFunc(d.errs, func(e Error) bool { return strings.HasPrefix(e.Key, prefix) })
}

func (d *decoder) globs(key string, patterns []string) {
	for i, pattern := range patterns {
		d.glob(fmt.Sprintf("%s[%d]", key, i), pattern)
	}
}

func (d *decoder) labels(key string, patterns map[string]string) {
	for label, pattern := range patterns {
		d.glob(key+"."+label, pattern)
	}
}

func (d *decoder) glob(key, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil {
		d.fail(key, "%s: is not a pattern; *, ? and [a-z] stand for letters, and \\ takes away their meaning", quote(pattern))
	}
}
