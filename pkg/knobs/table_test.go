package knobs

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// Each knob has every required property, and a unique name.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)+$`)
	names := map[string]Knob{}
	fields := map[RuntimeField]Knob{}
	for k := range Knobs {
		p := &table[k]
		if !name.MatchString(p.name) || p.kind == nil || p.levels == 0 || p.slow == 0 {
			t.Errorf("knob %d is described as %+v", k, *p)
			continue
		}
		if other, taken := names[p.name]; taken {
			t.Errorf("knobs %d and %d are both %s", other, k, p.name)
		}
		names[p.name] = k
		if p.runtime == NoField || p.runtime == UnifiedField {
			continue
		}
		if other, taken := fields[p.runtime]; taken {
			t.Errorf("%s and %s go into one field of the runtime's", other, k)
		}
		fields[p.runtime] = k
	}
	for field := CPUsField; field < UnifiedField; field++ {
		if _, taken := fields[field]; !taken {
			t.Errorf("no knob goes into the runtime's field %d", field)
		}
	}
}

// Properties that depend on each other agree.
func TestTableIsConsistent(t *testing.T) {
	t.Parallel()
	for k := range Knobs {
		p := &table[k]
		if p.slow == whenLowered && p.kind != amount {
			t.Errorf("%s is slow when lowered, and is no amount of memory", k)
		}
		if p.priority != 0 && p.kind != number {
			t.Errorf("%s is a CPU priority, and no number", k)
		}
		if (p.groupIdentity || p.expels) && p.priority != moreIsHigher {
			t.Errorf("%s keeps others away at -1, and is no CPU priority that is lowest there", k)
		}
		if p.deferred && !p.kubelet {
			t.Errorf("%s is left to the kubelet, which doesn't write it", k)
		}
		if k.Recorded() && !k.SetAt(ContainerLevel) {
			t.Errorf("%s is in the runtime's record of containers, and isn't set in them", k)
		}
	}
}

// A knob accepts values of its own kind only.
func TestKnobsTakeTheirOwnValues(t *testing.T) {
	t.Parallel()
	all := []Value{CPUSet{}, CPUQuota{}, CPUBurst(0), Shares(0), Bytes(0), Number(0), PerDevice(""), SameIO}
	rapid.Check(t, func(t *rapid.T) {
		k := Knob(rapid.IntRange(0, int(Knobs)-1).Draw(t, "knob"))
		if !k.Takes(drawValue(t, k)) {
			t.Fatalf("%s does not take a value of its own", k)
		}
	})
	for k := range Knobs {
		taken := 0
		for _, v := range all {
			if k.Takes(v) {
				taken++
			}
		}
		if taken != 1 || k.Takes(nil) {
			t.Errorf("%s takes values of %d types, and none at all: %t", k, taken, k.Takes(nil))
		}
	}
}

func TestMayTakeLong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change Change
		want   bool
	}{
		"CPUs":                   {Change{Knob: CPUs, To: CPUSet{}}, false},
		"memory nodes":           {Change{Knob: Mems, To: CPUSet{}}, true},
		"a weight":               {Change{Knob: Weight, To: Shares(2)}, false},
		"I/O limits":             {Change{Knob: IOMax, To: PerDevice("")}, true},
		"a lower amount":         {Change{Knob: MemoryHigh, From: Bytes(200), To: Bytes(100)}, true},
		"a first limit":          {Change{Knob: MemoryHigh, From: Max, To: Bytes(100)}, true},
		"a higher amount":        {Change{Knob: MemoryHigh, From: Bytes(100), To: Bytes(200)}, false},
		"the same amount":        {Change{Knob: MemoryHigh, From: Bytes(100), To: Bytes(100)}, false},
		"no limit any more":      {Change{Knob: MemoryHigh, From: Bytes(100), To: Max}, false},
		"no limit as before":     {Change{Knob: MemoryHigh, From: Max, To: Max}, false},
		"from an unknown amount": {Change{Knob: MemoryHigh, To: Bytes(200)}, true},
		"less protection":        {Change{Knob: MemoryMin, From: Bytes(200), To: Bytes(100)}, false},
	} {
		if got := test.change.MayTakeLong(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
