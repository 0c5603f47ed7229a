package topology_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

const everything = "2 packages 2 dies 2 nodes 4 cores 2 threads cluster 2 cores offline 3 isolated 1 nohz-full 2 " +
	"memory-nodes 1 8G device 0000:3b:00.0 node 1"

func machine(t *testing.T, text string) *topology.Machine {
	t.Helper()
	m, err := synth.Machine(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every exported field, down to those of each list's first element, changes the result of Equal.
func TestEqual(t *testing.T) {
	t.Parallel()
	if !machine(t, everything).Equal(machine(t, everything)) {
		t.Error("a machine does not equal itself")
	}
	fields := reflect.TypeFor[topology.Machine]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if !field.IsExported() {
			continue
		}
		checkDiffers(t, field.Name, func(m reflect.Value) reflect.Value { return m.Field(i) })
		if field.Type.Kind() != reflect.Slice {
			continue
		}
		for j := range field.Type.Elem().NumField() {
			checkDiffers(t, field.Name+"."+field.Type.Elem().Field(j).Name, func(m reflect.Value) reflect.Value {
				return m.Field(i).Index(0).Field(j)
			})
		}
	}
}

func checkDiffers(t *testing.T, name string, field func(reflect.Value) reflect.Value) {
	t.Helper()
	m := machine(t, everything)
	switch v := field(reflect.ValueOf(m).Elem()); v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(v.Slice(0, v.Len()-1))
	case reflect.Struct:
		v.Addr().Interface().(*cpuset.Set).Add(4000)
	default:
		t.Fatalf("%s: no way to change a %s", name, v.Kind())
	}
	if m.Equal(machine(t, everything)) || machine(t, everything).Equal(m) {
		t.Errorf("Equal does not see a change of %s", name)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{everything, "8 cores 2 threads efficiency 16", "2 packages 4 cores without nodes"} {
		m := machine(t, text)
		encoded, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back topology.Machine
		if err := json.Unmarshal(encoded, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(m, &back) {
			t.Errorf("%s: differs after JSON: %s", text, encoded)
		}
	}
	encoded, err := json.Marshal(machine(t, "2 threads"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"online":"0-1","offline":"","isolated":"","noHzFull":"",` +
		`"cpus":[{"id":0,"core":0,"l3":0,"node":0,"die":0,"package":0,"kind":"performance","capacity":1024},` +
		`{"id":1,"core":0,"l3":0,"node":0,"die":0,"package":0,"kind":"performance","capacity":1024}],` +
		`"cores":[{"id":0,"cpus":"0-1","kind":"performance"}],` +
		`"l2s":[{"id":0,"cpus":"0-1","sizeBytes":1048576,"ways":16}],"l3s":[{"id":0,"cpus":"0-1","sizeBytes":33554432,"ways":16}],` +
		`"dies":[{"id":0,"cpus":"0-1"}],"packages":[{"id":0,"cpus":"0-1"}],` +
		`"nodes":[{"id":0,"cpus":"0-1","memoryBytes":17179869184,"distances":[10],"tier":4}]}`
	if string(encoded) != want {
		t.Errorf("JSON is\n%s, want\n%s", encoded, want)
	}
	for _, change := range [][2]string{
		{`"id":1,"core"`, `"id":5,"core"`},
		{`"id":1,"core"`, `"id":-1,"core"`},
		{`"online":"0-1"`, `"online":"0-2"`},
		{`"distances":[10]`, `"distances":10`},
		{`"id":0,"cpus":"0-1","kind":"performance"`, `"id":0,"cpus":"0-7","kind":"performance"`},
		{`"cpus":"0-1","kind":"performance"`, `"cpus":"0-1","kind":"fast"`},
	} {
		broken := strings.Replace(string(encoded), change[0], change[1], 1)
		if err := json.Unmarshal([]byte(broken), new(topology.Machine)); err == nil || broken == string(encoded) {
			t.Errorf("no error for %s", broken)
		}
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	m := machine(t, everything)
	if _, ok := m.CPU(3); ok {
		t.Error("CPU 3 is offline, but found")
	}
	for _, id := range []int{-1, 32, cpuset.Max} {
		if _, ok := m.CPU(id); ok {
			t.Errorf("CPU %d found", id)
		}
	}
	// Core 3 comes last, because its first thread is offline and its second is CPU 19.
	cpu, ok := m.CPU(21)
	if !ok || cpu.ID != 21 || cpu.Core != 4 || cpu.L3 != 1 || cpu.Node != 1 || cpu.Die != 1 || cpu.Package != 0 {
		t.Errorf("CPU 21 = %+v, %v", cpu, ok)
	}
	if got, want := m.Siblings(cpuset.Of(5, 3, 19)), cpuset.Of(5, 21, 19); got != want {
		t.Errorf("Siblings = %v, want %v", got, want)
	}
	if got, want := m.NodesOf(cpuset.Of(0, 4, 16)), cpuset.Of(0, 1); got != want {
		t.Errorf("NodesOf = %v, want %v", got, want)
	}
	if got, want := m.MemoryNodes(), cpuset.Range(0, 4); got != want {
		t.Errorf("MemoryNodes = %v, want %v", got, want)
	}
	if got, want := m.Memory(cpuset.Of(0, 4, 9)), int64(24<<30); got != want {
		t.Errorf("Memory = %d, want %d", got, want)
	}
	if got := m.ThreadsPerCore(); got != 2 {
		t.Errorf("ThreadsPerCore = %d, want 2", got)
	}
	if n, ok := m.Node(4); !ok || n.ID != 4 || !n.CPUs.IsEmpty() {
		t.Errorf("Node(4) = %+v, %v", n, ok)
	}
	if _, ok := m.Node(5); ok {
		t.Error("node 5 found")
	}
}
