package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const claimUID = "0f0e4d2c-1b7a-4a57-9f0c-7d1f7a1d3c55"

// aClaim is a claim as the scheduler leaves it, with a device of another driver.
func aClaim() *resourceapi.ResourceClaim {
	share := types.UID("5c1f")
	opaque := func(driver, parameters string) resourceapi.DeviceConfiguration {
		return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)}}}
	}
	return &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fast", UID: claimUID},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: "gpu.vendor.com", Pool: "n1", Device: "gpu0"},
				{Request: "cpus", Driver: claim.Driver, Pool: "n1", Device: "numa1", ShareID: &share, ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"cpus": resource.MustParse("2")}},
			},
			Config: []resourceapi.DeviceAllocationConfiguration{
				{Source: resourceapi.AllocationConfigSourceClass, DeviceConfiguration: opaque("gpu.vendor.com", `{"x": 1}`)},
				{Source: resourceapi.AllocationConfigSourceClass, Requests: []string{"cpus"}, DeviceConfiguration: opaque(claim.Driver, `{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "LSE"}`)},
			},
		}}},
	}
}

func TestAllocated(t *testing.T) {
	t.Parallel()
	ours := func(c *resourceapi.ResourceClaim) *resourceapi.DeviceRequestAllocationResult {
		return &c.Status.Allocation.Devices.Results[1]
	}
	yes := true
	for want, change := range map[string]func(*resourceapi.ResourceClaim){
		"":                       func(*resourceapi.ResourceClaim) {},
		"has allocated nothing":  func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil },
		"leave adminAccess out":  func(c *resourceapi.ResourceClaim) { ours(c).AdminAccess = &yes },
		"devices are called":     func(c *resourceapi.ResourceClaim) { ours(c).Device = "cpu0" },
		"DRAConsumableCapacity":  func(c *resourceapi.ResourceClaim) { ours(c).ConsumedCapacity = nil },
		"must be a whole number": func(c *resourceapi.ResourceClaim) { ours(c).ConsumedCapacity["cpus"] = resource.MustParse("1500m") },
		"no device of driver":    func(c *resourceapi.ResourceClaim) { ours(c).Driver = "other.vendor.com" },
		"it must be LSE or LSR": func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Config[1].Opaque.Parameters.Raw = []byte(`{"apiVersion": "cpus.sluice.dev/v1", "kind": "CPUClaim", "class": "BE"}`)
		},
	} {
		c := aClaim()
		change(c)
		got, err := allocated(c)
		if want == "" {
			if err != nil || !reflect.DeepEqual(got.claim.Devices, []claim.Device{{Domain: claim.Domain{Kind: claim.NUMA, Number: 1}, CPUs: 2, Class: workload.LSE}}) {
				t.Errorf("%+v: %v", got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "claim shop/fast") {
			t.Errorf("%v, want %q and the claim's name", err, want)
		}
	}
}

// A core has no capacity of which a claim consumes a part: the plugin knows how many CPUs it is.
func TestAllocatedCores(t *testing.T) {
	t.Parallel()
	c := aClaim()
	results := c.Status.Allocation.Devices.Results
	results[1].Device, results[1].ConsumedCapacity, results[1].ShareID = "core3", nil, nil
	next := results[1]
	next.Device = "core4"
	c.Status.Allocation.Devices.Results = append(results, next)
	got, err := allocated(c)
	want := []claim.Device{{Domain: claim.Domain{Kind: claim.Core, Number: 3}, Class: workload.LSE}, {Domain: claim.Domain{Kind: claim.Core, Number: 4}, Class: workload.LSE}}
	if err != nil || !reflect.DeepEqual(got.claim.Devices, want) {
		t.Errorf("%+v: %v", got, err)
	}
}

// A node with more devices than a slice can have publishes several, all of one generation. Those that it
// does not need any more are deleted, and one that somebody else deleted is made again.
func TestManyDevices(t *testing.T) {
	t.Parallel()
	d, api, _ := newDriver(t)
	cores := func(n int) []cluster.Device {
		c := &status.Claims{}
		for i := range n {
			c.Devices = append(c.Devices, status.ClaimDevice{Device: claim.Domain{Kind: claim.Core, Number: i}, CPUs: 2, Nodes: cpuset.Of(0), ThreadsPerCore: 2})
		}
		return cluster.Devices(c)
	}
	names := []string{"n1-cpus.sluice.dev", "n1-cpus.sluice.dev-1", "n1-cpus.sluice.dev-2"}
	steps := []struct {
		devices int
		writes  string // since the step before
		loses   string
	}{
		{300, "POST POST POST", ""}, {300, "", names[1]}, {300, "PUT POST PUT", ""}, {256, "PUT PUT DELETE", ""}, {256, "", ""}, {3, "PUT DELETE", ""}, {0, "DELETE", ""}, {0, "", ""},
	}
	for i, step := range steps {
		api.writes = nil
		if err := d.put(t.Context(), cores(step.devices)); err != nil {
			t.Fatal(err)
		}
		if api.has() != step.writes {
			t.Errorf("step %d, %d devices: %q is written, want %q", i, step.devices, api.has(), step.writes)
		}
		seen, generations := 0, map[int64]bool{}
		for _, name := range names {
			s := api.slices[name]
			if s == nil {
				continue
			}
			generations[s.Spec.Pool.Generation] = true
			if s.Spec.Pool.ResourceSliceCount != int64(len(api.slices)) || s.Spec.Pool.Name != "n1" || len(s.Spec.Devices) > 128 {
				t.Errorf("step %d: slice %s has %d devices in the pool %+v", i, name, len(s.Spec.Devices), s.Spec.Pool)
			}
			for _, one := range s.Spec.Devices {
				if one.Name != fmt.Sprint("core", seen) || one.AllowMultipleAllocations != nil || one.Capacity["cpus"].RequestPolicy != nil {
					t.Errorf("step %d: device %d is %+v", i, seen, one)
				}
				seen++
			}
		}
		if seen != step.devices || len(generations) > 1 {
			t.Errorf("step %d: %d devices, want %d; the slices have generations %v", i, seen, step.devices, generations)
		}
		delete(api.slices, step.loses)
	}
}

// The scheduler names a request with the alternative that it has chosen (firstAvailable). The kubelet
// gives the device to the containers that name the request.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	for _, configured := range []string{"cpus", "cpus/big"} {
		c := aClaim()
		c.Status.Allocation.Devices.Results[1].Request = "cpus/big"
		c.Status.Allocation.Devices.Config[1].Requests = []string{"cpus/small", configured}
		got, err := allocated(c)
		if err != nil || got.claim.Devices[0].Class != workload.LSE {
			t.Errorf("configured for %s: %+v: %v", configured, got, err)
		}
	}
	d, api, _ := newDriver(t)
	api.claim = aClaim()
	api.claim.Status.Allocation.Devices.Results[1].Request = "cpus/big"
	devices, err := d.prepare(t.Context(), &drav1.Claim{Namespace: "shop", Name: "fast", Uid: claimUID})
	if err != nil || len(devices) != 1 || !reflect.DeepEqual(devices[0].GetRequestNames(), []string{"cpus"}) {
		t.Errorf("the kubelet hears of %v: %v", devices, err)
	}
}

