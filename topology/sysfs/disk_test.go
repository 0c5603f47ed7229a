package sysfs

import (
	"maps"
	"testing"
	"testing/fstest"
)

func TestDisks(t *testing.T) {
	t.Parallel()
	host := fstest.MapFS{
		"sys/block/sda/dev":             {Data: []byte("8:0\n")},
		"sys/block/sda/device/vendor":   {},
		"sys/block/nvme0n1/dev":         {Data: []byte("259:0\n")},
		"sys/block/nvme0n1/device/nsid": {},
		"sys/block/gone/device/vendor":  {},
		"sys/block/loop0/dev":           {Data: []byte("7:0\n")},
		"sys/block/dm-0/dev":            {Data: []byte("253:0\n")},
	}
	got, err := Disks(host)
	if want := map[string]string{"sda": "8:0", "nvme0n1": "259:0"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := Disks(fstest.MapFS{}); len(got) > 0 || err != nil {
		t.Errorf("without sysfs: %v, %v", got, err)
	}
}
