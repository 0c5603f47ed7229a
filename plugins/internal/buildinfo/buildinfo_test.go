package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	const commit = "4f1c2a9"
	for name, test := range map[string]struct {
		info              *debug.BuildInfo
		version, revision string
	}{
		"nothing is noted":     {nil, "(devel)", ""},
		"outside a repository": {&debug.BuildInfo{}, "(devel)", ""},
		"of a tag": {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "false"},
		}}, "v1.2.3", commit},
		"with changes": {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.4"}, Settings: []debug.BuildSetting{
			{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: commit},
		}}, "v1.2.4", commit + " and changes"},
	} {
		if b := of(test.info); b.Version != test.version || b.Revision != test.revision || b.Go == "" {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if Build().Version != Version() {
		t.Error("two versions of one build")
	}
}
