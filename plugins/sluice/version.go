package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of sluice, the Go version and the platform it was built for.",
		Example: "  sluice version",
		Args:    flagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "sluice %s, %s, %s/%s\n", buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
