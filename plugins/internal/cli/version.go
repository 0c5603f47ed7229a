package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

// NewVersion returns the command that prints the version of a program.
func NewVersion(program string) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of " + program + ", the Go version and the platform it was built for.",
		Example: "  " + program + " version",
		Args:    FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s, %s, %s/%s\n", program, buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
