package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/workload/convert"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newConvert() *cobra.Command {
	c := &cobra.Command{
		Use:   "convert -f pods.yaml",
		Short: "Make the batch pods of a manifest request batch resources",
		Long: `Write a manifest in which the pods of class BE request the node's batch
resources instead of CPU and memory. On clusters with Sluice's admission
policies this is not needed: they do the same when pods are created. Manifests
may be of kind Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob
and List. Everything else stays as it is.

Standard error shows what changed, what did not, and why.

Exit status: 0 success, 1 the manifest can't be read.`,
		Example: `  sluice convert -f job.yaml > batch-job.yaml
  sluice convert -f job.yaml --batch | kubectl apply -f -
  sluice convert -f - --resources koordinator < job.yaml`,
		Args: cli.FlagsAlone,
	}
	file := c.Flags().StringP("file", "f", "", "manifest `file`; - is standard input")
	required(c, "file")
	batch := c.Flags().Bool("batch", false, "also convert pods that name no class, as in a namespace with the label sluice.dev/batch=true")
	resources := cli.ChoiceFlag(c, "resources", "", "whose names the batch resources have", convert.Schemes()...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := readInput(c, *file)
		if err != nil {
			return err
		}
		out, notes, err := convert.Manifest(text, convert.For(resources.String()), *batch)
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		for _, note := range notes {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", *file, terminal.Printable(note.String()))
		}
		_, err = c.OutOrStdout().Write(out)
		return err
	}
	return c
}
