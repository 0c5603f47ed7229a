package procfs

import (
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
