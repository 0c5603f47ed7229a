package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

// slice is the node's ResourceSlice: what it is to have, and what was published last.
type slice struct {
	wake chan struct{}

	mu        sync.Mutex
	want      []cluster.Device
	known     bool      // whether want is known
	lostAt    time.Time // since when the plugin has told nothing of claims; zero while it does
	recheck   bool      // the object may not be what was published
	published []cluster.Device
	at        time.Time // of the last publication
}

// These are the times of the slice.
const (
	slicePause    = 5 * time.Second  // after a request that failed
	sliceRecheck  = 5 * time.Minute  // in case that a change by somebody else was missed
	slicePatience = 30 * time.Second // until devices are withdrawn because the plugin is away: its restart takes less
)

// Heard takes over what the plugin says of claims in its status. It says nothing of them before it
// knows the containers.
func (d *Driver) Heard(s *status.Status) error {
	if s.Claims == nil {
		d.Lost()
		return nil
	}
	d.slice.mu.Lock()
	d.slice.want, d.slice.known, d.slice.lostAt = cluster.Devices(s.Claims), true, time.Time{}
	d.slice.mu.Unlock()
	d.slice.awake()
	return nil
}

// Lost says that the plugin is away. If that lasts, all devices are withdrawn, since the plugin reserves
// nothing.
func (d *Driver) Lost() {
	d.slice.mu.Lock()
	defer d.slice.mu.Unlock()
	if d.slice.lostAt.IsZero() {
		d.slice.lostAt = time.Now()
	}
}

func (s *slice) check() {
	s.mu.Lock()
	s.recheck = true
	s.mu.Unlock()
	s.awake()
}

func (s *slice) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// due returns the devices to publish, if it is time to. A check that is asked for from then on makes
// them due again.
func (s *slice) due(now time.Time) ([]cluster.Device, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lostAt.IsZero() && now.Sub(s.lostAt) >= slicePatience {
		s.want, s.known = nil, true
	}
	since := now.Sub(s.at)
	due := s.known && (s.recheck || since >= sliceRecheck || cluster.Due(s.published, s.want, since))
	if due {
		s.recheck = false
	}
	return s.want, due
}

func (s *slice) done(devices []cluster.Device, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published, s.at = devices, now
}

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

// publish keeps the slice until the context ends.
func (d *Driver) publish(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.slice.wake:
		case <-tick.C:
		}
		devices, due := d.slice.due(time.Now())
		if !due {
			continue
		}
		err := d.put(ctx, devices)
		if err == nil {
			d.slice.done(devices, time.Now())
			told = ""
			continue
		}
		d.slice.check()
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			d.log.WithError(err).Warn("The ResourceSlice of the node can't be published")
		}
		select {
		case <-ctx.Done():
		case <-time.After(slicePause):
		}
	}
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
