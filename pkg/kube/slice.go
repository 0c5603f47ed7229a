package kube

import (
	"context"
	"errors"
	"fmt"

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
	return nil
}

// Lost says that the plugin is away. If that lasts, all devices are withdrawn, since the plugin reserves
// nothing.
func (d *Driver) Lost() { d.slice.lost() }

// watch notices what others do to the slice: a kubelet that starts deletes the slices of its node, some
// time before or after it has registered the driver.
func (d *Driver) watch(ctx context.Context) {
	check := func(any) { d.slice.check() }
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(d.rest, "resourceslices", metav1.NamespaceAll, fields.OneTermEqualSelector("metadata.name", d.sliceName())),
		ObjectType:    &resourceapi.ResourceSlice{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: check, UpdateFunc: func(_, now any) { check(now) }, DeleteFunc: check},
	})
	controller.Run(ctx.Done())
}

func (d *Driver) sliceName() string { return fmt.Sprintf("%.230s-%s", d.client.node, claim.Driver) }

// put lets the slice have these devices. It changes a slice that has them already in nothing. A node
// without devices has no slice.
func (d *Driver) put(ctx context.Context, devices []cluster.Device) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var object resourceapi.ResourceSlice
	err := d.rest.Get().Resource("resourceslices").Name(d.sliceName()).Do(ctx).Into(&object)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	switch {
	case len(devices) == 0 && !exists:
		return nil
	case len(devices) == 0:
		err = d.rest.Delete().Resource("resourceslices").Name(d.sliceName()).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
	case !exists:
		if object, err = d.newSlice(ctx, devices); err == nil {
			err = d.rest.Post().Resource("resourceslices").Body(&object).Do(ctx).Error()
		}
	default:
		want := apiDevices(devices)
		if apiequality.Semantic.DeepEqual(object.Spec.Devices, want) {
			return nil
		}
		object.Spec.Devices = want
		object.Spec.Pool.Generation++
		err = d.rest.Put().Resource("resourceslices").Name(d.sliceName()).Body(&object).Do(ctx).Error()
	}
	if err == nil {
		d.log.WithField("devices", fmt.Sprintf("%+v", devices)).Info("ResourceSlice published")
	}
	return err
}

// newSlice is a slice that goes with its node.
func (d *Driver) newSlice(ctx context.Context, devices []cluster.Device) (resourceapi.ResourceSlice, error) {
	var nodes corev1.NodeList
	var made resourceapi.ResourceSlice
	err := d.client.rest.Get().Resource("nodes").Param("fieldSelector", "metadata.name="+d.client.node).Do(ctx).Into(&nodes)
	if err != nil {
		return made, err
	}
	if len(nodes.Items) != 1 {
		return made, errors.New("there is no node " + d.client.node + " (--node-name is to be the node's name in Kubernetes)")
	}
	controls := true
	made.ObjectMeta = metav1.ObjectMeta{Name: d.sliceName(), OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: d.client.node, UID: nodes.Items[0].UID, Controller: &controls},
	}}
	made.Spec = resourceapi.ResourceSliceSpec{
		Driver: claim.Driver, NodeName: &d.client.node, Devices: apiDevices(devices),
		Pool: resourceapi.ResourcePool{Name: d.client.node, Generation: 1, ResourceSliceCount: 1},
	}
	return made, nil
}

// numaNode is the standard attribute for the NUMA node of a device (package deviceattribute of
// k8s.io/dynamic-resource-allocation), by which a claim has its devices on one node.
const numaNode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"

// apiDevices are devices as the API has them.
func apiDevices(devices []cluster.Device) []resourceapi.Device {
	all := make([]resourceapi.Device, 0, len(devices))
	several := true
	for _, d := range devices {
		integer := func(n int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &n} }
		core := resource.NewQuantity(int64(d.ThreadsPerCore), resource.DecimalSI)
		policy := &resourceapi.CapacityRequestPolicy{Default: core}
		if d.CPUs > d.ThreadsPerCore {
			policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: core, Step: core}
		} else { // the API server refuses a step for which there is no room (1.36, validateRequestPolicyRange)
			policy.ValidValues = []resource.Quantity{*core}
		}
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			numaNode: integer(int64(d.Node)), "threadsPerCore": integer(int64(d.ThreadsPerCore)), "coreKind": {StringValue: &d.CoreKind},
		}
		if d.L3Bytes > 0 {
			attributes["l3Bytes"] = integer(d.L3Bytes)
		}
		all = append(all, resourceapi.Device{
			Name: d.Name(), AllowMultipleAllocations: &several, Attributes: attributes,
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{capacityName: {
				Value: *resource.NewQuantity(int64(d.CPUs), resource.DecimalSI), RequestPolicy: policy,
			}},
		})
	}
	return all
}
