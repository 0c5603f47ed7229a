package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Disks returns the node's whole disks that a driver has found, as "major:minor" by name
// ("sda": "8:0"). It omits partitions, loop devices and devices built upon disks, since
// throttling both these and the disk would count twice.
func Disks(host fs.FS) (map[string]string, error) {
	entries, err := fs.ReadDir(host, "sys/block")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for disks: %w", err)
	}
	disks := map[string]string{}
	for _, e := range entries {
		dir := path.Join("sys/block", e.Name())
		if _, err := fs.Stat(host, path.Join(dir, "device")); err != nil {
			continue
		}
		number, err := fs.ReadFile(host, path.Join(dir, "dev"))
		if err != nil {
			continue // it has just been unplugged
		}
		disks[e.Name()] = strings.TrimSpace(string(number))
	}
	return disks, nil
}
