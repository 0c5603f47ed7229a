package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/configs"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Show a configuration, or what a file would change",
		Long: `Show every key of a configuration, show what a file would change on this node,
or print the JSON schema for editors. 'sluice check' reports mistakes in a file.`,
		Example: `  sluice config show -f /etc/sluice/sluice.yaml
  sluice config diff new.yaml
  sluice config schema > sluice.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newConfigDiff(), newConfigShow(), newConfigSchema())
	return c
}

func newConfigDiff() *cobra.Command {
	c := &cobra.Command{
		Use:   "diff FILE",
		Short: "Show what a configuration would change on this node, without changing it",
		Long: `Compare a configuration file with the one the running plugin uses: changed keys,
changed CPUs of pools, containers that would move or get other settings, and
keys that need a restart. The running plugin computes the answer, with the parts
of the fleet's policy over the file as in a reload, and changes nothing.

Exit status: 0 no change, 1 the file is not usable or the plugin does not
answer, 2 invalid command line, 3 something would change.`,
		Example: `  sluice config diff /etc/sluice/sluice.yaml.new
  sluice config diff - -o json < sluice.yaml`,
		Args: oneWord("one file; - is standard input"),
	}
	output := cli.OutputFlag(c, "table", "json")
	socket := socketFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := readInput(c, args[0])
		if err != nil {
			return err
		}
		if _, err := config.Parse(text); err != nil {
			return mistakes(c, args[0], err)
		}
		diff, err := statusapi.NewClient(*socket).ConfigDiff(c.Context(), text)
		switch {
		case err != nil:
			return err
		case diff.Problem != "":
			return fmt.Errorf("%s would be refused: %s", args[0], diff.Problem)
		case output.String() == "json":
			err = terminal.JSON(c.OutOrStdout(), diff)
		default:
			err = render.ConfigDiff(c.OutOrStdout(), diff)
		}
		if err == nil && len(diff.Keys) > 0 {
			return cli.ExitStatus(exitChanges)
		}
		return err
	}
	return c
}

func newConfigShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show [-f sluice.yaml]",
		Short: "Show every key of a configuration with its value",
		Long: `Print every key of a configuration as YAML. Keys that the file leaves out have
their default values. Without -f, print the default configuration.`,
		Example: `  sluice config show
  sluice config show -f /etc/sluice/sluice.yaml`,
		Args: cli.FlagsAlone,
	}
	file := c.Flags().StringP("file", "f", "", "configuration `file`; - is standard input")
	c.RunE = func(c *cobra.Command, _ []string) error {
		parsed := config.Default()
		if *file != "" {
			text, err := readInput(c, *file)
			if err != nil {
				return err
			}
			if parsed, err = config.Parse(text); err != nil {
				return mistakes(c, *file, err)
			}
		}
		text, err := parsed.YAML()
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	return c
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of sluice.yaml",
		Long: `Print the JSON schema of sluice.yaml. Editors use it to complete keys and mark
mistakes. 'sluice check' also finds mistakes that a schema cannot express.`,
		Example: `  sluice config schema > sluice.schema.json`,
		Args:    cli.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			schema := configs.Schema()
			if len(schema) == 0 {
				return errors.New("this build has no schema")
			}
			_, err := c.OutOrStdout().Write(schema)
			return err
		},
	}
}
