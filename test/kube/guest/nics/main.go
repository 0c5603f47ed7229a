// Nics is a DRA driver of network cards that do not exist, made with the library that Kubernetes has for drivers. Its
// arguments are the name of the node and, for each card, the number of its NUMA node: card nic2 is in NUMA node 2. A
// container with the card has the card's name in its variable NIC.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const name = "nics.example.com"

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(node string, numaNodes []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// The kubelet may read the claims of its pods, and write the slices of its node.
	config, err := clientcmd.BuildConfigFromFlags("", "/etc/kubernetes/kubeconfig")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var cards []resourceapi.Device
	for _, text := range numaNodes {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		card := resourceapi.Device{Name: "nic" + text, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			deviceattribute.StandardDeviceAttributeNUMANode: {IntValue: &number},
		}}
		if err := describe(card.Name); err != nil {
			return err
		}
		cards = append(cards, card)
	}
	if err := os.MkdirAll(filepath.Join(kubeletplugin.KubeletPluginsDir, name), 0o750); err != nil {
		return err
	}
	driver, err := kubeletplugin.Start(ctx, cardDriver{}, kubeletplugin.DriverName(name), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client))
	if err != nil {
		return err
	}
	defer driver.Stop()
	err = driver.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: cards}}},
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// describe writes the CDI spec of a card.
func describe(card string) error {
	const dir = "/var/run/cdi"
	spec := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/nic", "devices": [{"name": %q, "containerEdits": {"env": ["NIC=%[1]s"]}}]}`, card)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "example.com-"+card+".json"), []byte(spec), 0o600)
}

// cardDriver gives cards to containers, which needs nothing but their CDI specs.
type cardDriver struct{}

func (cardDriver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			if r.Driver == name {
				result.Devices = append(result.Devices, kubeletplugin.Device{
					Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{"example.com/nic=" + r.Device},
				})
			}
		}
		all[claim.UID] = result
	}
	return all, nil
}

func (cardDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, claim := range claims {
		all[claim.UID] = nil
	}
	return all, nil
}

func (cardDriver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (cardDriver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
}
