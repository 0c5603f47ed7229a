package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

// api is an API server with nodes and pods, which it lists in pages.
type api struct {
	page      int // length of a page; 2 if it is 0
	nodes     []corev1.Node
	pods      []corev1.Pod
	forbidden string // the resource that the user may not list; "exec" to run no command
	runs      runs   // what commands print
	in        string // what the user types

	mutex   sync.Mutex
	refused []string // requests to run a command
	ran     []string // commands that ran, with their nodes
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.one(w, r) {
		return
	}
	resource := path.Base(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if resource == a.forbidden {
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: resource + " is forbidden"})
		return
	}
	selector, err := labels.Parse(r.FormValue("labelSelector"))
	if err != nil || r.Method != http.MethodGet || r.FormValue("limit") == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	from, _ := strconv.Atoi(r.FormValue("continue"))
	page := metav1.ListMeta{}
	cut := func(all int) (int, int) {
		to := from + cmp.Or(a.page, 2)
		if to < all {
			page.Continue = strconv.Itoa(to)
		}
		return min(from, all), min(to, all)
	}
	switch resource {
	case "nodes":
		var matching []corev1.Node
		for _, n := range a.nodes {
			if selector.Matches(labels.Set(n.Labels)) {
				matching = append(matching, n)
			}
		}
		i, j := cut(len(matching))
		json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: page, Items: matching[i:j]})
	case "pods":
		if !strings.Contains(r.URL.Path, "/namespaces/") {
			w.WriteHeader(http.StatusForbidden) // only those of one namespace
			return
		}
		ours := a.pods
		if !strings.Contains(r.URL.Path, "/namespaces/sluice/") {
			ours = nil
		}
		i, j := cut(len(ours))
		json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: page, Items: ours[i:j]})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// kubeconfig starts the API server, and returns a kubeconfig for it with a context "c".
func (a *api) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// report is a report of a node: what it could sell, in CPUs and as many GiB, and what is bound.
func report(sellable, bound int64) string {
	amount := func(n int64) nodereport.Amount { return nodereport.Amount{MilliCPU: n * 1000, MemoryBytes: n << 30} }
	text, _ := (&nodereport.Report{
		Schema: nodereport.Schema, Requested: amount(8), Used: &nodereport.Amount{MilliCPU: 3250, MemoryBytes: 5 << 30},
		Sellable: &nodereport.Offers{ShortTerm: amount(sellable), LongTerm: amount(sellable / 2)}, Bound: nodereport.Offers{ShortTerm: amount(bound)},
		Scheduling: &nodereport.Scheduling{AllocatableMilliCPU: 15000, OvercommitRatio: 0.667, RoomMilliCPU: new(sellable * 500)},
	}).Text()
	return text
}

// add adds a node of 16 CPUs and 64 GiB with its annotation, its conditions, as "SluiceReady=False Preview:Text",
// and its pods of Sluice, as "kube-canary", or "kube-canary CrashLoopBackOff" for one that does not run.
func (a *api) add(name, zone, annotation string, conditions []string, pods ...string) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	if zone != "" {
		node.Labels["topology.kubernetes.io/zone"] = zone
	}
	if annotation != "" {
		node.Annotations[nodereport.Annotation] = annotation
	}
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi")}
	for _, text := range append([]string{"Ready=True KubeletReady:x"}, conditions...) {
		kind, rest, _ := strings.Cut(text, "=")
		status, rest, _ := strings.Cut(rest, " ")
		reason, message, _ := strings.Cut(rest, ":")
		c := corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: reason, Message: message}
		if kind == "Ready" && len(node.Status.Conditions) > 0 {
			node.Status.Conditions[0] = c
			continue
		}
		node.Status.Conditions = append(node.Status.Conditions, c)
	}
	a.nodes = append(a.nodes, node)
	for _, text := range pods {
		component, waits, _ := strings.Cut(text, " ")
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "sluice-" + component + "-" + name, Labels: map[string]string{"app.kubernetes.io/component": component}}}
		pod.Spec.NodeName = name
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		if waits != "" {
			ready.Status = corev1.ConditionFalse
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waits}}}}
		}
		pod.Status.Conditions = []corev1.PodCondition{ready}
		a.pods = append(a.pods, pod)
	}
}

func preview() []string {
	return []string{"SluiceReady=False Preview:The plugin is in preview and changes nothing: set mode: on in sluice.yaml.", "SluiceBatchOpen=False NotReady:x"}
}

func sells() []string {
	return []string{"SluiceReady=True Acting:sluice acts on this node.", "SluiceBatchOpen=True Selling:x"}
}

