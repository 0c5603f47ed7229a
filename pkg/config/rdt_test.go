package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

// want is the whole error, or "" for none.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"apart":                             {"rdt: {partitions: {a: {l3: 0-60%, mb: 80%}, b: {l3: 60-100%, mb: 80%}}}", ""},
		"of one level, all of the other":    {"rdt: {partitions: {a: {l3: 0-60%, l2: 0-50%}, b: {l3: 60-100%, l2: 50-100%}}}", ""},
		"of bandwidth alone":                {"rdt: {partitions: {a: {mb: 80%}, b: {}}}", ""},
		"masks apart":                       {"rdt: {partitions: {a: {l3: 0xf}, b: {l3: 0xf0}}}", ""},
		"in one cache alone":                {"rdt: {partitions: {a: {l3: '1=0-50%'}, b: {l3: '1=50-100%'}}}", ""},
		"code and data":                     {"rdt: {partitions: {a: {l3code: 0-20%, l3data: 0-40%}, b: {l3code: 40-60%, l3data: 50-100%}}}", ""},
		"overlap":                           {"rdt:\n  partitions:\n    b:\n      l3: 0-60%\n    a:\n      l3: 59-100%", "line 6: rdt.partitions.a.l3: 59-100%: overlaps the 0-60% of partition b; partitions must be apart"},
		"overlap of masks":                  {"rdt: {partitions: {a: {l2: 0xf}, b: {l2: 0x18}}}", "line 1: rdt.partitions.b.l2: 0x18: overlaps the 0xf of partition a; partitions must be apart"},
		"all beside a part":                 {"rdt:\n  partitions:\n    a: {l3: 0-60%}\n    b: {mb: 10%}", "line 4: rdt.partitions.b.l3: 0-100%: overlaps the 0-60% of partition a; partitions must be apart"},
		"overlap in one cache":              {"rdt: {partitions: {a: {l3: 0-60%}, b: {l3: '60-100%, 1=50-100%'}}}", "line 1: rdt.partitions.b.l3: 50-100%: overlaps the 0-60% of partition a; partitions must be apart"},
		"code over the other's data":        {"rdt: {partitions: {a: {l3code: 0-20%, l3data: 0-40%}, b: {l3code: 30-60%, l3data: 50-100%}}}", "line 1: rdt.partitions.b.l3: 30-60%: overlaps the 0-40% of partition a; partitions must be apart"},
		"both over the other's code":        {"rdt: {partitions: {a: {l3code: 0-20%, l3data: 0-40%}, b: {l3: 10-100%}}}", "line 1: rdt.partitions.b.l3: 10-100%: overlaps the 0-20% of partition a; partitions must be apart"},
		"a mask beside a percentage":        {"rdt: {partitions: {a: {l3: 0xf}, b: {l3: 90-100%}}}", "line 1: rdt.partitions.b.l3: 90-100%: can't be compared with the 0xf of partition a; partitions must be apart"},
		"code without data":                 {"rdt: {partitions: {a: {l3code: 0xf}}}", "line 1: rdt.partitions.a: l3code and l3data go together; give both, or l3"},
		"code and both":                     {"rdt: {partitions: {a: {l3: 0-10%, l3code: 0-10%, l3data: 0-10%}}}", "line 1: rdt.partitions.a.l3: is there beside l3code or l3data; give the first, or the two others"},
		"a partition's name":                {"rdt: {partitions: {A: {}}}", "line 1: rdt.partitions.A: must be 1 to 63 small letters, digits and '-'"},
		"a partition's partition":           {"rdt: {partitions: {a: {partition: b}}}", "line 1: rdt.partitions.a.partition: is not a key that Sluice knows; there are l2, l2code, l2data, l3, l3code, l3data, mb"},
		"a class of an unknown partition":   {"rdt:\n  partitions: {gold: {}}\n  classes:\n    be:\n      partition: gld", `line 5: rdt.classes.be.partition: "gld": is not under rdt.partitions; did you mean gold?`},
		"a class of none of the partitions": {"rdt: {partitions: {gold: {}, zinc: {}}, classes: {be: {partition: x}}}", `line 1: rdt.classes.be.partition: "x": is not under rdt.partitions; there are gold, zinc`},
		"a class without partitions":        {"rdt: {classes: {be: {partition: x}}}", `line 1: rdt.classes.be.partition: "x": is not under rdt.partitions, which has none`},
	} {
		_, err := Parse([]byte(c.text))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var list Errors
		if !errors.As(err, &list) || err.Error() != c.want {
			t.Errorf("%s:\n%v, want\n%s", name, err, c.want)
		}
	}
}

func TestRDTList(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(strings.TrimSpace(`
rdt:
  partitions: {low: {l3: "0-60%, 1=0x3", mb: 80%}}
  classes:
    be: {partition: low, l3: 0-50%, mb: 50%}
    free: {l2: 0x1}
`)))
	if err != nil {
		t.Fatal(err)
	}
	part := func(r schemata.Range) schemata.Cache { return schemata.Cache{Range: r} }
	share := func(percent int) map[int]schemata.Bandwidth {
		return map[int]schemata.Bandwidth{schemata.All: {Percent: percent}}
	}
	want := []schemata.Class{
		{
			Name: "be", L3: map[int]schemata.Cache{schemata.All: part(schemata.Range{To: 50})}, L2: map[int]schemata.Cache{}, MB: share(50),
			Partition: schemata.Partition{
				Name: "low", L2: map[int]schemata.Cache{}, MB: share(80),
				L3: map[int]schemata.Cache{schemata.All: part(schemata.Range{To: 60}), 1: part(schemata.Range{Mask: 3})},
			},
		},
		{
			Name: "free", L3: map[int]schemata.Cache{}, MB: map[int]schemata.Bandwidth{},
			L2: map[int]schemata.Cache{schemata.All: part(schemata.Range{Mask: 1})},
		},
	}
	if got := c.RDT.List(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}
