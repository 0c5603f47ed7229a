package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// ErrNotPCI is returned by DeviceAddress for a device node without a PCI device, such as
// /dev/null.
var ErrNotPCI = errors.New("no PCI device is behind it")

// nvidiaMajor is NVIDIA's character device number. Its driver does not list devices in
// /sys/dev, but shows each GPU's minor number below /proc/driver/nvidia.
const nvidiaMajor = 195

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// DeviceAddress returns the PCI address ("0000:3b:00.0") of the device behind the device node
// with these numbers. If there is a bridge as well, it returns the nearest device. The file
// system is the host's root and must read symbolic links, as os.DirFS does. Without a PCI
// device the error is ErrNotPCI.
func DeviceAddress(fsys fs.FS, block bool, major, minor int64) (string, error) {
	kind := "char"
	if block {
		kind = "block"
	}
	name := fmt.Sprintf("sys/dev/%s/%d:%d", kind, major, minor)
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("%s device %d:%d: %w", kind, major, minor, err)
	}
	target, err := fs.ReadLink(fsys, name)
	if errors.Is(err, fs.ErrNotExist) && !block && major == nvidiaMajor {
		address, err := nvidiaAddress(fsys, minor)
		if err != nil {
			return fail(err)
		}
		return address, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fail(ErrNotPCI)
	}
	if err != nil {
		return fail(err)
	}
	for dir := target; dir != "." && dir != "/"; dir = path.Dir(dir) {
		if pciAddress.MatchString(path.Base(dir)) {
			return path.Base(dir), nil
		}
	}
	if group, ok := strings.CutPrefix(target, "../../devices/virtual/vfio/"); ok {
		// /dev/vfio/N stands for all devices of IOMMU group N, which are close together.
		devices, err := fs.ReadDir(fsys, "sys/kernel/iommu_groups/"+group+"/devices")
		if err == nil && len(devices) > 0 {
			return devices[0].Name(), nil
		}
	}
	return fail(ErrNotPCI)
}

func nvidiaAddress(fsys fs.FS, minor int64) (string, error) {
	names, err := fs.Glob(fsys, "proc/driver/nvidia/gpus/*/information")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, _, err := tree{fsys}.text(name)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			number, ok := strings.CutPrefix(line, "Device Minor:")
			if ok && strings.TrimSpace(number) == strconv.FormatInt(minor, 10) {
				return path.Base(path.Dir(name)), nil
			}
		}
	}
	return "", ErrNotPCI
}
