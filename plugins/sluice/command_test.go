package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

const (
	twoSockets = "2 packages 2 nodes 8 cores 2 threads"
	podYAML    = `kind: Pod
metadata: {name: db-0, namespace: data, annotations: {class.sluice.dev: LSE}}
spec:
  initContainers:
  - {name: prepare, resources: {limits: {cpu: 2, memory: 1Gi}}}
  containers:
  - {name: main, resources: {limits: {cpu: 8, memory: 4Gi}}}
---
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: nginx, resources: {requests: {cpu: 500m}}}]}}}
`
	refusedYAML = `kind: Pod
metadata: {name: db-0, annotations: {class.sluice.dev: LSE}}
spec: {containers: [{name: main, resources: {limits: {cpu: 500m, memory: 4Gi}}}]}
`
)

func TestExitStatus(t *testing.T) {
	t.Parallel()
	socket := serve(t, plugin{status: statustest.Calm(), planner: testPlanner(t, twoSockets)})
	closing, other := serve(t, plugin{}), serve(t, silent{plugin{status: statustest.Calm()}})
	pod, refused := file(t, "pod.yaml", podYAML), file(t, "refused.yaml", refusedYAML)
	good, bad := file(t, "good.yaml", "reserved: \"0-1\"\n"), file(t, "bad.yaml", "mode: of\npools: {mode: on}\n")
	for _, test := range []struct {
		args string
		exit int
		want string // part of the output, or of the errors if exit is not 0
	}{
		{"", 0, "Available Commands"},
		{"--help", 0, "Exit status"},
		{"help plan", 0, "kubectl get pod"},
		{"version", 0, "sluice "},
		{"version now", exitUsage, "version takes flags alone, not \"now\""},
		{"run --index 5", exitUsage, "invalid plugin index \"5\", must be 2 digits"},
		{"run --name a/b", exitUsage, "invalid plugin name \"a/b\""},
		{"plan pod.yaml", exitUsage, "plan takes its file with -f: -f pod.yaml"},
		{"config diff", exitUsage, "diff takes one file; - is standard input"},
		{"config nonsense", exitUsage, "unknown command \"nonsense\""},
		{"batch of", exitUsage, "batch takes on, off, auto or no word, not [\"of\"]"},
		{"completion nonsense", exitUsage, "unknown command \"nonsense\""},
		{"nonsense", exitUsage, "unknown command \"nonsense\""},
		{"--nonsense", exitUsage, "See 'sluice --help'"},
		{"topology --machine", exitUsage, "flag needs an argument"},
		{"topology -o xml", exitUsage, "must be tree or json"},
		{"topology --machine x --host-root /", exitUsage, "none of the others"},
		{"topology --machine nonsense", exitFailure, "nonsense"},
		{"topology --host-root /nonexistent", exitFailure, "the machine below /nonexistent can't be read"},
		{"topology --machine 4", exitFailure, "sluice: "},
		{"status --status-socket " + socket, 0, "data/db-0/main"},
		{"status -o wide --status-socket " + socket, 0, "/kubepods/pod1/4f1c2a9d"},
		{"status -o json --status-socket " + socket, 0, `"drift": 2`},
		{"status --status-socket /nonexistent", exitFailure, "no answer on /nonexistent (is sluice running, and are you root?): dial unix"},
		{"status --status-socket " + closing, exitFailure, "sluice: the plugin answers: sluice is shutting down\n"},
		{"explain", exitUsage, "the name of one pod"},
		{"explain data/db-0 --status-socket " + socket, 0, "annotation class.sluice.dev/pod"},
		{"explain db-1 -o json --status-socket " + socket, 0, `"ref": "data/db-1/main"`},
		{"explain db-0 --status-socket " + socket, exitFailure, "may mean any of"},
		{"explain nobody --status-socket " + socket, exitFailure, "no container on this node"},
		{"plan", exitUsage, `required flag(s) "file"`},
		{"plan -f " + pod + " -c " + good, exitUsage, "--config needs --machine or --host-root"},
		{"plan -f " + pod + " --status-socket " + socket, 0, "annotation class.sluice.dev"},
		{"plan -f " + pod + " --status-socket " + closing, exitFailure, "shutting down"},
		{"plan -f " + refused + " --status-socket " + socket, exitFailure, "container default/db-0/main would be refused"},
		{"plan -f " + pod + " --status-socket " + other, exitFailure, "the plugin answers for 0 of 2 containers"},
		{"plan -f /nonexistent --machine 4", exitFailure, "/nonexistent"},
		{"plan -f " + good + " --machine 4,cores", exitFailure, "sluice: "},
		{"check", exitUsage, `required flag(s) "file"`},
		{"check -f " + good, 0, "ok: mode on, pools critical, online, batch (overlap), reserved CPUs 0-1, system CPUs none"},
		{"check -f " + bad, exitFailure, bad + ": line 1: mode: "},
		{"check -f " + bad, exitFailure, bad + " can't be used: it has 2 mistakes"},
		{"check -f /nonexistent", exitFailure, "/nonexistent"},
	} {
		got := run(t, "", strings.Fields(test.args)...)
		text := got.out
		if test.exit != 0 {
			text = got.errs
		}
		if got.exit != test.exit || !strings.Contains(text, test.want) {
			t.Errorf("sluice %s: exit status %d, want %d with %q\n%s%s", test.args, got.exit, test.exit, test.want, got.out, got.errs)
		}
		if (test.exit == 0) != (got.errs == "") {
			t.Errorf("sluice %s: exit status %d with errors %q", test.args, got.exit, got.errs)
		}
	}
}

func TestPreInstalledPluginRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args         []string
		preInstalled bool
		want         []string
	}{
		{nil, false, nil},
		{nil, true, []string{"run"}},
		{[]string{"version"}, true, []string{"version"}},
	} {
		if got := arguments(test.args, test.preInstalled); !slices.Equal(got, test.want) {
			t.Errorf("%v, %v: %v", test.args, test.preInstalled, got)
		}
	}
}

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot())[1:] {
		if c.RunE == nil && !c.HasSubCommands() {
			t.Errorf("%s has no RunE, by which its errors set the exit status", c.CommandPath())
		}
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s has no long help or no example", c.CommandPath())
		}
		checkWidth(t, c.Long)
		checkWidth(t, c.Example)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"table", "json", "oci"} {
		got := run(t, podYAML, "plan", "-f", "-", "--machine", twoSockets, "-o", output)
		if got.exit != 0 {
			t.Errorf("%s: %s", output, got.errs)
		}
		golden(t, "plan-"+output, got.out)
	}
	got := run(t, refusedYAML+"---\n"+podYAML, "plan", "-f", "-", "--machine", twoSockets)
	if got.exit != exitFailure {
		t.Errorf("exit status %d", got.exit)
	}
	golden(t, "plan-refused", got.out)
	if got := run(t, refusedYAML, "plan", "-f", "-", "--machine", twoSockets, "-o", "oci"); got.exit != exitFailure || got.out != "{}\n" {
		t.Errorf("%+v", got)
	}
}

// A running plugin without containers and a machine of the same kind give the same answer.
func TestPlanLive(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	planner := testPlanner(t, twoSockets)
	s.Machine.MemoryBytes, _ = planner.Memory()
	socket := serve(t, plugin{status: s, planner: planner})
	live := run(t, podYAML, "plan", "-f", "-", "--status-socket", socket, "-o", "json")
	empty := run(t, podYAML, "plan", "-f", "-", "--machine", twoSockets, "-o", "json")
	if live != empty {
		t.Errorf("live:\n%+v\nempty:\n%+v", live, empty)
	}
}

func TestPlanByConfig(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		"reserved: \"0-3,32-35\"\n":           `"cpus": "4-7,36-39"`,
		"mode: preview\n":                     `"cpus": "0-3,32-35"`,
		"classify: [{labels: {}, set: {}}]\n": "classify[0]",
		"reserved: \"0-63\"\n":                "sluice.yaml can't be used: reserved: reserved and system leave no CPU",
	} {
		got := run(t, podYAML, "plan", "-f", "-", "--machine", twoSockets, "-o", "oci", "-c", file(t, "sluice.yaml", config))
		if !strings.Contains(got.out+got.errs, want) {
			t.Errorf("%s: %q not in\n%s%s", config, want, got.out, got.errs)
		}
	}
}

func TestCheckAgainstAMachine(t *testing.T) {
	t.Parallel()
	const config = "reserved: \"0-1,100\"\npools: {list: [{name: online, cpus: 14}, {name: batch}]}\n"
	for machine, want := range map[string]result{
		"8 cores 2 threads":  {0, "-: ok: mode on, pools online, batch (overlap), reserved CPUs 0-1,100, system CPUs none; fits the machine's CPUs 0-15\n", ""},
		"16 cores 8 threads": {0, "-: ok: mode on, pools online, batch (overlap), reserved CPUs 0-1,100, system CPUs none; fits the machine's CPUs 0-127\n", ""},
		"8 cores":            {exitFailure, "", "sluice: - can't be used: it has 1 mistake\n"},
	} {
		got := run(t, config, "check", "-f", "-", "--machine", machine)
		if got.exit != want.exit || got.out != want.out || !strings.HasSuffix(got.errs, want.errs) {
			t.Errorf("%s: %+v, want %+v", machine, got, want)
		}
		if warned := strings.Contains(got.errs, "-: warning: reserved: this machine has no CPUs 100"); warned == (machine == "16 cores 8 threads") {
			t.Errorf("%s: %s", machine, got.errs)
		}
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"tree", "json"} {
		got := run(t, "", "topology", "--machine", "2 packages 2 cores 2 threads", "-o", output)
		if got.exit != 0 {
			t.Errorf("%s: %s", output, got.errs)
		}
		checkWidth(t, got.out)
		golden(t, "topology-"+output, got.out)
	}
}

func TestExplainCompletesPods(t *testing.T) {
	t.Parallel()
	socket := serve(t, plugin{status: statustest.Calm()})
	got := run(t, "", "__complete", "explain", "--status-socket", socket, "")
	if want := "batch/db-0\ndata/db-0\ndata/db-1\n"; !strings.HasPrefix(got.out, want) {
		t.Errorf("%q, want %q", got.out, want)
	}
	if got := status.PodNames([]status.Container{{Ref: "odd"}}); !slices.Equal(got, []string{"odd"}) {
		t.Error(got)
	}
}
