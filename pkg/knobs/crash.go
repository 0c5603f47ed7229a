package knobs

import "strings"

// GroupIdentityCrashes reports whether a kernel crashes the host once group identity is used.
// That is Alibaba Cloud Linux 2, 4.19.91-25.1 to 4.19.91-25.5 (see its documentation of the
// feature). No other decision depends on the release.
func GroupIdentityCrashes(release string) bool {
	rest, ok := strings.CutPrefix(release, "4.19.91-25.")
	if !ok || rest == "" || rest[0] < '1' || rest[0] > '5' {
		return false
	}
	return len(rest) == 1 || rest[1] < '0' || rest[1] > '9'
}
