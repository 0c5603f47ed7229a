package recording

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func machine(t testing.TB) *topology.Machine {
	t.Helper()
	m, err := synth.Machine("2 packages 16 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// look is a measurement of containers that use so many CPUs.
func look(now time.Time, cpus map[string]float64) *observe.Snapshot {
	s := &observe.Snapshot{Now: now}
	for id, cpu := range cpus {
		s.Containers = append(s.Containers, observe.Container{
			ID:       id,
			CPU:      observe.ContainerCPU{At: now, Interval: 5 * time.Second, Usage: workload.MilliCPU(math.Round(cpu * 1000)), StatAt: now, Periods: 50, Throttled: 5},
			Pressure: observe.Pressure{At: now, CPU: 0.2},
			RunDelay: observe.RunDelay{At: now, Waiting: cpu / 10},
			Memory:   observe.ContainerMemory{At: now, Anon: 1 << 30, WorkingSet: 3 << 29},
		})
	}
	return s
}

func near(got float32, want, part float64) bool {
	return math.Abs(float64(got)-want) <= part*want+1e-4
}

// record writes a recording of days: cpus returns what the containers use at each measurement.
func record(t testing.TB, to io.Writer, from time.Time, lasts time.Duration, list []Container, cpus func(time.Time) map[string]float64) {
	t.Helper()
	d, err := NewDays(to, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m := machine(t)
	for at := time.Duration(0); at < lasts; at += 5 * time.Second {
		now := from.Add(at)
		used := cpus(now)
		var there []Container
		for _, c := range list {
			if _, runs := used[c.ID]; runs {
				there = append(there, c)
			}
		}
		if err := d.Record(m, there, look(now, used)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A recording of days has the mean and the highest CPU of each minute, begins and ends, and what
// is known of each container.
func TestDays(t *testing.T) {
	t.Parallel()
	web := Container{ID: "0123456789abcdef", Ref: "shop/web-0/main", Class: workload.LS, Pool: "critical", Request: 2000, Limit: 4000, Memory: 1 << 30, MemoryLimit: 2 << 30}
	job := Container{ID: "b", Ref: "shop/job-x/main", Class: workload.BE, Pool: "batch"}
	var out bytes.Buffer
	record(t, &out, start(), 150*time.Minute, []Container{web, job}, func(now time.Time) map[string]float64 {
		used := map[string]float64{web.ID: 0.5}
		if now.Second() < 5 {
			used[web.ID] = 2
		}
		if at := now.Sub(start()); at >= 30*time.Minute && at < 90*time.Minute {
			used[job.ID] = 8
		}
		return used
	})
	r, err := Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if r.Interval != time.Minute || !r.Start.Equal(start()) || r.End.Sub(r.Start) != 150*time.Minute || !reflect.DeepEqual(r.Machine, machine(t)) {
		t.Errorf("%s from %s to %s, %d CPUs", r.Interval, r.Start, r.End, r.Machine.Online.Size())
	}
	if len(r.Tracks) != 2 || len(r.Tracks[0].Samples) != 150 || len(r.Tracks[1].Samples) != 60 {
		t.Fatalf("%d tracks", len(r.Tracks))
	}
	want := web
	want.ID = web.ID[:12]
	if r.Tracks[0].Container != want || r.Tracks[1].Container != job {
		t.Errorf("%+v", r.Tracks)
	}
	if first := r.Tracks[1].Samples[0].At; first != 30*time.Minute {
		t.Errorf("the job begins at %s", first)
	}
	for _, s := range r.Tracks[0].Samples {
		if !near(s.CPU, 0.625, 0.01) || !near(s.Peak, 2, 0.01) || !near(s.Throttled, 0.1, 0.025) || !near(s.Pressure, 0.2, 0.025) ||
			!near(s.Waiting, 0.0625, 0.025) || !near(s.Anon, 1<<30, 0.01) || !near(s.Cache, 1<<29, 0.01) {
			t.Fatalf("%+v", s)
		}
	}
}

// Recordings can be joined; one that was cut off anywhere has all whole blocks; a changed byte is
// found.
func TestDamage(t *testing.T) {
	t.Parallel()
	c := Container{ID: "a", Ref: "shop/web-0/main", Class: workload.LS}
	steady := func(time.Time) map[string]float64 { return map[string]float64{"a": 1} }
	var first, out bytes.Buffer
	record(t, &first, start(), time.Hour, []Container{c}, steady)
	out.Write(first.Bytes())
	record(t, &out, start().Add(3*time.Hour), time.Hour, []Container{c}, steady)
	whole := out.Bytes()
	r, err := Read(bytes.NewReader(whole))
	if err != nil || len(r.Tracks) != 1 || len(r.Tracks[0].Samples) != 120 || r.Tracks[0].Samples[60].At != 3*time.Hour {
		t.Fatalf("%+v, %v", r, err)
	}
	for cut := first.Len(); cut < len(whole); cut++ {
		r, err := Read(bytes.NewReader(whole[:cut]))
		if err != nil || len(r.Tracks[0].Samples) != 60 {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if n, err := Whole(bytes.NewReader(whole[:cut])); err != nil || n != int64(first.Len()) {
			t.Fatalf("cut at %d: %d bytes are whole, %v", cut, n, err)
		}
	}
	for at := range whole {
		broken := bytes.Clone(whole)
		broken[at] ^= 4
		r, err := Read(bytes.NewReader(broken))
		lengthGrew := err == nil && len(r.Tracks[0].Samples) == 60 && at >= first.Len() // the last block looks incomplete
		if err == nil && !lengthGrew {
			t.Fatalf("a change of byte %d is not found", at)
		}
	}
	whole[len(family)]++
	if _, err := Read(bytes.NewReader(whole)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
}

// Where the clock goes back, the recorder begins another block, and the reader leaves out what is
// there twice.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d, err := NewDays(&out, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	list := []Container{{ID: "a", Ref: "a/b/c", Class: workload.LS}}
	for _, minute := range []int{0, 1, 2, 1, 2, 3, 500, 501} {
		now := start().Add(time.Duration(minute) * time.Minute)
		if err := d.Record(machine(t), list, look(now, map[string]float64{"a": 1})); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Duration(-1)
	for _, s := range r.Tracks[0].Samples {
		if s.At <= before {
			t.Errorf("%s comes after %s", s.At, before)
		}
		before = s.At
	}
	if before != 501*time.Minute {
		t.Errorf("the last is %s", before)
	}
}

// A value is read as it was, to within the half of a step.
func TestScale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for i, s := range scales() {
			v := rapid.Float64Range(0, 1<<40).Draw(t, "value")
			if i < anonColumn {
				v = math.Mod(v, 10000)
			}
			got := float64(s.value(s.code(v)))
			if math.Abs(got-v) > s.growth/2*1.03*(v+s.unit)+1e-6*v {
				t.Fatalf("column %d: %v is read as %v", i, v, got)
			}
		}
	})
	if s := scales()[0]; s.value(s.code(-1)) != Unknown || s.value(s.code(math.NaN())) != Unknown || s.value(s.code(math.Inf(1))) < 1e6 {
		t.Error("odd values")
	}
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	for _, bad := range []time.Duration{0, time.Second, 90500 * time.Millisecond, 2 * time.Hour} {
		if _, err := NewDays(io.Discard, bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// Nothing that a file holds makes the reader panic, or allocate far more than it holds.
func FuzzRead(f *testing.F) {
	var out bytes.Buffer
	record(f, &out, start(), 5*time.Minute, []Container{{ID: "a", Ref: "shop/web-0/main", Class: workload.LS}}, func(time.Time) map[string]float64 { return map[string]float64{"a": 1} })
	f.Add(out.Bytes())
	f.Add([]byte(mark))
	f.Add([]byte(`{"machine":{}}` + "\n" + `{"containers":[{"id":"1","class":"LS"}]}` + "\n" + `{"snapshot":{"now":"2026-03-01T12:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read(bytes.NewReader(text))
		if (r == nil) == (err == nil) {
			t.Errorf("%v, %v", r, err)
		}
		Whole(bytes.NewReader(text))
	})
}

// The numbers of a block have no checksum of their own: here they are changed below it.
func FuzzUnpack(f *testing.F) {
	c := blockContainer{Container: Container{ID: "a", Ref: "a/b/c", Class: workload.LS}}
	for i := range c.codes {
		c.codes[i] = []uint16{3, 4}
	}
	f.Add((&block{start: 1e9, interval: 60, slots: 2, machine: []byte("{}"), containers: []blockContainer{c}}).encode())
	f.Fuzz(func(t *testing.T, plain []byte) {
		b, err := decode(plain)
		if err != nil {
			return
		}
		if again, err := decode(b.encode()); err != nil || !reflect.DeepEqual(b, again) {
			t.Errorf("%+v is read as %+v, %v", b, again, err)
		}
		newReader().block(b)
	})
}

// course is the usage of a made container: a daily curve with noise of a tenth that fades in ten
// minutes, and as much that is new at each measurement.
type course struct{ cpus, slow float64 }

func (c *course) at(now time.Time, rng *rand.Rand) float64 {
	keep := math.Exp(-5.0 / 600)
	c.slow = keep*c.slow + math.Sqrt(1-keep*keep)*rng.NormFloat64()
	day := float64(now.Hour()*60+now.Minute()) / (24 * 60)
	return max(0, c.cpus*(0.6-0.4*math.Cos(2*math.Pi*day))*(1+0.1*c.slow+0.1*rng.NormFloat64()))
}

// BenchmarkDay writes and reads a day of 500 containers.
func BenchmarkDay(b *testing.B) {
	m := machine(b)
	rng := rand.New(rand.NewPCG(1, 2))
	list, courses := make([]Container, 500), make([]course, 500)
	for i := range list {
		list[i] = Container{ID: fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()), Ref: fmt.Sprintf("shop/web-%d-%x/main", i/5, rng.Uint32()), Class: workload.LS, Pool: "online", Request: 1000, Memory: 1 << 30}
		courses[i].cpus = rng.ExpFloat64() / 2
	}
	var writing, reading time.Duration
	size := 0
	for b.Loop() {
		var out bytes.Buffer
		d, err := NewDays(&out, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		s := &observe.Snapshot{Containers: make([]observe.Container, len(list))}
		for at := time.Duration(0); at < 24*time.Hour; at += 5 * time.Second {
			s.Now = start().Add(at)
			for i := range list {
				cpu := courses[i].at(s.Now, rng)
				s.Containers[i] = observe.Container{
					ID: list[i].ID, CPU: observe.ContainerCPU{At: s.Now, Interval: 5 * time.Second, Usage: workload.MilliCPU(1000 * cpu), StatAt: s.Now, Periods: 50},
					Pressure: observe.Pressure{At: s.Now, CPU: 0.02 * cpu * (1 + 0.3*rng.NormFloat64())}, RunDelay: observe.RunDelay{At: s.Now, Waiting: 0.01 * cpu * (1 + 0.3*rng.NormFloat64())},
					Memory: observe.ContainerMemory{At: s.Now, Anon: int64(1e9 * (1 + 0.1*courses[i].slow)), WorkingSet: int64(1.2e9 * (1 + 0.1*courses[i].slow))},
				}
			}
			began := time.Now()
			if err := d.Record(m, list, s); err != nil {
				b.Fatal(err)
			}
			writing += time.Since(began)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		size = out.Len()
		began := time.Now()
		if r, err := Read(&out); err != nil || len(r.Tracks) != 500 {
			b.Fatal(err)
		}
		reading += time.Since(began)
	}
	b.ReportMetric(float64(size)/(1<<20), "MiB/day")
	b.ReportMetric(writing.Seconds()/float64(b.N)/86400*100, "%ofacore")
	b.ReportMetric(reading.Seconds()/float64(b.N), "s/read")
}
