package nri

import (
	"cmp"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/mod/semver"
)

// events is the subscription for a runtime of that NRI version: each event costs
// every pod a round trip, so only those that are used; and a runtime refuses a
// plugin that subscribes to events it does not know. Pod updates came with 0.10.
func events(nriVersion string) api.EventMask {
	var mask api.EventMask
	mask.Set(api.Event_CREATE_CONTAINER, api.Event_POST_CREATE_CONTAINER, api.Event_START_CONTAINER,
		api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
		api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	if atLeast(nriVersion, "v0.10.0") {
		mask.Set(api.Event_UPDATE_POD_SANDBOX)
	}
	return mask
}

// slowLaneShut says why unsolicited updates are unsafe with that NRI version:
// up to 0.12.0 one that crosses another request can deadlock the whole runtime.
func slowLaneShut(nriVersion string) string {
	if atLeast(nriVersion, "v0.12.1") {
		return ""
	}
	return "the runtime's NRI " + known(nriVersion) + " can deadlock on unsolicited updates (0.12.1 and later do not)"
}

// known spells a version for people. Old runtimes tell none.
func known(version string) string { return cmp.Or(version, "of unknown version") }

// failsClosed reports whether that NRI version knows failure policies.
func failsClosed(nriVersion string) bool { return atLeast(nriVersion, "v0.12.5") }

// atLeast is false for a version that is not known.
func atLeast(version, least string) bool {
	return semver.IsValid(version) && semver.Compare(version, least) >= 0
}
