package dra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// BenchmarkPrepare measures what the kubelet waits for when it prepares and ends claims: the test speaks
// to the driver in its place, and allocates the claims in the scheduler's place. A container shares CPUs,
// and makes room for each claim. The baselines are a claim that is prepared already, which the driver
// reads from the API server as well, and that reading alone.
func BenchmarkPrepare(b *testing.B) {
	s := newStand(b)
	s.awaitSlice(1)
	s.Apply(b, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: neighbour}
spec: {containers: [{name: main, image: %q, command: [sleep, infinity]}]}
`, bed.Image))
	s.AwaitReady(b, "default", "neighbour")
	conn, err := grpc.NewClient("unix://"+s.node.Path("/var/lib/kubelet/plugins/"+claim.Driver+"/dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	driver := drav1.NewDRAPluginClient(conn)
	claims := s.Client(b).ResourceV1().ResourceClaims("default")
	changes, began := s.countSlices(b), time.Now()
	took := map[string][]time.Duration{}
	timed := func(what string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatalf("%s: %v", what, err)
		}
		took[what] = append(took[what], time.Since(began))
	}
	for b.Loop() {
		c := s.allocate(b, fmt.Sprintf("measured-%d", len(took["prepare"])))
		asked := []*drav1.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}
		prepare := func() error {
			answer, err := driver.NodePrepareResources(b.Context(), &drav1.NodePrepareResourcesRequest{Claims: asked})
			if err == nil && len(answer.Claims[asked[0].Uid].GetDevices()) != 1 {
				err = fmt.Errorf("the driver answers %v", answer)
			}
			return err
		}
		timed("prepare", prepare)
		timed("prepared", prepare)
		timed("get", func() error {
			_, err := claims.Get(b.Context(), c.Name, metav1.GetOptions{})
			return err
		})
		timed("unprepare", func() error {
			answer, err := driver.NodeUnprepareResources(b.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: asked})
			if err == nil && answer.Claims[asked[0].Uid].GetError() != "" {
				err = fmt.Errorf("the driver answers %v", answer)
			}
			return err
		})
		if err := claims.Delete(b.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(changes())/time.Since(began).Minutes(), "slices/min")
	for what, all := range took {
		slices.Sort(all)
		for _, percent := range []int{50, 99} {
			b.ReportMetric(all[min(len(all)-1, len(all)*percent/100)].Seconds()*1000, fmt.Sprintf("%s-p%d-ms", what, percent))
		}
	}
}

// allocate makes a claim for one CPU of the node, as the scheduler leaves it.
func (s *stand) allocate(b *testing.B, name string) *resourceapi.ResourceClaim {
	b.Helper()
	one := resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"cpus": resource.MustParse("1")}}
	claims := s.Client(b).ResourceV1().ResourceClaims("default")
	c, err := claims.Create(b.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "cpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "lse.cpus.sluice.dev", Capacity: &one},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	share := types.UID("00000000-0000-4000-8000-000000000001")
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "cpus", Driver: claim.Driver, Pool: nodeName, Device: "numa0", ShareID: &share, ConsumedCapacity: one.Requests,
	}}}}
	if c, err = claims.UpdateStatus(b.Context(), c, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	return c
}
