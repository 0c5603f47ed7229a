package statusapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// fill gives a value random contents of its type.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 2).Draw(t, "time"), 0).UTC()))
		return
	case cpuset.Set:
		v.Set(reflect.ValueOf(cpuset.Range(0, rapid.IntRange(0, 3).Draw(t, "cpu"))))
		return
	case workload.Tier:
		v.SetInt(int64(rapid.IntRange(int(workload.TierFree), int(workload.TierMid)).Draw(t, "tier")))
		return
	case workload.Class:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]workload.Class{workload.LS, workload.BE, workload.LSE}).Draw(t, "class")))
		return
	case control.EvictBy:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]control.EvictBy{control.EvictReport, control.EvictCRI}).Draw(t, "by")))
		return
	case claim.Domain:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]claim.Domain{{Kind: claim.NUMA}, {Kind: claim.L3, Number: 8}, {Kind: claim.Core, Number: 1}}).Draw(t, "device")))
		return
	case placement.State:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]placement.State{placement.Reserved, placement.Held}).Draw(t, "state")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		n := rapid.IntRange(0, 2).Draw(t, "n")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 2).Draw(t, "int"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, 2).Draw(t, "uint"))
	case reflect.Float64:
		v.SetFloat(float64(rapid.IntRange(0, 2).Draw(t, "float")) / 2)
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(rapid.SampledFrom([]string{"", "a", "é\"<\n"}).Draw(t, "string"))
		} else {
			v.SetString(rapid.SampledFrom([]string{"on", "off"}).Draw(t, "word"))
		}
	default:
		t.Fatalf("fill does not know %v", v.Type())
	}
}

// anyStatus draws a status with up to three of five containers.
func anyStatus(t *rapid.T) *status.Status {
	var s status.Status
	fill(t, reflect.ValueOf(&s).Elem())
	s.Containers = nil
	for i := range 5 {
		if rapid.Bool().Draw(t, "runs") {
			var c status.Container
			fill(t, reflect.ValueOf(&c).Elem())
			c.ID, c.PlacedAt = fmt.Sprint(i), time.Unix(int64(i), 0).UTC()
			s.Containers = append(s.Containers, c)
		}
	}
	return &s
}

func text(t *rapid.T, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// bare returns JSON without values that are zero, empty or null, since they may be omitted.
func bare(value any) any {
	switch x := value.(type) {
	case map[string]any:
		for name, member := range x {
			if member = bare(member); member == nil {
				delete(x, name)
			} else {
				x[name] = member
			}
		}
		if len(x) == 0 {
			return nil
		}
	case []any:
		if len(x) == 0 {
			return nil
		}
	case string:
		if x == "" || x == "0001-01-01T00:00:00Z" {
			return nil
		}
	case float64:
		if x == 0 {
			return nil
		}
	case bool:
		if !x {
			return nil
		}
	}
	return value
}

// applied implements the algorithm of RFC 7396.
func applied(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	into, ok := target.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for name, change := range changes {
		if change == nil {
			delete(into, name)
		} else {
			into[name] = applied(into[name], change)
		}
	}
	return into
}

// A client that applies the patches has the plugin's status: both this package's client and any
// other that follows RFC 7396.
func TestPatchesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f, client := newFields(), newFields()
		has, read := &status.Status{}, &status.Status{}
		var document any
		for range rapid.IntRange(1, 3).Draw(t, "steps") {
			now := anyStatus(t)
			line, err := f.patch(has, now)
			if err != nil {
				t.Fatal(err)
			}
			has = now
			before := text(t, read)
			next, err := client.merge(read, line)
			if err != nil {
				t.Fatal(err)
			}
			if text(t, read) != before {
				t.Fatalf("a status that was handed over has changed: %s, was %s", text(t, read), before)
			}
			read = next

			var got, want, patch any
			json.Unmarshal([]byte(text(t, read)), &got)
			json.Unmarshal([]byte(text(t, now)), &want)
			if !reflect.DeepEqual(bare(got), bare(want)) {
				t.Fatalf("the client has %s, want %s", text(t, read), text(t, now))
			}

			json.Unmarshal(line, &patch)
			document = applied(document, patch)
			var copied any
			json.Unmarshal([]byte(text(t, document)), &copied)
			byID := map[string]any{}
			var whole map[string]any
			json.Unmarshal([]byte(text(t, now)), &whole)
			containers, _ := whole["containers"].([]any)
			for _, c := range containers {
				byID[c.(map[string]any)["id"].(string)] = c
			}
			whole["containers"] = byID
			if got, want := bare(copied), bare(any(whole)); !reflect.DeepEqual(got, want) {
				t.Fatalf("RFC 7396 makes\n%s, want\n%s", text(t, got), text(t, want))
			}
		}
	})
}

