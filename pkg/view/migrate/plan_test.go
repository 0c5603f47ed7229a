package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// static is a node of two NUMA nodes with 0-7,16-23 and 8-15,24-31, whose kubelet has given these
// CPUs, as "pod/container=cpus".
func static(t testing.TB, pins ...string) *Facts {
	t.Helper()
	m, err := synth.Machine("2 packages 8 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	f := &Facts{Node: "n1", Service: true, Machine: m, Config: config.Default()}
	f.CPU = peers.CPUManagerState{File: "/var/lib/kubelet/cpu_manager_state", Policy: "static", Default: m.Online}
	f.Memory = peers.MemoryManagerState{File: "/var/lib/kubelet/memory_manager_state"}
	f.Kubelet = peers.KubeletConfig{File: "/var/lib/kubelet/config.yaml", CPUManagerPolicy: "static"}
	for _, text := range pins {
		name, cpus, _ := strings.Cut(text, "=")
		pod, container, _ := strings.Cut(name, "/")
		pin := peers.Pin{PodUID: pod, Container: container, CPUs: cpuset.MustParse(cpus)}
		f.CPU.Pins = append(f.CPU.Pins, pin)
		f.CPU.Default = cpuset.Difference(f.CPU.Default, pin.CPUs)
	}
	return f
}

// runs adds a container that the plugin knows.
func (f *Facts) runs(uid, ref string, class workload.Class, milli workload.MilliCPU) {
	f.Containers = append(f.Containers, status.Container{ID: uid + ref, PodUID: uid, Ref: ref, Class: class, Requested: milli})
}

// record is the kubelet's record of pods with one container each, called main, by their CPU requests.
func record(t testing.TB, pods map[string]string) *grants.Record {
	t.Helper()
	var entries []string
	for uid, cpu := range pods {
		entries = append(entries, fmt.Sprintf(`\"%s\":{\"ContainerResources\":{\"main\":{\"requests\":{\"cpu\":\"%s\"}}}}`, uid, cpu))
	}
	r, err := grants.Parse([]byte(`{"data":"{\"entries\":{` + strings.Join(entries, ",") + `}}","checksum":1}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shown writes the containers of a plan: "pod/container class now@nodes>new@nodes", with "(init)" or the problem.
func shown(p *Plan) []string {
	var all []string
	for i := range p.Pods {
		pod := &p.Pods[i]
		for _, c := range pod.Containers {
			text := fmt.Sprintf("%s/%s %s %s@%s>%s@%s", pod.Title(), c.Name, c.Class, c.CPUs, c.Nodes, c.NewCPUs, c.NewNodes)
			if c.Init {
				text += " init"
			}
			if c.Problem != "" {
				text += " refused"
			}
			all = append(all, text)
		}
	}
	return all
}

func TestPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pins        []string
		change      func(*Facts)
		want        []string
		annotations []string // of all pods
		keeps       int
	}{
		"by UIDs": {
			[]string{"u2/main=1-2,17-18", "u1/main=8,24"}, func(f *Facts) { f.StatusProblem = "no answer" },
			[]string{"u1/main LSR 8,24@1>0,16@0", "u2/main LSR 1-2,17-18@0>1-2,17-18@0"},
			[]string{"class.sluice.dev/container.main=LSR", "class.sluice.dev/container.main=LSR"}, 0,
		},
		"names, and those without at the end": {
			[]string{"u1/main=1,17", "u2/db=8,24", "u2/log=9,25"}, func(f *Facts) {
				f.runs("u2", "data/db-0/db", workload.LS, 2000)
				f.runs("u2", "data/db-0/proxy", workload.LS, 500)
			},
			[]string{"data/db-0/db LSR 8,24@1>0,16@0", "data/db-0/log LSR 9,25@1>1,17@0", "u1/main LSR 1,17@0>2,18@0"},
			[]string{"class.sluice.dev/container.db=LSR", "class.sluice.dev/container.log=LSR", "class.sluice.dev/container.main=LSR"}, 0,
		},
		"a class that stays": {
			[]string{"u1/main=1,17"}, func(f *Facts) { f.runs("u1", "a/b/main", workload.LSE, 2000) },
			[]string{"a/b/main LSE 1,17@0>0,16@0"}, nil, 1,
		},
		"whole cores": {
			[]string{"u1/main=1,17"}, func(f *Facts) { f.Kubelet.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"} },
			[]string{"u1/main LSE 1,17@0>0,16@0"}, []string{"class.sluice.dev/container.main=LSE"}, 0,
		},
		"an odd number of hyperthreads from the time before that option": {
			[]string{"u1/main=1"}, func(f *Facts) { f.Kubelet.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"} },
			[]string{"u1/main LSE 1@0>@ refused"}, []string{"class.sluice.dev/container.main=LSE"}, 0,
		},
		"options that are annotations": {
			[]string{"u1/main=1-2,8-9", "u2/main=3-4"}, func(f *Facts) {
				f.Kubelet.CPUManagerPolicyOptions = map[string]string{"distribute-cpus-across-numa": "true", "distribute-cpus-across-cores": "true", "full-pcpus-only": "false"}
			},
			[]string{"u1/main LSR 1-2,8-9@0-1>0-1,8-9@0-1", "u2/main LSR 3-4@0>2-3@0"},
			[]string{
				"class.sluice.dev/container.main=LSR", "numa.sluice.dev/container.main=spread", "smt.sluice.dev/container.main=one-per-core",
				"class.sluice.dev/container.main=LSR", "smt.sluice.dev/container.main=one-per-core",
			}, 0,
		},
		"one NUMA node": {
			[]string{"u1/main=1-7,17-23"}, func(f *Facts) {
				f.Kubelet.TopologyManagerPolicy = "single-numa-node"
				f.Config.Reserved = cpuset.MustParse("0-2,8-10")
			},
			[]string{"u1/main LSR 1-7,17-23@0>@ refused"}, []string{"class.sluice.dev/container.main=LSR", "numa.sluice.dev/container.main=single"}, 0,
		},
		"an init container whose CPUs are used again": {
			[]string{"u1/main=1-2,17-18", "u1/prepare=1,17"}, nil,
			[]string{"u1/prepare LSR 1,17@0>0,16@0 init", "u1/main LSR 1-2,17-18@0>0-1,16-17@0"},
			[]string{"class.sluice.dev/container.main=LSR", "class.sluice.dev/container.prepare=LSR"}, 0,
		},
		"an init container with as many, which the record does not have": {
			[]string{"u1/main=1,17", "u1/zz=1,17"}, func(f *Facts) { f.Record = record(t, map[string]string{"u1": "2"}) },
			[]string{"u1/zz LSR 1,17@0>0,16@0 init", "u1/main LSR 1,17@0>0,16@0"},
			[]string{"class.sluice.dev/container.main=LSR", "class.sluice.dev/container.zz=LSR"}, 0,
		},
		"what others request stays free": {
			[]string{"u1/main=1-7,17-23", "u2/main=8-13,24-29"}, func(f *Facts) { f.runs("u3", "a/web/main", workload.LS, 5500) },
			[]string{"u1/main LSR 1-7,17-23@0>0-6,16-22@0", "u2/main LSR 8-13,24-29@1>8-13,24-29@1"},
			[]string{"class.sluice.dev/container.main=LSR", "class.sluice.dev/container.main=LSR"}, 0,
		},
		"what others request, by the record": {
			[]string{"u1/main=1-7,17-23", "u2/main=8-13,24-29"}, func(f *Facts) {
				f.StatusProblem, f.Record = "no answer", record(t, map[string]string{"u1": "14", "u2": "12", "u3": "7500m"})
			},
			[]string{"u1/main LSR 1-7,17-23@0>0-6,16-22@0", "u2/main LSR 8-13,24-29@1>@ refused"},
			[]string{"class.sluice.dev/container.main=LSR", "class.sluice.dev/container.main=LSR"}, 0,
		},
		"no pins": {nil, nil, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := static(t, test.pins...)
			if test.change != nil {
				test.change(f)
			}
			p := New(f)
			if got := shown(&p); !slices.Equal(got, test.want) {
				t.Errorf("plan\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			var annotations []string
			keeps := 0
			for i := range p.Pods {
				for _, key := range slices.Sorted(maps.Keys(p.Pods[i].Annotations)) {
					annotations = append(annotations, key+"="+p.Pods[i].Annotations[key])
				}
				if p.Pods[i].Keeps {
					keeps++
				}
			}
			if !slices.Equal(annotations, test.annotations) || keeps != test.keeps {
				t.Errorf("annotations %q, want %q; %d pods keep CPUs of their own, want %d", annotations, test.annotations, keeps, test.keeps)
			}
			n, first := p.Refused()
			if refused := strings.Count(strings.Join(test.want, "\n"), "refused"); n != refused || (first == "") != (n == 0) {
				t.Errorf("%d refused, %q first, want %d", n, first, refused)
			}
		})
	}
}

func TestOptionsAndSteps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*Facts)
		options []string // "key=value: text that it becomes", in order
		steps   []string // texts and commands, in order, among others
		notes   []string
	}{
		"policies alone": {
			func(*Facts) {},
			[]string{"cpuManagerPolicy=static: none"},
			[]string{
				"kubectl drain n1 ", "systemctl stop kubelet", "(/var/lib/kubelet/config.yaml, ", "set cpuManagerPolicy: none.", "rm /var/lib/kubelet/cpu_manager_state",
				"systemctl start kubelet", "sluice migrate static --plan", "manifests of 1 pod", "kubectl uncordon n1", "sluice status",
			},
			[]string{"DaemonSets"},
		},
		"all options": {
			func(f *Facts) {
				f.Kubelet.CPUManagerPolicyOptions = map[string]string{
					"full-pcpus-only": "true", "distribute-cpus-across-numa": "true", "align-by-socket": "true", "distribute-cpus-across-cores": "false",
					"strict-cpu-reservation": "true", "prefer-align-cpus-by-uncorecache": "true", "new-one": "true",
				}
				f.Kubelet.ReservedSystemCPUs, f.Kubelet.KubeReserved = "0,16", map[string]string{"cpu": "500m"}
				f.Kubelet.TopologyManagerPolicy = "single-numa-node"
				f.Memory.Policy, f.Kubelet.ReservedMemory = "Static", []any{1}
			},
			[]string{
				"cpuManagerPolicy=static: none", "cpuManagerPolicyOptions=align-by-socket=true,distribute-cpus-across-cores=false,: does not start", "align-by-socket=true: no counterpart",
				"distribute-cpus-across-numa=true: numa.sluice.dev: spread", "full-pcpus-only=true: LSE", "new-one=true: does not know", "prefer-align-cpus-by-uncorecache=true: l3.sluice.dev: pack",
				"strict-cpu-reservation=true: reserved", "memoryManagerPolicy=Static: None", "reservedMemory=set: Remove", `reservedSystemCPUs=0,16: reserved: "0,16"`, "kubeReserved.cpu=500m: scheduler",
				"topologyManagerPolicy=single-numa-node: numa.sluice.dev: single",
			},
			[]string{"remove cpuManagerPolicyOptions, set memoryManagerPolicy: None, remove reservedMemory.", "rm /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state"},
			[]string{"DaemonSets"},
		},
		"the same CPUs are reserved": {
			func(f *Facts) {
				f.Kubelet.ReservedSystemCPUs, f.Config.Reserved = "0,16", cpuset.MustParse("0,16")
			},
			[]string{"cpuManagerPolicy=static: none", "reservedSystemCPUs=0,16: has the same CPUs"}, nil, []string{"DaemonSets"},
		},
		"the memory manager alone": {
			func(f *Facts) { f.CPU.Policy, f.Memory.Policy = "none", "Static" },
			[]string{"memoryManagerPolicy=Static: None"}, []string{"set memoryManagerPolicy: None.", "rm /var/lib/kubelet/memory_manager_state", "uncordon"}, []string{"DaemonSets"},
		},
		"neither": {func(f *Facts) { f.CPU.Policy, f.Kubelet.CPUManagerPolicy = "none", "none" }, nil, nil, nil},
		"static from the next start on": {
			func(f *Facts) { f.CPU.Policy = "none" }, nil, nil, []string{"not in force: set it to none"},
		},
		"inside another program, without a plugin": {
			func(f *Facts) {
				f.Service, f.Node, f.StatusProblem, f.RecordProblem, f.KubeletProblem = false, "", "no answer", "no file", "no rights"
			},
			[]string{"cpuManagerPolicy=static: none"}, []string{"kubectl drain NODE", "Stop the program", "Start that program", "Start Sluice, if", "manifests of 1 pod"},
			[]string{"no rights", "no answer", "no file", "DaemonSets"},
		},
		"a configuration that was not found": {
			func(f *Facts) { f.Kubelet = peers.KubeletConfig{} }, []string{"cpuManagerPolicy=static: none"}, []string{"configuration (its flags, "}, []string{"was not found", "DaemonSets"},
		},
		"too little room": {
			func(f *Facts) { f.runs("u9", "a/b/c", workload.LS, 32000) }, []string{"cpuManagerPolicy=static: none"}, nil, []string{"DaemonSets", "1 container would not get"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := static(t, "u1/main=1,17")
			test.change(f)
			p := New(f)
			if len(p.Options) != len(test.options) {
				t.Errorf("%d options, want %d: %+v", len(p.Options), len(test.options), p.Options)
			}
			for i, want := range test.options[:min(len(test.options), len(p.Options))] {
				set, becomes, _ := strings.Cut(want, ": ")
				if o := p.Options[i]; !strings.HasPrefix(o.Key+"="+o.Value, set) || !strings.Contains(o.Becomes, becomes) {
					t.Errorf("option %d is %+v, want %s", i, o, want)
				}
			}
			var said strings.Builder
			for _, s := range p.Steps {
				said.WriteString(s.Do + "\n" + strings.Join(s.Commands, "\n") + "\n")
			}
			inOrder(t, said.String(), test.steps)
			if (len(p.Steps) == 0) != (!p.Static && !p.MemoryManagerStatic) {
				t.Errorf("%d steps", len(p.Steps))
			}
			if inOrder(t, strings.Join(p.Notes, "\n"), test.notes); len(p.Notes) != len(test.notes) {
				t.Errorf("notes %q, want those about %q", p.Notes, test.notes)
			}
		})
	}
}

// inOrder checks that a text has parts in their order.
func inOrder(t *testing.T, text string, parts []string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%q is not where it should be in\n%s", part, text)
			return
		}
		rest = after
	}
}
