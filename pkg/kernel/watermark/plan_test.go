package watermark

import (
	"testing"

	"pgregory.net/rapid"
)

const (
	gib = int64(1) << 30
	tib = 1024 * gib
)

func TestFor(t *testing.T) {
	t.Parallel()
	const mib = 1024 // in KiB
	kernel := Values{10, 66 * mib}
	for name, test := range map[string]struct {
		memory   int64
		nodes    int
		original Values
		want     Values
	}{
		"a small guest":                   {1 * gib, 1, Values{10, 4 * mib}, Values{150, 10485}},
		"1 % and 1.5 %":                   {24 * gib, 1, kernel, Values{150, 251658}},
		"the step is bounded":             {256 * gib, 1, kernel, Values{78, 512 * mib}},
		"the same on two nodes":           {256 * gib, 2, kernel, Values{150, 1024 * mib}},
		"a large machine":                 {2 * tib, 8, kernel, Values{78, 4096 * mib}},
		"an even larger one":              {64 * tib, 8, kernel, Values{10, 4096 * mib}},
		"never below what is there":       {24 * gib, 1, Values{500, 900 * mib}, Values{500, 900 * mib}},
		"one is higher":                   {24 * gib, 1, Values{500, 66 * mib}, Values{500, 251658}},
		"a kernel without scale factor":   {24 * gib, 1, Values{0, 66 * mib}, Values{0, 251658}},
		"memory that can't be known":      {0, 0, kernel, kernel},
		"less memory than it is a use of": {1 << 20, 1, Values{10, 128}, Values{150, 128}},
	} {
		if got := For(test.memory, test.nodes, test.original); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestForStaysInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.Int64Range(64<<20, 64*tib).Draw(t, "memory")
		nodes := rapid.IntRange(1, 64).Draw(t, "nodes")
		original := Values{10, rapid.Int64Range(128, 256<<10).Draw(t, "min")}
		got := For(memory, nodes, original)
		switch {
		case got.ScaleFactor < 10 || got.ScaleFactor > 1000:
			t.Fatalf("scale factor %d: older kernels take 10..1000", got.ScaleFactor)
		case got.MinFreeKB < original.MinFreeKB || got.MinFreeKB > max(original.MinFreeKB, memory/1024/100):
			t.Fatalf("min %d KiB", got.MinFreeKB)
		case memory/10000*got.ScaleFactor > int64(nodes)*2*gib && got.ScaleFactor > 10:
			t.Fatalf("a step of %d bytes", memory/10000*got.ScaleFactor)
		}
		if more := For(memory, nodes+1, original); more.ScaleFactor < got.ScaleFactor || more.MinFreeKB < got.MinFreeKB {
			t.Fatalf("%+v on one node more, %+v", more, got)
		}
	})
}

func TestPlan(t *testing.T) {
	t.Parallel()
	first := Plan(Values{10, 67584}, Originals{}, 24*gib, 1)
	if want := (Originals{Values{10, 67584}, Values{10, 67584}, Values{150, 251658}}); first != want {
		t.Fatalf("%+v, want %+v", first, want)
	}
	for name, test := range map[string]struct {
		found   Values
		kept    Originals
		memory  int64
		now     Values
		restore Values // after a restore with the earlier record
	}{
		"as it was left":                     {Values{150, 251658}, first, 24 * gib, Values{150, 251658}, Values{10, 67584}},
		"ended before it was written":        {Values{10, 67584}, first, 24 * gib, Values{150, 251658}, Values{10, 67584}},
		"ended between the two":              {Values{150, 67584}, first, 24 * gib, Values{150, 251658}, Values{10, 67584}},
		"memory went away":                   {Values{150, 251658}, first, 12 * gib, Values{150, 125829}, Values{10, 67584}},
		"memory came":                        {Values{150, 251658}, first, 48 * gib, Values{150, 503316}, Values{10, 67584}},
		"somebody has raised one":            {Values{300, 251658}, first, 24 * gib, Values{300, 251658}, Values{300, 67584}},
		"somebody has lowered one":           {Values{150, 100000}, first, 24 * gib, Values{150, 251658}, Values{10, 100000}},
		"the kernel lost a file (other one)": {Values{0, 251658}, first, 24 * gib, Values{0, 251658}, Values{0, 67584}},
	} {
		next := Plan(test.found, test.kept, test.memory, 1)
		if next.Now != test.now || next.Was != test.found {
			t.Errorf("%s: plan %+v, want %+v", name, next, test.now)
		}
		if got := Restore(test.found, test.kept); got != test.restore {
			t.Errorf("%s: restores %+v, want %+v", name, got, test.restore)
		}
	}
}

// Whatever happens in between, Restore returns the values that the last other writer has set.
func TestTheOriginalComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kernel := Values{rapid.Int64Range(10, 300).Draw(t, "scale"), rapid.Int64Range(128, 1<<20).Draw(t, "min")}
		want, memory, nodes := kernel, 24*gib, 1
		var kept Originals
		t.Repeat(map[string]func(*rapid.T){
			"plan": func(t *rapid.T) {
				kept = Plan(kernel, kept, memory, nodes)
				switch rapid.SampledFrom([]string{"all", "scale", "none"}).Draw(t, "written") {
				case "all":
					kernel = kept.Now
				case "scale":
					kernel.ScaleFactor = kept.Now.ScaleFactor
				}
			},
			"hotplug": func(t *rapid.T) { memory = rapid.Int64Range(1, 64).Draw(t, "GiB") * gib },
			"somebody": func(t *rapid.T) {
				to := rapid.Int64Range(128, 1<<20).Draw(t, "to")
				if to == kept.Was.MinFreeKB || to == kept.Now.MinFreeKB {
					t.Skip("not to be told from Sluice's own")
				}
				kernel.MinFreeKB, want.MinFreeKB = to, to
			},
			"": func(t *rapid.T) {
				if got := Restore(kernel, kept); got != want {
					t.Fatalf("restores %+v, want %+v; kernel %+v, kept %+v", got, want, kernel, kept)
				}
			},
		})
	})
}
