package claim

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const uid = "0f0e4d2c-1b7a-4a57-9f0c-7d1f7a1d3c55"

func example() *Claim {
	return &Claim{UID: uid, Namespace: "shop", Name: "two-cpus", Devices: []Device{
		{Domain: Domain{NUMA, 0}, CPUs: 2, Class: workload.LSE, Reserved: cpuset.Of(2, 3)},
		{Domain: Domain{Core, 9}, CPUs: 1, Class: workload.LSR, Reserved: cpuset.Of(9)},
	}}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	text, err := example().Spec()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"cdiVersion":"0.6.0"`, `"name":"` + uid + `-1"`, `"SLUICE_CLAIM_0F0E4D2C_1B7A_4A57_9F0C_7D1F7A1D3C55_0=2-3"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if got, err := ReadSpec(text); err != nil || !reflect.DeepEqual(got, example()) {
		t.Errorf("read %+v: %v", got, err)
	}
	if id, ok := IDOf(CDIName(example().ID(1))); !ok || id != uid+"-1" {
		t.Errorf("the device's ID is %q", id)
	}
	if !IsFile(FileOf(uid)) || IsFile("nvidia.json") {
		t.Error("the file of a claim is not known by its name")
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                        "JSON object with uid",
		`{"uid": "../../etc"}`:      "lower-case letters",
		`{"uid": "a", "name": "b"}`: "the name of a Kubernetes object",
		`{"uid": "a", "namespace": "n", "name": "b"}`:                                                               "must have 1 to 32",
		`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"device": "l3-8", "cpus": 0, "class": "LSE"}]}`:   "devices[0].cpus 0: it must be 1 to",
		`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"device": "core1", "cpus": -1, "class": "LSE"}]}`: "devices[0].cpus -1: it must be 1 to",
		`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"device": "numa0", "cpus": 1, "class": "BE"}]}`:   "must be LSE or LSR",
		`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"node": 1, "cpus": 1, "class": "LSE"}]}`:          "devices[0].device is missing",
		`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"device": "gpu0", "cpus": 1, "class": "LSE"}]}`:   `device "gpu0": this driver's devices are called numa0`,
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, foreign := range []string{"vendor.com/gpu=0", Kind + "=", Kind + "=../x", Kind + "=A"} {
		if id, ok := IDOf(foreign); ok {
			t.Errorf("%s is taken for device %s", foreign, id)
		}
	}
}

// What is read from a message or a file is whole, and can be written and read again.
func FuzzDecode(f *testing.F) {
	text, err := example().Spec()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"uid": "a", "namespace": "n", "name": "b", "devices": [{"device": "core3", "class": "LSE"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := Decode(data); err == nil && (strings.ContainsAny(FileOf(c.UID), "/\x00") || len(c.Devices) == 0) {
			t.Errorf("accepted %+v", c)
		}
		c, err := ReadSpec(data)
		if err != nil {
			return
		}
		again, err := c.Spec()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadSpec(again); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v is read again as %+v: %v", c, got, err)
		}
	})
}

// Each name of a device is that of one domain, and is written as it was read.
func FuzzDomain(f *testing.F) {
	for _, name := range []string{"numa0", "l3-8", "core255", "numa", "numa-1", "numa01", "gpu0", "l38", "core9999", "core+1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var d Domain
		err := d.UnmarshalText([]byte(name))
		if err != nil && d != (Domain{}) || err == nil && d.String() != name {
			t.Errorf("%q is read as %+v: %v", name, d, err)
		}
	})
}

func TestDomains(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		domain Domain
		place  string
	}{
		"numa1": {Domain{NUMA, 1}, "NUMA node 1"},
		"l3-8":  {Domain{L3, 8}, "the L3 domain of CPU 8"},
		"core3": {Domain{Core, 3}, "the core of CPU 3"},
	} {
		var d Domain
		if err := d.UnmarshalText([]byte(name)); err != nil || d != want.domain || d.Place() != want.place {
			t.Errorf("%s is %+v (%s): %v", name, d, d.Place(), err)
		}
		var kind DomainKind
		if err := kind.UnmarshalText([]byte(d.Kind.String())); err != nil || kind != d.Kind {
			t.Errorf("%s is kind %v: %v", d.Kind, kind, err)
		}
	}
	for _, wrong := range []string{"", "cpu", "NUMA"} {
		if err := new(DomainKind).UnmarshalText([]byte(wrong)); err == nil || !strings.Contains(err.Error(), "it must be numa, l3, core") {
			t.Errorf("kind %q: %v", wrong, err)
		}
	}
}

func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "LSE"}`))
	f.Add([]byte(`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "LSE", "count": 2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if class, err := ParseParameters(data); err == nil && !class.Pinned() {
			t.Errorf("%s gives class %s", data, class)
		}
	})
}

func TestParameters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "LSR"}`:             "",
		`{"apiVersion": "cpus.sluice.dev/v2", "kind": "CPUClaim", "class": "LSR"}`:             "they are to be",
		`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "BE"}`:              `class "BE": it must be LSE or LSR`,
		`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "LSE", "cores": 1}`: `unknown field "cores"`,
		`x`: "the parameters are not",
	} {
		_, err := ParseParameters([]byte(text))
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
