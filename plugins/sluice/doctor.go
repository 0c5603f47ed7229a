package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/examine"
)

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose this node: what works, what does not, and how to fix it",
		Long: `Examine this node: the kernel, cgroups, which mechanism this kernel offers for
each feature and on which cgroups Sluice uses it, the kubelet, the container
runtime and its NRI support, and the running plugin, if there is one. Every
finding that is not ok comes with a fix.

  ok    works
  note  not available, or a substitute for the best mechanism is used
  warn  works badly, or will soon
  fail  keeps Sluice from working

To probe the kernel, doctor briefly creates an empty cgroup; it changes nothing
else. Run it as root on the node or in the plugin's container. It finds the
host's folders and the configuration by asking the running plugin.

Exit status: 0 no finding is fail, 1 at least one is; with --strict, warn
counts as well.`,
		Example: `  sluice doctor
  sluice doctor --strict >/dev/null || echo "look at this node"
  sluice doctor -o json | jq '.findings[] | select(.level != "ok")'
  sluice doctor --host-root /host --config /host/etc/sluice/sluice.yaml`,
		Args: cli.FlagsAlone,
	}
	o := examine.Options{Version: buildinfo.Version()}
	output := cli.OutputFlag(c, "table", "json")
	f := c.Flags()
	f.StringVar(&o.HostRoot, "host-root", "", "`folder` that holds the host's sys, proc, etc, run and var (default: the running plugin's if it exists here, else /)")
	f.StringVarP(&o.Config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.Socket, "status-socket", "", "unix socket of the running plugin (default: the configuration's)")
	strict := f.Bool("strict", false, "exit with 1 if there are warnings")
	c.RunE = func(c *cobra.Command, _ []string) error {
		facts, err := examine.Node(c.Context(), o)
		if err != nil {
			return err
		}
		report := doctor.Examine(facts)
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), report)
		} else {
			err = render.Doctor(c.OutOrStdout(), &report)
		}
		return errors.Join(err, report.Verdict(*strict))
	}
	return c
}
