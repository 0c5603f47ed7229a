package nri

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version            string
		updates, failsOpen bool
		unsafe             string
	}{
		{"", false, true, "NRI of unknown version can deadlock"},
		{"v0.8.0", false, true, "NRI v0.8.0 can deadlock"},
		{"v0.10.0", false, true, "deadlock"},
		{"v0.12.0", false, true, "deadlock"},
		{"v0.12.1", true, true, ""},
		{"v0.12.4", true, true, ""},
		{"v0.12.5", true, false, ""},
		{"v1.0.0", true, false, ""},
	} {
		t.Run(c.version, func(t *testing.T) {
			t.Parallel()
			unsafe := updatesUnsafe(c.version)
			if (unsafe == "") != c.updates || !strings.Contains(unsafe, c.unsafe) {
				t.Errorf("updates are unsafe because %q, want %q", unsafe, c.unsafe)
			}
			if got := failsClosed(c.version); got == c.failsOpen {
				t.Errorf("it can fail closed: %t", got)
			}
		})
	}
}

// TestSubscription checks the subscribed events: each one costs every pod a round trip, and an
// event that the runtime doesn't know ends the connection.
func TestSubscription(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct{ podUpdates, recordUpdates bool }{
		"":              {false, false},
		"unknown":       {false, false},
		"v0.6.1":        {false, false},
		"v0.9.0":        {false, false},
		"v0.10.0-rc.1":  {false, false},
		"v0.10.0":       {true, false},
		"v0.12.0":       {true, false},
		"v0.12.1":       {true, true},
		"v0.12.5":       {true, true},
		"v1.0.0":        {true, true},
		"v0.12.5+dirty": {true, true},
	} {
		mask := events(version)
		if got := mask.IsSet(api.Event_UPDATE_POD_SANDBOX); got != want.podUpdates {
			t.Errorf("NRI %q: pod updates %v", version, got)
		}
		for _, event := range []api.Event{
			api.Event_CREATE_CONTAINER, api.Event_POST_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
			api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX,
		} {
			if !mask.IsSet(event) {
				t.Errorf("NRI %q: no %s", version, event)
			}
		}
		for _, event := range []api.Event{api.Event_RUN_POD_SANDBOX, api.Event_POST_START_CONTAINER, api.Event_POST_UPDATE_POD_SANDBOX} {
			if mask.IsSet(event) {
				t.Errorf("NRI %q: %s costs a round trip and is not used", version, event)
			}
		}
		if got := updatesUnsafe(version) == ""; got != want.recordUpdates {
			t.Errorf("NRI %q: updates of the record are safe: %v", version, got)
		}
	}
}
