package sim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tree returns a root with a sharer's entities below it.
func tree(cells []float64, entities ...entity) *sharer {
	s := &sharer{entities: append([]entity{{parent: -1, weight: 1, limit: math.Inf(1)}}, entities...)}
	p := part{}
	for _, n := range cells {
		p.cells = append(p.cells, cell{cpus: n})
	}
	s.parts = []part{p}
	s.arrange()
	return s
}

func leafOf(parent int, weight, want float64, cells uint64) entity {
	return entity{parent: parent, weight: weight, limit: math.Inf(1), leaf: true, cells: cells, want: want}
}

func groupOf(parent int, weight, limit float64) entity {
	return entity{parent: parent, weight: weight, limit: limit}
}

func TestShares(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, test := range []struct {
		name string
		s    *sharer
		want []float64 // of the containers
	}{
		{"enough for all", tree([]float64{8}, leafOf(0, 1, 3, 1), leafOf(0, 9, 4, 1)), []float64{3, 4}},
		{"by weight", tree([]float64{8}, leafOf(0, 1, 10, 1), leafOf(0, 3, 10, 1)), []float64{2, 6}},
		{"what one leaves", tree([]float64{8}, leafOf(0, 1, 10, 1), leafOf(0, 3, 4, 1)), []float64{4, 4}},
		{"groups before their members", tree([]float64{8}, groupOf(0, 1, inf), groupOf(0, 1, inf),
			leafOf(1, 1, 9, 1), leafOf(1, 1, 9, 1), leafOf(2, 1, 9, 1)), []float64{2, 2, 4}},
		{"what a member leaves stays in its group", tree([]float64{8}, groupOf(0, 1, inf), groupOf(0, 1, inf),
			leafOf(1, 1, 1, 1), leafOf(1, 1, 9, 1), leafOf(2, 1, 9, 1)), []float64{1, 3, 4}},
		{"a group's quota", tree([]float64{8}, groupOf(0, 1, 2), leafOf(1, 1, 9, 1), leafOf(1, 3, 9, 1), leafOf(0, 1, 9, 1)), []float64{0.5, 1.5, 6}},
		{"apart", tree([]float64{4, 4}, leafOf(0, 1, 9, 1), leafOf(0, 9, 1, 2)), []float64{4, 1}},
		{"one beside, one on both", tree([]float64{4, 4}, leafOf(0, 1, 9, 1), leafOf(0, 1, 9, 3)), []float64{4, 4}},
		{"a wide one gives way", tree([]float64{2, 6}, leafOf(0, 1, 9, 1), leafOf(0, 1, 4, 3), leafOf(0, 1, 9, 2)), []float64{2, 3, 3}},
	} {
		test.s.divide()
		at := 0
		for _, e := range test.s.entities {
			if e.leaf {
				if math.Abs(e.got-test.want[at]) > 1e-6 {
					t.Errorf("%s: container %d got %g, want %g", test.name, at, e.got, test.want[at])
				}
				at++
			}
		}
	}
}

// A group whose containers run on different CPUs has on each the weight of the containers there.
func TestGroupApart(t *testing.T) {
	t.Parallel()
	s := tree([]float64{8}, groupOf(0, 12, math.Inf(1)), leafOf(1, 2, 9, 1), leafOf(1, 1, 9, 1), leafOf(0, 4, 9, 1))
	s.entities[2].part = 1
	s.parts = append(s.parts, part{cells: []cell{{cpus: 8}}})
	s.arrange()
	s.divide()
	for i, want := range []float64{8, 4, 4} {
		if got := s.entities[2+i].got; math.Abs(got-want) > 1e-6 {
			t.Errorf("container %d got %g, want %g", i, got, want)
		}
	}
}

// could is what a satisfied container would get if it wanted all.
func TestCould(t *testing.T) {
	t.Parallel()
	s := tree([]float64{8}, leafOf(0, 3, 1, 1), leafOf(0, 1, 20, 1))
	s.divide()
	if got := s.entities[1].could; math.Abs(got-6) > 1.2 {
		t.Errorf("with three quarters of the weight of 8 CPUs it could have %g, want about 6", got)
	}
}

// drawTree draws up to three groups with containers on up to four cells.
func drawTree(t *rapid.T) *sharer {
	n := rapid.IntRange(1, 4).Draw(t, "cells")
	var cells []float64
	for range n {
		cells = append(cells, float64(rapid.IntRange(1, 16).Draw(t, "cpus")))
	}
	var entities []entity
	groups := rapid.IntRange(0, 3).Draw(t, "groups")
	limit := rapid.OneOf(rapid.Just(math.Inf(1)), rapid.Float64Range(0.01, 20))
	weight := rapid.Float64Range(0.1, 1000)
	for range groups {
		entities = append(entities, groupOf(rapid.IntRange(0, len(entities)).Draw(t, "parent"), weight.Draw(t, "weight"), limit.Draw(t, "limit")))
	}
	for range rapid.IntRange(1, 12).Draw(t, "containers") {
		e := leafOf(rapid.IntRange(0, groups).Draw(t, "parent"), weight.Draw(t, "weight"), rapid.Float64Range(0, 30).Draw(t, "want"), uint64(rapid.IntRange(1, 1<<n-1).Draw(t, "where")))
		e.limit = limit.Draw(t, "limit")
		entities = append(entities, e)
	}
	return tree(cells, entities...)
}

