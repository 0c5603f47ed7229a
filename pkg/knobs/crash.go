package knobs

import "strings"

// GroupIdentityCrashes reports a kernel that crashes the host once group identity is
// used: Alibaba Cloud Linux 2, 4.19.91-25.1 to 4.19.91-25.5 (its documentation of
// the feature). The one decision that is made by the release.
func GroupIdentityCrashes(release string) bool {
	rest, ok := strings.CutPrefix(release, "4.19.91-25.")
	if !ok || rest == "" || rest[0] < '1' || rest[0] > '5' {
		return false
	}
	return len(rest) == 1 || rest[1] < '0' || rest[1] > '9'
}
