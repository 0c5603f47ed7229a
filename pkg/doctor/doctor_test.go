package doctor

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", file, text)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	for name, facts := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Examine(facts)
			helpful(t, &r)
			var text strings.Builder
			area := ""
			for _, f := range r.Findings {
				if f.Area != area {
					area = f.Area
					fmt.Fprintf(&text, "%s\n", area)
				}
				fmt.Fprintf(&text, "  %-4s %s: %s", f.Level, f.Name, f.What)
				if len(f.On) > 0 {
					fmt.Fprintf(&text, " %s", f.On)
				}
				text.WriteString("\n")
				if f.Do != "" {
					fmt.Fprintf(&text, "       do: %s\n", f.Do)
				}
			}
			golden(t, name+".golden", text.String())
		})
	}
}

// helpful checks that every finding has a name, and advice if it is not ok.
func helpful(t *testing.T, r *Report) {
	t.Helper()
	worst := OK
	for _, f := range r.Findings {
		worst = max(worst, f.Level)
		if f.Area == "" || f.Name == "" || f.What == "" || (f.Do == "") != (f.Level == OK) {
			t.Errorf("%+v", f)
		}
	}
	if worst != r.Level || r.Count(OK)+r.Count(Note)+r.Count(Warn)+r.Count(Fail) != len(r.Findings) {
		t.Errorf("level %s of %d findings, want %s", r.Level, len(r.Findings), worst)
	}
}

func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	r := Examine(nodes(t)["debian-hybrid"])
	text, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "debian-hybrid.json", string(text)+"\n")
	var back struct {
		Level    Level
		Findings []Finding
	}
	if err := json.Unmarshal(text, &back); err != nil || back.Level != r.Level || !reflect.DeepEqual(back.Findings, r.Findings) {
		t.Errorf("%v: %+v", err, back)
	}
	if err := new(Level).UnmarshalText([]byte("bad")); err == nil {
		t.Error("a level that is none is read")
	}
}

// The machine that runs the tests is examined, too.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	r := Examine(&Facts{Host: os.DirFS("/"), Root: "/", Arch: "amd64", Config: config.Default()})
	helpful(t, &r)
	if len(r.Findings) < 15 {
		t.Errorf("only %d findings", len(r.Findings))
	}
}

// Whatever a pod calls its processes, none is taken for the node's kubelet, and no file that they
// name is read.
func TestPodsAreNotTheKubelet(t *testing.T) {
	t.Parallel()
	for cgroup, want := range map[string]string{
		"0::/system.slice/kubelet.service\n":                                            "static from the kubelet's next start on",
		"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice\n": "none",
		"5:cpuset:/kubepods/besteffort/pod1/c\n0::/\n":                                  "none",
	} {
		r := Examine(facts(host(t, "2 cores", v2(), texts{
			"proc/9/comm": "kubelet\n", "proc/9/status": "Name:\tkubelet\nPPid:\t1\n", "proc/9/cgroup": cgroup, "proc/9/cmdline": "kubelet\x00--config=/secret\x00",
			"secret": "cpuManagerPolicy: static\n", "var/lib/kubelet/config.yaml": "cpuManagerPolicy: none\n",
		}), nil))
		found := false
		for _, f := range r.Findings {
			found = found || f.Name == "CPU manager" && strings.HasPrefix(f.What, want)
		}
		if !found {
			t.Errorf("%q: %+v", cgroup, r.Findings)
		}
	}
}

// If the host's root is mounted elsewhere, its mounts are listed beside those of this container.
func TestRootElsewhere(t *testing.T) {
	t.Parallel()
	files := v2()
	files["proc/self/mountinfo"] = "1 0 0:1 /../.. /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n2 0 0:1 / /host/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	f := facts(namespaced(host(t, "2 cores", kernelOf("6.8.0", "x"), files, containerd()), hostNamespace), mainlineV2())
	f.Root = "/host"
	r := Examine(f)
	for _, finding := range r.Findings {
		if finding.Level == Fail {
			t.Errorf("%+v", finding)
		}
		if finding.Area == "cgroups" && finding.Name == "cpu" && finding.What != "v2 at /host/sys/fs/cgroup, enabled for pods" {
			t.Errorf("%+v", finding)
		}
	}
}

