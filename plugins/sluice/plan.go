package main

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan -f pod.yaml",
		Short: "Show what a pod would get, without creating it",
		Long: `Show which CPUs and settings the containers of a pod would get, without creating
anything. Manifests may be of kind Pod, Deployment, StatefulSet, DaemonSet,
ReplicaSet, Job and CronJob. Each pod is planned alone, as if it were the next
one to start.

The running plugin answers for the node as it is now. With --machine or
--host-root the pod is planned on an empty machine, and no plugin is needed.

Exit status: 0 all containers can be placed, 1 at least one would be refused.`,
		Example: `  sluice plan -f pod.yaml
  kubectl get pod db-0 -o yaml | sluice plan -f -
  sluice plan -f pod.yaml --machine "2 packages 16 cores" -c sluice.yaml
  sluice plan -f pod.yaml -o oci`,
		Args: cli.FlagsAlone,
	}
	output := cli.OutputFlag(c, "table", "json", "oci")
	socket := socketFlag(c)
	file := c.Flags().StringP("file", "f", "", "manifest `file`; - is standard input")
	configFile := c.Flags().StringP("config", "c", "", "configuration `file`, only with --machine or --host-root (default: the built-in one)")
	required(c, "file")
	from := newMachineFlags(c, "")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *configFile != "" && !from.given() {
			return errors.New("--config needs --machine or --host-root: the running plugin plans by its own configuration")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := readInput(c, *file)
		if err != nil {
			return err
		}
		var planner whatif.Planner = whatif.Live{Client: statusapi.NewClient(*socket)}
		if from.given() {
			machine, err := from.read()
			if err == nil {
				planner, err = whatif.OnEmpty(machine, *configFile)
			}
			if err != nil {
				return err
			}
		}
		plans, err := whatif.Pods(planner, *file, text)
		if err != nil {
			return err
		}
		switch output.String() {
		case "json":
			err = terminal.JSON(c.OutOrStdout(), plans)
		case "oci":
			err = terminal.JSON(c.OutOrStdout(), whatif.OCI(plans))
		default:
			err = render.Plan(c.OutOrStdout(), plans)
		}
		return cmp.Or(err, whatif.Refusals(plans))
	}
	return c
}
