package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// TestEventsOfANode: the agent's events say who wrote them. RBAC allows all events.
func TestEventsOfANode(t *testing.T) {
	cluster, token := agent(t)
	events := clientOf(t, token).CoreV1().Events("default")
	const (
		foreign = "must have source.component sluice-kube and source.host a"
		other   = "may only write events about pods and about node a"
	)
	bed.Await(t, "the policy of events acts", func() error {
		if _, err := events.Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, dryRun()); err == nil || !strings.Contains(err.Error(), foreign) {
			return bed.ErrNotYet
		}
		return nil
	})
	for name, test := range map[string]struct {
		want string // of the refusal; empty where the event is taken
		edit func(*corev1.Event)
	}{
		"of a pod":                {"", func(*corev1.Event) {}},
		"of its node":             {"", func(e *corev1.Event) { about(e, "Node", "a") }},
		"of another node":         {other, func(e *corev1.Event) { about(e, "Node", "b") }},
		"of a Secret":             {other, func(e *corev1.Event) { about(e, "Secret", "a") }},
		"of nothing":              {other, func(e *corev1.Event) { about(e, "", "") }},
		"as the kubelet":          {foreign, func(e *corev1.Event) { e.Source.Component = "kubelet" }},
		"as another node's agent": {foreign, func(e *corev1.Event) { e.Source.Host = "b" }},
		"of nobody":               {foreign, func(e *corev1.Event) { e.Source = corev1.EventSource{} }},
		"reported by another":     {foreign, func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "kubelet", "a" }},
		"reported elsewhere":      {foreign, func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "sluice-kube", "b" }},
	} {
		t.Run(name, func(t *testing.T) {
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Type: corev1.EventTypeWarning, Reason: "R", Message: "m",
				Source:         corev1.EventSource{Component: "sluice-kube", Host: "a"},
				InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
			}
			test.edit(event)
			_, err := events.Create(t.Context(), event, dryRun())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	t.Run("by the newer API", func(t *testing.T) {
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Type: corev1.EventTypeWarning, Reason: "R", Note: "m", Action: "A",
			EventTime: metav1.NowMicro(), ReportingController: "kubelet", ReportingInstance: "a",
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
		}
		if _, err := clientOf(t, token).EventsV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), foreign) {
			t.Errorf("%v, want %q", err, foreign)
		}
	})
	t.Run("an event of others", func(t *testing.T) {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubelets"}, Source: corev1.EventSource{Component: "kubelet"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
		}
		if _, err := cluster.Client(t).CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		err := events.Delete(t.Context(), "kubelets", metav1.DeleteOptions{})
		if err == nil || !strings.Contains(err.Error(), "may only create events: not DELETE of events") {
			t.Errorf("the agent deletes it: %v", err)
		}
	})
}

// about sets what an event is about. The API server takes events about what has no namespace only in "default".
func about(e *corev1.Event, kind, name string) {
	e.InvolvedObject.Kind, e.InvolvedObject.Name = kind, name
	if kind == "Node" {
		e.InvolvedObject.Namespace = ""
	}
}

func dryRun() metav1.CreateOptions { return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}} }
