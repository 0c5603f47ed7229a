package iocost

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var (
	sda  = Disk{Name: "sda", Number: "8:0", Rotational: true}
	nvme = Disk{Name: "nvme0n1", Number: "259:0"}

	ssd, hdd = Default(false), Default(true)
	others   = QoS{Enabled: true, User: true, ReadPercent: 9900, ReadLatency: 5000, WritePercent: 9900, WriteLatency: 5000, Min: 7500, Max: 10000}
)

func all(d Disk) (QoS, bool) { return Default(d.Rotational), true }

func TestPlan(t *testing.T) {
	t.Parallel()
	fast := ssd
	fast.ReadLatency = 5000
	written := Originals{"259:0": {Now: ssd}}
	disabled := others
	disabled.Enabled = false
	for name, test := range map[string]struct {
		found     map[string]QoS
		originals Originals
		want      Want
		writes    []Write
		next      Originals
		enabled   []string
		others    []string
	}{
		"the first time":              {nil, nil, all, []Write{{"259:0", ssd}, {"8:0", hdd}}, Originals{"259:0": {Now: ssd}, "8:0": {Now: hdd}}, []string{"nvme0n1", "sda"}, nil},
		"as it was left":              {map[string]QoS{"259:0": ssd}, written, only(nvme, ssd), nil, Originals{"259:0": {Was: ssd, Now: ssd}}, []string{"nvme0n1"}, nil},
		"ended before it was written": {nil, written, only(nvme, ssd), []Write{{"259:0", ssd}}, written, []string{"nvme0n1"}, nil},
		"other parameters":            {map[string]QoS{"259:0": ssd}, written, only(nvme, fast), []Write{{"259:0", fast}}, Originals{"259:0": {Was: ssd, Now: fast}}, []string{"nvme0n1"}, nil},
		"off":                         {map[string]QoS{"259:0": ssd}, written, nil, []Write{{"259:0", QoS{}}}, Originals{"259:0": {Was: ssd}}, nil, nil},
		"off, and done":               {map[string]QoS{"259:0": {}}, Originals{"259:0": {Was: ssd}}, nil, nil, Originals{}, nil, nil},
		"off, and never on":           {map[string]QoS{"8:0": others, "259:0": {User: true, Min: 100, Max: 200}}, nil, nil, nil, Originals{}, nil, nil},
		"another program's":           {map[string]QoS{"8:0": others, "259:0": {Enabled: true}}, nil, all, nil, Originals{}, nil, []string{"nvme0n1", "sda"}},
		"another program takes over":  {map[string]QoS{"259:0": others}, written, only(nvme, ssd), nil, Originals{}, nil, []string{"nvme0n1"}},
		"and it is to be off":         {map[string]QoS{"259:0": others}, written, nil, nil, Originals{}, nil, nil},
		"another program disables it": {map[string]QoS{"259:0": disabled}, written, only(nvme, ssd), []Write{{"259:0", ssd}}, Originals{"259:0": {Original: disabled, Was: disabled, Now: ssd}}, []string{"nvme0n1"}, nil},
		"its parameters come back":    {map[string]QoS{"259:0": ssd}, Originals{"259:0": {Original: disabled, Was: disabled, Now: ssd}}, nil, []Write{{"259:0", disabled}}, Originals{"259:0": {Original: disabled, Was: ssd, Now: disabled}}, nil, nil},
		"a disk was replaced":         {nil, Originals{"259:0": {Was: ssd, Now: ssd}}, only(nvme, ssd), []Write{{"259:0", ssd}}, written, []string{"nvme0n1"}, nil},
		"a disk is gone":              {nil, Originals{"8:16": {Now: hdd}}, nil, nil, Originals{}, nil, nil},
		"the list lacks a disk":       {map[string]QoS{"8:16": hdd}, Originals{"8:16": {Original: disabled, Now: hdd}}, nil, nil, Originals{"8:16": {Original: disabled, Now: hdd}}, nil, nil},
		"and it is another program's": {map[string]QoS{"8:16": others}, Originals{"8:16": {Now: hdd}}, nil, nil, Originals{}, nil, nil},
	} {
		got := Plan(test.found, []Disk{sda, nvme}, test.originals, test.want)
		if !slices.Equal(got.Writes, test.writes) || !maps.Equal(got.Originals, test.next) || !slices.Equal(got.Enabled, test.enabled) || !slices.Equal(got.Others, test.others) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWithCost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want Want
		with []string
	}{
		"on": {all, []string{"259:0", "8:0"}}, "on for one": {only(nvme, ssd), []string{"259:0", "8:0"}}, "off": {nil, []string{"8:0"}},
	} {
		got := Plan(map[string]QoS{"8:0": others, "259:0": ssd}, []Disk{sda, nvme}, Originals{"259:0": {Now: ssd}}, test.want)
		if !slices.Equal(got.WithCost, test.with) {
			t.Errorf("%s: %v", name, got.WithCost)
		}
	}
}

