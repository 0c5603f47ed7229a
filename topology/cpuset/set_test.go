package cpuset

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		list string
		want Set
	}{
		{"", Set{}},
		{"\n", Set{}},
		{"0", Of(0)},
		{"0-3\n", Of(0, 1, 2, 3)},
		{" 0-1 , 63-64,4095 ", Of(0, 1, 63, 64, 4095)},
		{"3,1,2,1-2", Of(1, 2, 3)},
		{"7-7", Of(7)},
		{"16-31:2/4", Of(16, 17, 20, 21, 24, 25, 28, 29)},
		{"0-4:3/3", Of(0, 1, 2, 3, 4)},
		{"0-6:1/5", Of(0, 5)},
		{"0-4095", Range(0, 4095)},
	} {
		if got, err := Parse(test.list); err != nil || got != test.want {
			t.Errorf("Parse(%q) = %v, %v; want %v", test.list, got, err, test.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for list, why := range map[string]string{
		"x":               `"x" is not a number`,
		"-1":              `"" is not a number`,
		"1,":              `"" is not a number`,
		"1,,2":            `"" is not a number`,
		"1-":              `"" is not a number`,
		"0x10":            `"0x10" is not a number`,
		"+1":              `"+1" is not a number`,
		"4096":            "4096 is beyond the highest number, 4095",
		"0-9999999999999": `"9999999999999" is not a number`,
		"3-1":             "runs backwards",
		"3:1/2":           "first-last:used/group",
		"0-7:2":           "first-last:used/group",
		"0-7:0/2":         "used is from 1 to group",
		"0-7:3/2":         "used is from 1 to group",
		"0-7:1/0":         "used is from 1 to group",
		"0-7:x/2":         `"x" is not a number`,
	} {
		got, err := Parse(list)
		if err == nil || !strings.Contains(err.Error(), why) || got != (Set{}) {
			t.Errorf("Parse(%q) = %q, %v; want an error with %q", list, got, err, why)
		}
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		set  Set
		mask string
	}{
		{Set{}, "00000000"},
		{Range(0, 7), "000000ff"},
		{Of(31), "80000000"},
		{Of(32), "00000001,00000000"},
		{Of(0, 65), "00000002,00000000,00000001"},
		{Of(4095), "80000000" + strings.Repeat(",00000000", 127)},
	} {
		if got := test.set.Mask(); got != test.mask {
			t.Errorf("Mask of %v = %q, want %q", test.set, got, test.mask)
		}
		if got, err := ParseMask(test.mask + "\n"); err != nil || got != test.set {
			t.Errorf("ParseMask(%q) = %v, %v; want %v", test.mask, got, err, test.set)
		}
	}
	if got, err := ParseMask("f"); err != nil || got != Range(0, 3) {
		t.Errorf(`ParseMask("f") = %v, %v; want 0-3`, got, err)
	}
	for _, mask := range []string{"", "g", "0x1", "000000001", "1,,0", "-1", "1" + strings.Repeat(",0", 128)} {
		if got, err := ParseMask(mask); err == nil {
			t.Errorf("ParseMask(%q) = %v, want an error", mask, got)
		}
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	for _, cpu := range []int{-1, Max, Max + 64} {
		if Range(0, Max-1).Contains(cpu) {
			t.Errorf("the full set contains %d", cpu)
		}
		for name, f := range map[string]func(){
			"Of":     func() { _ = Of(cpu) },
			"Remove": func() { new(Set).Remove(cpu) },
			"Range":  func() { _ = Range(min(cpu, 0), max(cpu, 0)) },
		} {
			if !panics(f) {
				t.Errorf("%s with %d does not panic", name, cpu)
			}
		}
	}
	if got := Range(3, 2); !got.IsEmpty() {
		t.Errorf("Range(3, 2) = %v, want the empty set", got)
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestJSON(t *testing.T) {
	t.Parallel()
	type holder struct{ CPUs Set }
	text, err := json.Marshal(holder{Of(0, 1, 2, 9)})
	if err != nil || string(text) != `{"CPUs":"0-2,9"}` {
		t.Fatalf("Marshal = %s, %v", text, err)
	}
	var back holder
	if err := json.Unmarshal(text, &back); err != nil || back.CPUs != Of(0, 1, 2, 9) {
		t.Errorf("Unmarshal = %v, %v", back.CPUs, err)
	}
	if err := json.Unmarshal([]byte(`{"CPUs":"2-1"}`), &back); err == nil || back.CPUs != Of(0, 1, 2, 9) {
		t.Errorf("Unmarshal of a bad list = %v, %v; want an error and the old value", back.CPUs, err)
	}
}

// oracle is a slow, obviously right set.
type oracle map[int]bool

func (o oracle) set() Set { return Of(slices.Collect(maps.Keys(o))...) }

// list returns Linux' list format, built one number at a time.
func (o oracle) list() string {
	var parts []string
	for cpu := 0; cpu < Max; cpu++ {
		if !o[cpu] {
			continue
		}
		last := cpu
		for o[last+1] {
			last++
		}
		part := strconv.Itoa(cpu)
		if last > cpu {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
		cpu = last
	}
	return strings.Join(parts, ",")
}

// drawOracle draws runs of numbers, many of them at the borders of words.
func drawOracle(t *rapid.T, name string) oracle {
	o := oracle{}
	start := rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{0, 31, 32, 63, 64, 127, 128, 4031, 4032, 4095}), rapid.IntRange(0, Max-1))
	for range rapid.IntRange(0, 6).Draw(t, name+" runs") {
		first := start.Draw(t, name+" first")
		for cpu := first; cpu <= min(Max-1, first+rapid.IntRange(0, 130).Draw(t, name+" length")); cpu++ {
			o[cpu] = true
		}
	}
	return o
}

func TestAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawOracle(t, "a"), drawOracle(t, "b")
		union, both, onlyA := maps.Clone(a), oracle{}, oracle{}
		maps.Copy(union, b)
		for cpu := range a {
			if b[cpu] {
				both[cpu] = true
			} else {
				onlyA[cpu] = true
			}
		}
		sa, sb := a.set(), b.set()
		check := func(what string, got Set, want oracle) {
			if got != want.set() {
				t.Errorf("%s of %v and %v = %v, want %v", what, sa, sb, got, want.list())
			}
		}
		check("Union", Union(sa, sb), union)
		check("Intersect", Intersect(sa, sb), both)
		check("Difference", Difference(sa, sb), onlyA)

		if got := IntersectSize(sa, sb); got != len(both) {
			t.Errorf("IntersectSize = %d, want %d", got, len(both))
		}
		if got := sa.SubsetOf(sb); got != (len(onlyA) == 0) {
			t.Errorf("%v SubsetOf %v = %v", sa, sb, got)
		}
		if got := sa.Overlaps(sb); got != (len(both) > 0) {
			t.Errorf("%v Overlaps %v = %v", sa, sb, got)
		}
		if got := sa.Size(); got != len(a) {
			t.Errorf("Size of %v = %d, want %d", sa, got, len(a))
		}
		if got := sa.IsEmpty(); got != (len(a) == 0) {
			t.Errorf("IsEmpty of %v = %v", sa, got)
		}

		sorted := slices.Sorted(maps.Keys(a))
		if got := slices.Collect(sa.All()); !slices.Equal(got, sorted) {
			t.Errorf("All of %v = %v, want %v", sa, got, sorted)
		}
		first, last := -1, -1
		if len(sorted) > 0 {
			first, last = sorted[0], sorted[len(sorted)-1]
		}
		if sa.First() != first || sa.Last() != last {
			t.Errorf("First and Last of %v = %d and %d, want %d and %d", sa, sa.First(), sa.Last(), first, last)
		}
		if got := sa.String(); got != a.list() {
			t.Errorf("String = %q, want %q", got, a.list())
		}

		cpu := rapid.IntRange(0, Max-1).Draw(t, "cpu")
		if sa.Contains(cpu) != a[cpu] {
			t.Errorf("%v Contains %d = %v", sa, cpu, sa.Contains(cpu))
		}
		with, without := sa, sa
		with.Add(cpu)
		without.Remove(cpu)
		if with != Union(sa, Of(cpu)) || without != Difference(sa, Of(cpu)) {
			t.Errorf("%v with %d = %v, without = %v", sa, cpu, with, without)
		}
	})
}

func TestFormatAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOracle(t, "set")
		s := o.set()
		if got, err := Parse(o.list()); err != nil || got != s {
			t.Errorf("Parse(%q) = %v, %v", o.list(), got, err)
		}
		if got, err := ParseMask(s.Mask()); err != nil || got != s {
			t.Errorf("ParseMask(%q) = %v, %v; want %v", s.Mask(), got, err, s)
		}

		first, last := rapid.IntRange(0, Max-1).Draw(t, "first"), rapid.IntRange(0, Max-1).Draw(t, "last")
		group := rapid.IntRange(1, 70).Draw(t, "group")
		used := rapid.IntRange(1, group).Draw(t, "used")
		if first > last {
			first, last = last, first
		}
		want := oracle{}
		for cpu := first; cpu <= last; cpu++ {
			if (cpu-first)%group < used {
				want[cpu] = true
			}
		}
		list := strconv.Itoa(first) + "-" + strconv.Itoa(last) + ":" + strconv.Itoa(used) + "/" + strconv.Itoa(group)
		if got, err := Parse(list); err != nil || got != want.set() {
			t.Errorf("Parse(%q) = %v, %v; want %v", list, got, err, want.list())
		}
		whole := oracle{}
		for cpu := first; cpu <= last; cpu++ {
			whole[cpu] = true
		}
		if got := Range(first, last); got != whole.set() {
			t.Errorf("Range(%d, %d) = %v", first, last, got)
		}
	})
}