func TestControllersHandedDown(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"sys/fs/cgroup/cgroup.subtree_control":                "not enabled for the cgroups below /sys/fs/cgroup: no container can have CPUs of its own",
		"sys/fs/cgroup/kubepods.slice/cgroup.subtree_control": "not enabled for the cgroups below /sys/fs/cgroup/kubepods.slice: no container can have CPUs of its own",
	} {
		r := Examine(facts(host(t, "2 cores", v2(), texts{file: "cpu io memory\n"}), nil))
		found := false
		for _, f := range r.Findings {
			found = found || f.Level == Fail && f.Name == "cpuset" && f.What == want && strings.HasPrefix(f.Do, "echo +cpuset > /"+file)
		}
		if !found {
			t.Errorf("%s: %+v", file, r.Findings)
		}
	}
}

func TestReleases(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{"5.8.18": true, "4.19.91-25": true, "5.9.0": false, "6.1": false, "10.1-x": false, "x": false} {
		if got := before(release, 5, 9); got != want {
			t.Errorf("%s is before 5.9: %v", release, got)
		}
	}
}

// TestEvictionThatCannotWork checks that the doctor warns before a pod has to be evicted.
func TestEvictionThatCannotWork(t *testing.T) {
	t.Parallel()
	f := facts(host(t, "2 cores"), baseV1(nil))
	for _, test := range []struct {
		by   control.EvictBy
		err  error
		want []Level
	}{
		{control.EvictReport, nil, nil},
		{control.EvictCRI, nil, []Level{OK}},
		{control.EvictCRI, errors.New("no CRI socket"), []Level{Warn}},
		{control.EvictKubernetes, nil, []Level{OK}},
		{control.EvictKubernetes, errors.New("no CRI socket"), []Level{Warn}},
		{control.EvictKubernetes, errors.New("no CRI socket"), []Level{Warn, Warn}},
	} {
		f.Config.Control.Eviction.By, f.EvictErr = test.by, test.err
		f.Status = nil
		if len(test.want) == 2 {
			f.Status = &status.Status{Loop: &status.Loop{Evictions: status.Evictions{Problem: "nobody took it: no CRI socket either"}}}
		}
		var got []Level
		for _, finding := range (&node{Facts: f}).eviction() {
			got = append(got, finding.Level)
			if finding.Level != OK && (finding.Do == "" || !strings.Contains(finding.What, "no CRI socket")) {
				t.Errorf("%+v", finding)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("by %s, %v: levels %v, want %v", test.by, test.err, got, test.want)
		}
	}
}

// TestPodsHaveFewerCPUs checks that the doctor names CPUs that no container can have.
func TestPodsHaveFewerCPUs(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[string]string{"2-3": "lacks CPUs 0-1", "0-3": "", "": ""} {
		for name, files := range map[string]texts{
			"v2": {"sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective": allowed + "\n"},
			"v1": {"sys/fs/cgroup/cpuset/kubepods/cpuset.cpus": allowed + "\n"},
		} {
			layout := v2()
			if name == "v1" {
				layout = v1()
			}
			r := Examine(facts(host(t, "4 cores", layout, files), nil))
			got := ""
			for _, f := range r.Findings {
				if f.Name == "CPUs of pods" {
					got += f.What
				}
			}
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s with CPUs %q: %q, want %q", name, allowed, got, want)
			}
		}
	}
}

