package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

// options are the flags of run.
type options struct {
	node, namespace, socket, resources, kubeconfig, metrics, logLevel string
	kubelet                                                           string
	pins, topology, parts, dra                                        bool
}

func newRun() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Publish what this node sells, until stopped",
		Long: `Read the plugin's status from its socket, and publish the offer to batch work in
the capacity and allocatable of this node, with the conditions SluiceReady and
SluiceBatchOpen. At its end nothing more is sold than what pods have. Hand the
plugin what the fleet's switch, the ConfigMap sluice-switch, says for this node.

With --parts, hand the plugin also the parts of the fleet's policy for this node,
of those ConfigMaps that have the label sluice.dev/policy.

With --pins, publish also how many CPUs containers can have for themselves, so that
a pod of class LSE or LSR waits until a node has them. With --topology, publish these
CPUs also by NUMA node, in a NodeResourceTopology for a NUMA-aware scheduler.

With --dra it also publishes in a ResourceSlice what resource claims can have of
the node's CPUs, and lets the plugin reserve what they are given.`,
		Example: `  # in a pod, with NODE_NAME from the field spec.nodeName
  sluice-kube run

  # with Koordinator's names of resources
  sluice-kube run --resources koordinator

  # outside of a pod
  sluice-kube run --node-name worker-1 --kubeconfig admin.conf --socket /run/sluice/status.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	nodeFlag(cmd, &o.node)
	f.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the fleet's ConfigMaps: sluice-switch, and with --parts the parts of the policy (default: the environment's POD_NAMESPACE; without any, none are read)")
	f.StringVar(&o.socket, "socket", "/run/sluice-kube/kube.sock", "unix socket on which the plugin serves its status")
	f.StringVar(&o.resources, "resources", string(selling.Sluice), "names of the resources: sluice, koordinator or katalyst")
	f.BoolVar(&o.parts, "parts", false, "hand the plugin the parts of the fleet's policy; this takes the right to list all ConfigMaps of the namespace")
	f.BoolVar(&o.pins, "pins", false, "publish also "+selling.PinnableCPU+", the CPUs that LSE and LSR containers can have")
	f.BoolVar(&o.topology, "topology", false, "publish "+selling.PinnableCPU+" also by NUMA node, in a NodeResourceTopology; this takes --pins")
	kubeconfigFlag(cmd, &o.kubeconfig)
	f.StringVar(&o.metrics, "metrics-listen", "", "address of the metrics, as :9101 (default: none)")
	f.BoolVar(&o.dra, "dra", false, "reserve CPUs for resource claims, as the DRA driver cpus.sluice.dev")
	kubeletFlag(cmd, &o.kubelet)
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func nodeFlag(c *cobra.Command, node *string) {
	c.Flags().StringVar(node, "node-name", os.Getenv("NODE_NAME"), "name of the node in Kubernetes (default: the environment's NODE_NAME)")
}

func kubeconfigFlag(c *cobra.Command, kubeconfig *string) {
	c.Flags().StringVar(kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the service account of this pod)")
}

// errNoNode says how to name the node.
var errNoNode = errors.New("the node has no name: give --node-name, or set NODE_NAME from the pod's field spec.nodeName")

// errPinsAndDRA says why a node sells its free CPUs in one way.
var errPinsAndDRA = errors.New("--pins and --dra: the node would offer the same free CPUs twice, as " + selling.PinnableCPU + " and to resource claims: leave one of them out")

// errTopologyAlone says what a topology without pins lacks.
var errTopologyAlone = errors.New("--topology without --pins: the NodeResourceTopology has " + selling.PinnableCPU + " by NUMA node, which pods request only where --pins publishes it: add --pins, or leave --topology out")

func run(ctx context.Context, o options) error {
	if o.node == "" {
		return errNoNode
	}
	if o.pins && o.dra {
		return errPinsAndDRA
	}
	if o.topology && !o.pins {
		return errTopologyAlone
	}
	dialect, err := selling.ParseDialect(o.resources)
	if err != nil {
		return errors.New("--resources: " + err.Error())
	}
	level, err := logrus.ParseLevel(o.logLevel)
	if err != nil {
		return errors.New("--log-level: use debug, info, warn or error")
	}
	log := logrus.New()
	log.SetLevel(level)
	client, err := kube.NewClient(o.kubeconfig, o.node, buildinfo.Version())
	if err != nil {
		return err
	}
	events := client.Events(log)
	names := dialect.Names()
	if o.pins {
		names[selling.Pins] = selling.PinnableCPU
	}
	publisher := kube.NewPublisher(client, names, events, log)
	work, ctx := errgroup.WithContext(ctx)
	if o.metrics != "" {
		metrics := newMetrics()
		publisher.Published = metrics.published
		work.Go(func() error { return metrics.serve(ctx, o.metrics) })
	}
	work.Go(func() error { events.Run(ctx); return nil })
	work.Go(func() error { publisher.Run(ctx); return nil })
	plugin := kubesocket.NewClient(o.socket)
	work.Go(func() error { publisher.TellKubelet(ctx, plugin); return nil })
	evictor := kube.NewEvictor(client, plugin, publisher.Pods(), events, log)
	evictor.CoolDown = publisher.CoolDown
	work.Go(func() error { evictor.Run(ctx); return nil })
	if o.namespace != "" {
		fleet := publisher.Switch(o.namespace, plugin)
		work.Go(func() error { fleet.Run(ctx); return nil })
	}
	if o.parts && o.namespace != "" {
		parts := publisher.Parts(o.namespace, plugin)
		work.Go(func() error { parts.Run(ctx); return nil })
	}
	followers := []follower{publisher}
	if o.topology {
		topology, err := publisher.Topology()
		if err != nil {
			return err
		}
		followers = append(followers, topology)
		work.Go(func() error { topology.Run(ctx); return nil })
	}
	if o.dra {
		driver, err := client.NewDriver(plugin, o.kubelet, log)
		if err != nil {
			return err
		}
		followers = append(followers, driver)
		work.Go(func() error { return driver.Run(ctx) })
	}
	work.Go(func() error { follow(ctx, o.socket, followers, log); return nil })
	log.WithFields(logrus.Fields{"node": o.node, "resources": dialect, "version": buildinfo.Version()}).Info("Started")
	return work.Wait()
}

// These are the times of the plugin's status.
const (
	statusInterval = 500 * time.Millisecond
	reconnectPause = time.Second
)

// follower needs the plugin's status.
type follower interface {
	Heard(s *status.Status) error
	Lost()
}

// follow hands the plugin's status to those who need it, and connects again when the plugin was
// away. It logs once that the plugin is away, and once that it cannot be understood.
func follow(ctx context.Context, socket string, followers []follower, log logrus.FieldLogger) {
	told := ""
	tell := func(err error) {
		if err.Error() != told && ctx.Err() == nil {
			told = err.Error()
			log.WithError(err).Warn("The plugin's status is not known")
		}
	}
	for ctx.Err() == nil {
		err := statusapi.NewClient(socket).Stream(ctx, statusInterval, func(s *status.Status) error {
			var errs []error
			for _, f := range followers {
				errs = append(errs, f.Heard(s))
			}
			if err := errors.Join(errs...); err != nil {
				tell(err)
				return nil
			}
			told = ""
			return nil
		})
		for _, f := range followers {
			f.Lost()
		}
		tell(err)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}
