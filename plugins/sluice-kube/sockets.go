package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/kube"
)

func newSockets() *cobra.Command {
	var kubelet string
	var user int
	cmd := &cobra.Command{
		Use:   "sockets",
		Short: "Make the folders in which run --dra serves the kubelet, as root",
		Long: `Make the two folders below the kubelet's in which 'sluice-kube run --dra' makes
its sockets, and give them to its user, who may write nothing else there. The
chart does this in an init container.`,
		Example: `  # before run --dra by user 65527
  sluice-kube sockets --user 65527`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, dir := range kube.SocketFolders(kubelet) {
				if err := os.MkdirAll(dir, 0o750); err != nil {
					return err
				}
				if err := os.Chown(dir, user, user); err != nil {
					return fmt.Errorf("%w (run this as root, with the capability CHOWN)", err)
				}
			}
			return nil
		},
	}
	kubeletFlag(cmd, &kubelet)
	cmd.Flags().IntVar(&user, "user", 65527, "number of the user, and of its group")
	return cmd
}

func kubeletFlag(c *cobra.Command, kubelet *string) {
	c.Flags().StringVar(kubelet, "kubelet-dir", "/var/lib/kubelet", "`folder` of the kubelet, for --dra")
}
