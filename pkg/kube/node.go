package kube

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// Kubelet is the field manager of the kubelet. It copies each amount from capacity to
// allocatable, and so can come to own an amount that it does not publish.
const kubelet = "kubelet"

// node is the own node object, as far as it is Sluice's.
type node struct {
	names      map[selling.Kind]string
	changed    func()
	controller cache.Controller

	mu      sync.Mutex
	now     *corev1.Node       // trimmed; nil if there is none
	report  *nodereport.Report // what it says of itself; nil if that cannot be read
	patched time.Time          // when it was last changed by Sluice
}

// newNode follows the node object while its controller runs.
func (c *Client) newNode(names map[selling.Kind]string, changed func()) *node {
	n := &node{names: names, changed: changed}
	_, n.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.rest, "nodes", metav1.NamespaceAll, fields.OneTermEqualSelector("metadata.name", c.node)),
		ObjectType:    &corev1.Node{},
		Transform:     func(object any) (any, error) { return n.trim(object), nil },
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    n.saw,
			UpdateFunc: func(_, now any) { n.saw(now) },
			DeleteFunc: n.gone,
		},
	})
	return n
}

// trim keeps of a node what Sluice publishes, who else does, and what its zones have to repeat.
func (n *node) trim(object any) any {
	full, ok := object.(*corev1.Node)
	if !ok {
		return object
	}
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion, Labels: full.Labels}}
	trimmed.Status.NodeInfo.KubeletVersion = full.Status.NodeInfo.KubeletVersion
	if text := full.Annotations[nodereport.Annotation]; text != "" && len(text) <= nodereport.MaxBytes {
		trimmed.Annotations = map[string]string{nodereport.Annotation: text}
	}
	for _, list := range []struct {
		from corev1.ResourceList
		to   *corev1.ResourceList
	}{{full.Status.Capacity, &trimmed.Status.Capacity}, {full.Status.Allocatable, &trimmed.Status.Allocatable}} {
		*list.to = corev1.ResourceList{}
		for _, name := range n.names {
			if quantity, ok := list.from[corev1.ResourceName(name)]; ok {
				(*list.to)[corev1.ResourceName(name)] = quantity
			}
		}
	}
	for name, quantity := range full.Status.Allocatable {
		if native(name) {
			trimmed.Status.Allocatable[name] = quantity
		}
	}
	for _, c := range full.Status.Conditions {
		if c.Type == selling.Ready || c.Type == selling.BatchOpen {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	for _, entry := range full.ManagedFields {
		if entry.Manager != Manager && entry.Manager != kubelet && owned(entry, n.names) != "" {
			trimmed.ManagedFields = append(trimmed.ManagedFields, entry)
		}
	}
	return trimmed
}

// lag bounds how long the watch may still tell what was before an own patch.
const lag = 10 * time.Second

// saw notes a node object of the watch, unless it is older than the answer to an own patch.
func (n *node) saw(object any) {
	seen, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	n.mu.Lock()
	if n.now == nil || version(seen) >= version(n.now) || time.Since(n.patched) > lag {
		n.set(seen)
	}
	n.mu.Unlock()
	n.changed()
}

// set notes a trimmed node object. The caller has locked mu.
func (n *node) set(seen *corev1.Node) {
	n.now = seen
	n.report, _ = nodereport.Parse(seen.Annotations[nodereport.Annotation]) // what cannot be read is written anew
}

// patch notes the answer to an own patch.
func (n *node) patch(answer *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if seen, ok := n.trim(answer).(*corev1.Node); ok && (n.now == nil || version(seen) >= version(n.now)) {
		n.set(seen)
		n.patched = time.Now()
	}
}

// kubeletVersion is the version of the node's kubelet; "" if it is not known.
func (n *node) kubeletVersion() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == nil {
		return ""
	}
	return n.now.Status.NodeInfo.KubeletVersion
}

// version is the order of an object's states, which resource versions of all API servers since
// Kubernetes 1.35 have; 0 if they are no numbers.
func version(o *corev1.Node) uint64 {
	v, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return v
}

func (n *node) gone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	n.mu.Lock()
	if was, ok := object.(*corev1.Node); ok && n.now != nil && n.now.UID == was.UID {
		n.now = nil
	}
	n.mu.Unlock()
	n.changed()
}

// object returns what the node object has of Sluice; nil if there is no node object, or it is
// not known.
func (n *node) object() (*selling.Object, *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == nil {
		return nil, nil
	}
	o := &selling.Object{UID: string(n.now.UID), Amounts: map[selling.Kind]int64{}, Found: map[string]*selling.Condition{}, Report: n.report}
	for kind, name := range n.names {
		capacity, has := n.now.Status.Capacity[corev1.ResourceName(name)]
		allocatable := n.now.Status.Allocatable[corev1.ResourceName(name)]
		if has && capacity.Cmp(allocatable) == 0 && capacity.Sign() >= 0 && capacity.CmpInt64(selling.Most) <= 0 {
			o.Amounts[kind] = capacity.Value()
		}
	}
	for _, c := range n.now.Status.Conditions {
		o.Found[string(c.Type)] = &selling.Condition{
			Type: string(c.Type), True: c.Status == corev1.ConditionTrue, Reason: selling.Reason{Word: c.Reason, Text: c.Message},
		}
	}
	o.Other = publisher(n.now.ManagedFields, n.names)
	return o, n.now
}

// selects reports whether a label selector selects the node, and whether the node object is known.
func (n *node) selects(selector string) (selected, known bool, err error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return false, true, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == nil {
		return false, false, nil
	}
	return parsed.Matches(labels.Set(n.now.Labels)), true, nil
}

// publisher returns another program that publishes one of the resources, the first by its name;
// nil if there is none.
func publisher(entries []metav1.ManagedFieldsEntry, names map[selling.Kind]string) *selling.Publisher {
	var all []selling.Publisher
	for _, entry := range entries {
		if name := owned(entry, names); name != "" && entry.Manager != Manager && entry.Manager != kubelet {
			all = append(all, selling.Publisher{Manager: entry.Manager, Resource: name})
		}
	}
	if len(all) == 0 {
		return nil
	}
	first := slices.MinFunc(all, func(a, b selling.Publisher) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Resource, b.Resource))
	})
	return &first
}

// owned returns a resource in the node's capacity or allocatable that the entry's manager owns,
// of those with these names; "" if there is none. An entry that cannot be read owns nothing.
//
// The format of the fields is that of k8s.io/apimachinery, FieldsV1: a member "f:NAME" of an
// object stands for the field of that name.
func owned(entry metav1.ManagedFieldsEntry, names map[selling.Kind]string) string {
	if entry.FieldsV1 == nil {
		return ""
	}
	var all struct {
		Status struct {
			Capacity    map[string]json.RawMessage `json:"f:capacity"`
			Allocatable map[string]json.RawMessage `json:"f:allocatable"`
		} `json:"f:status"`
	}
	if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &all) != nil {
		return ""
	}
	first := ""
	for _, name := range names {
		_, capacity := all.Status.Capacity["f:"+name]
		_, allocatable := all.Status.Allocatable["f:"+name]
		if (capacity || allocatable) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}
