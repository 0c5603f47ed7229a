package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/rest"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// Reserver is the plugin, which reserves what claims ask for; see pkg/view/kubesocket.
type Reserver interface {
	PrepareClaim(ctx context.Context, c *claim.Claim) error
	EndClaim(ctx context.Context, uid string) error
}

// Driver is the DRA driver of a node. The kubelet asks it to prepare claims, which it lets the plugin
// reserve, and it publishes what claims can have in a ResourceSlice. It serves the kubelet by itself:
// with the library of Kubernetes for that (kubeletplugin), the program would be three times as large.
type Driver struct {
	drav1.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	health.UnimplementedDRAResourceHealthServer

	client *Client
	rest   rest.Interface // of the group resource.k8s.io
	plugin Reserver
	dir    string // the kubelet's folder
	log    logrus.FieldLogger
	slice  kept[cluster.Device]
	health deviceHealth
	unused unusedClaims
	one    sync.Mutex // held while a claim is prepared or ended: the kubelet repeats what takes long
}

// NewDriver returns the driver of the client's node. kubelet is the folder of the kubelet, with the
// folders plugins and plugins_registry.
func (c *Client) NewDriver(plugin Reserver, kubelet string, log logrus.FieldLogger) (*Driver, error) {
	config := rest.CopyConfig(c.config)
	config.QPS = -1 // no limit: a kubelet that starts asks for all of its claims, one after the other
	group, err := newREST(config, "/apis", resourceapi.SchemeGroupVersion, resourceapi.AddToScheme)
	if err != nil {
		return nil, err
	}
	d := &Driver{client: c, rest: group, plugin: plugin, dir: kubelet, log: log}
	d.slice = kept[cluster.Device]{name: "ResourceSlice", due: cluster.Due, put: d.put, wait: soon, wake: make(chan struct{}, 1)}
	return d, nil
}

// SocketFolders are the folders of the driver's sockets, for registration and for claims, below the
// kubelet's folder. They are the driver's own, so that it need not write to those of others.
func SocketFolders(kubelet string) [2]string {
	return [2]string{filepath.Join(kubelet, "plugins_registry", claim.Driver), filepath.Join(kubelet, "plugins", claim.Driver)}
}

func (d *Driver) sockets() (register, claims string) {
	folders := SocketFolders(d.dir)
	return filepath.Join(folders[0], "reg.sock"), filepath.Join(folders[1], "dra.sock")
}

// Run serves the kubelet and publishes the slice until the context ends.
func (d *Driver) Run(ctx context.Context) error {
	register, claims := d.sockets()
	claimServer, registerServer := grpc.NewServer(), grpc.NewServer()
	drav1.RegisterDRAPluginServer(claimServer, d)
	health.RegisterDRAResourceHealthServer(claimServer, d)
	registration.RegisterRegistrationServer(registerServer, d)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return serve(ctx, claimServer, claims) })
	work.Go(func() error { return serve(ctx, registerServer, register) })
	work.Go(func() error { d.watch(ctx); return nil })
	work.Go(func() error { d.slice.keep(ctx, d.log); return nil })
	work.Go(func() error { d.endForgotten(ctx); return nil })
	return work.Wait()
}

// serve serves a socket until the context ends. A socket that an earlier process has left is replaced,
// which also lets the kubelet notice the new one.
func serve(ctx context.Context, server *grpc.Server, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the socket for the kubelet: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("the socket for the kubelet: %w (its folder must be this user's: sluice-kube sockets makes it, as the chart does)", err)
	}
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the socket for the kubelet: %w", err)
	}
	return nil
}

// GetInfo tells the kubelet where the driver serves claims.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	_, claims := d.sockets()
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: claim.Driver, Endpoint: claims, SupportedVersions: []string{drav1.DRAPluginService}}, nil
}

// NotifyRegistrationStatus hears whether the kubelet has taken the driver.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		d.log.WithField("driver", claim.Driver).Info("The kubelet has registered the DRA driver")
	} else {
		d.log.WithField("driver", claim.Driver).WithField("error", s.GetError()).Error("The kubelet does not register the DRA driver: no claim is prepared")
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// NodePrepareResources reserves what claims ask for. The kubelet repeats a claim that failed.
func (d *Driver) NodePrepareResources(ctx context.Context, request *drav1.NodePrepareResourcesRequest) (*drav1.NodePrepareResourcesResponse, error) {
	answer := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range request.GetClaims() {
		devices, err := d.prepare(ctx, c)
		one := &drav1.NodePrepareResourceResponse{Devices: devices}
		if err != nil {
			d.log.WithError(err).WithField("claim", c.GetNamespace()+"/"+c.GetName()).Warn("A claim is not prepared; the kubelet tries again")
			one.Error = err.Error()
		}
		answer.Claims[c.GetUid()] = one
	}
	return answer, nil
}

func (d *Driver) prepare(ctx context.Context, asked *drav1.Claim) ([]*drav1.Device, error) {
	d.one.Lock()
	defer d.one.Unlock()
	c, err := d.readClaim(ctx, asked.GetNamespace(), asked.GetName(), asked.GetUid())
	if err != nil {
		return nil, err
	}
	if err := d.plugin.PrepareClaim(ctx, &c.claim); err != nil {
		return nil, err
	}
	var devices []*drav1.Device
	for i := range c.results {
		r := &c.results[i]
		device := &drav1.Device{RequestNames: []string{requestOf(r.Request)}, PoolName: r.Pool, DeviceName: r.Device, CdiDeviceIds: []string{claim.CDIName(c.claim.ID(i))}}
		if r.ShareID != nil {
			share := string(*r.ShareID)
			device.ShareId = &share
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// pluginReturns is how long the end of a claim waits for a plugin that restarts. The kubelet waits for 45 s, and
// tries again only a minute later if the claim's pod was deleted by force.
const pluginReturns = 10 * time.Second

// end frees what a claim has reserved. A plugin that was asked is not asked again.
func (d *Driver) end(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, pluginReturns)
	defer cancel()
	for {
		err := d.plugin.EndClaim(ctx, uid)
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pluginReturns / 100):
		}
	}
}

// NodeUnprepareResources frees what claims have reserved. It needs nothing of the API server, where
// the claims may be gone.
func (d *Driver) NodeUnprepareResources(ctx context.Context, request *drav1.NodeUnprepareResourcesRequest) (*drav1.NodeUnprepareResourcesResponse, error) {
	d.one.Lock()
	defer d.one.Unlock()
	answer := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range request.GetClaims() {
		one := &drav1.NodeUnprepareResourceResponse{}
		if err := d.end(ctx, c.GetUid()); err != nil {
			d.log.WithError(err).WithField("claim", c.GetNamespace()+"/"+c.GetName()).Warn("The CPUs of a claim are not freed; the kubelet tries again")
			one.Error = err.Error()
		}
		answer.Claims[c.GetUid()] = one
	}
	return answer, nil
}
