package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// Heard takes over what the plugin says of claims in its status. It says nothing of them before it
// knows the containers.
func (d *Driver) Heard(s *status.Status) error {
	if s.Claims == nil {
		d.Lost()
		return nil
	}
	d.slice.heard(cluster.Devices(s.Claims))
	d.health.set(cluster.HealthOf(s.Claims), true)
	d.unused.set(cluster.Unused(s))
	return nil
}

// Lost says that the plugin is away. If that lasts, all devices are withdrawn, since the plugin reserves
// nothing.
func (d *Driver) Lost() {
	d.slice.lost()
	d.health.set(nil, false)
	d.unused.set(nil)
}

// watch notices what others do to the slices: a kubelet that starts deletes the slices of its node, some
// time before or after it has registered the driver.
func (d *Driver) watch(ctx context.Context) {
	check := func(any) { d.slice.check() }
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(d.rest, "resourceslices", metav1.NamespaceAll, fields.Set{"spec.nodeName": d.client.node, "spec.driver": claim.Driver}.AsSelector()),
		ObjectType:    &resourceapi.ResourceSlice{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: check, UpdateFunc: func(_, now any) { check(now) }, DeleteFunc: check},
	})
	controller.Run(ctx.Done())
}

// sliceName is the name of one of the node's slices.
func (d *Driver) sliceName(i int) string {
	name := fmt.Sprintf("%.230s-%s", d.client.node, claim.Driver)
	if i > 0 {
		name += "-" + strconv.Itoa(i)
	}
	return name
}

// put lets the slices have these devices. It changes slices that have them already in nothing. A node
// without devices has no slice. All slices have a generation, and the scheduler waits until it finds as
// many of the newest one as each of them says. The error is an alteredError if all are written, and the API
// server keeps other devices.
func (d *Driver) put(ctx context.Context, devices []cluster.Device) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	want := slices.Collect(slices.Chunk(apiDevices(devices), cluster.MostInSlice))
	found, err := d.readSlices(ctx, len(want))
	if err != nil {
		return err
	}
	generation := int64(0)
	same := len(found) == len(want)
	for i, object := range found {
		generation = max(generation, object.Spec.Pool.Generation)
		same = same && i < len(want) && object.Name != "" && apiequality.Semantic.DeepEqual(object.Spec.Devices, want[i]) &&
			object.Spec.Pool == d.pool(found[0].Spec.Pool.Generation, len(want))
	}
	if same {
		return nil
	}
	var owner []metav1.OwnerReference
	var changed error
	for i, chunk := range want {
		var answer resourceapi.ResourceSlice
		if i < len(found) && found[i].Name != "" {
			object := &found[i]
			object.Spec.Devices, object.Spec.Pool = chunk, d.pool(generation+1, len(want))
			err = d.rest.Put().Resource("resourceslices").Name(object.Name).Body(object).Do(ctx).Into(&answer)
		} else {
			if owner == nil {
				if owner, err = d.nodeReference(ctx); err != nil {
					return err
				}
			}
			object := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: d.sliceName(i), OwnerReferences: owner}}
			object.Spec = resourceapi.ResourceSliceSpec{Driver: claim.Driver, NodeName: &d.client.node, Devices: chunk, Pool: d.pool(generation+1, len(want))}
			err = d.rest.Post().Resource("resourceslices").Body(object).Do(ctx).Into(&answer)
		}
		if err != nil {
			return err
		}
		if changed == nil {
			changed = altered(d.sliceName(i), chunk, answer.Spec.Devices)
		}
	}
	for i := len(want); i < len(found); i++ {
		err := d.rest.Delete().Resource("resourceslices").Name(found[i].Name).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if changed != nil {
		return changed
	}
	cpus := 0
	for i := range devices {
		cpus += devices[i].CPUs
	}
	d.log.WithFields(logrus.Fields{"devices": len(devices), "cpus": cpus}).Info("The CPUs for claims are published")
	return nil
}

