package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// fleetTime limits a request of a Fleet: nodes come in pages of some megabytes, also over slow
// connections.
const fleetTime = time.Minute

// fleetPage is how many objects a page has.
const fleetPage = 250

// These bound what is kept of a condition's reason and message, which a kubelet may write at any length.
const (
	wordBytes = 64
	textBytes = 300
)

// Fleet reads what the nodes of a cluster say of themselves, and runs commands in their pods of Sluice,
// with the rights of a user.
type Fleet struct {
	Namespace string // namespace of the kubeconfig's context
	rest      rest.Interface
	config    *rest.Config
}

// NewFleet returns a client with the settings of a kubeconfig, as kubectl finds it: in file if that
// is not "", else by the variable KUBECONFIG, else in the home folder. A name of "" is its current
// context.
func NewFleet(file, name, version string) (*Fleet, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	settings := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	config, err := settings.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig: %w (name another with --kubeconfig or --context)", err)
	}
	namespace, _, err := settings.Namespace()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig's namespace: %w (name another with --kubeconfig or --context)", err)
	}
	config.UserAgent = "kubectl-sluice/" + version
	client, err := newCoreREST(config)
	if err != nil {
		return nil, err
	}
	return &Fleet{Namespace: namespace, rest: client, config: config}, nil
}

// Nodes returns the nodes whose labels a selector matches, in kubectl's notation; "" matches all.
func (f *Fleet) Nodes(ctx context.Context, selector string) ([]fleet.Node, error) {
	if _, err := labels.Parse(selector); err != nil {
		return nil, fmt.Errorf("the selector %q is not valid: %w (write it as for 'kubectl get nodes -l')", selector, err)
	}
	var all []fleet.Node
	err := eachPage(func(after string) (string, error) {
		var page corev1.NodeList
		err := f.page(ctx, "", "nodes", selector, after).Into(&page)
		for i := range page.Items {
			all = append(all, fleetNode(&page.Items[i]))
		}
		return page.Continue, err
	})
	return all, listing("nodes", err)
}

// Pods returns the pods of Sluice in a namespace. Others' pods may have the same labels.
func (f *Fleet) Pods(ctx context.Context, namespace string) ([]fleet.Pod, error) {
	var all []fleet.Pod
	err := eachPage(func(after string) (string, error) {
		var page corev1.PodList
		err := f.page(ctx, namespace, "pods", "app.kubernetes.io/name=sluice", after).Into(&page)
		for i := range page.Items {
			all = append(all, fleetPod(&page.Items[i]))
		}
		return page.Continue, err
	})
	return all, listing("pods in namespace "+namespace, err)
}

func (f *Fleet) page(ctx context.Context, namespace, resource, selector, after string) rest.Result {
	ctx, cancel := context.WithTimeout(ctx, fleetTime)
	defer cancel()
	request := f.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Param("limit", strconv.Itoa(fleetPage))
	if selector != "" {
		request.Param("labelSelector", selector)
	}
	if after != "" {
		request.Param("continue", after)
	}
	return request.Do(ctx)
}

// listing says what to do about a list that the API server does not give.
func listing(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the list of %s: %w (ask for the right to list %s)", what, err, what)
	case apierrors.IsResourceExpired(err):
		return fmt.Errorf("the list of %s: %w (it took too long: try again)", what, err)
	}
	return fmt.Errorf("the list of %s: %w", what, err)
}

// errRepeats is of an API server whose pages do not end.
var errRepeats = errors.New("the API server repeats a page: try again")

// eachPage reads all pages of a list. It passes the API server's "continue" token to read, "" for the
// first page. read returns the token of the next page, "" after the last.
func eachPage(read func(after string) (string, error)) error {
	for after := ""; ; {
		next, err := read(after)
		switch {
		case err != nil:
			return err
		case next == "":
			return nil
		case next == after:
			return errRepeats
		}
		after = next
	}
}

func fleetNode(node *corev1.Node) fleet.Node {
	is := fleet.Node{
		Name: node.Name, Labels: node.Labels, Capacity: ordinary(node.Status.Capacity),
		Report: node.Annotations[nodereport.Annotation], Conditions: map[string]fleet.Condition{},
	}
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady, selling.Ready, selling.BatchOpen:
			is.Conditions[string(c.Type)] = fleet.Condition{True: c.Status == corev1.ConditionTrue, Reason: shorten(c.Reason, wordBytes), Text: shorten(c.Message, textBytes), Since: c.LastTransitionTime.Time}
		}
	}
	return is
}

func fleetPod(pod *corev1.Pod) fleet.Pod {
	is := fleet.Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Component: pod.Labels["app.kubernetes.io/component"], Why: pod.Status.Message}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			is.Ready = c.Status == corev1.ConditionTrue
			is.Why = c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			is.Why = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			is.Why = c.State.Terminated.Reason
		}
	}
	is.Why = shorten(is.Why, textBytes)
	return is
}
