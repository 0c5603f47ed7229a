// Package buildinfo reports which build of Sluice this program is.
package buildinfo

import (
	"runtime"
	"runtime/debug"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Build returns what Go records in a binary that it builds in a repository.
func Build() status.Build {
	info, _ := debug.ReadBuildInfo()
	return of(info)
}

// Version returns the module's version, which Go derives from the repository's tags. A build
// outside a repository has none.
func Version() string { return Build().Version }

// of converts Go's build information, which may be nil.
func of(info *debug.BuildInfo) status.Build {
	b := status.Build{Version: "(devel)", Go: runtime.Version()}
	if info == nil {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value + b.Revision
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Revision += " and changes"
		}
	}
	return b
}
