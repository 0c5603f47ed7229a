package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/overlay"
	"github.com/sluice-dev/sluice/pkg/runtime/nri"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/daemon"
)

func newRun() *cobra.Command {
	o := daemon.Options{Build: buildinfo.Build()}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the plugin: connect to the container runtime and place containers",
		Long: `Connect to containerd's or CRI-O's NRI socket and give every container its CPUs
and memory nodes before its first instruction. If the runtime restarts, sluice
waits for it and reconnects. Stopping sluice changes no container: all keep
their settings, and the next start takes over from there.`,
		Example: `  # with the shipped defaults, on containerd's default socket
  sluice run

  # with a configuration, and a socket elsewhere
  sluice run --config /etc/sluice/sluice.yaml --socket /run/nri/nri.sock

  # change nothing, only log: set mode: preview in the configuration
  sluice run --config preview.yaml --log-level debug`,
		Args: cli.FlagsAlone,
		PreRunE: func(*cobra.Command, []string) error {
			if err := overlay.CheckKeys(o.FleetKeys); err != nil {
				return fmt.Errorf("--fleet-keys: %w", err)
			}
			if err := daemon.CheckLabelsFile(o.LabelsFile); err != nil {
				return err
			}
			return (&nri.Options{Index: o.Index, Name: o.Name}).Check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return daemon.Run(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Config, "config", "c", "", "configuration file (default: the shipped defaults)")
	f.StringVar(&o.Socket, "socket", "", "the runtime's NRI socket (default /var/run/nri/nri.sock)")
	f.StringVar(&o.Index, "index", "50", "NRI plugin index, two digits: the runtime calls plugins in ascending order")
	f.StringVar(&o.Name, "name", "sluice", "NRI plugin name")
	f.StringVar(&o.HostRoot, "host-root", "/", "folder that holds the host's /sys and /proc")
	f.StringVar(&o.StateDir, "state-dir", "", "folder for the audit trail and the batch switch (default: the configuration's)")
	f.StringVar(&o.RuntimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.StatusSocket, "status-socket", "", "unix socket for sluice status, explain and plan (default: the configuration's)")
	f.StringVar(&o.KubeSocket, "kube-socket", "", "unix socket for sluice-kube, in a folder that both containers share (default: none)")
	f.StringVar(&o.CDIDir, "cdi-dir", "", "`folder` of CDI specs, as /var/run/cdi, to reserve CPUs for resource claims of Kubernetes (default: none)")
	f.TextVar(&o.ClaimDevices, "claim-devices", claim.NUMA, "what a device is for resource claims: `numa`, l3 or core")
	f.Uint32Var(&o.KubeUID, "kube-uid", 65527, "user of sluice-kube, who may connect to --kube-socket besides root")
	f.StringSliceVar(&o.FleetKeys, "fleet-keys", nil, "keys of the configuration that parts of the fleet's policy may set on this node, as control.windows,pools (default: none)")
	f.StringVar(&o.LabelsFile, "labels-file", "", "`file` in which Node Feature Discovery finds what this node has as labels (default: none)")
	f.StringVar(&o.LogLevel, "log-level", "", "debug, info, warn or error (default: the configuration's)")
	return cmd
}
