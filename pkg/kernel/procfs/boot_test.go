package procfs

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestBoot(t *testing.T) {
	t.Parallel()
	host := fstest.MapFS{
		"proc/sys/kernel/random/boot_id": {Data: []byte("8f1c\n")},
		"proc/sys/kernel/osrelease":      {Data: []byte("6.1.0-13-cloud-amd64\n")},
	}
	if id, release := BootID(host), Release(host); id != "8f1c" || release != "6.1.0-13-cloud-amd64" {
		t.Errorf("%q, %q", id, release)
	}
	if id, release := BootID(fstest.MapFS{}), Release(fstest.MapFS{}); id != "" || release != "" {
		t.Errorf("of a made-up machine: %q, %q", id, release)
	}
}

func TestHasSwap(t *testing.T) {
	t.Parallel()
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for name, test := range map[string]struct {
		host fstest.MapFS
		want bool
	}{
		"without swap in the kernel": {fstest.MapFS{}, false},
		"an empty file":              {fstest.MapFS{"proc/swaps": {}}, false},
		"no area":                    {fstest.MapFS{"proc/swaps": {Data: []byte(header)}}, false},
		"one area":                   {fstest.MapFS{"proc/swaps": {Data: []byte(header + "/dev/zram0 partition 1048572 0 100\n")}}, true},
	} {
		if got, err := HasSwap(test.host); got != test.want || err != nil {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	if _, err := HasSwap(fstest.MapFS{"proc/swaps": {Mode: fs.ModeDir}}); err == nil {
		t.Error("what can't be read counts as known")
	}
}
