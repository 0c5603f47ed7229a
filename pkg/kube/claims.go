package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// capacityName is the capacity of a device that claims consume.
const capacityName resourceapi.QualifiedName = "cpus"

// claimed is what the API server knows of a claim: what to reserve, and for each device of it what the
// kubelet needs.
type claimed struct {
	claim   claim.Claim
	results []resourceapi.DeviceRequestAllocationResult
}

// readClaim reads a claim that the kubelet names. One of another UID is another claim.
func (d *Driver) readClaim(ctx context.Context, namespace, name, uid string) (*claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var object resourceapi.ResourceClaim
	if err := d.rest.Get().Resource("resourceclaims").Namespace(namespace).Name(name).Do(ctx).Into(&object); err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", namespace, name, err)
	}
	if object.UID != types.UID(uid) {
		return nil, fmt.Errorf("claim %s/%s has UID %s now, and the kubelet prepares %s: the claim was made anew", namespace, name, object.UID, uid)
	}
	return allocated(&object)
}

// allocated returns what the scheduler has allocated to a claim of this driver's devices.
func allocated(object *resourceapi.ResourceClaim) (*claimed, error) {
	c := &claimed{claim: claim.Claim{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name}}
	refuse := func(format string, args ...any) (*claimed, error) {
		return nil, fmt.Errorf(c.claim.Ref()+": "+format, args...)
	}
	if object.Status.Allocation == nil {
		return refuse("the scheduler has allocated nothing to it")
	}
	devices := &object.Status.Allocation.Devices
	for i := range devices.Results {
		r := &devices.Results[i]
		if r.Driver != claim.Driver {
			continue
		}
		device := claim.Device{}
		if err := device.Domain.UnmarshalText([]byte(r.Device)); err != nil {
			return refuse("request %s: %w", r.Request, err)
		}
		consumed, has := r.ConsumedCapacity[capacityName]
		cpus, whole := consumed.AsInt64()
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
			return refuse("request %s asks for admin access, and CPUs of one's own are for one claim: leave adminAccess out", r.Request)
		case device.Domain.Kind == claim.Core: // the plugin knows its CPUs
		case !has:
			return refuse("the allocation of request %s says no number of CPUs: the cluster needs the feature gate DRAConsumableCapacity, which is on since Kubernetes 1.36", r.Request)
		case !whole || cpus < 1 || cpus > 1<<13:
			return refuse("request %s has %s CPUs: it must be a whole number", r.Request, consumed.String())
		default:
			device.CPUs = int(cpus)
		}
		var err error
		if device.Class, err = classOf(devices.Config, r.Request); err != nil {
			return refuse("request %s: %w", r.Request, err)
		}
		c.claim.Devices = append(c.claim.Devices, device)
		c.results = append(c.results, *r)
	}
	if len(c.results) == 0 {
		return refuse("it has no device of driver %s", claim.Driver)
	}
	return c, nil
}

// requestOf is the name of a request in the claim, which containers and configurations can name. An
// allocation for one of its alternatives (firstAvailable) has that one's name after a slash.
func requestOf(name string) string {
	request, _, _ := strings.Cut(name, "/")
	return request
}

// classOf returns the class that the configuration of a claim and of its device class give to a
// request. A configuration can name the request or one of its alternatives. The claim's own comes last
// in the list, and counts. Without any it is LSR.
func classOf(config []resourceapi.DeviceAllocationConfiguration, request string) (workload.Class, error) {
	class := workload.LSR
	for i := range config {
		c := &config[i]
		if c.Opaque == nil || c.Opaque.Driver != claim.Driver ||
			len(c.Requests) > 0 && !slices.Contains(c.Requests, request) && !slices.Contains(c.Requests, requestOf(request)) {
			continue
		}
		var err error
		if class, err = claim.ParseParameters(c.Opaque.Parameters.Raw); err != nil {
			return class, err
		}
	}
	return class, nil
}
