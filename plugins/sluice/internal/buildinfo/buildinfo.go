// Package buildinfo tells which build of Sluice this program is.
package buildinfo

import (
	"runtime"
	"runtime/debug"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Build is what Go notes of a binary that it makes in a repository.
func Build() status.Build {
	info, _ := debug.ReadBuildInfo()
	return of(info)
}

// Version is the module's version, which Go takes from the repository's tags; a
// build outside of a repository has none.
func Version() string { return Build().Version }

// of reads what Go has noted, nil for nothing.
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
