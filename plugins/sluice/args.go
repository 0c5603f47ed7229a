package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// flagsAlone rejects arguments other than flags.
func flagsAlone(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.Flags().Lookup("file") != nil:
		return fmt.Errorf("%s takes its file with -f: -f %s", c.Name(), args[0])
	}
	return fmt.Errorf("%s takes flags alone, not %q", c.Name(), args[0])
}

// oneWord requires exactly one argument besides flags.
func oneWord(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s", c.Name(), what)
		}
		return nil
	}
}
