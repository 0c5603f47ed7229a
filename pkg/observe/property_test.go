package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func durations(most time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(0, int64(most)), func(n int64) time.Duration { return time.Duration(n) })
}

// randomReading draws any reading: counters that jump back and forth, missing parts, CPUs and
// containers that come and go.
func randomReading(t *rapid.T, mono time.Duration) Reading {
	r := Reading{Mono: mono, Wall: start().Add(durations(time.Hour).Draw(t, "wall"))}
	some := func() time.Duration {
		if rapid.Bool().Draw(t, "read") {
			return mono
		}
		return 0
	}
	total := func() time.Duration { return durations(1<<50).Draw(t, "total") }
	number := func() int64 { return rapid.Int64Range(0, 1<<50).Draw(t, "number") }
	psi := func() PressureTotals {
		return PressureTotals{some(), Stall{total(), 0}, Stall{total(), 0}, Stall{total(), 0}, Stall{total(), 0}, Stall{total(), 0}}
	}
	r.CPU.Mono, r.Pressure = some(), psi()
	r.Memory = MemoryCounters{Mono: some(), DirectScans: number(), SwapWritten: number(), Nodes: make([]NUMACounters, rapid.IntRange(0, 2).Draw(t, "nodes"))}
	for range rapid.IntRange(0, 4).Draw(t, "cpus") {
		r.CPU.CPUs = append(r.CPU.CPUs, CPUTime{rapid.Bool().Draw(t, "online"), total(), total(), total(), total()})
	}
	for range rapid.IntRange(0, 4).Draw(t, "containers") {
		r.Containers = append(r.Containers, ContainerReading{
			ID: fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "id")), CPU: CPUCounters{some(), total()},
			Throttling: ThrottlingCounters{some(), number(), number(), total()}, Pressure: psi(),
			RunDelay: DelayCounter{some(), total()}, Memory: ContainerMemoryCounters{some(), number(), number(), number(), number(), number(), number(), number()},
			Swap: SwapCounters{some(), number(), number()}, IO: IOCounters{some(), number(), number()}, Cache: CacheCounters{Mono: some(), Occupancy: number(), L3s: []L3{{TotalBytes: number(), LocalBytes: number()}}},
		})
	}
	return r
}

// readAgain draws a reading of the containers of a snapshot, some of which were read.
func readAgain(t *rapid.T, s *Snapshot, mono time.Duration) Reading {
	r := randomReading(t, mono+1)
	drawn := r.Containers
	r.Same, r.Containers = true, nil
	for i, c := range s.Containers {
		r.Containers = append(r.Containers, ContainerReading{ID: c.ID})
		if i < len(drawn) {
			r.Containers[i], r.Read = drawn[i], append(r.Read, i)
			r.Containers[i].ID = c.ID
		}
	}
	return r
}

// nonNegative returns an error if a snapshot has a number that is negative or NaN.
func nonNegative(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Float64:
		if f := v.Float(); f < 0 || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%v", f)
		}
	case reflect.Int64:
		if v.Int() < 0 {
			return fmt.Errorf("%d", v.Int())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := nonNegative(v.Index(i)); err != nil {
				return fmt.Errorf("[%d]%w", i, err)
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for i := range v.NumField() {
			if err := nonNegative(v.Field(i)); err != nil {
				return fmt.Errorf(".%s %w", v.Type().Field(i).Name, err)
			}
		}
	}
	return nil
}

func TestNoReadingGivesAbsurdRates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m Meter
		var s Snapshot
		mono := time.Second
		for range rapid.IntRange(1, 8).Draw(t, "looks") {
			mono += durations(100*time.Second).Draw(t, "step") - time.Millisecond
			r := randomReading(t, mono)
			older := mono < m.mono
			again := !older && rapid.Bool().Draw(t, "again")
			m.Observe(&r, &s)
			if again {
				r = readAgain(t, &s, mono)
				m.Observe(&r, &s)
			}
			if err := nonNegative(reflect.ValueOf(s)); err != nil {
				t.Fatal(err)
			}
			var busy float64
			for _, c := range s.CPUs {
				busy += c.Busy
				if c.Busy > 1 {
					t.Fatalf("a CPU is %v busy", c.Busy)
				}
			}
			if math.Abs(busy*1000-float64(s.Node.CPU.Usage)) > 0.51 {
				t.Fatalf("the CPUs are %v busy, the node uses %v", busy, s.Node.CPU.Usage)
			}
			seen := map[string]bool{}
			var order []string // of the reading, each container once
			for i := range r.Containers {
				if id := r.Containers[i].ID; !slices.Contains(order, id) {
					order = append(order, id)
				}
			}
			for i, c := range s.Containers {
				if !older && (i >= len(order) || c.ID != order[i]) {
					t.Fatalf("container %d is %s, want the order %q", i, c.ID, order)
				}
				if seen[c.ID] || max(c.Pressure.CPU, c.Pressure.IO, c.Pressure.Memory) > 1 {
					t.Fatalf("container %+v", c)
				}
				seen[c.ID] = true
			}
			if len(m.byID) != len(s.Containers) {
				t.Fatalf("%d containers are remembered, of %d", len(m.byID), len(s.Containers))
			}
			recorded(t, s)
		}
	})
}

// recorded fails the test if a snapshot changes when it is recorded and read.
func recorded(t *rapid.T, s Snapshot) {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Snapshot
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(text) {
		t.Fatalf("%s\nis %s", text, again)
	}
	for i := range s.Containers {
		if !reflect.DeepEqual(back.Containers[i], s.Containers[i]) {
			t.Fatalf("got %+v, want %+v", back.Containers[i], s.Containers[i])
		}
	}
}

// TestSomeReadings lets a meter observe readings of which it knows what was read, and another one the same readings
// without knowing.
func TestSomeReadings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var some, whole Meter
		var got, want, before Snapshot
		mono := time.Second
		r := randomReading(t, mono)
		for range rapid.IntRange(1, 8).Draw(t, "looks") {
			some.Observe(&r, &got)
			r.Same = false
			whole.Observe(&r, &want)
			if got.Changes.Number != before.Changes.Number+1 {
				t.Fatalf("snapshot %d follows %d", got.Changes.Number, before.Changes.Number)
			}
			for i, c := range before.Containers {
				if got.Changes.Partial && !slices.Contains(got.Changes.Containers, i) && !reflect.DeepEqual(got.Containers[i], c) {
					t.Fatalf("container %d has changed", i)
				}
			}
			before = got
			before.Containers = slices.Clone(got.Containers)
			got.Changes, want.Changes = Changes{}, Changes{}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\nwant %+v", got, want)
			}
			mono += durations(20*time.Second).Draw(t, "step") - time.Millisecond
			wall := r.Wall
			if rapid.Bool().Draw(t, "again") {
				r = readAgain(t, &got, mono)
			} else {
				r = randomReading(t, mono)
			}
			if rapid.Bool().Draw(t, "clock") {
				r.Wall = wall.Add(time.Second)
			}
		}
	})
}
