package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/examine"
)

func newMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Plan this node's move from another way to give CPUs",
		Long: `Plan how this node moves to Sluice from something else that gives containers
CPUs of their own. Nothing is changed.`,
		Example: "  sluice migrate static --plan",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newMigrateStatic())
	return c
}

func newMigrateStatic() *cobra.Command {
	c := &cobra.Command{
		Use:   "static --plan",
		Short: "Plan this node's move from the kubelet's static CPU manager",
		Long: `Show what it takes to give containers CPUs of their own by Sluice in place of
the kubelet's static CPU manager (cpuManagerPolicy: static) and its static
memory manager:

  - which containers have such CPUs now, by the kubelet's checkpoint
  - which CPUs Sluice would give them on the drained node, and which annotations
    they need for that
  - which pods would share CPUs if their manifests stayed as they are
  - what becomes of each option of the kubelet
  - the steps in their order

The names of pods come from the running plugin. Without it, pods have their
UIDs. Run the command as root on the node or in the plugin's container.

The command changes nothing: you take the steps.

Exit status: 0 every container would get as many CPUs, 1 at least one would be
refused.`,
		Example: `  sluice migrate static --plan
  sluice migrate static --plan -o json | jq '.pods[] | {name, annotations}'
  sluice migrate static --plan --host-root /host -c /host/etc/sluice/sluice.yaml`,
		Args: cli.FlagsAlone,
	}
	o := examine.Options{Version: buildinfo.Version()}
	output := cli.OutputFlag(c, "table", "json")
	f := c.Flags()
	plan := f.Bool("plan", false, "show the plan; required, since the command does nothing else")
	f.StringVar(&o.HostRoot, "host-root", "", "`folder` that holds the host's sys, proc, etc, run and var (default: the running plugin's if it exists here, else /)")
	f.StringVarP(&o.Config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.Socket, "status-socket", "", "unix socket of the running plugin (default: the configuration's)")
	c.PreRunE = func(*cobra.Command, []string) error {
		if !*plan {
			return errors.New("migrate static changes nothing: it shows a plan, with --plan, and you take the steps")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		facts, err := examine.Migration(o)
		if err != nil {
			return err
		}
		p := migrate.New(facts)
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), p)
		} else {
			err = render.Migration(c.OutOrStdout(), &p)
		}
		return cmp.Or(err, refusedIn(&p))
	}
	return c
}

func refusedIn(p *migrate.Plan) error {
	if n, first := p.Refused(); n > 0 {
		return fmt.Errorf("%d of the kubelet's containers with CPUs of their own would be refused, %s first", n, first)
	}
	return nil
}