func wants(s *sharer) []float64 {
	all := make([]float64, len(s.entities))
	for i := range s.entities {
		all[i] = s.entities[i].want
	}
	return all
}

const slack = 1e-5

// No CPU is used twice, no container gets more than it wants or its quotas allow, and none that
// wants more leaves a CPU idle that it may use.
func TestShareRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawTree(t)
		want := wants(s)
		s.divide()
		sums := make([]float64, len(s.entities))
		for i := len(s.entities) - 1; i >= 0; i-- {
			e := &s.entities[i]
			if e.leaf {
				sums[i] = e.got
				if e.got > want[i]+slack {
					t.Fatalf("container %d got %g of %g", i, e.got, want[i])
				}
			}
			if sums[i] > e.limit+slack {
				t.Fatalf("cgroup %d got %g beside a quota of %g", i, sums[i], e.limit)
			}
			if e.parent >= 0 {
				sums[e.parent] += sums[i]
			}
		}
		used, all := 0.0, 0.0
		for i, c := range s.parts[0].cells {
			used += c.used
			all += c.cpus
			if c.used > c.cpus+slack {
				t.Fatalf("cell %d has %g CPUs, %g are used", i, c.cpus, c.used)
			}
		}
		if sums[0] > all+slack || used > sums[0]+slack {
			t.Fatalf("%g CPUs handed out of %g, %g used", sums[0], all, used)
		}
		for i := range s.parts {
			for _, u := range s.parts[i].unions {
				sum := 0.0
				for _, e := range s.entities {
					if e.leaf && e.cells&^u.cells == 0 {
						sum += e.got
					}
				}
				if sum > u.cpus+slack {
					t.Fatalf("cells %b have %g CPUs and their containers %g", u.cells, u.cpus, sum)
				}
			}
		}
	})
}

// Of two containers that differ only in weight, the heavier gets no less. A container that wants
// more gets no less than before.
func TestShareIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawTree(t)
		s.divide()
		before := make([]float64, len(s.entities))
		want := make([]float64, len(s.entities))
		var leaves []int
		for i := range s.entities {
			before[i], want[i] = s.entities[i].got, s.entities[i].want
			if s.entities[i].leaf {
				leaves = append(leaves, i)
			}
		}
		one := rapid.SampledFrom(leaves).Draw(t, "one")
		s.entities[one].want += rapid.Float64Range(0, 10).Draw(t, "more")
		s.divide()
		if got := s.entities[one].got; got < before[one]-slack {
			t.Fatalf("container %d wants more and got %g instead of %g", one, got, before[one])
		}

		twin := s.entities[one]
		light := tree([]float64{4}, leafOf(0, twin.weight, 9, 1), leafOf(0, twin.weight*2, 9, 1))
		light.divide()
		if light.entities[1].got > light.entities[2].got {
			t.Fatalf("the lighter got %g, the heavier %g", light.entities[1].got, light.entities[2].got)
		}
	})
}

// If all containers may use all CPUs, dividing from the root down gives the same as progressive
// filling.
func TestFillFromRootIsFill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawTree(t)
		for i := range s.entities {
			s.entities[i].cells = 1
		}
		s.arrange()
		p := &s.parts[0]
		s.bound()
		if s.fits(p) {
			t.Skip("all have what they want")
		}
		s.fillFromRoot(p)
		poured := slices.Clone(s.entities)
		for i := range s.entities {
			s.entities[i].got, s.entities[i].could = 0, 0
		}
		s.fill(p)
		for i, e := range s.entities {
			if e.leaf && math.Abs(e.got-poured[i].got) > slack {
				t.Fatalf("container %d got %g, by filling %g", i, poured[i].got, e.got)
			}
		}
	})
}

// could equals what a container gets when it wants all.
func TestCouldIsWhatWantingAllGives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawTree(t)
		for i := range s.entities {
			s.entities[i].cells, s.entities[i].limit = 1, math.Inf(1)
		}
		s.arrange()
		s.divide()
		for i := range s.entities {
			e := &s.entities[i]
			if !e.leaf || e.want == 0 {
				continue
			}
			enough := s.fits(&s.parts[0])
			s.divide()
			could, want := e.could, e.want
			if enough {
				could += s.parts[0].cells[0].idle()
			}
			e.want = 1e6
			s.divide()
			if got := e.got; got < could-slack || !enough && got > could+slack {
				t.Fatalf("container %d could have %g, and got %g", i, could, got)
			}
			e.want = want
			s.divide()
		}
	})
}
