package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

// RDT is cache and memory bandwidth, by Intel's name; AMD and Arm have the same.
// Without classes, PerPod and Monitor nothing is done.
type RDT struct {
	Mode       RDTMode             `yaml:"mode"`       // Off leaves cache and memory bandwidth alone.
	Partitions map[string]RDTShare `yaml:"partitions"` // Shares by name, for classes to divide.
	Classes    map[string]RDTClass `yaml:"classes"`    // Shares by name, for the annotation rdt-class.
	PerPod     bool                `yaml:"perPod"`     // Pods may ask for a share of their own.
	Monitor    bool                `yaml:"monitor"`    // Measure the cache occupancy and memory bandwidth of each container.
	MaxMBps    int                 `yaml:"maxMBps"`    // Memory bandwidth of the CPUs of one L3 cache, for percentages if the machine counts in amounts (AMD, mba_MBps); 0 is unknown.
}

// RDTMode is On, or Off: the resource groups are left alone.
type RDTMode string

// These modes of RDT are supported.
const (
	RDTOn  RDTMode = "on"
	RDTOff RDTMode = "off"
)

// UnmarshalText reads "on" or "off".
func (m *RDTMode) UnmarshalText(text []byte) error { return choose(m, text, RDTOn, RDTOff) }

// RDTClass is what the containers of a class share among them.
type RDTClass struct {
	Partition string `yaml:"partition"` // what the share is a part of; "" the machine
	RDTShare  `yaml:",inline"`
}

// RDTShare is a share of caches and memory bandwidth.
type RDTShare struct {
	L3     Cache     `yaml:"l3"`
	L3Code Cache     `yaml:"l3code"` // in place of L3, where code and data are apart (CDP)
	L3Data Cache     `yaml:"l3data"`
	L2     Cache     `yaml:"l2"`
	L2Code Cache     `yaml:"l2code"`
	L2Data Cache     `yaml:"l2data"`
	MB     Bandwidth `yaml:"mb"`
}

// Cache is a part of each cache of a level. The zero value is all of them.
type Cache struct {
	All  schemata.Range
	ByID map[int]schemata.Range // of the caches with these ids, in place of All
}

// UnmarshalText reads "0-30%", "0x7f", or "0-30%, 1=0x7f", where some caches have other shares,
// by their IDs.
func (c *Cache) UnmarshalText(text []byte) error {
	parsed, byID, err := byID(string(text), schemata.ParseRange)
	*c = Cache{All: parsed, ByID: byID}
	return err
}

// Bandwidth is memory bandwidth. The zero value is all.
type Bandwidth struct {
	All  schemata.Bandwidth
	ByID map[int]schemata.Bandwidth // of the L3 caches with these ids, in place of All
}

// UnmarshalText reads "85%", "5000MBps", or "85%, 1=5000MBps", where some caches have other
// shares, by their IDs.
func (b *Bandwidth) UnmarshalText(text []byte) error {
	parsed, byID, err := byID(string(text), schemata.ParseBandwidth)
	*b = Bandwidth{All: parsed, ByID: byID}
	return err
}

// byID reads a share for all and shares for some IDs: "ALL, ID=SHARE, ...".
func byID[T any](text string, parse func(string) (T, error)) (all T, some map[int]T, err error) {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		id, share, single := strings.Cut(part, "=")
		if !single {
			if i > 0 {
				return all, nil, fmt.Errorf("%s: after the first comes ID=SHARE for the cache of that id", quote(part))
			}
			all, err = parse(part)
		} else {
			var n uint64
			if n, err = strconv.ParseUint(id, 10, 16); err != nil {
				return all, nil, fmt.Errorf("%s: must be the number of a cache", quote(id))
			}
			if _, twice := some[int(n)]; twice {
				return all, nil, fmt.Errorf("cache %d is there twice", n)
			}
			if some == nil {
				some = map[int]T{}
			}
			some[int(n)], err = parse(share)
		}
		if err != nil && len(parts) > 1 {
			err = fmt.Errorf("%s: %w", quote(part), err)
		}
		if err != nil {
			return all, nil, err
		}
	}
	return all, some, nil
}

const maxRDTClasses = 64

func (d *decoder) checkRDT(c *Config) {
	if n := len(c.RDT.Classes); n > maxRDTClasses {
		d.fail("rdt.classes", "there are %d classes; there can be %d at most", n, maxRDTClasses)
	}
	partitions := slices.Sorted(maps.Keys(c.RDT.Partitions))
	for name, class := range c.RDT.Classes {
		at := "rdt.classes." + name
		if !poolName(name) || name == "info" {
			d.fail(at, "must be 1 to 63 small letters, digits and '-', and not info, which is the kernel's")
		}
		if _, ok := c.RDT.Partitions[class.Partition]; !ok && class.Partition != "" {
			d.fail(at+".partition", "%s: is not under rdt.partitions%s", quote(class.Partition), known(class.Partition, partitions))
		}
		d.checkRDTShare(at, &class.RDTShare)
	}
	for i, name := range partitions {
		at, share := "rdt.partitions."+name, c.RDT.Partitions[name]
		if !poolName(name) {
			d.fail(at, "must be 1 to 63 small letters, digits and '-'")
		}
		d.checkRDTShare(at, &share)
		for _, other := range partitions[:i] {
			d.checkApart(c, other, name)
		}
	}
}

