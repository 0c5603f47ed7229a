package kube

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

func container(milli string, restarts corev1.ContainerRestartPolicy) corev1.Container {
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"batch.sluice.dev/cpu": resource.MustParse(milli), "cpu": resource.MustParse("1")}}}
	if restarts != "" {
		c.RestartPolicy = &restarts
	}
	return c
}

func requests(pod *corev1.Pod) (selling.Amounts, error) {
	all, err := requestsOf(pod)
	if err != nil {
		return selling.Amounts{}, err
	}
	return requested(pod, all, selling.Sluice.Names())
}

// A pod counts as the scheduler and the kubelet count it: the larger of its containers with its
// sidecars, and each init container.
func TestRequested(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want int64
		ok   bool
	}{
		"nothing":                         {corev1.PodSpec{}, 0, true},
		"containers":                      {corev1.PodSpec{Containers: []corev1.Container{container("100", ""), container("1k", "")}}, 1100, true},
		"init is larger":                  {corev1.PodSpec{Containers: []corev1.Container{container("100", "")}, InitContainers: []corev1.Container{container("500", "")}}, 500, true},
		"init is smaller":                 {corev1.PodSpec{Containers: []corev1.Container{container("100", "")}, InitContainers: []corev1.Container{container("50", "")}}, 100, true},
		"a sidecar":                       {corev1.PodSpec{Containers: []corev1.Container{container("100", "")}, InitContainers: []corev1.Container{container("50", corev1.ContainerRestartPolicyAlways)}}, 150, true},
		"negative":                        {corev1.PodSpec{Containers: []corev1.Container{container("-1", "")}}, 0, false},
		"too much":                        {corev1.PodSpec{Containers: []corev1.Container{container("4503599627370497", "")}}, 0, false},
		"the most":                        {corev1.PodSpec{Containers: []corev1.Container{container("4503599627370496", "")}}, selling.Most, true},
		"more digits than can be counted": {corev1.PodSpec{Containers: []corev1.Container{container("1e44444444400", ""), container("0.0001", "")}}, 0, false},
		"a sum that overflows": {corev1.PodSpec{Containers: []corev1.Container{
			container("9223372036854775807", ""), container("9223372036854775807", ""), container("2", ""),
		}}, 0, false},
	} {
		amounts, err := requests(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: test.spec})
		if (err == nil) != test.ok || err == nil && amounts[selling.BatchCPU] != test.want {
			t.Errorf("%s: %v, %v, want %d", name, amounts, err, test.want)
		}
		if err != nil && (!strings.Contains(err.Error(), "default/x") || !strings.Contains(err.Error(), "batch.sluice.dev/cpu")) {
			t.Errorf("%s: the error %q does not name the pod and the resource", name, err)
		}
	}
}

func managed(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	const capacity, allocatable = `{"f:status":{"f:capacity":{"f:batch.sluice.dev/cpu":{}}}}`, `{"f:status":{"f:allocatable":{"f:batch.sluice.dev/memory":{}}}}`
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"nobody":         {nil, ""},
		"we":             {[]metav1.ManagedFieldsEntry{managed(Manager, capacity)}, ""},
		"the kubelet":    {[]metav1.ManagedFieldsEntry{managed(kubelet, capacity)}, ""},
		"of another one": {[]metav1.ManagedFieldsEntry{managed("x", `{"f:status":{"f:capacity":{"f:cpu":{}}}}`)}, ""},
		"capacity":       {[]metav1.ManagedFieldsEntry{managed("x", capacity)}, "x batch.sluice.dev/cpu"},
		"allocatable":    {[]metav1.ManagedFieldsEntry{managed(Manager, capacity), managed("x", allocatable)}, "x batch.sluice.dev/memory"},
		"two":            {[]metav1.ManagedFieldsEntry{managed("y", capacity), managed("x", allocatable)}, "x batch.sluice.dev/memory"},
		"no fields":      {[]metav1.ManagedFieldsEntry{{Manager: "x"}}, ""},
		"no JSON":        {[]metav1.ManagedFieldsEntry{managed("x", `{"f:status":`)}, ""},
		"another shape":  {[]metav1.ManagedFieldsEntry{managed("x", `{"f:status":[]}`)}, ""},
	} {
		got := ""
		if p := publisher(test.entries, selling.Sluice.Names()); p != nil {
			got = p.Manager + " " + p.Resource
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func nodeWith(version, capacity, allocatable string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", ResourceVersion: version},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"batch.sluice.dev/cpu": resource.MustParse(capacity), "cpu": resource.MustParse("8")},
			Allocatable: corev1.ResourceList{"batch.sluice.dev/cpu": resource.MustParse(allocatable)},
			Images:      []corev1.ContainerImage{{Names: []string{"a"}}},
			Conditions:  []corev1.NodeCondition{{Type: "Ready"}, {Type: selling.BatchOpen, Status: corev1.ConditionTrue, Reason: selling.Selling}},
		},
	}
}

