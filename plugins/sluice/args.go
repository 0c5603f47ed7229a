package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// oneWord requires exactly one argument besides flags.
func oneWord(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s", c.Name(), what)
		}
		return nil
	}
}