// TestBestEffortServices checks that the doctor names pods that request no CPU and are no batch
// work, if there is batch work.
func TestBestEffortServices(t *testing.T) {
	t.Parallel()
	container := func(ref, class, qos string) status.Container {
		var c status.Container
		c.Ref, c.Cgroup = ref, "/kubepods/"+qos+"/pod1/c"
		c.Class, _ = workload.ParseClass(class)
		return c
	}
	proxy, web, job := container("kube-system/proxy/main", "LS", "besteffort"), container("a/web/main", "LS", "burstable"), container("a/job/main", "BE", "besteffort")
	for _, test := range []struct {
		containers []status.Container
		want       string
	}{
		{[]status.Container{proxy, web, job}, "kube-system/proxy/main request no CPU"},
		{[]status.Container{proxy, web}, ""},
		{[]status.Container{web, job}, ""},
	} {
		f := facts(host(t, "2 cores"), nil)
		f.Status = &status.Status{Containers: test.containers}
		got := ""
		for _, finding := range (&node{Facts: f}).weightless() {
			got += finding.What
		}
		if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestRights checks that a plugin without CAP_SYS_RESOURCE works, and that the doctor says what
// doesn't work without it.
func TestRights(t *testing.T) {
	t.Parallel()
	for capabilities, want := range map[string]int{"0000000000080002": 1, "0000000001080002": 0, "": 0} {
		status := "Name:\tsluice\nPPid:\t1\n"
		if capabilities != "" {
			status += "CapEff:\t" + capabilities + "\n"
		}
		n := &node{Facts: facts(host(t, "2 cores", texts{"proc/9/status": status, "proc/9/cmdline": "/usr/bin/sluice\x00run\x00"}), nil)}
		n.processes = n.readProcesses()
		if got := n.rights(); len(got) != want || want > 0 && (got[0].Level != Note || !strings.Contains(got[0].What, "CAP_SYS_RESOURCE")) {
			t.Errorf("with capabilities %q: %+v", capabilities, got)
		}
	}
}

// The doctor warns of a rule that reclaims memory on a kernel that can't.
func TestRulesThatDoNothing(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Facts){
		"action reclaim of cache, idle does nothing here: the kernel has no memory.reclaim": func(*Facts) {},
		"": func(f *Facts) { f.Features.Reclaim = true },
	} {
		f := facts(host(t, "2 cores"), baseV1(nil))
		for name, r := range map[string]control.Rule{
			"cache": {Action: control.RuleReclaim}, "idle": {Action: control.RuleReclaim, Mode: control.Preview},
			"off": {Action: control.RuleReclaim, Mode: control.Off}, "slow": {Action: control.RuleThrottle},
		} {
			r.Name = name
			f.Config.Control.Rules = append(f.Config.Control.Rules, r)
		}
		slices.SortFunc(f.Config.Control.Rules, func(a, b control.Rule) int { return strings.Compare(a.Name, b.Name) })
		change(f)
		got := ""
		for _, finding := range (&node{Facts: f}).rules() {
			got += finding.What
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNRIOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files texts
		off   bool
		file  string
	}{
		"nothing":       {texts{}, false, ""},
		"off":           {texts{"c.toml": "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"}, true, "c.toml"},
		"disabled":      {texts{"c.toml": "disabled_plugins = ['io.containerd.nri.v1.nri']\n"}, true, "c.toml"},
		"imports":       {texts{"c.toml": "imports = ['/d/*.toml', 'c.toml']\n", "d/x.toml": "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"}, true, "d/x.toml"},
		"crio on":       {texts{"c.toml": "[crio.nri]\nenable_nri = false\n", "more/a.conf": "[crio.nri]\nenable_nri = true\n"}, false, "more/a.conf"},
		"not a pattern": {texts{"c.toml": "imports = ['[', '../../x']\n"}, false, ""},
	} {
		n := &node{Facts: facts(host(t, "2 cores", test.files), nil)}
		if off, file, err := n.nriOff("c.toml", "more/*.conf"); off != test.off || file != test.file || err != nil {
			t.Errorf("%s: %v %q %v", name, off, file, err)
		}
	}
	n := &node{Facts: facts(host(t, "2 cores", texts{"c.toml": "="}), nil)}
	if _, file, err := n.nriOff("c.toml", ""); err == nil || file != "c.toml" {
		t.Errorf("%q %v", file, err)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for want, levels := range map[string][]Level{
		"":                         {OK, Note},
		"2 warnings, and --strict": {Warn, Note, Warn},
		"1 finding of level fail: Sluice can't work like this": {Warn, Fail},
	} {
		var r Report
		for _, l := range levels {
			r.Findings = append(r.Findings, Finding{Level: l})
		}
		for _, strict := range []bool{false, true} {
			err := r.Verdict(strict)
			wanted := r.Count(Fail) > 0 || strict && r.Count(Warn) > 0
			if (err != nil) != wanted || err != nil && err.Error() != want {
				t.Errorf("%v strict %v: %v, want %q", levels, strict, err, want)
			}
		}
	}
}

// expectOne checks that a check has one finding, of that level, whose texts have each part of want
// between bars.
func expectOne(t *testing.T, name string, got []Finding, level Level, want string) {
	t.Helper()
	if len(got) != 1 || got[0].Level != level {
		t.Errorf("%s: %+v", name, got)
		return
	}
	for part := range strings.SplitSeq(want, "|") {
		if !strings.Contains(got[0].What+got[0].Do, part) {
			t.Errorf("%s: %+v says nothing of %q", name, got[0], part)
		}
	}
}