// The watch may tell what was before an own patch; that changes nothing.
func TestNodeObject(t *testing.T) {
	t.Parallel()
	n := &node{names: selling.Sluice.Names(), changed: func() {}}
	if o, _ := n.object(); o != nil {
		t.Errorf("no node has %+v", o)
	}
	check := func(when string, want int64, found bool) {
		t.Helper()
		o, trimmed := n.object()
		if has, ok := o.Amounts[selling.BatchCPU]; ok != found || has != want {
			t.Errorf("%s: %d, %t, want %d, %t", when, has, ok, want, found)
		}
		if len(trimmed.Status.Images) > 0 || len(trimmed.Status.Capacity) != 1 || len(o.Found) != 1 || !o.Found[selling.BatchOpen].True {
			t.Errorf("%s: kept %+v", when, trimmed.Status)
		}
	}
	saw := func(o *corev1.Node) { n.saw(n.trim(o)) }
	saw(nodeWith("5", "100", "100"))
	check("seen", 100, true)
	n.patch(nodeWith("9", "200", "200"))
	check("patched", 200, true)
	saw(nodeWith("7", "100", "100"))
	check("an old one", 200, true)
	saw(nodeWith("10", "300", "300"))
	check("a new one", 300, true)
	saw(nodeWith("11", "300", "200"))
	check("capacity and allocatable differ", 0, false)
	saw(nodeWith("12", "-5", "-5"))
	check("negative", 0, false)
	saw(nodeWith("13", "9E", "9E"))
	check("impossible", 0, false)
	n.patched = time.Now().Add(-2 * lag)
	saw(nodeWith("3", "400", "400"))
	check("restored from a backup", 400, true)
	n.gone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "other"}})
	check("another one is gone", 400, true)
	n.gone(nodeWith("14", "1", "1"))
	if o, _ := n.object(); o != nil {
		t.Errorf("a deleted node has %+v", o)
	}
}

// What somebody has written instead of a report is not kept, and is no report.
func TestReportOfNodeObject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "x": false, `{"schema":9}`: false, `{"schema":1}`: true, `{"schema":1,"x":"` + strings.Repeat("x", 1<<20) + `"}`: false,
	} {
		n := &node{names: selling.Sluice.Names(), changed: func() {}}
		o := nodeWith("5", "100", "100")
		o.Annotations = map[string]string{nodereport.Annotation: text, "other": "x"}
		n.saw(n.trim(o))
		seen, trimmed := n.object()
		if (seen.Report != nil) != want || len(trimmed.Annotations[nodereport.Annotation]) > nodereport.MaxBytes || trimmed.Annotations["other"] != "" {
			t.Errorf("%.60s: the report is %+v", text, seen.Report)
		}
	}
}

// CPU and memory of admitted pods are added up, and cannot overflow.
func TestOrdinary(t *testing.T) {
	t.Parallel()
	p := &Pods{store: cache.NewStore(cache.MetaNamespaceKeyFunc), known: -1}
	for i, amounts := range [][2]string{{"500m", "1Gi"}, {"2", "3Gi"}, {"-1", "-1"}, {"9E", "9E"}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: amounts[0]}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(amounts[0]), "memory": resource.MustParse(amounts[1])}},
		}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if i == 3 {
			pod.Status.Phase = corev1.PodPending
		}
		if err := p.store.Add(p.trim(pod)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want nodereport.Amount) {
		t.Helper()
		p.changes.Add(1)
		if _, got := p.Requests(func(*Pod, error) {}); got != want {
			t.Errorf("the pods request %+v, want %+v", got, want)
		}
	}
	check(nodereport.Amount{MilliCPU: 2500, MemoryBytes: 4 << 30})
	for _, object := range p.store.List() {
		object.(*Pod).Admitted = true
	}
	check(nodereport.Amount{MilliCPU: selling.Most, MemoryBytes: selling.Most})
}