// A patch contains only what has changed.
func TestPatchIsSmall(t *testing.T) {
	t.Parallel()
	old, now := crowd(3), crowd(3)
	for name, c := range map[string]struct {
		change func(*status.Status)
		want   string
	}{
		"nothing": {func(*status.Status) {}, `{}`},
		"time":    {func(s *status.Status) { s.Time = time.Unix(9, 0).UTC() }, `{"time":"1970-01-01T00:00:09Z"}`},
		"usage":   {func(s *status.Status) { s.Containers[1].Usage.CPU.Usage = 7 }, `{"containers":{"container-001":{"usage":{"cpu":{"usageMilliCPU":7}}}}}`},
		"limit":   {func(s *status.Status) { s.Containers[1].Usage.CPU.Limit = 0 }, `{"containers":{"container-001":{"usage":{"cpu":{"limitMilliCPU":null}}}}}`},
		"gone":    {func(s *status.Status) { s.Containers = s.Containers[:2] }, `{"containers":{"container-002":null}}`},
		"loop":    {func(s *status.Status) { s.Loop.Batch.Budget = 5 }, `{"loop":{"batch":{"budgetMilliCPU":5}}}`},
		"no loop": {func(s *status.Status) { s.Loop = nil }, `{"loop":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, err := newFields().merge(now, []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			now.Containers = append([]status.Container(nil), now.Containers...)
			usage, loop := *now.Containers[1].Usage, *now.Loop
			now.Containers[1].Usage, now.Loop = &usage, &loop
			c.change(now)
			line, err := newFields().patch(old, now)
			if err != nil || strings.TrimSpace(string(line)) != c.want {
				t.Errorf("%s, %v; want %s", line, err, c.want)
			}
		})
	}
}

// crowd returns a status with that many ordinary containers.
func crowd(containers int) *status.Status {
	s := &status.Status{
		Schema: status.Schema, Version: "v1", Mode: "on", Machine: status.Machine{Online: cpuset.Range(0, 511)},
		Pools: []status.Pool{{Name: "online", CPUs: cpuset.Range(0, 400), Load: &status.PoolLoad{LoadFraction: 0.5}}, {Name: "batch", CPUs: cpuset.Range(401, 511)}},
		Loop:  &status.Loop{Mode: "on", Evictions: status.Evictions{By: control.EvictReport}, Batch: status.Batch{State: status.BatchOpen, Budget: 1000}},
	}
	for i := range containers {
		c := status.Container{
			ID: fmt.Sprintf("container-%03d", i), PodUID: fmt.Sprintf("uid-%03d", i/2), Ref: fmt.Sprintf("default/pod-%03d/main", i/2),
			Class: workload.LS, Pool: "online", State: placement.Held, Controlled: true, Requested: 500, CPUs: cpuset.Range(0, 400), Why: "shares the CPUs of pool online",
			Keys:   []workload.RequestKey{{Key: "class", Value: "LS", Source: "config defaults.burstable"}},
			Cgroup: "/kubepods/burstable/pod" + fmt.Sprint(i), PlacedAt: time.Unix(int64(i), 0).UTC(),
			Usage: &status.Usage{CPU: status.CPUUsage{MeasuredAt: time.Unix(1, 0).UTC(), Usage: 100, Limit: 1000}, Memory: status.MemoryUsage{MeasuredAt: time.Unix(1, 0).UTC(), WorkingSetBytes: 1 << 20}},
		}
		for _, setting := range []string{"cpu.burst", "cpu.weight", "memory.high", "io.weight"} {
			c.Settings = append(c.Settings, status.Setting{Level: "container", Knob: setting, File: setting, Value: "100", Why: "class LS"})
		}
		s.Containers = append(s.Containers, c)
	}
	return s
}

// later returns the same status one second later, with other numbers for each container.
func later(s *status.Status, seconds int) *status.Status {
	now := *s
	now.Time = time.Unix(int64(seconds), 0).UTC()
	now.Containers = append([]status.Container(nil), s.Containers...)
	for i := range now.Containers {
		u := *now.Containers[i].Usage
		u.CPU.MeasuredAt, u.CPU.Usage = now.Time, workload.MilliCPU(100+seconds%50)
		now.Containers[i].Usage = &u
	}
	return &now
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","containers":{"a":{"usage":{"cpu":{"usageMilliCPU":7}}},"b":null}}`))
	f.Add([]byte(`{"loop":null,"pools":[{}],"containers":null}`))
	f.Fuzz(func(_ *testing.T, patch []byte) { // it must not panic
		newFields().merge(crowd(2), patch)
	})
}

// BenchmarkPatch500 measures a line of the stream with 500 containers whose usage has changed
// within a second, and the whole status as JSON.
func BenchmarkPatch500(b *testing.B) {
	old := crowd(500)
	b.Run("patch", func(b *testing.B) {
		b.ReportAllocs()
		f, n := newFields(), 0
		for i := 1; b.Loop(); i++ {
			line, err := f.patch(old, later(old, i))
			if err != nil {
				b.Fatal(err)
			}
			n = len(line)
		}
		b.ReportMetric(float64(n)/1024, "KiB")
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for i := 1; b.Loop(); i++ {
			line, err := json.Marshal(later(old, i))
			if err != nil {
				b.Fatal(err)
			}
			n = len(line)
		}
		b.ReportMetric(float64(n)/1024, "KiB")
	})
	b.Run("merge", func(b *testing.B) {
		b.ReportAllocs()
		line, err := newFields().patch(old, later(old, 1))
		if err != nil {
			b.Fatal(err)
		}
		f := newFields()
		for b.Loop() {
			if _, err := f.merge(old, line); err != nil {
				b.Fatal(err)
			}
		}
	})
}
