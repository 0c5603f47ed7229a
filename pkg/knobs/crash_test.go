package knobs

import "testing"

func TestKernelsThatCrash(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"4.19.91-25.1.al7.x86_64": true, "4.19.91-25.5.al7.x86_64": true, "4.19.91-25.3": true,
		"4.19.91-25.6.al7.x86_64": false, "4.19.91-25.al7.x86_64": false, "4.19.91-25.10.al7": false, "4.19.91-25.55": false,
		"4.19.91-25.0.al7": false, "4.19.91-25.": false, "4.19.91-26.1.al7": false, "5.10.134-16.al8": false, "": false,
	} {
		if got := GroupIdentityCrashes(release); got != want {
			t.Errorf("%q crashes: %t, want %t", release, got, want)
		}
	}
}