// everything is a cluster in which everything goes wrong that can.
func everything() *api {
	a := &api{}
	a.add("web-1", "a", report(6, 2), sells(), "node", "kube")
	a.add("web-2", "b", report(4, 0), preview(), "node", "kube")
	a.add("web-3", "b", report(5, 0), []string{"SluiceReady=True Acting:x", "SluiceBatchOpen=False Window:A time window of sluice.yaml keeps batch work away."}, "node", "kube")
	a.add("canary-1", "a", report(7, 1), sells(), "node-canary", "kube-canary")
	a.add("canary-2", "", "garbage\x1b[2J", sells(), "node-canary", "kube-canary")
	a.add("canary-3", "", `{"schema":1,"x":"`+strings.Repeat("x", 1<<16)+`"}`, sells(), "node-canary", "kube-canary")
	a.add("gpu-1", "", "", nil)
	a.add("gpu-2", "", report(9, 9), sells())
	a.add("gpu-3", "", "", nil, "node-gpu")
	a.add("gpu-4", "", report(3, 3), sells(), "node-gpu", "kube-gpu CrashLoopBackOff")
	a.add("gpu-5", "", report(3, 3), append(sells(), "Ready=False KubeletNotReady:container runtime is down"), "node-gpu", "kube-gpu")
	a.add("gpu-6", "", "", []string{"SluiceReady=False PodsUnknown:sluice-kube has not been able to read the node's pods."}, "node-gpu", "kube-gpu")
	a.add("gpu-7", "", "", nil, "node-gpu", "kube-gpu")
	a.add("gpu-8", "", `{"schema":1}`, []string{"SluiceReady=False PluginSilent:sluice has not reported for more than 30s."}, "node-gpu", "kube-gpu", "kube-gpu Terminating")
	return a
}

// golden runs the command and compares its output with a file.
func golden(t *testing.T, name string, a *api, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if exit := execute(t.Context(), append([]string{"report", "--kubeconfig", a.kubeconfig(t)}, args...), cli.Streams{Out: &out, Errs: &errs}); exit != 0 {
		t.Fatalf("%s: exit status %d, %s", name, exit, errs.String())
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%s differs, %v (go test -update writes it anew); got:\n%s", file, err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.ContainsRune(line, '\x1b') || utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 && !strings.HasSuffix(file, "json.golden") {
			t.Errorf("%s: the line %q is too long or has an escape", name, line)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	golden(t, "everything", everything())
	golden(t, "nodes", everything(), "--nodes")
	golden(t, "zones", everything(), "--by", "topology.kubernetes.io/zone")
	golden(t, "selector", everything(), "-l", "topology.kubernetes.io/zone in (a, b)")
	golden(t, "nothing", everything(), "-l", "topology.kubernetes.io/zone=z")

	first := &api{}
	for i := range 3 {
		first.add(fmt.Sprintf("n%d", i), "", report(4, 0), preview(), "node", "kube")
	}
	golden(t, "first-day", first)
	golden(t, "first-day-json", first, "-o", "json", "--context", "c")

	large := &api{page: 500}
	for i := range 2000 {
		large.add(fmt.Sprintf("n%04d", i), "", report(14, 14), sells(), "node", "kube")
	}
	golden(t, "large", large)

	none := &api{}
	none.add("n1", "", "", nil)
	golden(t, "not-installed", none)
	none.add("n2", "", "", nil, "node")
	golden(t, "no-sluice-kube", none)

	byHand := &api{}
	byHand.add("n1", "", report(4, 0), sells())
	golden(t, "by-hand", byHand)
}

// A fleet of the largest amounts does not overflow.
func TestLargeFleet(t *testing.T) {
	t.Parallel()
	most := nodereport.Amount{MilliCPU: nodereport.MaxAmount, MemoryBytes: nodereport.MaxAmount}
	text, err := (&nodereport.Report{Schema: 1, Requested: most, Used: &most, Sellable: &nodereport.Offers{ShortTerm: most, LongTerm: most}, Bound: nodereport.Offers{ShortTerm: most, LongTerm: most}}).Text()
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]fleet.Node, 5000)
	for i := range nodes {
		nodes[i] = fleet.Node{Name: strconv.Itoa(i), Capacity: most, Report: text}
	}
	total := fleet.Summarize(nodes, nil, "", 0).Total
	if total.Nodes != 5000 || total.Reporting != 5000 || total.Sellable.ShortTerm.MemoryBytes < most.MemoryBytes || total.Requested.MilliCPU < most.MilliCPU {
		t.Errorf("the total is %+v", total)
	}
}

func TestReportFails(t *testing.T) {
	t.Parallel()
	config := everything().kubeconfig(t)
	nodes, pods := everything(), everything()
	nodes.forbidden, pods.forbidden = "nodes", "pods"
	for args, test := range map[string]struct {
		exit int
		says string
	}{
		"report --kubeconfig /nonexistent":              {cli.ExitFailure, "--kubeconfig"},
		"report --context other --kubeconfig " + config: {cli.ExitFailure, "other"},
		"report -l a=(b --kubeconfig " + config:         {cli.ExitFailure, "kubectl get nodes -l"},
		"report --kubeconfig " + nodes.kubeconfig(t):    {cli.ExitFailure, "the right to list nodes"},
		"report --kubeconfig " + pods.kubeconfig(t):     {cli.ExitFailure, "the right to list pods"},
		"report n1":      {cli.ExitUsage, "kubectl sluice report --help"},
		"report -o yaml": {cli.ExitUsage, "must be table or json"},
		"stop":           {cli.ExitUsage, "kubectl sluice: unknown command"},
	} {
		var out, errs bytes.Buffer
		if exit := execute(t.Context(), strings.Fields(args), cli.Streams{Out: &out, Errs: &errs}); exit != test.exit || !strings.Contains(errs.String(), test.says) || out.Len() > 0 {
			t.Errorf("%s: exit status %d, %q", args, exit, errs.String())
		}
	}
}
