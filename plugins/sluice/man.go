package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages",
		Long: `Write a manual page of section 8 for each command into a folder, which is
created if it does not exist. SOURCE_DATE_EPOCH sets the pages' date.`,
		Example: `  sluice man /usr/local/share/man/man8
  sluice man . && man ./sluice-top.8`,
		Hidden: true, // used to build packages
		Args:   oneWord("one folder"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // readable for all users
				return err
			}
			c.Root().DisableAutoGenTag = true
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "8", Source: "Sluice " + buildinfo.Version(), Manual: "Sluice"}, args[0])
		},
	}
}