// fakeAPI is an API server with one claim, one node and its slices.
type fakeAPI struct {
	mu          sync.Mutex
	claim       *resourceapi.ResourceClaim // nil stands for aClaim
	claimStatus int                        // of an answer to who reads it that is no object of Kubernetes; 0 for the claim
	slices      map[string]*resourceapi.ResourceSlice
	writes      []string
	alters      func(*resourceapi.ResourceSlice) // what is written, before it is kept; nil for nothing
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := func(object any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(object)
	}
	missing := func() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}`)
	}
	switch {
	case strings.Contains(r.URL.Path, "/resourceclaims/") && f.claimStatus != 0:
		http.Error(w, "no answer of Kubernetes", f.claimStatus)
	case r.URL.Path == "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/fast":
		answer(cmp.Or(f.claim, aClaim()))
	case r.URL.Path == "/api/v1/nodes":
		answer(&corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}}})
	case !strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/v1/resourceslices"):
		missing()
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "resourceslices"): // no list and no watch here
		missing()
	case r.Method == http.MethodGet && f.slices[path.Base(r.URL.Path)] == nil:
		missing()
	case r.Method == http.MethodGet:
		answer(f.slices[path.Base(r.URL.Path)])
	case r.Method == http.MethodDelete:
		f.writes = append(f.writes, r.Method)
		delete(f.slices, path.Base(r.URL.Path))
		answer(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	default:
		body, _ := io.ReadAll(r.Body)
		scheme := runtime.NewScheme()
		if err := resourceapi.AddToScheme(scheme); err != nil {
			panic(err)
		}
		object, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		slice := object.(*resourceapi.ResourceSlice)
		slice.APIVersion, slice.Kind = "resource.k8s.io/v1", "ResourceSlice"
		if f.slices == nil {
			f.slices = map[string]*resourceapi.ResourceSlice{}
		}
		if f.alters != nil {
			f.alters(slice)
		}
		f.slices[slice.Name] = slice
		f.writes = append(f.writes, r.Method)
		answer(slice)
	}
}

// fakePlugin notes what it is asked.
type fakePlugin struct {
	prepared []claim.Claim
	ended    []string
	err      error
	away     int // calls for which nobody serves its socket
}

func (f *fakePlugin) PrepareClaim(_ context.Context, c *claim.Claim) error {
	f.prepared = append(f.prepared, *c)
	return f.err
}

func (f *fakePlugin) EndClaim(_ context.Context, uid string) error {
	if f.away > 0 {
		f.away--
		return fmt.Errorf("asking the plugin: %w", syscall.ECONNREFUSED)
	}
	f.ended = append(f.ended, uid)
	return f.err
}

func newDriver(t *testing.T) (*Driver, *fakeAPI, *fakePlugin) {
	t.Helper()
	api, plugin := &fakeAPI{}, &fakePlugin{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	core, err := newCoreREST(config)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	dir, err := os.MkdirTemp("", "dra") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, folder := range SocketFolders(dir) {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	driver, err := (&Client{rest: core, config: config, node: "n1"}).NewDriver(plugin, dir, log)
	if err != nil {
		t.Fatal(err)
	}
	return driver, api, plugin
}

// TestDriver plays the kubelet: it registers the driver by its socket, and prepares and ends claims.
func TestDriver(t *testing.T) {
	t.Parallel()
	d, api, plugin := newDriver(t)
	if d.rest.GetRateLimiter() != nil || d.client.rest.GetRateLimiter() == nil {
		t.Error("claims wait for the client's own limit, or nothing does")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	stale := filepath.Join(SocketFolders(d.dir)[0], "reg.sock")
	if err := os.WriteFile(stale, nil, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	go func() { ended <- d.Run(ctx) }()
	info, err := registration.NewRegistrationClient(dial(t, stale)).GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != "cpus.sluice.dev" || info.GetType() != "DRAPlugin" || len(info.GetSupportedVersions()) != 1 {
		t.Fatalf("the driver says %v: %v", info, err)
	}
	kubelet := drav1.NewDRAPluginClient(dial(t, info.GetEndpoint()))
	asked := &drav1.NodePrepareResourcesRequest{Claims: []*drav1.Claim{
		{Namespace: "shop", Name: "fast", Uid: claimUID}, {Namespace: "shop", Name: "fast", Uid: "older"}, {Namespace: "shop", Name: "gone", Uid: "x"},
	}}
	answer, err := kubelet.NodePrepareResources(ctx, asked, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	one := answer.GetClaims()[claimUID]
	if one.GetError() != "" || len(one.GetDevices()) != 1 || one.GetDevices()[0].GetCdiDeviceIds()[0] != "cpus.sluice.dev/claim="+claimUID+"-0" || one.GetDevices()[0].GetShareId() != "5c1f" {
		t.Errorf("the claim is answered by %v", one)
	}
	if len(plugin.prepared) != 1 || plugin.prepared[0].Devices[0].CPUs != 2 {
		t.Errorf("the plugin was asked for %+v", plugin.prepared)
	}
	if e := answer.GetClaims()["older"].GetError(); !strings.Contains(e, "the claim was made anew") {
		t.Errorf("a claim of another UID: %q", e)
	}
	if e := answer.GetClaims()["x"].GetError(); !strings.Contains(e, "claim shop/gone") {
		t.Errorf("a claim that is gone: %q", e)
	}
	plugin.err = errors.New("no CPUs are free")
	answer, err = kubelet.NodePrepareResources(ctx, asked)
	if err != nil || answer.GetClaims()[claimUID].GetError() != "no CPUs are free" || len(answer.GetClaims()[claimUID].GetDevices()) != 0 {
		t.Errorf("a claim that the plugin refuses: %v, %v", answer, err)
	}
	plugin.err, plugin.away = nil, 2
	if done, err := kubelet.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: []*drav1.Claim{{Uid: claimUID}}}); err != nil || done.GetClaims()[claimUID].GetError() != "" || !slices.Equal(plugin.ended, []string{claimUID}) {
		t.Errorf("the claim's end, while the plugin restarts: %v: %v", done, err)
	}

	d.heard(t, 4)
	await(t, "a slice", func() bool { return api.has() == "POST" })
	d.heard(t, 2)
	await(t, "the lower capacity", func() bool { return api.has() == "POST PUT" })
	if s := api.slices[d.sliceName(0)]; s.Spec.Pool.Generation != 2 || s.OwnerReferences[0].UID != "node-uid" || *s.Spec.NodeName != "n1" || *s.Spec.Devices[0].Attributes[numaNode].IntValue != 1 {
		t.Errorf("the slice is %+v", s)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func (f *fakeAPI) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.writes, " ")
}

func (d *Driver) heard(t *testing.T, cpus int) {
	t.Helper()
	if err := d.Heard(&status.Status{Claims: &status.Claims{Devices: []status.ClaimDevice{{Device: claim.Domain{Kind: claim.NUMA, Number: 1}, CPUs: cpus, Nodes: cpuset.Of(1), ThreadsPerCore: 2}}}}); err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !there(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

// A plugin that restarts leaves the slice as it is, and one that stays away loses it.
func TestLostPlugin(t *testing.T) {
	t.Parallel()
	d, api, _ := newDriver(t)
	if _, due := d.slice.next(time.Now()); due {
		t.Error("a slice is due before the plugin has said anything")
	}
	d.heard(t, 2)
	devices, due := d.slice.next(time.Now())
	if !due || len(devices) != 1 {
		t.Fatalf("%+v, %v", devices, due)
	}
	if err := d.put(t.Context(), devices); err != nil {
		t.Fatal(err)
	}
	d.slice.done(devices, false, time.Now())
	if err := d.put(t.Context(), devices); err != nil || api.has() != "POST" {
		t.Errorf("what is published already is written: %s, %v", api.has(), err)
	}
	d.Lost()
	if _, due := d.slice.next(time.Now().Add(20 * time.Second)); due {
		t.Error("the slice is withdrawn while the plugin restarts")
	}
	devices, due = d.slice.next(time.Now().Add(40 * time.Second))
	if !due || len(devices) != 0 {
		t.Errorf("the slice of a plugin that is away is %+v, %v", devices, due)
	}
	if err := d.put(t.Context(), devices); err != nil || api.has() != "POST DELETE" {
		t.Errorf("%s, %v", api.has(), err)
	}
	d.slice.check() // while the slice was written: what was read before may be gone
	d.slice.done(devices, false, time.Now())
	if _, due := d.slice.next(time.Now()); !due {
		t.Error("a kubelet that starts does not make the slice due")
	}
	d.slice.done(devices, false, time.Now())
	if _, due := d.slice.next(time.Now()); due {
		t.Error("a slice that was checked is due again")
	}
}
