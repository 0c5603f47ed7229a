package nri

import (
	"cmp"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/mod/semver"
)

// events returns the events to subscribe to for a runtime of that NRI version. Each event costs
// every pod a round trip, so Sluice subscribes only to those that it uses. A runtime refuses a
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

// updatesUnsafe says why unsolicited updates are unsafe with that NRI version: up to 0.12.0, one
// that crosses another request can deadlock the whole runtime.
func updatesUnsafe(nriVersion string) string {
	if atLeast(nriVersion, "v0.12.1") {
		return ""
	}
	return "the runtime's NRI " + known(nriVersion) + " can deadlock on unsolicited updates (0.12.1 and later do not)"
}

// known formats a version for people. Old runtimes don't report theirs.
func known(version string) string { return cmp.Or(version, "of unknown version") }

// failsClosed reports whether that NRI version supports failure policies.
func failsClosed(nriVersion string) bool { return atLeast(nriVersion, "v0.12.5") }

// atLeast reports whether a version is at least another; it returns false for an unknown
// version.
func atLeast(version, least string) bool {
	return semver.IsValid(version) && semver.Compare(version, least) >= 0
}