func only(disk Disk, q QoS) Want {
	return func(d Disk) (QoS, bool) { return q, d == disk }
}

func TestAfterWrites(t *testing.T) {
	t.Parallel()
	originals := Originals{"1:0": {Now: ssd}, "2:0": {Now: ssd}, "3:0": {Was: ssd}, "4:0": {Was: ssd}}
	writes := []Write{{"1:0", ssd}, {"2:0", ssd}, {"3:0", QoS{}}, {"4:0", QoS{}}}
	got := AfterWrites(originals, writes, []error{nil, ErrGone, nil, errors.New("no")})
	if want := (Originals{"1:0": {Now: ssd}, "4:0": {Was: ssd}}); !maps.Equal(got, want) || len(originals) != 4 {
		t.Errorf("%+v", got)
	}
}

// Whatever happens in between, giving back leaves what the last other writer has set, and a disk
// that another program has enabled is never written.
func TestTheOriginalComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		found, theirs := map[string]QoS{}, map[string]QoS{}
		var originals Originals
		step := func(want Want) {
			p := Plan(found, []Disk{sda, nvme}, originals, want)
			originals = p.Originals
			errs := make([]error, len(p.Writes))
			for i, w := range p.Writes {
				if theirs[w.Number].Enabled {
					t.Fatalf("writes %+v, another program's", w)
				}
				switch rapid.SampledFrom([]string{"written", "refused", "crash"}).Draw(t, "write") {
				case "written":
					found[w.Number] = w.To
				case "refused":
					errs[i] = errors.New("refused")
				default:
					return
				}
			}
			originals = AfterWrites(originals, p.Writes, errs)
		}
		t.Repeat(map[string]func(*rapid.T){
			"on":      func(*rapid.T) { step(all) },
			"changed": func(*rapid.T) { step(func(Disk) (QoS, bool) { return hdd, true }) },
			"part":    func(*rapid.T) { step(only(sda, hdd)) },
			"off":     func(*rapid.T) { step(nil) },
			"somebody": func(t *rapid.T) {
				d := rapid.SampledFrom([]Disk{sda, nvme}).Draw(t, "disk")
				q := anyQoS(t)
				if r, ours := originals[d.Number]; ours && (q == r.Was || q == r.Now) {
					t.Skip("not to be told from Sluice's own")
				}
				found[d.Number], theirs[d.Number] = q, q
			},
			"replaced": func(t *rapid.T) {
				d := rapid.SampledFrom([]Disk{sda, nvme}).Draw(t, "disk")
				delete(found, d.Number)
				delete(theirs, d.Number)
				delete(originals, d.Number)
			},
			"": func(t *rapid.T) {
				end := maps.Clone(found)
				for _, w := range Plan(found, []Disk{sda, nvme}, originals, nil).Writes {
					end[w.Number] = w.To
				}
				for _, d := range []Disk{sda, nvme} {
					if end[d.Number] != theirs[d.Number] {
						t.Fatalf("%s ends with %+v, want %+v", d.Name, end[d.Number], theirs[d.Number])
					}
				}
			},
		})
	})
}
