package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/cluster/zones"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Topology publishes the NodeResourceTopology of the node: the CPUs that pins can have, by NUMA node.
// The plugin NodeResourceTopologyMatch of kubernetes-sigs/scheduler-plugins reads it.
type Topology struct {
	publisher *Publisher
	rest      rest.Interface
	object    kept[zones.Zone]
	log       logrus.FieldLogger
}

// topologyGroup is the group of NodeResourceTopology.
var topologyGroup = schema.GroupVersion{Group: "topology.node.k8s.io", Version: "v1alpha2"}

// topologies is the resource.
const topologies = "noderesourcetopologies"

func (c *Client) newTopologyREST() (rest.Interface, error) {
	return newREST(c.config, "/apis", topologyGroup, func(scheme *runtime.Scheme) error {
		metav1.AddToGroupVersion(scheme, topologyGroup)
		return nil
	})
}

// Topology returns what publishes the NodeResourceTopology of the publisher's node, while its Run and the
// publisher's run.
func (p *Publisher) Topology() (*Topology, error) {
	group, err := p.client.newTopologyREST()
	if err != nil {
		return nil, err
	}
	t := &Topology{publisher: p, rest: group, log: p.log}
	t.object = kept[zones.Zone]{name: "NodeResourceTopology", due: zones.Due, put: t.put, wait: topologyWait, wake: make(chan struct{}, 1)}
	return t, nil
}

func topologyWait(err error) time.Duration {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
		return operatorPause
	}
	return keptPause
}

// Run publishes until the context ends. What is published then stays: without sluice-kube the node's amounts
// have room for no further pin.
func (t *Topology) Run(ctx context.Context) { t.object.keep(ctx, t.log) }

// Lost notes that the plugin is away. If that lasts, the object is deleted.
func (t *Topology) Lost() { t.object.lost() }

// Heard takes over what the plugin says of the NUMA nodes. Without the runtime it pins nothing.
func (t *Topology) Heard(s *status.Status) error {
	if !s.Runtime.Connected || len(s.Machine.NUMANodes) == 0 {
		t.Lost()
		return nil
	}
	_, node := t.publisher.node.object()
	if node == nil || !t.publisher.pods.Synced() {
		return nil
	}
	t.object.heard(zones.Of(&s.Machine, promised(t.publisher.pods.All(), selling.Held(s)), whole(node.Status.Allocatable)))
	return nil
}

// promised is how many CPUs pods of the node request as pins that they do not have yet, by what they have.
func promised(pods []*Pod, held map[string]int64) (sum int64) {
	for _, pod := range pods {
		if pod.wrong == nil {
			sum = min(sum+max(0, pod.requests[selling.Pins]-held[string(pod.UID)]), selling.Most)
		}
	}
	return sum
}

// native reports whether pods suffer under a NUMA-aware scheduler that request the resource, unless each zone has
// it. That holds for resources without a domain or of Kubernetes' own, to which Koordinator's belong: pods are refused
// (isHostLevelResource in pkg/noderesourcetopology/numaresources.go, v0.33.5), or for ephemeral storage get the least
// score of LeastNUMANodes (isValidCombineResources in least_numa.go). Containers do not request pods.
func native(name corev1.ResourceName) bool {
	own := !strings.Contains(string(name), "/") || strings.Contains(string(name), "kubernetes.io/")
	return own && name != corev1.ResourcePods
}

// whole lists the native resources among a node's, by their names.
func whole(allocatable corev1.ResourceList) []zones.Amount {
	var all []zones.Amount
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		if quantity := allocatable[name]; native(name) {
			all = append(all, zones.Amount{Name: string(name), Quantity: quantity.String()})
		}
	}
	return all
}

// put lets the node's object have these zones. It takes no field from another publisher.
func (t *Topology) put(ctx context.Context, want []zones.Zone) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if len(want) == 0 {
		return deleteTopology(ctx, t.rest, t.publisher.client.node)
	}
	_, node := t.publisher.node.object()
	if node == nil {
		return fmt.Errorf("there is no node %s (--node-name is to be the node's name in Kubernetes)", t.publisher.client.node)
	}
	body, err := json.Marshal(topologyOf(node, want))
	if err != nil {
		return err
	}
	err = t.rest.Patch(types.ApplyPatchType).Resource(topologies).Name(node.Name).Param("fieldManager", Manager).Body(body).Do(ctx).Error()
	if err == nil {
		t.log.WithField("zones", fmt.Sprintf("%+v", want)).Info("NodeResourceTopology published")
	}
	return explainTopology(err)
}

