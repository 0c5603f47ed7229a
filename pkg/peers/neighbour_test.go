package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	rootStatus = "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"
	podStatus  = "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"
	userStatus = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t000001ffffffffff\n"
)

func TestDetect(t *testing.T) {
	t.Parallel()
	const cpuState, memState = "var/lib/kubelet/cpu_manager_state", "var/lib/kubelet/memory_manager_state"
	tests := map[string]struct {
		files map[string]string
		want  []Kind
		bad   string // part of the error
	}{
		"an empty node": {nil, nil, ""},
		"managers off": {map[string]string{
			cpuState: `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
			memState: `{"policyName":"None","machineState":{},"checksum":4236770233}`,
		}, nil, ""},
		"managers on": {map[string]string{
			cpuState: `{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`,
			memState: `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0}},"entries":{"u":{"c":[{"numaAffinity":[0],"type":"memory","size":1}]}},"checksum":2}`,
		}, []Kind{CPUManager, MemoryManager}, ""},
		"by comm":                  {map[string]string{"proc/17/comm": "koordlet\n", "proc/17/status": rootStatus}, []Kind{Koordlet}, ""},
		"by first argument":        {map[string]string{"proc/17/comm": "ld-linux\n", "proc/17/cmdline": "/usr/bin/katalyst-agent\x00--x\x00", "proc/17/status": rootStatus}, []Kind{Katalyst}, ""},
		"two processes of one":     {map[string]string{"proc/17/comm": "koordlet\n", "proc/18/comm": "koordlet\n"}, []Kind{Koordlet}, ""},
		"both":                     {map[string]string{"proc/9/comm": "katalyst-agent\n", "proc/18/comm": "koordlet\n"}, []Kind{Koordlet, Katalyst}, ""},
		"another argument":         {map[string]string{"proc/17/comm": "grep\n", "proc/17/cmdline": "grep\x00koordlet\x00"}, nil, ""},
		"a longer name":            {map[string]string{"proc/17/comm": "koordlet-x\n", "proc/17/cmdline": "/koordlet-x\x00"}, nil, ""},
		"a pod's process":          {map[string]string{"proc/17/comm": "koordlet\n", "proc/17/status": podStatus}, nil, ""},
		"a user's process":         {map[string]string{"proc/17/comm": "koordlet\n", "proc/17/status": userStatus}, nil, ""},
		"a pretender and the real": {map[string]string{"proc/17/comm": "koordlet\n", "proc/17/status": podStatus, "proc/18/comm": "koordlet\n", "proc/18/status": rootStatus}, []Kind{Koordlet}, ""},
		"no process":               {map[string]string{"proc/self/comm": "koordlet\n"}, nil, ""},
		"a broken state hides nothing else": {map[string]string{
			cpuState: `{"policyName":`, memState: `{"policyName":"Static"}`, "proc/17/comm": "koordlet\n",
		}, []Kind{MemoryManager, Koordlet}, cpuState},
		"a broken memory state": {map[string]string{memState: `[]`}, nil, memState},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := fstest.MapFS{"proc/1/comm": {Data: []byte("systemd\n")}}
			for name, text := range test.files {
				host[name] = &fstest.MapFile{Data: []byte(text)}
			}
			_, found, err := Detect(host)
			var kinds []Kind
			for _, n := range found {
				kinds = append(kinds, n.Kind)
				if strings.Contains(n.Evidence, "process 18") != (name == "both" && n.Kind == Koordlet || name == "a pretender and the real") {
					t.Errorf("%s is told by %q: not its first privileged process", n.Kind, n.Evidence)
				}
				if n.Owns == "" || n.Evidence == "" || n.Response == "" || n.Fix == "" {
					t.Errorf("%s lacks words: %+v", n.Kind, n)
				}
			}
			if !slices.Equal(kinds, test.want) {
				t.Errorf("found %q, want %q", kinds, test.want)
			}
			if (err != nil) != (test.bad != "") || err != nil && !strings.Contains(err.Error(), test.bad) {
				t.Errorf("error %v, want one about %q", err, test.bad)
			}
		})
	}
}

func TestDetectWithoutProc(t *testing.T) {
	t.Parallel()
	_, found, err := Detect(fstest.MapFS{"var/lib/kubelet/memory_manager_state": {Data: []byte(`{"policyName":"Static"}`)}})
	if err == nil || len(found) != 1 {
		t.Errorf("found %v, %v; want the memory manager, and an error about proc", found, err)
	}
}

func TestParseCPUManagerState(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want string
		bad  bool
	}{
		"second format": {`{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"uid-b":{"main":"2-3"},"uid-a":{"side":"1","main":"8"}},"checksum":3}`, "uid-a/main=8 uid-a/side=1 uid-b/main=2-3", false},
		"first format":  {`{"policyName":"static","defaultCpuSet":"0","entries":{"4f2e":"1-2"},"checksum":3}`, "/4f2e=1-2", false},
		"later fields":  {`{"policyName":"static","defaultCpuSet":"0","podEntries":{"u":{}},"entries":{"u":{"c":"1"}},"checksum":3}`, "u/c=1", false},
		"not exclusive": {`{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"c":"0-3","d":""}}}`, "", false},
		"no entries":    {`{"policyName":"static","defaultCpuSet":"0-3","entries":null}`, "", false},
		"a null entry":  {`{"policyName":"static","entries":{"u":null}}`, "", false},
		"a bad set":     {`{"policyName":"static","entries":{"u":{"c":"1-"}}}`, "", true},
		"a bad default": {`{"policyName":"static","defaultCpuSet":"x"}`, "", true},
		"a number":      {`{"policyName":"static","entries":{"u":3}}`, "", true},
		"nothing":       {``, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state, err := parseCPUManagerState([]byte(test.text))
			var got []string
			for _, p := range state.Pins {
				got = append(got, fmt.Sprintf("%s/%s=%s", p.PodUID, p.Container, p.CPUs))
			}
			if (err != nil) != test.bad || strings.Join(got, " ") != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func FuzzParseCPUManagerState(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"uid":{"main":"2-3"}},"checksum":3}`))
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0","entries":{"4f2e":"1-2"},"checksum":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		state, err := parseCPUManagerState(text)
		for _, p := range state.Pins {
			if err != nil || p.CPUs == (cpuset.Set{}) {
				t.Errorf("%q gives %+v, %v", text, p, err)
			}
		}
	})
}