func TestYields(t *testing.T) {
	t.Parallel()
	conflict := func(messages ...string) error {
		var causes []metav1.StatusCause
		for _, m := range messages {
			field, message, _ := strings.Cut(m, ": ")
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: message})
		}
		return apierrors.NewApplyConflict(causes, "x")
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"another error": {errors.New("x"), false},
		"no conflict":   {apierrors.NewUnauthorized("x"), false},
		"no causes":     {conflict(), false},
		"the kubelet":   {conflict(`.status.capacity.cpu: conflict with "kubelet" using v1`), true},
		"both":          {conflict(`.status.capacity.cpu: conflict with "kubelet" using v1`, `.status.capacity.cpu: conflict with "x" using v1`), false},
		"a namesake":    {conflict(`.status.capacity.cpu: conflict with "kubelet-x" using v1`), false},
		"the report":    {conflict(reportField + `: conflict with "x" using v1`), true},
		"report and x":  {conflict(reportField+`: conflict with "x" using v1`, `.status.capacity.cpu: conflict with "x" using v1`), false},
	} {
		if got := yields(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// A condition keeps the time of its last change while its status stays.
func TestCondition(t *testing.T) {
	t.Parallel()
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	old := []corev1.NodeCondition{{Type: selling.Ready, Status: corev1.ConditionFalse, Reason: selling.Preview, LastTransitionTime: long}}
	same := condition(selling.Condition{Type: selling.Ready, Reason: selling.Reason{Word: selling.LoopOff}}, old)
	other := condition(selling.Condition{Type: selling.Ready, True: true, Reason: selling.Reason{Word: selling.Acting}}, old)
	if !same.LastTransitionTime.Equal(&long) || same.Reason != selling.LoopOff || other.LastTransitionTime.Equal(&long) || other.Status != corev1.ConditionTrue {
		t.Errorf("%+v and %+v", same, other)
	}
}

// An object's events of one reason come once in ten minutes, and what they hold is bounded.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	e := (&Client{node: "n1"}).Events(log)
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: strings.Repeat("x", 253), UID: "1"}}
	for range 100 {
		e.Pod(pod, corev1.EventTypeWarning, "R", strings.Repeat("ä", 1000))
	}
	e.Node(corev1.EventTypeWarning, "R", "of the node")
	if len(e.queue) != 2 {
		t.Fatalf("%d events are queued, want 2", len(e.queue))
	}
	first := <-e.queue
	if len(first.Message) > 1024 || !utf8.ValidString(first.Message) || len(first.Name) > 253 || first.Namespace != "a" || first.Count != 1 {
		t.Errorf("the event is %+v", first)
	}
	now := time.Now()
	if n, ok := e.due(eventKey{reason: "R", uid: "1"}, now.Add(eventPause+time.Second)); !ok || n != 100 {
		t.Errorf("after ten minutes: %d, %t, want 100", n, ok)
	}
	for i := range 10 * eventKeys {
		e.Pod(&Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(i))}}, "", "Flood", "")
	}
	if len(e.last) > eventKeys+2 || len(e.queue) != eventQueue {
		t.Errorf("%d keys and %d events are kept", len(e.last), len(e.queue))
	}
	for range eventQueue {
		<-e.queue
	}
	if e.Container(pod, "main", "", "R", "x"); len(e.queue) != 1 {
		t.Error("pods of one reason keep back another one's event")
	}
}

// Whatever the API server says of fields' owners, nothing panics, and nobody who is named by
// nothing else is found.
func FuzzOwned(f *testing.F) {
	f.Add(`{"f:status":{"f:capacity":{"f:batch.sluice.dev/cpu":{}},"f:allocatable":{"f:cpu":{}}}}`)
	f.Add(`{"f:status":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, fields string) {
		name := owned(managed("x", fields), selling.Sluice.Names())
		if name != "" && !strings.Contains(fields, "sluice.dev") && !strings.Contains(fields, `\`) {
			t.Errorf("%q owns %s", fields, name)
		}
	})
}

// Whatever quantities a pod has, it either counts with a possible amount or is refused.
func FuzzRequested(f *testing.F) {
	f.Add("1k", "500m")
	f.Add("-1", "9E")
	f.Add("1e400", "0.0001")
	f.Fuzz(func(t *testing.T, a, b string) {
		var pod corev1.Pod
		for _, text := range []string{a, b} {
			if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 5 {
				return // Kubernetes' own parser takes minutes for some, in the API server first
			}
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"batch.sluice.dev/cpu": quantity}}})
		}
		amounts, err := requests(&pod)
		if n := amounts[selling.BatchCPU]; err == nil && (n < 0 || n > selling.Most || n == math.MaxInt64) {
			t.Errorf("%s and %s are %d", a, b, n)
		}
	})
}