// explainTopology says what to do about an answer of the API server.
func explainTopology(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w (the cluster has no custom resource definition of %s.%s: install it, or leave --topology out; sluice-kube looks again every %s)", err, topologies, topologyGroup, operatorPause)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w (another program publishes it: stop that one on this node, or leave --topology out; sluice-kube tries again every %s)", err, operatorPause)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (allow the service account to get, create, patch and delete %s, as the chart does with kube.topology)", err, topologies)
	}
	return err
}

// WithdrawTopology deletes the NodeResourceTopology of a node, if Sluice has published it. Who may not read it has
// not published it.
func (c *Client) WithdrawTopology(ctx context.Context, node string) error {
	group, err := c.newTopologyREST()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := deleteTopology(ctx, group, node); !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

// deleteTopology deletes the object if its zones are Sluice's.
func deleteTopology(ctx context.Context, group rest.Interface, name string) error {
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	result := group.Get().Resource(topologies).Name(name).SetHeader("Accept", metadata).Do(ctx)
	if apierrors.IsNotFound(result.Error()) {
		return nil
	}
	body, err := result.Raw()
	if err != nil {
		return cmp.Or(result.Error(), err) // the former has what the API server says
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return fmt.Errorf("the API server's answer is not the JSON that was asked for: %w", err)
	}
	if !slices.ContainsFunc(object.ManagedFields, ownsZones) {
		return nil
	}
	options, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}})
	if err != nil {
		return err
	}
	err = group.Delete().Resource(topologies).Name(name).SetHeader("Content-Type", "application/json").Body(options).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ownsZones reports whether an entry says that Sluice has written the zones. The format is that of owned.
func ownsZones(entry metav1.ManagedFieldsEntry) bool {
	var fields map[string]json.RawMessage
	if entry.Manager != Manager || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, owns := fields["f:zones"]
	return owns
}

// topology is the manifest of a NodeResourceTopology.
type topology struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Metadata   topologyMetadata    `json:"metadata"`
	Attributes []topologyAttribute `json:"attributes"`
	Zones      []topologyZone      `json:"zones"`
}

type topologyMetadata struct {
	Name   string                  `json:"name"`
	Owners []metav1.OwnerReference `json:"ownerReferences"`
}

type topologyAttribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type topologyZone struct {
	Name      string             `json:"name"`
	Type      string             `json:"type"`
	Costs     []topologyCost     `json:"costs,omitempty"`
	Resources []topologyResource `json:"resources"`
}

type topologyCost struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

type topologyResource struct {
	Name        string `json:"name"`
	Capacity    string `json:"capacity"`
	Allocatable string `json:"allocatable"`
	Available   string `json:"available"`
}

// usualZones is how many NUMA nodes a scheduler takes a node to have at most if no attribute names more.
const usualZones = 8

// topologyOf is the object that goes with a node. The attributes let the scheduler look for one NUMA node that
// has what a container requests; without them it looks at no zone.
func topologyOf(node *corev1.Node, want []zones.Zone) topology {
	t := topology{
		APIVersion: topologyGroup.String(), Kind: "NodeResourceTopology",
		Metadata:   topologyMetadata{Name: node.Name, Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
		Attributes: []topologyAttribute{{"topologyManagerPolicy", "single-numa-node"}, {"topologyManagerScope", "container"}},
	}
	if len(want) > usualZones {
		t.Attributes = append(t.Attributes, topologyAttribute{"topologyManagerMaxNUMANodes", strconv.Itoa(len(want))})
	}
	name := func(number int) string { return "node-" + strconv.Itoa(number) }
	for _, z := range want {
		is := topologyZone{Name: name(z.Node), Type: "Node", Resources: []topologyResource{
			{Name: selling.PinnableCPU, Capacity: strconv.Itoa(z.CPUs), Allocatable: strconv.Itoa(z.Pins), Available: strconv.Itoa(z.Free)},
		}}
		for _, amount := range z.Whole {
			is.Resources = append(is.Resources, topologyResource{amount.Name, amount.Quantity, amount.Quantity, amount.Quantity})
		}
		for i, cost := range z.Costs {
			is.Costs = append(is.Costs, topologyCost{name(i), cost})
		}
		t.Zones = append(t.Zones, is)
	}
	return t
}
