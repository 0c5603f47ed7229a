package doctor

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

func FuzzParseMounts(f *testing.F) {
	f.Add(v1()["proc/self/mountinfo"])
	f.Add("29 23 0:26 /../.. /sys/fs/cgroup\\040x rw shared:4 - cgroup2 cgroup2 rw\n")
	f.Add("36 35 98:0 / / rw - - - - -\n")
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts([]byte(text))
		for _, m := range mounts {
			if err != nil || !strings.HasPrefix(m.at, "/") || m.kind == "" {
				t.Errorf("%+v, %v", m, err)
			}
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add("Name:\tx\nPPid:\t2\nCpus_allowed_list:\t0-3,8\n")
	f.Add("Name:\t:\nPPid:\nCpus_allowed_list:\t3-1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := parseStatus(text); ok != (p.name != "") {
			t.Errorf("%+v, %v", p, ok)
		}
	})
}

// Whatever the files of a kubelet or a runtime contain, all other checks are made.
func FuzzFiles(f *testing.F) {
	f.Add("cpuManagerPolicy: static\nfeatureGates: {MemoryQoS: true}\n", "--config=/x\x00--feature-gates=MemoryQoS=true", "imports = ['*']\n", "flags : rdt_a mba\n")
	f.Add("featureGates: 3", "--config\x00\x00", "plugins = 3", "PRETTY_NAME='x")
	machine := host(f, "2 cores") // the fuzzed files are added to those of this machine
	f.Fuzz(func(t *testing.T, kubelet, args, runtime, other string) {
		h := maps.Clone(machine)
		for name, text := range (texts{
			"var/lib/kubelet/config.yaml": kubelet, "proc/5/comm": "kubelet\n", "proc/5/status": "Name:\tkubelet\n", "proc/5/cmdline": args,
			"etc/containerd/config.toml": runtime, "run/containerd/containerd.sock": "", "proc/cpuinfo": other, "etc/os-release": other,
		}) {
			h[name] = &fstest.MapFile{Data: []byte(text)}
		}
		r := Examine(facts(h, nil))
		helpful(t, &r)
	})
}
