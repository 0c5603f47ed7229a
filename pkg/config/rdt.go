package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/resctrl/schemata"
)

// RDT is cache and memory bandwidth, by Intel's name; AMD and Arm have the same.
// Without classes, PerPod and Monitor nothing is done.
type RDT struct {
	Mode    RDTMode             `yaml:"mode"`
	Classes map[string]RDTClass `yaml:"classes"`
	PerPod  bool                `yaml:"perPod"`  // pods that ask for a share of their own get a group of their own
	Monitor bool                `yaml:"monitor"` // count cache occupancy and bandwidth of each container
	MaxMBps int                 `yaml:"maxMBps"` // bandwidth of one socket, for percentages where the machine counts in amounts; 0 unknown
}

// RDTMode is On, or Off: the resource groups are left alone.
type RDTMode string

// The RDT modes.
const (
	RDTOn  RDTMode = "on"
	RDTOff RDTMode = "off"
)

// UnmarshalText reads "on" or "off".
func (m *RDTMode) UnmarshalText(text []byte) error { return choose(m, text, RDTOn, RDTOff) }

// RDTClass is what the containers of a class share among them.
type RDTClass struct {
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

// UnmarshalText reads "0-30%", "0x7f", or "0-30%, 1=0x7f" with other shares for
// caches by their ids.
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

// UnmarshalText reads "85%", "5000MBps", or "85%, 1=5000MBps" with other shares
// for caches by their ids.
func (b *Bandwidth) UnmarshalText(text []byte) error {
	parsed, byID, err := byID(string(text), schemata.ParseBandwidth)
	*b = Bandwidth{All: parsed, ByID: byID}
	return err
}

// byID reads a share for all and shares for some, "ALL, ID=SHARE, ...".
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
	for name, class := range c.RDT.Classes {
		at := "rdt.classes." + name
		if !poolName(name) || name == "info" {
			d.fail(at, "must be 1 to 63 small letters, digits and '-', and not info, which is the kernel's")
		}
		for _, level := range []struct {
			key              string
			both, code, data Cache
		}{{"l3", class.L3, class.L3Code, class.L3Data}, {"l2", class.L2, class.L2Code, class.L2Data}} {
			if level.both.some() && (level.code.some() || level.data.some()) {
				d.fail(at+"."+level.key, "is there beside %scode or %sdata; give the first, or the two others", level.key, level.key)
			}
			if level.code.some() != level.data.some() {
				d.fail(at, "%[1]scode and %[1]sdata go together; give both, or %[1]s", level.key)
			}
		}
	}
}

func (c *Cache) some() bool { return c.All != schemata.Range{} || len(c.ByID) > 0 }

// rdtClasses are the names of the RDT classes.
func (c *Config) rdtClasses() []string {
	names := make([]string, 0, len(c.RDT.Classes))
	for name := range c.RDT.Classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// List is the classes as pkg/resctrl takes them, by name.
func (r *RDT) List() []schemata.Class {
	classes := make([]schemata.Class, 0, len(r.Classes))
	for _, name := range slices.Sorted(maps.Keys(r.Classes)) {
		c := r.Classes[name]
		classes = append(classes, schemata.Class{
			Name: name,
			L3:   caches(c.L3, c.L3Code, c.L3Data),
			L2:   caches(c.L2, c.L2Code, c.L2Data),
			MB:   c.MB.byCache(),
		})
	}
	return classes
}

// caches joins what is said of a level for both, for code and for data.
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