// altered returns an error if the API server keeps other devices than it was sent. It drops fields of a feature gate that
// is off, and says nothing of that (dropDisabledFields in pkg/registry/resource/resourceslice/strategy.go of Kubernetes).
func altered(slice string, sent, kept []resourceapi.Device) error {
	if apiequality.Semantic.DeepEqual(sent, kept) {
		return nil
	}
	what := "has changed the devices of ResourceSlice " + slice + ": let the admission webhooks and policies of the cluster leave the slices of driver " + claim.Driver + " as they are"
	for i := range min(len(sent), len(kept)) {
		if sent[i].AllowMultipleAllocations != nil && kept[i].AllowMultipleAllocations == nil {
			what = "has dropped allowMultipleAllocations and requestPolicy from the devices of ResourceSlice " + slice + ", so that no claim can have CPUs of them: " +
				"switch on the feature gate DRAConsumableCapacity, which is on since Kubernetes 1.36, or let devices be cores (the chart's kube.dra.devices: core, or sluice run --claim-devices core)"
			break
		}
	}
	return alteredError{fmt.Sprintf("the API server %s; sluice-kube tries again every %s", what, operatorPause)}
}

func (d *Driver) pool(generation int64, count int) resourceapi.ResourcePool {
	return resourceapi.ResourcePool{Name: d.client.node, Generation: generation, ResourceSliceCount: int64(count)}
}

// readSlices reads so many of the node's slices, and those that exist beyond. One that does not exist
// has no name.
func (d *Driver) readSlices(ctx context.Context, want int) ([]resourceapi.ResourceSlice, error) {
	var found []resourceapi.ResourceSlice
	for i := 0; ; i++ {
		var object resourceapi.ResourceSlice
		err := d.rest.Get().Resource("resourceslices").Name(d.sliceName(i)).Do(ctx).Into(&object)
		switch {
		case apierrors.IsNotFound(err) && i >= want:
			return found, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, err
		}
		found = append(found, object)
	}
}

// nodeReference lets a slice go with its node.
func (d *Driver) nodeReference(ctx context.Context) ([]metav1.OwnerReference, error) {
	var nodes corev1.NodeList
	err := d.client.rest.Get().Resource("nodes").Param("fieldSelector", "metadata.name="+d.client.node).Do(ctx).Into(&nodes)
	if err != nil {
		return nil, err
	}
	if len(nodes.Items) != 1 {
		return nil, errors.New("there is no node " + d.client.node + " (--node-name is to be the node's name in Kubernetes)")
	}
	controls := true
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: d.client.node, UID: nodes.Items[0].UID, Controller: &controls}}, nil
}

// numaNode is the standard attribute for the NUMA node of a device (package deviceattribute of
// k8s.io/dynamic-resource-allocation), by which a claim has its devices on one node.
const numaNode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"

// apiDevices are devices as the API has them.
func apiDevices(devices []cluster.Device) []resourceapi.Device {
	all := make([]resourceapi.Device, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		capacity := resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(d.CPUs), resource.DecimalSI)}
		one := resourceapi.Device{Name: d.String(), Attributes: attributes(d)}
		if d.Shared() {
			several := true
			one.AllowMultipleAllocations, capacity.RequestPolicy = &several, wholeCores(d)
		}
		one.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{capacityName: capacity}
		all = append(all, one)
	}
	return all
}

func attributes(d *cluster.Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	kind := d.Kind.String()
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"kind": {StringValue: &kind}, "coreKind": {StringValue: &d.CoreKind}}
	number := func(name resourceapi.QualifiedName, n int64, known bool) {
		if known {
			all[name] = resourceapi.DeviceAttribute{IntValue: &n}
		}
	}
	number(numaNode, int64(d.NUMANode), d.NUMANode != cluster.None)
	number("threadsPerCore", int64(d.ThreadsPerCore), true)
	number("l3", int64(d.L3), d.L3 != cluster.None)
	number("l3Bytes", d.L3Bytes, d.L3Bytes > 0)
	if d.Distances != "" {
		all["distances"] = resourceapi.DeviceAttribute{StringValue: &d.Distances}
	}
	return all
}

// wholeCores lets claims have whole cores of a device that several share.
func wholeCores(d *cluster.Device) *resourceapi.CapacityRequestPolicy {
	core := resource.NewQuantity(int64(d.ThreadsPerCore), resource.DecimalSI)
	policy := &resourceapi.CapacityRequestPolicy{Default: core}
	if d.CPUs > d.ThreadsPerCore {
		policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: core, Step: core}
	} else { // the API server refuses a step for which there is no room (1.36, validateRequestPolicyRange)
		policy.ValidValues = []resource.Quantity{*core}
	}
	return policy
}