func TestAllStops(t *testing.T) {
	t.Parallel()
	var seen []int
	for cpu := range Of(1, 2, 64, 65).All() {
		seen = append(seen, cpu)
		if cpu == 64 {
			break
		}
	}
	if !slices.Equal(seen, []int{1, 2, 64}) {
		t.Errorf("saw %v, want 1, 2, 64", seen)
	}
}

func FuzzParse(f *testing.F) {
	for _, list := range []string{"", "0", "0-3,8,16-31:2/4", "4095", " 1 , 2\n", "3-1", "1-2-3", "0-4095:64/65"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := Parse(list)
		if err != nil {
			return
		}
		if back, err := Parse(s.String()); err != nil || back != s {
			t.Errorf("Parse(%q) = %q, which parses as %q, %v", list, s, back, err)
		}
	})
}

func FuzzParseMask(f *testing.F) {
	for _, mask := range []string{"", "0", "ff", "00000001,00000000", "80000000,0,0,0", "fffffffff", ","} {
		f.Add(mask)
	}
	f.Fuzz(func(t *testing.T, mask string) {
		s, err := ParseMask(mask)
		if err != nil {
			return
		}
		if back, err := ParseMask(s.Mask()); err != nil || back != s {
			t.Errorf("ParseMask(%q) = %q, which parses as %q, %v", mask, s.Mask(), back, err)
		}
	})
}