// checkRDTShare reports settings that exclude each other.
func (d *decoder) checkRDTShare(at string, share *RDTShare) {
	for _, level := range share.levels() {
		if level.both.some() && (level.code.some() || level.data.some()) {
			d.fail(at+"."+level.key, "is there beside %scode or %sdata; give the first, or the two others", level.key, level.key)
		}
		if level.code.some() != level.data.some() {
			d.fail(at, "%[1]scode and %[1]sdata go together; give both, or %[1]s", level.key)
		}
	}
}

// checkApart reports ways that two partitions have in common. Code and data share one cache.
func (d *decoder) checkApart(c *Config, one, other string) {
	if d.lines["rdt.partitions."+one] > d.lines["rdt.partitions."+other] {
		one, other = other, one
	}
	first, second := c.RDT.Partitions[one], c.RDT.Partitions[other]
	levels := first.levels()
	for i, level := range second.levels() {
		at := "rdt.partitions." + other + "." + level.key
		text := overlap(levels[i], level)
		if text != "" {
			d.fail(at, "%s of partition %s; partitions must be apart", text, one)
		}
	}
}

// overlap describes the first ranges of two partitions that have ways in common; it returns ""
// if none have. A cache for which neither partition has a share is no conflict.
func overlap(one, other level) string {
	ids := map[int]bool{schemata.All: true}
	for _, c := range []Cache{one.both, one.code, one.data, other.both, other.code, other.data} {
		for id := range c.ByID {
			ids[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		for _, a := range other.ranges(id) {
			for _, b := range one.ranges(id) {
				all := schemata.Range{}
				switch {
				case a == all && b == all || !a.Overlaps(b):
				case a != all && b != all && (a.Mask == 0) != (b.Mask == 0):
					return fmt.Sprintf("%s: can't be compared with the %s", a, b)
				default:
					return fmt.Sprintf("%s: overlaps the %s", a, b)
				}
			}
		}
	}
	return ""
}

// level is a partition's share of one level of caches.
type level struct {
	key              string
	both, code, data Cache
}

func (s *RDTShare) levels() []level {
	return []level{{"l3", s.L3, s.L3Code, s.L3Data}, {"l2", s.L2, s.L2Code, s.L2Data}}
}

// ranges returns the shares of one cache.
func (l *level) ranges(id int) []schemata.Range {
	if l.code.some() {
		return []schemata.Range{l.code.of(id), l.data.of(id)}
	}
	return []schemata.Range{l.both.of(id)}
}

func (c *Cache) of(id int) schemata.Range {
	if part, ok := c.ByID[id]; ok {
		return part
	}
	return c.All
}

func (c *Cache) some() bool { return c.All != schemata.Range{} || len(c.ByID) > 0 }

// rdtClasses returns the names of the RDT classes.
func (c *Config) rdtClasses() []string {
	names := make([]string, 0, len(c.RDT.Classes))
	for name := range c.RDT.Classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// List returns the classes in the form of pkg/kernel/resctrl, sorted by name.
func (r *RDT) List() []schemata.Class {
	classes := make([]schemata.Class, 0, len(r.Classes))
	for _, name := range slices.Sorted(maps.Keys(r.Classes)) {
		c := r.Classes[name]
		class := schemata.Class{Name: name, L3: c.l3(), L2: c.l2(), MB: c.MB.byCache()}
		if p, ok := r.Partitions[c.Partition]; ok {
			class.Partition = schemata.Partition{Name: c.Partition, L3: p.l3(), L2: p.l2(), MB: p.MB.byCache()}
		}
		classes = append(classes, class)
	}
	return classes
}

func (s *RDTShare) l3() map[int]schemata.Cache { return caches(s.L3, s.L3Code, s.L3Data) }

func (s *RDTShare) l2() map[int]schemata.Cache { return caches(s.L2, s.L2Code, s.L2Data) }

// caches joins the shares of a level for both, for code and for data.
func caches(both, code, data Cache) map[int]schemata.Cache {
	joined := map[int]schemata.Cache{}
	each := func(c Cache, set func(*schemata.Cache, schemata.Range)) {
		if !c.some() {
			return
		}
		shares := maps.Clone(c.ByID)
		if shares == nil {
			shares = map[int]schemata.Range{}
		}
		shares[schemata.All] = c.All
		for id, share := range shares {
			part := joined[id]
			set(&part, share)
			joined[id] = part
		}
	}
	each(both, func(to *schemata.Cache, share schemata.Range) { to.Range = share })
	each(code, func(to *schemata.Cache, share schemata.Range) { to.Code = share })
	each(data, func(to *schemata.Cache, share schemata.Range) { to.Data = share })
	return joined
}

func (b *Bandwidth) byCache() map[int]schemata.Bandwidth {
	limits := map[int]schemata.Bandwidth{}
	maps.Copy(limits, b.ByID)
	if (b.All != schemata.Bandwidth{}) {
		limits[schemata.All] = b.All
	}
	return limits
}
