package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

func TestDeviceAddress(t *testing.T) {
	t.Parallel()
	link := func(target string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
	}
	root := fstest.MapFS{
		"sys/dev/char/1:3":   link("../../devices/virtual/mem/null"),
		"sys/dev/char/226:0": link("../../devices/pci0000:00/0000:00:02.0/drm/card0"),
		"sys/dev/char/242:1": link("../../devices/virtual/vfio/12"),
		"sys/dev/char/242:2": link("../../devices/virtual/vfio/13"),
		"sys/kernel/iommu_groups/12/devices/0000:5e:00.1/x": {},
		"sys/dev/block/252:0":                               link("../../devices/pci0000:00/0000:00:04.0/virtio1/block/vda"),
		"sys/dev/block/259:0":                               link("../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0/nvme/nvme0/nvme0n1"),
		"sys/dev/block/7:0":                                 link("../../devices/virtual/block/loop0"),
		"proc/driver/nvidia/gpus/0000:3b:00.0/information":  {Data: []byte("Model: \t\t NVIDIA H100\nDevice Minor: \t 0\n")},
		"proc/driver/nvidia/gpus/0000:af:00.0/information":  {Data: []byte("Device Minor: \t 1\n")},
	}
	for _, test := range []struct {
		block        bool
		major, minor int64
		want         string // "" stands for ErrNotPCI
	}{
		{false, 226, 0, "0000:00:02.0"},
		{true, 252, 0, "0000:00:04.0"},
		{true, 259, 0, "10000:e1:00.0"},
		{false, 242, 1, "0000:5e:00.1"},
		{false, 195, 1, "0000:af:00.0"},
		{false, 195, 255, ""}, // /dev/nvidiactl
		{true, 195, 1, ""},
		{false, 242, 2, ""},
		{false, 1, 3, ""},
		{true, 7, 0, ""},
		{false, 259, 0, ""},
	} {
		got, err := sysfs.DeviceAddress(root, test.block, test.major, test.minor)
		if got != test.want || (test.want == "") != errors.Is(err, sysfs.ErrNotPCI) || test.want != "" && err != nil {
			t.Errorf("DeviceAddress(%v, %d, %d) = %q, %v; want %q", test.block, test.major, test.minor, got, err, test.want)
		}
	}

	root["sys/dev/char/5:5"] = &fstest.MapFile{}
	if got, err := sysfs.DeviceAddress(root, false, 5, 5); err == nil || errors.Is(err, sysfs.ErrNotPCI) || !strings.Contains(err.Error(), "5:5") {
		t.Errorf("of a file that is no link: %q, %v", got, err)
	}
}

func TestDeviceAddressOnDisk(t *testing.T) {
	t.Parallel()
	spec, err := synth.Parse("device 0000:3b:00.0 node 0 char 226:0 device 0000:c1:00.0 block 259:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := spec.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	for _, root := range []fs.FS{os.DirFS(dir), spec.FS()} {
		if got, err := sysfs.DeviceAddress(root, false, 226, 0); err != nil || got != "0000:3b:00.0" {
			t.Errorf("char 226:0 = %q, %v", got, err)
		}
		if got, err := sysfs.DeviceAddress(root, true, 259, 0); err != nil || got != "0000:c1:00.0" {
			t.Errorf("block 259:0 = %q, %v", got, err)
		}
	}
}
